"""The hand-off of an unfair lock: one thread of a process at a time asks ZooKeeper, and leaves its ticket to the next.

The hand-off decides which thread asks, never which thread holds: the owner of the ticket holds. A hand-off that opens
too early costs a place in the queue, and no more.

With `fair=False` the threads of a process take turns, and the one whose turn it is asks ZooKeeper. A thread that
releases while others wait for their turn leaves the node in place; the next thread takes over the ticket, and checks
the session and the lease as for any grant. After 50 ms, counted from ZooKeeper's grant, or 1,000 times, the node is
deleted, and the process queues again behind all others.

The turn is taken while a thread asks or a hold of the process lives. Both are looked up, not counted, so no interrupt
at any line, and no lost hold, can leave it taken for good. A running thread may get its turn before one that must be
woken, as with `threading.Lock`. That saves a thread switch at each hand-over; the switch would cost more than all the
rest. A thread that was passed by gets in at the latest when the node is deleted.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable

from .._protocol.deadlock_cycle import AFTER
from .._protocol.operations import Recipe, SessionExpired
from .._protocol.ticket import Ticket
from .._runtime.interrupts import check_not_interrupted
from .._runtime.live_set import LiveSet
from .._runtime.wait_loops import Steps
from .call import Attempt, Call
from .holds import Hold
from .session import Session

LONGEST_TURN = 0.05  # seconds
MOST_HANDOVERS = 1000


class LocalHandoff:
    """The hand-off between the threads of this process that want one unfair lock.

    The hand-off is closed while one of these threads asks, or holds. A thread that arrives while it is open goes ahead
    of the waiting threads, as with `threading.Lock`. The waiting threads get their turn when a thread has to wait for
    ZooKeeper, after `LONGEST_TURN` or `MOST_HANDOVERS`.

    Invariants, with the session's lock held:
        * a kept ticket belongs to no thread, once its hold is dropped;
        * a ticket is kept only while a thread waits to enter.
    """

    def __init__(self, session: Session, holds: dict[int | str, Hold]) -> None:
        self._session = session
        self._holds = holds
        # The reference is weak, and an abandoned call is `finished`: so no interrupt, at any line, can leave the
        # hand-off closed.
        self._asking: weakref.ref[Call] | None = None
        self._waiting: LiveSet[Call] = LiveSet()
        self._kept: Ticket | None = None
        # When ZooKeeper granted the ticket that the threads pass on.
        self._turn_began = 0.0
        # How often threads have passed that ticket on since.
        self._handovers = 0
        session.handoffs.add(self)

    def run(
        self, call: Call, attempt: Attempt, recipe: Callable[[], Recipe[Ticket | None]], *, shown: bool
    ) -> Steps[Ticket | None]:
        """Enter and take the kept ticket, or else run the recipe; return None if the deadline passed first.

        Afterwards the caller must `leave`, or abandon the call, with or without a ticket. An attempt that does not wait
        enters only if the hand-off is open. With `shown`, a long wait must be visible in ZooKeeper's queue, as it could
        be part of a deadlock: the call then queues there, beside those that take turns.
        """
        self._session.check_usable(call.path)
        began, deadline, wait = self._session.now(), attempt.deadline, attempt.wait
        alone_at = began + AFTER if shown else math.inf
        if not (yield from self._enter(call, min(math.inf if deadline is None else deadline, alone_at), wait)):
            if not wait or (deadline is not None and deadline <= alone_at):
                return None
            self._waiting.discard(call)
            return (yield from call.run(recipe(), deadline, began))
        ticket = self._take_kept(call)
        if ticket is None:
            ticket = yield from call.run(recipe(), deadline, began)
            self._turn_began, self._handovers = self._session.now(), 0
        return ticket

    def _enter(self, call: Call, until: float, wait: bool) -> Steps[bool]:
        session = self._session
        while True:
            with session.lock:
                if self._is_open():
                    self._asking = weakref.ref(call)
                    self._waiting.discard(call)
                    return True
                if not wait:
                    return False
                if call not in self._waiting:
                    check_not_interrupted(call)
                    self._waiting.add(call)
            left = until - session.now()
            if left <= 0:
                return False
            if call.story is not None:
                call.story.wait()
            yield None if left == math.inf else left

    def _is_open(self) -> bool:
        if self._is_asking():
            return False
        # R4: a copy, as a signal handler may release a hold meanwhile. A loop, as `any` would take longer, and this
        # method runs several times a cycle.
        for hold in list(self._holds.values()):  # noqa: SIM110
            if hold.alive:
                return False
        return True

    def _is_asking(self) -> bool:
        call = None if self._asking is None else self._asking()
        return call is not None and not call.finished

    def _next_waiter(self) -> Call | None:
        for call in self._waiting:
            if not call.finished:
                return call
        return None

    def _take_kept(self, call: Call) -> Ticket | None:
        """Return the kept ticket, if it is still good."""
        session = self._session
        with session.lock:
            ticket = self._kept
            if ticket is None:
                return None
            # R1: a call that is interrupted after this can discard the ticket.
            call.tickets.append(ticket)
            self._kept = None
            try:
                if self._turn_lasts() and session.grant(ticket):
                    return ticket
            except SessionExpired:
                pass
        session.discard(ticket)
        return None

    def _turn_lasts(self) -> bool:
        """Return whether this process may still pass the ticket on."""
        return self._session.now() < self._turn_began + LONGEST_TURN

    def keep_for_next(self, ticket: Ticket) -> bool:
        """Keep the ticket of an ending hold for the next thread, if there is one; return whether it is kept."""
        if self._is_asking():
            # While the hold was dropped, before `put_back` restored it, the hand-off was open. So another call has
            # entered, and waits in ZooKeeper's queue for this very node.
            return False
        if ticket.asked_at:
            # A client has asked this holder to let go, and would not ask the next one.
            return False
        if self._next_waiter() is None or self._handovers >= MOST_HANDOVERS or not self._turn_lasts():
            return False
        self._handovers += 1
        self._kept = ticket
        if not self._session.watches_handoffs:
            self._session.wake_keeper()
        return True

    def end_turn(self) -> float:
        """Discard a kept ticket that the next thread does not take in time; return in how many seconds to call again.

        That thread may be suspended, with a signal handler on top of it. This also wakes the next waiter, as a garbage
        collected call wakes none. For the keeper, with the session's lock held.
        """
        if self._kept is not None and not self._turn_lasts():
            ticket, self._kept = self._kept, None
            self._session.discard(ticket)
        if self._next_waiter() is None:
            return math.inf
        self.wake_next()
        return LONGEST_TURN

    def leave(self, call: Call) -> None:
        """End the call's asking and waiting."""
        call.finished = True
        with self._session.lock:
            self.wake_next()

    def wake_next(self) -> None:
        """If the hand-off is open, let the first waiting thread in; if there is none, discard the kept ticket."""
        if not self._is_open():
            return
        if (call := self._next_waiter()) is not None:
            call.wake()
        elif self._kept is not None:
            self._session.discard(self._kept)
            self._kept = None
