"""The life of a call: its driver, `Call.run`, runs recipes against ZooKeeper, as steps that `wait_loops` resumes.

A `Call` begins, runs one recipe after the other, sleeps, and ends or is abandoned. `operation_runner` performs the
operations of a recipe, and `patience` decides until when a recipe may wait.

The driver's promises, which the contract tests check:

1. operations run in the order they are yielded; those yielded together are sent back to back;
2. an operation whose session is over fails with `SessionExpired`; no write of a ticket is sent in a later session;
3. an operation that `repeats` is sent again after a reconnect; for any other the recipe gets `ConnectionLost`. A
   request that a busy server has not applied is sent again, with the reads behind it;
4. a wait may end early, never late;
5. deadlines and interrupts enter the recipe only as exceptions at the yield. The deadline bounds the waiting: requests
   before the first wait get their replies, for up to a third of the session timeout while connected. After its
   deadline, a recipe has a moment to clean up; then the exception comes again;
6. a recipe that ends with an exception, or by its deadline, leaves nothing behind: the tickets it began are discarded,
   and the client's next recipe at the path does not see their nodes;
7. no recipe runs on kazoo's own threads.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from .._errors import ClientError, ZkConcurrentError
from .._kazoo.reply import Reply
from .._protocol.operations import DeadlinePassed, Failure, OutOfReach, Recipe, SessionExpired
from .._protocol.ticket import State, Ticket
from .._runtime.identity import of_caller
from .._runtime.interrupts import TRIES, check_not_interrupted
from .._runtime.serving import in_listener
from .._runtime.wait_loops import Resumable, Steps, WhyEnd, ends_by_itself, no_wakeup, outlast, wait
from .operation_runner import POLICIES, check_chroot
from .patience import POLL_INTERVAL, Patience
from .session import LeftTickets, Session

T = TypeVar("T")
# How often a wait by the wall clock reads it, as the clock may be set.
CLOCK_POLL_INTERVAL = 1.0  # seconds
# The patience of a call that has run no recipe yet.
_UNLIMITED = Patience()


class HoldStore(Protocol):
    """The holds at a path, as far as a call needs them."""

    def forget_tickets(self, tickets: Sequence[Ticket]) -> None:
        """Forget the holds of a call that was abandoned."""


class Attempt(NamedTuple):
    """A wish to acquire: who wants what, and until when. Its steps read it, and what shows or logs the wait.

    Attributes:
        queue: the queue in which it waits, a `QueueCore`; None for another wait, which is not logged however long it
            takes.
        owner: the thread or task.
        since: when it began, by the clock of deadlines.
        deadline: when to give up; None waits forever.
        wait: whether to wait for the lock, or to make a single attempt.
        depth: the depth of the hold.
        for_block: a `with` block outside of generators acquires, so only the owner will release.
    """

    queue: Any
    owner: int
    since: float
    deadline: float | None
    wait: bool = True
    depth: int = 1
    for_block: bool = False


class Call:
    """One call of a primitive: it runs one recipe after the other, and keeps the tickets that they begin.

    Attributes:
        tickets: the tickets begun in this call; `abandon` discards them.
        given_up: in the wait of a condition, the ticket of the hold that the wait releases. `abandon_by_loop` discards
            this ticket too.
        part_of: a weak reference to the `Calls` to which this call belongs; None if it stands alone.
        wake: ends the call's sleep; see `wait_loops`.
        deserted: a function that returns whether the event loop is closed, so that no loop resumes the call; None for a
            thread's call.
        finished: the call was abandoned, or has left its hand-off.
        path_state: the path's state, if this call acquires or ends a hold there; otherwise None.
        settled: the call has sent or given up all its requests, so that no thread waits for this call.
        max_outage: for how many session timeouts the service may be out of reach before the recipe ends; None for no
            limit.
        patience: until when the present recipe, or the last one, may wait.
        story: what is reported to listeners about the acquire that it makes; None without listeners.
        waiting: the attempt that waits in this call; None while it has not waited for anything but replies.
        check: when to search for a deadlock around the wait, if the waiting owner holds something.
        label: the label of the lock that it acquires.
        of_library: a thread of the library makes the call, and no caller waits for it.
        owned_locks: the session's lock, if a signal handler or a finalizer makes this call on top of a frame that has
            the lock; see `Resumable`.
        waits_for: see `Resumable`.
        why_end: see `Resumable`.
    """

    settled = False
    finished = False
    owned_locks: Collection[Any] = ()
    given_up: Ticket | None = None
    wake: Callable[[], None] = staticmethod(no_wakeup)
    deserted: Callable[[], bool] | None = None
    waits_for: tuple[object, ...] = ()
    why_end: WhyEnd | None = None
    part_of: Callable[[], Resumable | None] | None = None
    patience = _UNLIMITED
    waiting: Attempt | None = None
    # The layers above make these two `Story` and `WaitCheck`.
    story: Any = None
    check: Any = None
    label: str | None = None
    of_library = False
    _leaves_clean_up = False

    def __init__(
        self, session: Session, path: str, path_state: HoldStore | None = None, *, max_outage: float | None = None
    ) -> None:
        self.session = session
        self.path = path
        self.path_state = path_state
        self.max_outage = max_outage
        self.tickets: list[Ticket] = []

    @property
    def whole(self) -> Resumable:
        """The object that a loop runs: the `Calls` of which this is a part, or this call."""
        return self if self.part_of is None else self.part_of() or self

    def wait(self, steps: Steps[T]) -> T:
        """Run the call to its end, on the calling thread."""
        return wait(self, steps)

    def begin(self, wake: Callable[[], None], deserted: Callable[[], bool] | None = None) -> None:
        """Begin the call; `wake` ends its sleep, and is also called at each change of the connection."""
        session = self.session
        self.wake, self.deserted = wake, deserted
        session.calls.add(self)
        # No step waits while it has the lock. So if this thread has it, this call runs on top of an interrupted frame.
        if session.has_lock():
            self.owned_locks = (session.lock,)

    def end(self) -> None:
        """Note that the steps have ended."""
        self.session.calls.discard(self)

    def leave_clean_up(self) -> None:
        """Stop waiting for clean-up; the keeper finishes it."""
        self._leaves_clean_up = True

    def run(self, recipe: Recipe[T], deadline: float | None = None, since: float | None = None) -> Steps[T | None]:
        """Run a recipe; return its result, or None if the deadline passed first.

        Args:
            recipe: the recipe.
            deadline: when its waiting ends.
            since: when the patience for its first replies began; now, unless given.
        """
        session = self.session
        session.check_usable(self.path)
        if deadline is None:
            patience = Patience()
        else:
            # While connected, replies get the time that it takes to detect a dead link.
            extra = session.reply_patience if session.link.connected else 0.0
            patience = Patience(deadline, (session.now() if since is None else since) + extra)
        self.patience = patience
        begun = len(self.tickets)
        try:
            if session.link.seen_chroot != session.link.client.chroot:
                yield from check_chroot(self)
                patience.await_replies(session.now() + session.reply_patience)
            if session.registry.deletes:
                yield from self._delete_first()
            step = next(recipe)
            while True:
                try:
                    reply = yield from POLICIES[type(step)].steps(self, step)
                except GeneratorExit:
                    raise
                except BaseException as error:
                    if isinstance(error, DeadlinePassed):
                        patience.begin_clean_up(session.now())
                    step = recipe.throw(error)
                else:
                    step = recipe.send(reply)
                    # The next step may wait for long, and a listing of a crowd takes much memory.
                    del reply
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except GeneratorExit:
            # While the recipe cleans up, the traceback of its error refers to this frame, and so to the recipe. The
            # garbage collector would close the generators of that cycle in any order: an inner one first.
            recipe.close()
            raise
        except BaseException as error:
            if not isinstance(error, DeadlinePassed | ZkConcurrentError):  # an interrupt
                ends_by_itself(self.whole)
            yield from self.discard(self.tickets[begun:])
            if isinstance(error, DeadlinePassed):
                return None
            if isinstance(error.__context__, Failure):
                # The traceback shows what is wrong, without the failure of the operation that revealed it.
                error.__suppress_context__ = True
            raise

    def outlast(
        self, make: Callable[[], Recipe[T]], until: float, since: float, strike: Callable[[BaseException], object]
    ) -> Steps[T | None]:
        """Run a recipe that must come to its end, as `wait_loops.outlast`.

        If an error strikes between two sleeps, another recipe begins; after `TRIES` errors, this returns None.
        """
        for _ in range(TRIES):
            try:
                return (yield from outlast(self.run(make(), until, since), strike))
            except (Failure, ZkConcurrentError, GeneratorExit):
                raise
            except BaseException as error:
                strike(error)
        return None

    def give_up(self) -> Steps[None]:
        """Give up whatever the call has begun, or been granted, and wait until the nodes are gone."""
        yield from self.discard(self.tickets)
        self.abandon()

    def abandon(self) -> None:
        """Discard all tickets that the call has begun or been granted, without waiting."""
        # This comes first, as another interrupt may follow: a hand-off waits for no finished call.
        self.finished = True
        self.end()
        self.session.drop(self.tickets)
        if self.path_state is not None:
            self.path_state.forget_tickets(self.tickets)
        if self.story is not None:
            self.story.fail()
            self.story.emit()
        # R2: a signal handler that strikes before this must not wait for the call; see `check_not_interrupted`.
        self.settled = True

    def abandon_by_loop(self) -> None:
        """Abandon the call of a closed event loop, with the ticket in `given_up`: no caller is left to take it back."""
        if self.given_up is not None:
            self.session.dropped.append(LeftTickets([], [self.given_up]))
        self.abandon()

    # -- its nodes -----------------------------------------------------------------------------------------------

    def _delete_first(self) -> Steps[None]:
        """Before the recipe reads, delete the nodes that this client has abandoned at the path.

        Otherwise the recipe would count them as contenders. If the name of such a node is not known yet, this waits for
        a `sync`. The replies to the node's create, and to the listing that looks for the node, come before the reply to
        the `sync`, and one of them has the delete sent.
        """
        session = self.session
        if not session.link.connected:
            return
        with session.lock:
            if not session.deletes.send_all(self.path):
                return
        reply = Reply(self.wake)
        session.link.send(session.link.sync(self.path, reply))
        bound = session.reply_limit()
        # The recipe's first step raises these errors again.
        with contextlib.suppress(DeadlinePassed, OutOfReach):
            while not reply.done and (yield from self.park(bound)):
                pass
        session.run_posted()

    def discard(self, tickets: Sequence[Ticket]) -> Steps[None]:
        """Delete the tickets' nodes, which wakes the next waiters; wait for each only briefly: the keeper continues."""
        for ticket in tickets:
            held = ticket.state is State.HELD
            if self.session.discard(ticket):
                yield from self.wait_until_gone(ticket, held=held)

    def wait_until_gone(self, ticket: Ticket, *, held: bool = True) -> Steps[None]:
        """Wait, but not for long, until a discarded ticket's node (a hold's, if `held`) is gone; the keeper goes on."""
        session = self.session
        if self._leaves_clean_up or session.exiting or session.link.on_own_thread() or in_listener():
            return
        # The delete was sent before this, as other threads and clients may wait for it.
        ticket.on_change = self.wake
        until = self.patience.cleaned_up_by(session.now(), session.timeout, held=held)
        while not session.is_gone(ticket) and ticket.refusal is None and session.link.connected:
            left = until - session.now()
            if left <= 0:
                return
            yield left
            session.run_posted()

    # -- its sleep -----------------------------------------------------------------------------------------------

    def await_session(self, ticket: Ticket | None) -> Steps[None]:
        """Wait until requests can be sent; if a ticket is given, in its session.

        Raises:
            SessionExpired: the ticket's session is over, or the ticket was discarded.
            ClientError: the client can't be used any more.
        """
        session = self.session
        while True:
            present = session.registry.session
            if ticket is not None and (ticket.session != present or ticket.state is State.DISCARDED):
                raise SessionExpired
            if present is not None and session.link.connected:
                return
            session.check_usable(self.path)
            self._note_waiter()
            # kazoo does not report that it gives up, or stops, while disconnected.
            yield from self.park(session.now() + POLL_INTERVAL)

    def await_change(self, ticket: Ticket, left: Callable[[], float] | None = None) -> Steps[None]:
        """Wait until a node that the ticket awaits may be gone or changed; with `left`, only while that is above 0."""
        try:
            check_not_interrupted(self)
        except ClientError:
            if self.patience.cutoff is None or self.session.now() < self.patience.cutoff:
                raise
            # A single attempt has no time to wait anyway: it ends by its deadline, in a signal handler too.
            raise DeadlinePassed from None
        self._note_waiter()
        while not ticket.changed:
            pause = math.inf if left is None else left()
            if pause <= 0:
                return
            yield from self.park(math.inf if left is None else self.session.now() + min(pause, CLOCK_POLL_INTERVAL))

    def _note_waiter(self) -> None:
        """Note who waits, for `inspect()`; not earlier, as most calls never wait for anything but replies."""
        if self.waiting is None and not self.of_library:
            owner = self.session.identity() if self.deserted is None else of_caller()
            self.waiting = Attempt(None, owner, self.session.now(), self.patience.deadline)

    def park(self, bound: float) -> Steps[bool]:
        """Sleep until woken, or for a while; return False if `bound` has passed and nothing has woken the call.

        Raises:
            DeadlinePassed: the recipe's time is up.
            OutOfReach: the service is out of reach for longer than `max_outage`.
        """
        session, patience = self.session, self.patience
        limit = patience.limit()
        until, now = min(bound, limit), session.now()
        if self.max_outage is not None:
            until = min(until, patience.reachable_by(now, session.link.connected, self.max_outage * session.timeout))
        woken = yield None if until == math.inf else max(0.0, until - now)
        if session.posted:
            session.run_posted()
        if woken:
            return True
        now = session.now()
        if now >= limit:
            raise DeadlinePassed
        return now < bound
