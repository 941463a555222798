"""The blocking driver: runs a recipe on the calling thread, against ZooKeeper.

What it promises, and the contract tests check:

1. operations run in the order they are yielded, on one session; those yielded together are sent back to back;
2. an operation whose session is over fails with `SessionExpired`; a create that slipped into the next is undone;
3. reads, waits, deletes and the making of what anybody may have made are repeated across reconnects; a create, write
   or multi never is: the recipe is told `ConnectionLost`;
4. a wait may end early, never late;
5. a deadline and an interrupt enter the recipe only as exceptions at the yield, and every wait has a bound. The
   deadline bounds the waiting: what a recipe asks before it first waits is answered, for up to a third of the session
   timeout while connected. What it asks after its deadline is given a moment, then it is told again;
6. no recipe runs on kazoo's own threads.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any, TypeVar

from ._errors import RefusedError
from ._kazoo import Answer, Callback, failure, kazoo_errors, nobody
from ._lease import NEVER
from ._ops import (
    BadVersion,
    Begin,
    Children,
    ConnectionLost,
    Create,
    DeadlinePassed,
    Delete,
    Discard,
    Get,
    Gone,
    Grant,
    Leave,
    Make,
    MakeContainer,
    Missing,
    Multi,
    Node,
    NoNode,
    Operation,
    OutOfReach,
    Prove,
    Recipe,
    Request,
    SessionExpired,
    Set,
    Sync,
    Wait,
    WaitGone,
    Watch,
)
from ._registry import State, Ticket
from ._session import STUCK, Session

T = TypeVar("T")
CLEAN_UP_PATIENCE = 0.1  # seconds
UNANSWERED = 10.0
LOOK_AGAIN = 0.5


class Driver:
    """One run of one recipe.

    Attributes:
        tickets: those begun in this run; what the caller does not keep, it must `abandon`.
        over: it was abandoned, or wants nothing of a gate any more.
        before_wait: is called, with the driver, before it waits for anything but an answer; it may raise.
        fragile: its recipe ends once the service is out of reach, for a third of the session's timeout.
    """

    def __init__(self, session: Session, path: str, deadline: float | None = None) -> None:
        self.session = session
        self.path = path
        self.deadline = deadline
        self.tickets: list[Ticket] = []
        self.over = False
        self.before_wait: Callable[[Driver], None] = lambda _: None
        self.fragile = False
        self._down_since: float | None = None
        self._until = deadline  # the deadline, and a moment more once it has passed
        # Before it first waits: no longer than it takes to see that a link is dead.
        self._asks = deadline is not None
        patience = (session.timeout or UNANSWERED) / 3 if self._asks and session.link.connected else 0.0
        self._answered_by = session.now() + patience
        self._refused: str | None = None
        self._early: tuple[tuple[Operation, ...], list[Answer]] = (), []  # what was sent before it was asked for
        self._event = session.link.signal()
        self._wake: Callable[[], None] = self._event.set

    def run(self, recipe: Recipe[T]) -> T | None:
        """Run the recipe; return its result, or None when the deadline passed before."""
        self.session.check_usable(self.path)
        try:
            self.session.parked.add(self._wake)
            step = next(recipe)
            while True:
                try:
                    answer = self._perform(step)
                except BaseException as error:
                    if isinstance(error, DeadlinePassed):
                        self._asks = False
                        self._until = self.session.now() + CLEAN_UP_PATIENCE
                    step = recipe.throw(error)
                else:
                    step = recipe.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except DeadlinePassed:
            return None
        finally:
            self.session.parked.discard(self._wake)

    def abandon(self) -> None:
        """Give up whatever the run left, without waiting: it was interrupted where no recipe could see it."""
        self.over = True  # first: the next interrupt may be on its way
        self.session.parked.discard(self._wake)
        self.session.drop(self.tickets)

    # -- one step ------------------------------------------------------------------------------------------------

    def _perform(self, step: Operation | tuple[Operation, ...]) -> Any:
        if isinstance(step, Request):
            return self._request((step,))[0]
        if isinstance(step, Begin):
            return self._begin(step.path)
        if isinstance(step, Grant):
            return self.session.grant(step.ticket)
        if isinstance(step, Prove):
            return self._prove(step.ticket)
        if isinstance(step, Discard):
            release(self.session, step.ticket, self.deadline)
            return None
        if isinstance(step, WaitGone):
            if not step.asks:
                self._waits()
            return self._wait_gone(step.ticket, step.ahead, step.then)
        if isinstance(step, Watch):
            self._waits()
            return self._watch(step.ticket, step.reads)
        if isinstance(step, Wait):
            return self._wait(step.ticket)
        if isinstance(step, Leave):
            return self.session.leave(step.ticket)
        if isinstance(step, Gone):
            return self.session.gone(step.ticket)
        if isinstance(step, Missing):
            return self.session.missing(step.ticket)
        return self._request(step)

    def _begin(self, path: str) -> Ticket:
        while True:
            self._connected(None)
            with self.session.lock, contextlib.suppress(SessionExpired):  # just now: wait for the next
                self.session.check_not_exiting(path)
                return self.session.registry.begin(path, self.tickets)

    def _request(self, steps: tuple[Operation, ...], watcher: Callable[[Any], None] | None = None) -> list[Any]:
        """Send requests together and wait for all answers; what met a lost connection is sent again, if it may be."""
        results: list[Any] = [None] * len(steps)
        left = list(range(len(steps)))
        again: list[int] = []
        (asked, early), self._early = self._early, ((), [])
        if asked != steps:
            early = []
        while left:
            if early:
                answers, early = early, []
            else:
                ticket: Ticket | None = getattr(steps[left[0]], "ticket", None)
                self._connected(ticket)
                answers = [self._send(steps[i], watcher, last=i == left[-1]) for i in left]
            last = answers[-1]
            bound = None if last.done else self._bound()
            while not last.done:
                if not self._park(bound):
                    last.set_exception(kazoo_errors.ConnectionLoss())  # the request was lost inside kazoo
            if not all(answer.done for answer in answers):
                self.session.serve()  # they were answered before the last, and posted
            in_doubt, again = again, []
            for i, answer in zip(left, answers, strict=True):
                try:
                    results[i] = self._result(steps[i], answer)
                except ConnectionLost:
                    if isinstance(steps[i], Create | Set | Multi):
                        raise
                    again.append(i)
                else:
                    if i in in_doubt and results[i] is False and isinstance(steps[i], Make | Delete):
                        results[i] = None
            left = again
        return results

    def _send(self, step: Operation, watcher: Callable[[Any], None] | None, *, last: bool) -> Answer:
        # Answers come in the order of the requests: whoever waits for the last one has them all.
        wake = self._wake if last else nobody
        answer = Answer(wake)
        session = self.session  # all that an answer may keep alive
        link = session.link
        if isinstance(step, Create):
            before = step.ticket.sent

            def made(answer: Callback) -> None:
                session.made(step.ticket, answer.value, answer.error, before)

            answer = Callback(made, wake, session.post)
            step.ticket.sent = True
            link.create(step.path, step.data, answer)
        elif isinstance(step, Multi):
            operations = step.operations
            sent = [isinstance(part, Create) and part.ticket.sent for part in operations]

            def done(answer: Callback) -> None:
                for part, node, before in zip(operations, answer.value or [None] * len(operations), sent, strict=True):
                    if isinstance(part, Create):
                        session.made(part.ticket, node, answer.error, before)
                    elif isinstance(part, Delete) and part.ticket is not None and answer.error is None:
                        session.gone(part.ticket)

            answer = Callback(done, wake, session.post)
            for part in operations:
                if isinstance(part, Create):
                    part.ticket.sent = True
            link.multi(operations, answer)
        elif isinstance(step, Children):
            link.children(step.path, answer, watcher)
        elif isinstance(step, Sync):
            link.sync(step.path, answer)
        elif isinstance(step, Get):
            link.get(step.path, answer, watcher)
        elif isinstance(step, Make):
            link.make(step.path, step.data, answer)
        elif isinstance(step, Set):
            link.set(step.path, step.data, step.version, answer)
        elif isinstance(step, Delete):
            link.delete(step.path, answer, step.version)
        elif isinstance(step, MakeContainer):
            link.make_container(step.path, answer, directory=session.is_directory(step.path))
        else:
            raise TypeError(f"not a request: {step!r}")
        return answer

    def _result(self, step: Operation, answer: Answer) -> Any:
        """Return what the recipe is told, or raise it."""
        if answer.error is not None:
            return self._failed(step, answer.error)
        if not answer.done:
            raise ConnectionLost
        if isinstance(step, Create | Multi):
            if step.ticket.state is State.DISCARDED:  # it slipped into the next session
                raise SessionExpired
            return step.ticket.name if isinstance(step, Create) else answer.value
        if isinstance(step, Get):
            data, stat = answer.value
            created = (stat.cversion + stat.numChildren) // 2  # cversion counts the deletes too
            return Node(data or b"", stat.czxid, stat.ctime / 1000.0, stat.ephemeralOwner, stat.version, created)
        if isinstance(step, Delete) and step.ticket is not None:
            self.session.gone(step.ticket)
        return True if isinstance(step, Make | Set | Delete) else answer.value

    def _failed(self, step: Operation, error: Exception) -> Any:
        failed = failure(error, self.path)
        if isinstance(step, MakeContainer):
            if isinstance(error, kazoo_errors.NodeExistsError):
                return None
            if isinstance(error, kazoo_errors.UnimplementedError) and self.session.link.containers:
                self.session.link.containers = False
                raise ConnectionLost  # again, the old way
            if isinstance(error, kazoo_errors.NoAuthError) and step.path != self.path:
                self._refused = step.path  # said also of one that is there, made by somebody else: the next will tell
                return None
            if isinstance(failed, NoNode):
                if step.path.rpartition("/")[0] == self._refused:
                    raise failure(kazoo_errors.NoAuthError(), self.path)
                if step.path.count("/") > 1:
                    return None  # what is above was reaped just now: the create will tell, and we come again
                raise self._no_chroot()
        if isinstance(step, Make):
            if isinstance(error, kazoo_errors.NodeExistsError):
                return False
            if isinstance(failed, NoNode) and step.path.count("/") == 1:
                raise self._no_chroot()
        if isinstance(step, Set) and isinstance(failed, NoNode | BadVersion):
            return False
        if isinstance(step, Delete) and isinstance(failed, NoNode):
            if step.ticket is not None:
                self.session.gone(step.ticket)
            return False
        if isinstance(failed, SessionExpired) and getattr(step, "ticket", None) is None:
            raise ConnectionLost  # what is bound to no session goes on in the next
        if isinstance(failed, NoNode) and isinstance(step, Children):
            return []
        if isinstance(failed, NoNode) and isinstance(step, Get | Sync):
            return None
        try:
            raise failed
        finally:
            del failed  # else the traceback and this frame keep each other alive, and with them the caller's lock

    def _no_chroot(self) -> RefusedError:
        return RefusedError(self.path, f"the client's chroot {self.session.link.full('')!r} does not exist")

    def _wait_gone(self, ticket: Ticket, ahead: str, then: tuple[Operation, ...]) -> bool:
        session = self.session
        early: list[Answer] = []
        self._early = then, early

        def gone() -> None:  # with the session's lock held, on a thread of kazoo's, or that of the holder before us
            if early or ticket.handed or not then or not session.link.connected:
                self._wake()
            else:
                if not ticket.lease.believed(session.clock() + session.timeout / 20):  # it was a long wait
                    session.link.check([ticket.node], Callback(lambda _: None))
                early.extend([self._send(step, None, last=step is then[-1]) for step in then])

        with session.lock:  # both: what is read before the wait has begun would be taken for what was read after it
            session.registry.wait(ticket, f"{ticket.path}/{ahead}")
            ticket.wake = gone
        try:
            self._connected(ticket)
            answer = Answer(self._wake)
            session.link.get(f"{ticket.path}/{ahead}", answer, session.on_event)
            bound = self._bound()
            while not (answer.done or ticket.stirred):
                if not self._park(bound):
                    return False  # the request was lost inside kazoo: look again
            if answer.error is not None:
                failed = failure(answer.error, self.path)
                if not isinstance(failed, NoNode | ConnectionLost | SessionExpired):
                    raise failed
            elif not ticket.stirred:
                self.before_wait(self)
                while not ticket.stirred:
                    self._park()
            return ticket.handed
        finally:
            with session.lock:
                session.registry.stop_waiting(ticket)
                ticket.wake = self._wake

    def _prove(self, ticket: Ticket) -> None:
        session = self.session
        if ticket.lease.heard == NEVER:
            # Of an old connection that we have only begun to use, nothing is known yet; what is ours to take is not
            # refused for that.
            self._answered_by = max(self._answered_by, session.now() + ticket.lease.gap + session.timeout / 3)
        try:
            ticket.proving = True
            session.wake_keeper()
            while not ticket.lease.believed(session.clock()):
                self._connected(ticket)
                self._park(session.now() + LOOK_AGAIN)
        finally:
            ticket.proving = False

    def _watch(self, ticket: Ticket, reads: tuple[Operation, ...]) -> list[Any]:
        session = self.session
        ticket.wake = self._wake
        with session.lock:
            session.registry.wait(ticket, *(read.path for read in reads))  # type: ignore[union-attr]
        return self._request(reads, session.on_event)

    def _wait(self, ticket: Ticket) -> None:
        try:
            if not ticket.stirred:
                self.before_wait(self)
            while not ticket.stirred:
                self._park()
        finally:
            with self.session.lock:
                self.session.registry.stop_waiting(ticket)

    # -- waiting -------------------------------------------------------------------------------------------------

    def _connected(self, ticket: Ticket | None) -> None:
        """Wait until requests can be sent, in the ticket's session if there is a ticket."""
        session = self.session
        while True:
            present = session.registry.session
            if ticket is not None and (ticket.session != present or ticket.state is State.DISCARDED):
                raise SessionExpired
            if present is not None and session.link.connected:
                return
            session.check_usable(self.path)
            self._park(session.now() + LOOK_AGAIN)  # kazoo does not tell that it gives up, or stops, while it is down

    def _waits(self) -> None:
        """Have the deadline count: what the run asks from here on, it asks to wait."""
        self._asks = False
        if self._until is not None and self.session.now() >= self._until:
            raise DeadlinePassed

    def _limit(self) -> float | None:
        """Return when the run's time is up."""
        if self._asks and self._until is not None:
            return max(self._until, self._answered_by)
        return self._until

    def _bound(self) -> float:
        """Return until when an answer can come: after that, kazoo has dropped the connection, or the request."""
        return self.session.now() + (self.session.timeout or UNANSWERED)

    def _park(self, bound: float | None = None) -> bool:
        """Wait to be woken; False when that did not happen before `bound`, which is `_bound()` unless given.

        No wait is without one: an answer may be lost inside kazoo; and an interrupt that comes just before the system
        call that waits is seen by CPython when that call ends.

        Raises:
            DeadlinePassed: the run's time is up.
            OutOfReach: the service is, and the run is to end with that.
        """
        until = bound = self._bound() if bound is None else bound
        limit = self._limit()
        if limit is not None:
            until = min(until, limit)
        if self.fragile:
            until = min(until, self._reachable_until())
        if self.session.stuck:
            until = min(until, self.session.now() + STUCK)
        woken = bool(self._event.wait(max(0.0, until - self.session.now())))
        self._event.clear()
        self.session.serve()
        self.session.help()
        if not woken and limit is not None and self.session.now() >= limit:
            raise DeadlinePassed
        return woken or self.session.now() < bound

    def _reachable_until(self) -> float:
        """Return until when to wait for the service to come back; that it goes wakes us."""
        now, patience = self.session.now(), self.session.timeout / 3
        if self.session.link.connected:
            self._down_since = None
            return math.inf
        if self._down_since is None:
            self._down_since = now
        elif now - self._down_since > patience:
            raise OutOfReach
        return self._down_since + patience + LOOK_AGAIN / 10


def release(session: Session, ticket: Ticket, deadline: float | None = None) -> None:
    """Delete the ticket's node, so that the next in line is woken. Returns although the service is out of reach.

    Args:
        session: the ticket's.
        ticket: what holds, or gives up waiting.
        deadline: what is done after it is to take no more than a moment.
    """
    held = ticket.state is State.HELD
    if session.discard(ticket):
        await_gone(session, ticket, deadline, held=held)


def await_gone(session: Session, ticket: Ticket, deadline: float | None = None, *, held: bool = True) -> None:
    """Wait until the node of a ticket that was given up is gone; not for long, as the keeper goes on.

    Args:
        session: the ticket's.
        ticket: what held, or waited.
        deadline: what is done after it is to take no more than a moment.
        held: whether it held; if it only waited, all takes no more than a moment.
    """
    if session.link.on_own_thread():
        return
    # Only now, once the delete is sent, as somebody waits for that.
    event = session.link.signal()
    ticket.wake = event.set
    now = session.now()
    until = now if deadline is None else min(now, deadline)
    until += session.timeout / 6 if held else min(session.timeout / 6, CLEAN_UP_PATIENCE)
    try:
        session.parked.add(event.set)
        while not session.is_discarded(ticket) and ticket.refusal is None and session.link.connected:
            left = until - session.now()
            if left <= 0:
                return
            event.wait(left)
            event.clear()
            session.serve()
    finally:
        session.parked.discard(event.set)
