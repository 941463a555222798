"""The driver: runs the recipes of one call against ZooKeeper, as steps that `_waiting` resumes.

What it promises, and the contract tests check:

1. operations run in the order they are yielded, on one session; those yielded together are sent back to back;
2. an operation whose session is over fails with `SessionExpired`; a create that slipped into the next is undone;
3. an operation that `repeats` is sent again after a reconnect; of any other the recipe is told `ConnectionLost`;
4. a wait may end early, never late;
5. a deadline and an interrupt enter the recipe only as exceptions at the yield. The deadline bounds the waiting: what a
   recipe asks before it first waits is answered, for up to a third of the session timeout while connected. What it asks
   after its deadline is given a moment, then it is told again;
6. a recipe that ends with an exception, or that its deadline ended, leaves nothing: what it has begun is discarded;
7. no recipe runs on kazoo's own threads.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Protocol, TypeVar

from .._errors import ClientError, RefusedError
from .._kazoo.link import HandledReply, Reply, failure, kazoo_errors, nobody
from .._recipes.operations import (
    POLICIES,
    Children,
    ConnectionLost,
    CreateEphemeral,
    CreatePersistent,
    DeadlinePassed,
    Delete,
    Discard,
    EnsureContainer,
    Get,
    Grant,
    MarkDeleted,
    MarkMissing,
    Multi,
    NewTicket,
    Node,
    NodeExists,
    NoNode,
    Operation,
    OutOfReach,
    Prove,
    Recipe,
    SessionExpired,
    Set,
    SuspendHold,
    Sync,
    Wait,
    WaitGone,
    Watch,
)
from .._recipes.ticket import State, Ticket
from .lease import NEVER
from .session import STUCK, Session
from .waiting import Steps, wait

T = TypeVar("T")
CLEAN_UP_PATIENCE = 0.1  # seconds
UNANSWERED = 10.0
LOOK_AGAIN = 0.5


class Holder(Protocol):
    """Where holds are kept."""

    def drop_tickets(self, tickets: Sequence[Ticket]) -> None:
        """Forget the holds of a call that was abandoned."""


class Call:
    """One call of a primitive: one recipe after the other, and what they have begun.

    Attributes:
        tickets: those begun in this call; `abandon` discards them.
        wake: ends its sleep; see `_waiting`.
        deserted: returns whether its loop is closed, so that nobody resumes it; None for the call of a thread.
        over: it was abandoned, or wants nothing of a gate any more.
        path_state: where this call takes or gives up a hold, if it does.
        settled: all that there is to be sent for that was sent, or given up, so that nobody waits for this call.
        fragile: its recipe ends once the service is out of reach, for a third of the session's timeout.
    """

    def __init__(self, session: Session, path: str, path_state: Holder | None = None, *, fragile: bool = False) -> None:
        self.session = session
        self.path = path
        self.path_state = path_state
        self.settled = False
        self.fragile = fragile
        self.tickets: list[Ticket] = []
        self.over = False
        self.wake: Callable[[], None] = nobody
        self.deserted: Callable[[], bool] | None = None
        self._down_since: float | None = None
        self._deadline: float | None = None
        self._until: float | None = None  # the deadline, and a moment more once it has passed
        self._asks = False
        self._answered_by = 0.0
        self._refused: str | None = None
        self._hurried = False

    def wait(self, steps: Steps[T]) -> T:
        """Run the call to its end, on the calling thread."""
        return wait(self, steps, self.session.link.signal())

    def begin(self, wake: Callable[[], None], deserted: Callable[[], bool] | None = None) -> None:
        """Begin; `wake` ends its sleep, as does each change of the connection."""
        self.wake, self.deserted = wake, deserted
        self.session.parked[id(self)] = self

    def end(self) -> None:
        """Take note that its steps have come to their end."""
        self.session.parked.pop(id(self), None)

    def hurry(self) -> None:
        """Wait no more for what is cleaned up."""
        self._hurried = True

    def run(self, recipe: Recipe[T], deadline: float | None = None, since: float | None = None) -> Steps[T | None]:
        """Run a recipe; return its result, or None when the deadline passed before.

        Args:
            recipe: the recipe.
            deadline: when its waiting ends.
            since: from when the patience for its first answer counts; from now, if not given.
        """
        session = self.session
        session.check_usable(self.path)
        self._deadline = self._until = deadline
        # Before it first waits: no longer than it takes to see that a link is dead.
        self._asks = deadline is not None
        patience = (session.timeout or UNANSWERED) / 3 if self._asks and session.link.connected else 0.0
        self._answered_by = (session.now() if since is None else since) + patience
        begun = len(self.tickets)
        try:
            step = next(recipe)
            while True:
                try:
                    answer = yield from self._perform(step)
                except GeneratorExit:
                    raise
                except BaseException as error:
                    if isinstance(error, DeadlinePassed):
                        self._asks = False
                        self._until = session.now() + CLEAN_UP_PATIENCE
                    step = recipe.throw(error)
                else:
                    step = recipe.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except GeneratorExit:
            raise
        except BaseException as error:
            yield from self._discard(self.tickets[begun:])
            if isinstance(error, DeadlinePassed):
                return None
            raise

    def give_up(self) -> Steps[None]:
        """Give up whatever the call has begun, or been granted, and wait until the nodes are gone."""
        yield from self._discard(self.tickets)
        self.abandon()

    def abandon(self) -> None:
        """Give up whatever the call has begun, or been granted, without waiting."""
        self.over = self.settled = True  # first: the next interrupt may be on its way
        self.session.parked.pop(id(self), None)
        self.session.drop(self.tickets)
        if self.path_state is not None:
            self.path_state.drop_tickets(self.tickets)

    # -- one step of a recipe ------------------------------------------------------------------------------------

    def _perform(self, step: Operation | tuple[Operation, ...]) -> Steps[Any]:
        kind = type(step)
        if kind in _AT_ONCE:
            return getattr(self.session, _AT_ONCE[kind])(step.ticket)  # type: ignore[union-attr]
        if kind in _TAKES_TIME:
            return (yield from getattr(self, _TAKES_TIME[kind])(step))
        if kind is tuple:
            return (yield from self._request(step))  # type: ignore[arg-type]
        return (yield from self._request((step,)))[0]  # type: ignore[arg-type]

    def _begin(self, step: NewTicket) -> Steps[Ticket]:
        while True:
            yield from self._connected(None)
            with self.session.lock, contextlib.suppress(SessionExpired):  # just now: wait for the next
                self.session.check_not_exiting(step.path)
                return self.session.registry.begin(step.path, self.tickets)

    def _request(
        self,
        steps: tuple[Operation, ...],
        watcher: Callable[[Any], None] | None = None,
        answers: list[Reply] | None = None,
    ) -> Steps[list[Any]]:
        """Send requests together and wait for all answers; what met a lost connection is sent again, if it may be.

        Args:
            steps: the requests.
            watcher: is left on what they read.
            answers: to them, if they were sent already.
        """
        results: list[Any] = [None] * len(steps)
        left = list(range(len(steps)))
        again: list[int] = []
        while left:
            if not answers:
                ticket: Ticket | None = getattr(steps[left[0]], "ticket", None)
                yield from self._connected(ticket)
                answers = [self._send(steps[i], watcher, last=i == left[-1]) for i in left]
            last = answers[-1]
            bound = None if last.done else self._bound()
            while not last.done:
                if not (yield from self._park(bound)):
                    last.set_exception(kazoo_errors.ConnectionLoss())  # the request was lost inside kazoo
            if not all(answer.done for answer in answers):
                self.session.serve()  # they were answered before the last, and posted
            in_doubt, again = again, []
            for i, answer in zip(left, answers, strict=True):
                try:
                    results[i] = self._result(steps[i], answer)
                except ConnectionLost:
                    if not POLICIES[type(steps[i])].repeats:
                        raise
                    again.append(i)
                else:
                    if i in in_doubt and results[i] is False:
                        results[i] = None
            left, answers = again, None
        return results

    def _send(self, step: Operation, watcher: Callable[[Any], None] | None, *, last: bool) -> Reply:
        # Answers come in the order of the requests: whoever waits for the last one has them all.
        wake = self.wake if last else nobody
        if type(step) is CreateEphemeral:
            return self._create(step, wake)
        if type(step) is Multi:
            return self._multi(step, wake)
        answer = Reply(wake)
        _SEND[type(step)](self.session, step, answer, watcher)
        return answer

    def _create(self, step: CreateEphemeral, wake: Callable[[], None]) -> Reply:
        # All that an answer may keep alive.
        session, ticket, before = self.session, step.ticket, step.ticket.sent

        def made(answer: HandledReply) -> None:
            session.made(ticket, answer.value, answer.error, before)

        ticket.sent = True
        answer = HandledReply(made, wake, session.post)
        session.link.create(step.path, step.data, answer)
        return answer

    def _multi(self, step: Multi, wake: Callable[[], None]) -> Reply:
        session, operations = self.session, step.operations
        made = [part.ticket if type(part) is CreateEphemeral else None for part in operations]
        ended = [part.ticket if type(part) is Delete else None for part in operations]
        before = [ticket is not None and ticket.sent for ticket in made]

        def done(answer: HandledReply) -> None:
            nodes = answer.value or [None] * len(operations)
            for ticket, node, sent in zip(made, nodes, before, strict=True):
                if ticket is not None:
                    session.made(ticket, node, answer.error, sent)
            for ticket in ended:
                if ticket is not None and answer.error is None:
                    session.gone(ticket)

        for ticket in made:
            if ticket is not None:
                ticket.sent = True
        answer = HandledReply(done, wake, session.post)
        session.link.multi(operations, answer)
        return answer

    def _result(self, step: Any, answer: Reply) -> Any:
        """Return what the recipe is told, or raise it."""
        if answer.error is not None:
            return self._failed(step, answer.error)
        if not answer.done:
            raise ConnectionLost
        kind = type(step)
        if kind in (CreateEphemeral, Multi) and step.ticket.state is State.DISCARDED:
            # Its node was created in the next session.
            raise SessionExpired
        if kind is CreateEphemeral:
            return step.ticket.name
        if kind is Get:
            data, stat = answer.value
            created = (stat.cversion + stat.numChildren) // 2  # cversion counts the deletes too
            return Node(data or b"", stat.czxid, stat.ctime / 1000.0, stat.ephemeralOwner, stat.version, created)
        if kind is Delete and step.ticket is not None:
            self.session.gone(step.ticket)
        return True if kind in (CreatePersistent, Set, Delete) else answer.value

    def _failed(self, step: Any, error: Exception) -> Any:
        kind, failed = type(step), failure(error, self.path)
        if kind is EnsureContainer:
            failed = self._not_made(step, error, failed)
        elif kind is CreatePersistent and isinstance(failed, NoNode) and step.path.count("/") == 1:
            failed = self._no_chroot()
        if isinstance(failed, SessionExpired) and getattr(step, "ticket", None) is None:
            failed = ConnectionLost()  # what is bound to no session goes on in the next
        answers = POLICIES[kind].answers
        if type(failed) in answers:
            if kind is Delete and step.ticket is not None:
                self.session.gone(step.ticket)
            return answers[type(failed)]
        try:
            raise failed
        finally:
            del failed  # else the traceback and this frame keep each other alive, and with them the caller's lock

    def _not_made(self, step: EnsureContainer, error: Exception, failed: Exception) -> Exception:
        """Return why a container was not made, or NodeExists where that does not matter."""
        if isinstance(error, kazoo_errors.NoAuthError) and step.path != self.path:
            self._refused = step.path  # said also of one that is there, made by somebody else: the next will tell
            return NodeExists()
        if isinstance(failed, NoNode):
            if step.path.rpartition("/")[0] == self._refused:
                return failure(kazoo_errors.NoAuthError(), self.path)
            # What is above was reaped just now: the create will tell, and we come again.
            return NodeExists() if step.path.count("/") > 1 else self._no_chroot()
        return failed

    def _no_chroot(self) -> RefusedError:
        return RefusedError(self.path, f"the client's chroot {self.session.link.full('')!r} does not exist")

    def _wait_gone(self, step: WaitGone) -> Steps[list[Any] | None]:
        if not step.asks:
            self._waits()
        session, ticket, ahead = self.session, step.ticket, f"{step.ticket.path}/{step.ahead}"
        early: list[Reply] = []

        def gone() -> None:  # with the session's lock held, on a thread of kazoo's, or that of the holder before us
            if early or ticket.handed_over or not session.link.connected:
                self.wake()
            else:
                if not ticket.lease.believed(session.clock() + session.timeout / 20):  # it was a long wait
                    session.link.check([ticket.node], HandledReply(lambda _: None))
                early.extend([self._send(read, None, last=read is step.reads[-1]) for read in step.reads])

        with session.lock:  # both: what is read before the wait has begun would be taken for what was read after it
            session.registry.wait(ticket, ahead)
            ticket.shown = (ahead,)
            ticket.wake = gone
        try:
            yield from self._connected(ticket)
            answer = Reply(self.wake)
            session.link.get(ahead, answer, session.on_event)
            bound = self._bound()
            while not (answer.done or ticket.changed):
                if not (yield from self._park(bound)):
                    break  # the request was lost inside kazoo: look again
            if answer.error is not None:
                failed = failure(answer.error, self.path)
                if not isinstance(failed, NoNode | ConnectionLost | SessionExpired):
                    raise failed
            elif answer.done and not ticket.changed:
                yield from self._stirred(ticket)
        except GeneratorExit:
            raise
        except BaseException:
            self._stop_waiting(ticket)
            raise
        self._stop_waiting(ticket)
        if ticket.handed_over:
            return None
        return (yield from self._request(step.reads, answers=early))

    def _prove(self, step: Prove) -> Steps[None]:
        session, ticket = self.session, step.ticket
        if ticket.lease.heard == NEVER:
            # Of an old connection that we have only begun to use, nothing is known yet; what is ours to take is not
            # refused for that.
            self._answered_by = max(self._answered_by, session.now() + ticket.lease.gap + session.timeout / 3)
        try:
            ticket.proving = True
            session.wake_keeper()
            while not ticket.lease.believed(session.clock()):
                yield from self._connected(ticket)
                yield from self._park(session.now() + LOOK_AGAIN)
        finally:
            ticket.proving = False

    def _watch(self, step: Watch) -> Steps[list[Any]]:
        self._waits()
        session = self.session
        step.ticket.wake = self.wake
        with session.lock:
            session.registry.wait(step.ticket, *(read.path for read in step.reads))
        answers = yield from self._request(step.reads, session.on_event)
        listings = [
            (read.path, names) for read, names in zip(step.reads, answers, strict=True) if type(read) is Children
        ]
        step.ticket.shown = tuple(f"{path}/{name}" for path, names in listings for name in names)
        return answers

    def _wait(self, step: Wait) -> Steps[None]:
        try:
            if not step.ticket.changed:
                yield from self._stirred(step.ticket)
        except GeneratorExit:
            raise
        except BaseException:
            self._stop_waiting(step.ticket)
            raise
        self._stop_waiting(step.ticket)

    def _discard_one(self, step: Discard) -> Steps[None]:
        yield from self._discard([step.ticket])

    def _discard(self, tickets: list[Ticket]) -> Steps[None]:
        """Delete the tickets' nodes, so that the next in line is woken; not for long, as the keeper goes on."""
        for ticket in tickets:
            held = ticket.state is State.HELD
            if self.session.discard(ticket):
                yield from self.gone(ticket, held=held)

    def gone(self, ticket: Ticket, *, held: bool = True) -> Steps[None]:
        """Wait until the node of a ticket that was given up is gone; not for long, as the keeper goes on.

        Args:
            ticket: what held, or waited.
            held: whether it held; if it only waited, or the deadline has passed, that takes no more than a moment.
        """
        session = self.session
        if self._hurried or session.link.on_own_thread():
            return
        # Only now, once the delete is sent, as somebody waits for that.
        ticket.wake = self.wake
        now = session.now()
        until = now if self._deadline is None else min(now, self._deadline)
        until += session.timeout / 6 if held else min(session.timeout / 6, CLEAN_UP_PATIENCE)
        while not session.is_discarded(ticket) and ticket.refusal is None and session.link.connected:
            left = until - session.now()
            if left <= 0:
                return
            yield left
            session.serve()

    # -- waiting -------------------------------------------------------------------------------------------------

    def _connected(self, ticket: Ticket | None) -> Steps[None]:
        """Wait until requests can be sent, in the ticket's session if there is a ticket."""
        session = self.session
        while True:
            present = session.registry.session
            if ticket is not None and (ticket.session != present or ticket.state is State.DISCARDED):
                raise SessionExpired
            if present is not None and session.link.connected:
                return
            session.check_usable(self.path)
            # kazoo does not tell that it gives up, or stops, while it is down.
            yield from self._park(session.now() + LOOK_AGAIN)

    def _stirred(self, ticket: Ticket) -> Steps[None]:
        """Wait until what the ticket awaits may be gone, or changed."""
        self.check_not_interrupted()
        while not ticket.changed:
            yield from self._park(math.inf)

    def check_not_interrupted(self) -> None:
        """Refuse to wait, in a signal handler or a finalizer, for the very call that it has interrupted.

        That call is on the stack of the calling thread, and ends only when we return. Its frames have it in a local
        variable of that name, or the primitive, as `self`.

        Raises:
            ClientError: the thread was interrupted as it acquired or released at this place.
        """
        if self.path_state is None or self.settled:
            return
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and not (_is_ours(frame) and frame.f_locals.get("call") is self):
            frame = frame.f_back
        while frame is not None and _is_ours(frame):
            frame = frame.f_back  # this is where our own call began
        calls_out, settled = True, False
        while frame is not None:
            known = frame.f_locals if _is_ours(frame) else {}
            if not known:
                calls_out, settled = True, False
            elif calls_out and frame.f_code.co_name in _CALL_OUT and "call" not in known:
                pass  # not interrupted: it has called a subclass's method, from which we are called
            else:
                calls_out = False
                call, primitive = known.get("call"), known.get("self")
                settled = settled or getattr(call, "settled", False)
                if not settled and self.path_state in (
                    getattr(call, "path_state", None),
                    getattr(primitive, "_path_state", None),
                ):
                    raise ClientError(
                        self.path,
                        "this thread was interrupted as it acquired or released here, and goes on only when the signal "
                        "handler or finalizer that calls returns: acquire with blocking=False there, or leave it to "
                        "another thread",
                    )
            frame = frame.f_back

    def _stop_waiting(self, ticket: Ticket) -> None:
        with self.session.lock:
            self.session.registry.stop_waiting(ticket)
            ticket.wake = self.wake

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

    def _park(self, bound: float | None = None) -> Steps[bool]:
        """Sleep until woken; False when that did not happen before `bound`, which is `_bound()` unless given.

        Raises:
            DeadlinePassed: the run's time is up.
            OutOfReach: the service is, and the run is to end with that.
        """
        session = self.session
        until = bound = self._bound() if bound is None else bound
        limit = self._limit()
        if limit is not None:
            until = min(until, limit)
        if self.fragile:
            until = min(until, self._reachable_until())
        if session.stuck:
            until = min(until, session.now() + STUCK)
        woken = yield None if until == math.inf else max(0.0, until - session.now())
        session.serve()
        session.help()
        if not woken and limit is not None and session.now() >= limit:
            raise DeadlinePassed
        return woken or session.now() < bound

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


# Methods that call others which a subclass may have overridden.
_CALL_OUT = ("__enter__", "__exit__", "acquire")


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("zkconcurrent._")


def _make_container(session: Session, step: EnsureContainer, answer: Reply) -> None:
    session.link.make_container(step.path, answer, directory=session.directory.is_directory(step.path))


# How each operation is done: by a method of the session, at once; by one of the driver, as steps; or by a request.
_AT_ONCE = {Grant: "grant", SuspendHold: "leave", MarkDeleted: "gone", MarkMissing: "missing"}
_TAKES_TIME = {
    NewTicket: "_begin",
    Prove: "_prove",
    Discard: "_discard_one",
    WaitGone: "_wait_gone",
    Watch: "_watch",
    Wait: "_wait",
}
_SEND: dict[type, Callable[[Session, Any, Reply, Any], None]] = {
    Children: lambda session, step, answer, watcher: session.link.children(step.path, answer, watcher),
    Get: lambda session, step, answer, watcher: session.link.get(step.path, answer, watcher),
    Sync: lambda session, step, answer, _: session.link.sync(step.path, answer),
    CreatePersistent: lambda session, step, answer, _: session.link.make(step.path, step.data, answer),
    Set: lambda session, step, answer, _: session.link.set(step.path, step.data, step.version, answer),
    Delete: lambda session, step, answer, _: session.link.delete(step.path, answer, step.version),
    EnsureContainer: lambda session, step, answer, _: _make_container(session, step, answer),
}
