"""Limits of holds: a hold that lasts longer than intended is logged, reported to listeners and, on request, ended.

No hold has a timer. An acquire notes in its tickets when they will have been held for too long, and the keeper checks
the tickets at the first of these times. So only locks with a limit have a cost.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from .._engine.client_state import ClientState
from .._engine.keeper_thread import IDLE_BEAT
from .._errors import LossCause
from .._protocol.ticket import LossRecord, State, Ticket
from .._runtime.identity import label, name
from .event_listeners import Teller

AfterLimit: TypeAlias = Literal["warn", "lose"]


class Limit(NamedTuple):
    """The limit of a hold; for a ticket, also the time at which its hold reaches the limit.

    Attributes:
        seconds: how long the hold may last.
        loses: whether the hold ends at the limit.
        due: when the hold reaches the limit, by the clock of leases.
    """

    seconds: float
    loses: bool
    due: float = math.inf

    @classmethod
    def of(cls, hold_limit: float | None, on_hold_limit: AfterLimit) -> Limit | None:
        """Return the limit that the arguments of a lock's constructor ask for.

        Raises:
            TypeError: the limit is not a number.
            ValueError: it is not above zero, or `on_hold_limit` is neither "warn" nor "lose".
        """
        if on_hold_limit not in ("warn", "lose"):
            raise ValueError(f"on_hold_limit must be 'warn' or 'lose', not {on_hold_limit!r}")
        if hold_limit is None:
            return None
        if isinstance(hold_limit, bool) or not isinstance(hold_limit, int | float):
            raise TypeError(f"hold_limit must be a number of seconds, not {type(hold_limit).__name__}")
        if not hold_limit > 0:
            raise ValueError(f"hold_limit must be above 0: {hold_limit}")
        return cls(float(min(hold_limit, threading.TIMEOUT_MAX)), on_hold_limit == "lose")


class HoldLimits:
    """The limits of one client's holds.

    Attributes:
        due: when the keeper is to check the holds, by the clock of leases.
    """

    def __init__(self, client: ClientState, teller: Teller) -> None:
        self._client = client
        self._teller = teller
        self._begun = 0
        self.due = math.inf

    def add(self, limit: Limit, tickets: Sequence[Ticket]) -> None:
        """Limit a hold that begins now, with these tickets."""
        client = self._client
        with client.lock:
            running = limit._replace(due=client.clock() + limit.seconds)
            for ticket in tickets:
                ticket.limit = running
            self._begun += 1
            if running.due < self.due:
                self.due = running.due
                client.wake_keeper()

    def end_due(self, now: float) -> float:
        """Report or end the holds that have lasted too long; return when to check again.

        For the keeper, with the session's lock held.
        """
        if now < self.due:
            return self.due
        begun = self._begun
        first, over = math.inf, dict[int, tuple[Limit, list[Ticket]]]()
        for ticket in list(self._client.registry.tickets.values()):
            limit: Limit | None = ticket.limit
            if limit is None:
                continue
            if now < limit.due:
                first = min(first, limit.due)
            elif ticket.state is not State.HELD:
                # If a condition's wait is refused, its ticket is a hold again.
                first = min(first, now + IDLE_BEAT)
            else:
                # The permits of one acquire have one limit.
                over.setdefault(id(limit), (limit, []))[1].append(ticket)
        for limit, tickets in over.values():
            self._exceed(limit, tickets, limit.seconds + now - limit.due)
        # R2: if an interrupt comes before this, or a signal handler has acquired meanwhile, the next turn checks again.
        if begun == self._begun:
            self.due = first
        return self.due

    def _exceed(self, limit: Limit, tickets: Sequence[Ticket], held: float) -> None:
        first = tickets[0]
        if first.story is not None:
            self._teller.note(first)
            first.story.exceed(held)
        if not limit.loses:
            # If the limit ends the hold, the end is logged like every other loss.
            self._client.warn_later(
                "%s has been held for %.1f s by %s, longer than its hold_limit of %g s (fencing token %d)",
                first.node,
                held,
                "nobody" if first.owner is None else repr(name(first.owner)),
                limit.seconds,
                first.token,
                zk_path=first.path,
                zk_token=first.token,
                zk_by=None if first.owner is None else label(first.owner),
            )
        for ticket in tickets:
            if limit.loses:
                self._client.registry.end_hold(ticket, LossRecord(LossCause.LIMIT))
            ticket.limit = None
