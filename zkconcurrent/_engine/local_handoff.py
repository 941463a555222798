"""The gate of an unfair lock: one thread of the process at a time asks ZooKeeper, and leaves what it got to the next.

It decides who asks, never who holds: that is whose ticket it is. A gate that is opened too early costs a place in the
queue, and no more.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

from .._recipes.operations import Recipe, SessionExpired
from .._recipes.ticket import Ticket
from .driver import POLL_INTERVAL, Call
from .holds import Hold
from .session import Session
from .waiting import Steps

LONGEST_TURN = 0.05  # seconds
MOST_HANDOVERS = 1000


class LocalHandoff:
    """What the threads of this process that want one unfair lock pass one after the other.

    It is closed while one of them asks, or holds. Whoever comes while it is open goes ahead of those that wait, as with
    `threading.Lock`; they get their turn when the one that leaves has to wait for ZooKeeper, after `LONGEST_TURN` or
    `MOST_HANDOVERS`.

    Invariants, with the session's lock held:
        * what is kept, once the hold that it was of is dropped, is nobody's;
        * it is kept only while somebody waits to enter.
    """

    def __init__(self, session: Session, holds: dict[Any, Hold]) -> None:
        self._session = session
        self._holds = holds
        # Weak, and over when it is abandoned: an interrupt in the wrong place must not leave the gate closed.
        self._asking: weakref.ref[Call] | None = None
        # Keys only, in the order in which they came.
        self._waiting: weakref.WeakKeyDictionary[Call, None] = weakref.WeakKeyDictionary()
        self._kept: Ticket | None = None
        self._turn_began = 0.0  # when ZooKeeper granted it
        self._handovers = 0  # how often it was handed on since
        session.handoffs.add(self)

    def run(
        self, call: Call, recipe: Callable[[], Recipe[Ticket | None]], deadline: float | None, wait: bool
    ) -> Steps[Ticket | None]:
        """Enter, and take what was left there, or else run the recipe; None when the deadline passed before.

        Whoever has it, or goes without, must `leave`, or abandon the call. Who does not want to wait enters only if
        the handoff is open.
        """
        self._session.check_usable(call.path)
        began = self._session.now()
        if not (yield from self._enter(call, deadline, wait)):
            return None
        ticket = self._take_kept(call)
        if ticket is None:
            ticket = yield from call.run(recipe(), deadline, began)
            self._turn_began, self._handovers = self._session.now(), 0
        return ticket

    def _enter(self, call: Call, deadline: float | None, wait: bool) -> Steps[bool]:
        session = self._session
        while True:
            with session.lock:
                if self._is_open():
                    self._asking = weakref.ref(call)
                    self._waiting.pop(call, None)
                    return True
                if not wait:
                    return False
                if call not in self._waiting:
                    call.check_not_interrupted()
                    self._waiting[call] = None
            left = POLL_INTERVAL if deadline is None else min(deadline - session.now(), POLL_INTERVAL)
            if left <= 0:
                return False
            yield left

    def _is_open(self) -> bool:
        return not self._is_asking() and not any(hold.alive for hold in self._holds.values())

    def _is_asking(self) -> bool:
        call = None if self._asking is None else self._asking()
        return call is not None and not call.finished

    def _next_waiter(self) -> Call | None:
        return next((call for call in list(self._waiting) if not call.finished), None)

    def _take_kept(self, call: Call) -> Ticket | None:
        """Return what was left inside, if it is good still."""
        session = self._session
        with session.lock:
            ticket = self._kept
            if ticket is None:
                return None
            call.tickets.append(ticket)  # first: who is interrupted here must be able to give it up
            self._kept = None
            try:
                if self._turn_lasts() and session.grant(ticket):
                    return ticket
            except SessionExpired:
                pass
        session.discard(ticket)
        return None

    def _turn_lasts(self) -> bool:
        """Whether other processes need not be let in yet."""
        return self._session.now() < self._turn_began + LONGEST_TURN

    def keep_for_next(self, ticket: Ticket) -> bool:
        """Keep the ticket of a hold that ends for the next thread, if there is one; return whether it is kept."""
        if self._is_asking():
            return False  # it waits in the queue for just this node: the hold was put back while the gate was open
        if self._next_waiter() is None or self._handovers >= MOST_HANDOVERS or not self._turn_lasts():
            return False
        self._handovers += 1
        self._kept = ticket
        if not self._session.watches_handoffs:
            self._session.wake_keeper()
        return True

    def end_turn(self) -> float:
        """Give up what is kept for a thread that does not come for it in time; return in how many seconds to look.

        That thread may be suspended, with a signal handler on top of it. For the keeper, with the session's lock held.
        """
        if self._kept is not None and not self._turn_lasts():
            ticket, self._kept = self._kept, None
            self._session.discard(ticket)
        return math.inf if self._next_waiter() is None else LONGEST_TURN

    def leave(self, call: Call) -> None:
        """Ask no more, and wait no more."""
        call.finished = True
        with self._session.lock:
            self.wake_next()

    def wake_next(self) -> None:
        """If it is open, let the first who waits in; if there is nobody, leave nothing inside."""
        if not self._is_open():
            return
        if (call := self._next_waiter()) is not None:
            call.wake()
        elif self._kept is not None:
            self._session.discard(self._kept)
            self._kept = None
