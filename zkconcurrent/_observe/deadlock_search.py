"""Deadlocks across processes: when a wait is searched, how a search reads, and what it does with a deadlock.

If a wait has no deadline and its owner holds something, the wait is searched once it has lasted 1 to 1.5 times `AFTER`,
and again after pauses that double, up to one minute. `_protocol/deadlock_cycle.py` explains why that finds every
deadlock, and which wait is the victim.

One thread of the library makes the searches of a client, one after the other, with at most `MOST_A_SECOND` requests a
second. The thread starts when a search is due, and ends when none is. A lost connection, the end of the client, or
anything else that prevents the reads ends the search without a report.
"""

from __future__ import annotations

import logging
import math
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

from .._engine.client_state import ClientState
from .._engine.keeper_thread import Helper, Keeper
from .._errors import DeadlockError
from .._kazoo import full_paths
from .._kazoo.failures import failure
from .._kazoo.reply import Reply, Request, node_of
from .._protocol import deadlock_cycle
from .._protocol.deadlock_cycle import AFTER, UNREADABLE, Answer, Ask, Cycle, Listing, Place, Waiter
from .._protocol.node_info import NodeInfo
from .._protocol.operations import ConnectionLost, Node, NoNode, SessionExpired
from .._protocol.ticket import State, Ticket
from .._runtime.identity import label
from .._runtime.live_set import LiveSet
from .._runtime.this_process import choices
from .._runtime.wait_loops import Resumable, end_early

log = logging.getLogger("zkconcurrent.deadlocks")

SELDOM = 60.0  # seconds
AGAIN_AFTER = 0.25  # seconds
MOST_A_SECOND = 200

OnDeadlock: TypeAlias = Literal["warn", "raise"]


def check_on_deadlock(on_deadlock: object) -> None:
    """Refuse an unknown value of `on_deadlock`.

    Raises:
        ValueError: it is neither "warn" nor "raise".
    """
    if on_deadlock not in get_args(OnDeadlock):
        raise ValueError(f"on_deadlock must be 'warn' or 'raise', not {on_deadlock!r}")


class WaitCheck:
    """The searches of one waiting node.

    Attributes:
        ticket: the ticket of the node.
        owner: the thread or task that waits.
        since: when the wait was noticed, by the clock of deadlines.
        due: when the next search is due.
        cycle: the deadlock that was reported last.
    """

    def __init__(self, call: Any, ticket: Ticket, data: bytes, owner: int, now: float) -> None:
        self._call: Callable[[], Any] = weakref.ref(call)
        self._data = data
        self._pause = AFTER
        self.owner = owner
        self.ticket = ticket
        self.since = now
        self.due = now + AFTER * choices.uniform(1, 1.5)
        self.cycle: Cycle = ()

    @property
    def info(self) -> NodeInfo:
        """What the node's data show; parsed only on demand, as most waits are over before their first search."""
        return NodeInfo.parse(self._data)

    @property
    def call(self) -> Any:
        """The call that waits; None if it is over."""
        call = self._call()
        return call if call is not None and not call.finished and self.ticket.state is State.QUEUED else None

    def postpone(self, now: float) -> None:
        """Set when the next search is due."""
        self._pause = min(2 * self._pause, SELDOM)
        self.due = now + self._pause


class _GivenUp(Exception):
    """The search can't go on: the wait is over, or the service is out of reach."""


class Deadlocks:
    """The searches of one client.

    Attributes:
        requests: how many requests the searches have sent.
    """

    def __init__(self, client: ClientState, keeper: Keeper) -> None:
        self._client = client
        self._helper = Helper(keeper, "deadlocks", self._work)
        # A call has the only lasting reference to its check, so both are freed together.
        self._checks: LiveSet[WaitCheck] = LiveSet()
        self._look_at = math.inf
        # The keeper takes its next turn at this time at the latest.
        self._turn_at = math.inf
        # When the last requests were sent.
        self._sent: deque[float] = deque(maxlen=MOST_A_SECOND)
        self.requests = 0

    # -- when ----------------------------------------------------------------------------------------------------

    def add(self, call: Any, ticket: Ticket, data: bytes, owner: int) -> None:
        """Have a node's wait searched if it lasts. The node's data must name holds of the owner."""
        call.check = check = WaitCheck(call, ticket, data, owner, self._client.now())
        with self._client.lock:
            self._checks.add(check)
            self._look_at = min(self._look_at, check.due)
        if check.due < self._turn_at:
            self._client.wake_keeper()

    def search_due(self, pause: float) -> float:
        """Start the due searches; return the number of seconds until the next check, at most `pause`.

        For the keeper, with the session's lock held.
        """
        now = self._client.now()
        if now >= self._look_at and not self._helper.works:
            self._look_at = math.inf
            for check in self._checks:
                if check.call is None:
                    self._checks.discard(check)
                else:
                    self._look_at = min(self._look_at, check.due)
            if now >= self._look_at:
                self._helper.start()
        if not self._helper.works:
            pause = min(pause, self._look_at - now)
        self._turn_at = now + pause
        return pause

    def _work(self) -> None:
        while (due := self._next()) is not None:
            try:
                self._check(due)
            except _GivenUp:
                pass
            except Exception:
                # A log handler of the program may raise, again and again; the other searches must still be made.
                with suppress(Exception):
                    log.exception("a search for a deadlock has failed [%s]", due.ticket.path)
            due.postpone(self._client.now())
            # Otherwise this variable would keep the objects of a finished wait alive.
            del due

    def _next(self) -> WaitCheck | None:
        now = self._client.now()
        due = [each for each in self._checks if each.due <= now and each.call is not None]
        return min(due, key=lambda each: each.due, default=None)

    # -- one search ----------------------------------------------------------------------------------------------

    def _check(self, check: WaitCheck) -> None:
        ticket, info = check.ticket, check.info
        assert ticket.name is not None
        now = self._client.now
        place = Place(self._client.link.full(ticket.path), ticket.name)
        steps = deadlock_cycle.search(Waiter(place, ticket.token, info.holds, lambda: now() - check.since, info.ends))
        ask = next(steps)
        while True:
            answer = self._answer(check, ask)
            try:
                ask = steps.send(answer)
            except StopIteration as end:
                cycle: Cycle | None = end.value
                break
        if cycle:
            self._found(check, cycle, ends=info.ends)
        elif cycle is None:
            log.debug("a search for a deadlock ended early, as it took too many requests [%s]", ticket.path)

    def _answer(self, check: WaitCheck, ask: Ask) -> Answer:
        if ask.again:
            self._sleep(check, AGAIN_AFTER)
            self._ask(check, [(full_paths.sync, ask.paths[0])])
        wanted = [(full_paths.children, path) for path in ask.paths]
        wanted += [(full_paths.get, "/".join(place)) for place in ask.nodes]
        found = self._ask(check, wanted)
        return [*map(_listing, found[: len(ask.paths)])], [*map(_node, found[len(ask.paths) :])]

    # -- its requests --------------------------------------------------------------------------------------------

    def _ask(self, check: WaitCheck, wanted: Sequence[tuple[Callable[[str, Reply], Request], str]]) -> list[Any]:
        """Send requests, many at a time; return the value of each reply, or its failure.

        Raises:
            _GivenUp: the wait is over, or the service is out of reach.
        """
        results: list[Any] = []
        client = self._client
        while len(results) < len(wanted):
            batch = wanted[len(results) : len(results) + deadlock_cycle.MOST_AT_ONCE]
            self._await_turn(check, len(batch))
            event = client.link.sleep_event()
            replies = [*(Reply() for _ in batch[1:]), Reply(event.set)]
            client.link.send(*(make(path, reply) for (make, path), reply in zip(batch, replies, strict=True)))
            self.requests += len(batch)
            # The requests are noted after they are sent: on a busy machine, that may be long after their turn.
            self._sent.extend([client.now()] * len(batch))
            until = client.now() + client.longest_reply
            while not replies[-1].done:
                if client.now() >= until or self._is_over(check):
                    raise _GivenUp
                event.wait(client.longest_reply / 10)
                event.clear()
            for reply in replies:
                failed = None if reply.error is None else failure(reply.error, check.ticket.path)
                if isinstance(failed, ConnectionLost | SessionExpired) or not reply.done:
                    raise _GivenUp
                results.append(reply.value if failed is None else failed)
        return results

    def _await_turn(self, check: WaitCheck, number: int) -> None:
        """Wait until `number` requests may be sent."""
        sent, now = self._sent, self._client.now
        while (
            len(sent) + number > MOST_A_SECOND
            and (left := sent[number + len(sent) - MOST_A_SECOND - 1] + 1 - now()) > 0
        ):
            self._sleep(check, left)

    def _sleep(self, check: WaitCheck, seconds: float) -> None:
        self._client.link.sleep_event().wait(seconds)
        if self._is_over(check):
            raise _GivenUp

    def _is_over(self, check: WaitCheck) -> bool:
        client = self._client
        return client.forked or check.call is None or not client.link.connected

    # -- what it does --------------------------------------------------------------------------------------------

    def _found(self, check: WaitCheck, cycle: Cycle, *, ends: bool) -> None:
        """Report a deadlock, once; with `ends`, also end the wait."""
        client, ticket, call = self._client, check.ticket, check.call
        if call is None:
            return
        known = {edge.waiter for edge in check.cycle} == {edge.waiter for edge in cycle}
        check.cycle = cycle
        text = deadlock_cycle.described(cycle)
        if not known and call.story is not None:
            call.story.find(cycle)
        if ends:
            why = partial(
                DeadlockError, call.path, f"a deadlock, which this call has ended by giving up: {text}", cycle
            )
            whole: Resumable = call.whole
            with client.lock:
                # A change that the waiter is still reading may be the grant.
                if not ticket.awaits or ticket.changed or not whole.waits_for or not end_early(whole, why):
                    return
        if ends or not known:
            # A log handler that blocks would keep the other searches of the client from ending a deadlock.
            client.warn_later(
                "a deadlock of %d waits%s: %s [%s]",
                len(cycle),
                ", of which this one is ended" if ends else "",
                text,
                call.path,
                logger=log,
                zk_path=call.path,
                zk_by=label(check.owner),
            )


def _listing(result: Any) -> Listing:
    """Return the names of a listing."""
    if isinstance(result, Exception):
        return () if isinstance(result, NoNode) else None
    names: Listing = result[0]
    return names


def _node(result: Any) -> Node | None:
    """Return a node that was read; None if it is gone."""
    if isinstance(result, Exception):
        return None if isinstance(result, NoNode) else UNREADABLE
    return node_of(result)
