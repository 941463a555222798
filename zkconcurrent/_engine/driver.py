"""The driver: runs the recipes of one call against ZooKeeper, as steps that `waiting` resumes.

Its promises, which the contract tests check:

1. operations run in the order they are yielded, in one session; those yielded together are sent back to back;
2. an operation whose session is over fails with `SessionExpired`; a create that slipped into the next session is
   undone;
3. an operation that `repeats` is sent again after a reconnect; for any other the recipe gets `ConnectionLost`. What a
   busy server has not applied is sent again, with the reads behind it;
4. a wait may end early, never late;
5. deadlines and interrupts enter the recipe only as exceptions at the yield. The deadline bounds the waiting: requests
   before the first wait get their replies, for up to a third of the session timeout while connected. After its
   deadline, a recipe has a moment to clean up; then the deadline is raised again;
6. a recipe that ends with an exception, or by its deadline, leaves nothing: the tickets it began are discarded, and the
   client's next recipe at the path does not see their nodes;
7. no recipe runs on kazoo's own threads.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

from .._errors import ClientError, RefusedError, ZkConcurrentError
from .._kazoo.replies import HandledReply, Reply, failure, kazoo_errors, no_wakeup
from .._protocol.lease import NEVER
from .._protocol.operations import (
    POLICIES,
    Busy,
    Check,
    CheckChroot,
    Children,
    ConnectionLost,
    Container,
    Create,
    CreateEphemeral,
    CreatePersistent,
    CreateTogether,
    DeadlinePassed,
    Delete,
    DetachTicket,
    Discard,
    EnsureContainer,
    Exists,
    Failure,
    Get,
    GetWithZxid,
    Grant,
    MarkDeleted,
    MarkMissing,
    Multi,
    NewTicket,
    NodeExists,
    NoNode,
    Operation,
    OutOfReach,
    ProveLease,
    Recipe,
    SessionExpired,
    SetNode,
    SuspendHold,
    Sync,
    Wait,
    WaitGone,
    WaitRecursive,
    Watch,
    WatchRecursive,
    makes_ephemerals,
)
from .._protocol.ticket import State, Ticket
from .._runtime.interrupts import check_not_interrupted
from .._runtime.waiting import Steps, Waiting, WhyEnd, ends_by_itself, wait
from .keeper import STUCK_AFTER
from .session import LeftTickets, Session

T = TypeVar("T")
Watcher: TypeAlias = Callable[[Any], None]
CLEAN_UP_PATIENCE = 0.1  # seconds
POLL_INTERVAL = 0.5  # seconds
# A new connection takes about as long. A call that would wait longer for a proof of its lease asks for one.
RENEWS_FROM = 0.3  # seconds
# A wait that goes by the wall clock looks at it so often, as the clock may be set.
CLOCK_POLL_INTERVAL = 1.0  # seconds


class HoldStore(Protocol):
    """Keeps holds."""

    def drop_tickets(self, tickets: Sequence[Ticket]) -> None:
        """Forget the holds of a call that was abandoned."""


class Call:
    """One call of a primitive: it runs one recipe after the other, and keeps the tickets that they begin.

    Attributes:
        tickets: the tickets begun in this call; `abandon` discards them.
        given_up: in the wait of a condition, the ticket of the hold that the wait releases. `abandon_by_loop` discards
            this ticket too.
        part_of: a weak reference to the `Calls` to which this call belongs; None if there is none.
        wake: ends the call's sleep; see `waiting`.
        deserted: a function that returns whether the event loop is closed, so that no loop resumes the call; None for a
            thread's call.
        finished: the call was abandoned, or has left its hand-off.
        path_state: the path's state, if this call takes or ends a hold there; otherwise None.
        settled: the call has sent or given up all its requests, so that no thread waits for this call.
        max_outage: for how many session timeouts the service may be out of reach before the recipe ends; None for any
            time.
        waits_for: see `Waiting`.
        why_end: see `Waiting`.
    """

    settled = False
    finished = False
    given_up: Ticket | None = None
    wake: Callable[[], None] = staticmethod(no_wakeup)
    deserted: Callable[[], bool] | None = None
    waits_for: tuple[object, ...] = ()
    why_end: WhyEnd | None = None
    part_of: Callable[[], Waiting | None] | None = None
    _leaves_clean_up = False
    _refused: str | None = None
    _down_since: float | None = None
    _before_wait = False
    _first_replies_by = 0.0
    _deadline: float | None = None
    # The deadline; once that has passed, the end of the clean-up.
    _cutoff: float | None = None

    def __init__(
        self, session: Session, path: str, path_state: HoldStore | None = None, *, max_outage: float | None = None
    ) -> None:
        self.session = session
        self.path = path
        self.path_state = path_state
        self.max_outage = max_outage
        self.tickets: list[Ticket] = []

    @property
    def whole(self) -> Waiting:
        """The object that a loop runs: the `Calls` of which this is a part, or this call."""
        return self if self.part_of is None else self.part_of() or self

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The session, as `Calls` has several."""
        return (self.session,)

    def wait(self, steps: Steps[T]) -> T:
        """Run the call to its end, on the calling thread."""
        return wait(self, steps)

    def begin(self, wake: Callable[[], None], deserted: Callable[[], bool] | None = None) -> None:
        """Begin; `wake` ends the call's sleep, and so does each change of the connection."""
        self.wake, self.deserted = wake, deserted
        self.session.calls.add(self)

    def end(self) -> None:
        """Note that the steps have ended."""
        self.session.calls.discard(self)

    def leave_clean_up(self) -> None:
        """Stop waiting for clean-up; the keeper finishes it."""
        self._leaves_clean_up = True

    def run(self, recipe: Recipe[T], deadline: float | None = None, since: float | None = None) -> Steps[T | None]:
        """Run a recipe; return its result, or None if the deadline passed before.

        Args:
            recipe: the recipe.
            deadline: when its waiting ends.
            since: when the patience for its first replies began; now, if not given.
        """
        session = self.session
        session.check_usable(self.path)
        self._deadline = self._cutoff = deadline
        self._await_first_replies(since)
        begun = len(self.tickets)
        try:
            if session.registry.deletes:
                yield from self._delete_first()
            step = next(recipe)
            while True:
                try:
                    reply = yield from self._perform(step)
                except GeneratorExit:
                    raise
                except BaseException as error:
                    if isinstance(error, DeadlinePassed):
                        self._before_wait = False
                        self._cutoff = session.now() + CLEAN_UP_PATIENCE
                    step = recipe.throw(error)
                else:
                    step = recipe.send(reply)
                    # The next step may wait for long, and a listing of a crowd takes much memory.
                    del reply
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except GeneratorExit:
            raise
        except BaseException as error:
            if not isinstance(error, DeadlinePassed | ZkConcurrentError):  # an interrupt
                ends_by_itself(self.whole)
            yield from self._discard(self.tickets[begun:])
            if isinstance(error, DeadlinePassed):
                return None
            if isinstance(error.__context__, Failure):
                # A traceback says what is wrong, not which operation has shown it.
                error.__suppress_context__ = True
            raise

    def give_up(self) -> Steps[None]:
        """Give up whatever the call has begun, or been granted, and wait until the nodes are gone."""
        yield from self._discard(self.tickets)
        self.abandon()

    def abandon(self) -> None:
        """Discard all tickets that the call has begun or been granted, without waiting."""
        # First, as another interrupt may follow: a hand-off waits for no finished call.
        self.finished = True
        self.session.calls.discard(self)
        self.session.drop(self.tickets)
        if self.path_state is not None:
            self.path_state.drop_tickets(self.tickets)
        # R2: a signal handler that strikes before this must not wait for the call; see `check_not_interrupted`.
        self.settled = True

    def abandon_by_loop(self) -> None:
        """Abandon the call of a closed event loop, with the ticket in `given_up`: no caller is left to take it back."""
        if self.given_up is not None:
            self.session.dropped.append(LeftTickets([], [self.given_up]))
        self.abandon()

    def _delete_first(self) -> Steps[None]:
        """Have the nodes that this client has abandoned at the path deleted before the recipe reads.

        Otherwise the recipe would count them as contenders. If the name of such a node is not known yet, this waits for
        a `sync`: the replies to the node's create, and to the listing that looks for it, come before, and then the
        delete is sent.
        """
        session = self.session
        if not (session.link.connected and session.delete_first(self.path)):
            return
        reply = Reply(self.wake)
        session.link.sync(self.path, reply)
        bound = self._reply_limit()
        # The recipe's first step raises these errors again.
        with contextlib.suppress(DeadlinePassed, OutOfReach):
            while not reply.done and (yield from self._park(bound)):
                pass
        session.run_posted()

    # -- one step of a recipe ------------------------------------------------------------------------------------

    def _perform(self, step: Operation | tuple[Operation, ...]) -> Steps[Any]:
        kind = type(step)
        if kind in _STEPS:
            return (yield from getattr(self, _STEPS[kind])(step))
        if kind in _AT_ONCE:
            return getattr(self.session, _AT_ONCE[kind])(step.ticket)  # type: ignore[union-attr]
        return (yield from self._request((step,)))[0]

    def _new_ticket(self, step: NewTicket) -> Steps[Ticket]:
        while True:
            yield from self._connected(None)
            # If the session ended just now, the call waits for the next one.
            with contextlib.suppress(SessionExpired):
                return self.session.new_ticket(step.path, self.tickets)

    def _request(
        self,
        steps: Sequence[Any],
        watcher: Watcher | None = None,
        replies: list[Reply] | None = None,
    ) -> Steps[list[Any]]:
        """Send requests together and wait for all replies. After a lost connection, repeat the repeatable ones.

        What a busy server has not applied is repeated, whatever it is. A read behind a request that is repeated is
        repeated too, as it may show an older state.

        Args:
            steps: the requests.
            watcher: the watcher to leave on the nodes that they read.
            replies: the replies to wait for, if the requests were sent already.
        """
        results: list[Any] = [None] * len(steps)
        left = list(range(len(steps)))
        again: list[int] = []
        connection = self.session.link.connection
        while left:
            if not replies:
                ticket = getattr(steps[left[0]], "ticket", None)
                try:
                    yield from self._connected(ticket)
                except DeadlinePassed as passed:
                    passed.unsent = not again
                    raise
                replies, connection = [], self.session.link.connection
                for i in left:
                    # Replies come in the order of the requests: after the last one, all are there.
                    wake = self.wake if i == left[-1] else no_wakeup
                    replies.append(_REQUESTS[type(steps[i])](self, steps[i], wake, watcher))
            last = replies[-1]
            bound = None if last.done else self._reply_limit()
            while not last.done:
                if not (yield from self._park(bound)):
                    # The request was lost inside kazoo.
                    last.set_exception(kazoo_errors.ConnectionLoss())
            if len(replies) > 1 and not all(reply.done for reply in replies):
                # The other replies came before the last one, so kazoo's thread has posted what is to be done with them.
                self.session.run_posted()
            in_doubt, again = again, []
            for i, reply in zip(left, replies, strict=True):
                # A busy server may have refused an earlier request alone, so this read may show an older state.
                if again and POLICIES[type(steps[i])].reads:
                    again.append(i)
                    continue
                try:
                    results[i] = self._result(steps[i], reply)
                except Busy:
                    again.append(i)
                except ConnectionLost:
                    if not POLICIES[type(steps[i])].repeats:
                        raise
                    again.append(i)
                except SessionExpired:
                    # Only the error of a leader, which has refused a `multi`, names the part that failed.
                    refused = getattr(reply.error, "part", None) is not None
                    if not refused or not makes_ephemerals(getattr(steps[i], "operations", ())):
                        raise
                    yield from self._check_session(steps[i].ticket)
                    if self.session.link.connection is connection:
                        raise failure(kazoo_errors.EphemeralOnLocalSessionError(), self.path) from None
                    # The session lives: a former leader was about to end it, and did not.
                    again.append(i)
                else:
                    if i in in_doubt and results[i] is False:
                        results[i] = None
            left, replies = again, None
        return results

    def _check_session(self, ticket: Ticket) -> Steps[None]:
        """Ask the leader for the session of a ticket, whose `multi` it has refused as if the session were over.

        If the session lives, and the connection is still the same, it is a local one: only its own server knows it, and
        that server may not upgrade it. A single create would get that error at once.

        Raises:
            SessionExpired: the session is over.
        """
        # Both replies show that the session lives.
        with contextlib.suppress(NoNode, RefusedError):
            yield from self._request((Multi(ticket, (Check(self.path),)),))

    def _create(self, step: CreateEphemeral, wake: Callable[[], None], _: object) -> Reply:
        # The reply may outlive the call. It keeps these alive, and not the call.
        session, ticket, before = self.session, step.ticket, step.ticket.sent

        def made(reply: HandledReply) -> None:
            session.note_create_reply(ticket, reply.value, reply.error, before)

        ticket.sent = True
        reply = HandledReply(made, wake, session.post)
        session.link.create(step.path, step.data, reply)
        return reply

    def _multi(self, step: Multi, wake: Callable[[], None], _: object) -> Reply:
        if step.awaits_reply_past_deadline:
            self._await_first_replies(self._deadline)
        session = self.session
        operations: Sequence[Any] = step.operations
        made: list[Ticket | None] = [part.ticket if POLICIES[type(part)].creates else None for part in operations]
        ended: list[Ticket | None] = [part.ticket if POLICIES[type(part)].deletes else None for part in operations]
        before = [ticket is not None and ticket.sent for ticket in made]

        def done(reply: HandledReply) -> None:
            nodes = reply.value or [None] * len(operations)
            for ticket, node, sent in zip(made, nodes, before, strict=True):
                if ticket is not None:
                    session.note_create_reply(ticket, node, reply.error, sent)
            for ticket in ended:
                if ticket is not None and reply.error is None:
                    session.mark_deleted(ticket)

        for ticket in made:
            if ticket is not None:
                ticket.sent = True
        reply = HandledReply(done, wake, session.post)
        session.link.multi(operations, reply)
        return reply

    def _result(self, step: Any, reply: Reply) -> Any:
        """Return the result to send into the recipe, or raise the error to throw into it."""
        if reply.error is not None:
            return self._failure_result(step, reply.error)
        if not reply.done:
            raise ConnectionLost
        policy = POLICIES[type(step)]
        if policy.creates and step.ticket.state is State.DISCARDED:
            # The ticket's node was created in the next session, so `note_create_reply` has discarded the ticket.
            raise SessionExpired
        if policy.deletes and step.ticket is not None:
            self.session.mark_deleted(step.ticket)
        return policy.result(step, reply.value)

    def _failure_result(self, step: Any, error: Exception) -> Any:
        failed, policy = failure(error, self.path), POLICIES[type(step)]
        if type(step) in _FAILURES:
            failed = _FAILURES[type(step)](self, step, error, failed)
        if isinstance(failed, SessionExpired) and getattr(step, "ticket", None) is None:
            # A request that is bound to no session continues in the next one.
            failed = ConnectionLost()
        if type(failed) in policy.answers:
            if policy.deletes and step.ticket is not None:
                self.session.mark_deleted(step.ticket)
            return policy.answers[type(failed)]
        try:
            raise failed
        finally:
            # Otherwise the traceback and this frame would keep each other alive, and the caller's lock with them.
            del failed

    def _container_failure(self, step: EnsureContainer, error: Exception, failed: Exception) -> Exception:
        """Return why a container was not made, or NodeExists if that does not matter."""
        if isinstance(error, kazoo_errors.NoAuthError) and step.path != self.path:
            # The server refuses this even if the node exists: the next create shows whether it does.
            self._refused = step.path
            return NodeExists()
        if isinstance(failed, NoNode):
            if step.path.rpartition("/")[0] == self._refused:
                return failure(kazoo_errors.NoAuthError(), self.path)
            # The server has removed the empty parent just now: the create fails, and the recipe makes the parent again.
            return NodeExists() if step.path.count("/") > 1 else self._no_chroot()
        return failed

    def _persistent_failure(self, step: CreatePersistent, _: Exception, failed: Exception) -> Exception:
        return self._no_chroot() if isinstance(failed, NoNode) and step.path.count("/") == 1 else failed

    def _together_failure(self, step: Multi | CreateTogether, _: Exception, failed: Exception) -> Exception:
        part = step.operations[failed.part or 0] if isinstance(failed, NoNode) else None
        return self._no_chroot() if isinstance(part, Container | Create) and part.path.count("/") == 1 else failed

    def _tree_failure(self, _step: WatchRecursive, error: Exception, failed: Exception) -> Exception:
        """Return why a tree is not watched. The messages name the Dict and the Set, as nothing else watches a tree."""
        if isinstance(error, kazoo_errors.UnimplementedError):
            return RefusedError(self.path, "the server is too old: a Dict or Set needs ZooKeeper 3.6 or newer")
        if isinstance(error, kazoo_errors.MarshallingError):
            return RefusedError(
                self.path,
                "ZooKeeper refused the watch: a Dict or Set needs servers whose watchManagerName is not "
                "WatchManagerOptimized",
            )
        return failed

    def _check_chroot(self, _: CheckChroot) -> Steps[None]:
        link = self.session.link
        chroot = link.client.chroot
        if chroot != link.seen_chroot:
            if not (yield from self._request((Exists(""),)))[0]:
                raise self._no_chroot()
            link.seen_chroot = chroot

    def _no_chroot(self) -> RefusedError:
        return RefusedError(
            self.path,
            f"the client's chroot {self.session.link.full('')!r} does not exist: create it, or open the client by "
            "zkconcurrent.connect, which does",
        )

    def _wait_gone(self, step: WaitGone) -> Steps[list[Any] | None]:
        if not step.asks:
            self._begin_wait()
        session, ticket, ahead = self.session, step.ticket, f"{step.ticket.path}/{step.ahead}"
        early: list[Reply] = []
        # A closure would take more memory for each of a crowd of waiters.
        session.start_waiting(ticket, partial(self._look_again, step, early), ahead)
        ticket.shown = (ahead,)
        try:
            yield from self._connected(ticket)
            reply = Reply(self.wake)
            session.link.get(ahead, reply, session.on_event)
            # The change was noted just before, so no call needs the watch that this read leaves.
            if not ticket.awaits:
                session.note_left(ahead)
            bound = self._reply_limit()
            while not (reply.done or ticket.changed):
                if not (yield from self._park(bound)):
                    # The request was lost inside kazoo: look again.
                    break
            if reply.error is not None:
                failed = failure(reply.error, self.path)
                if not isinstance(failed, NoNode | ConnectionLost | SessionExpired):
                    raise failed
            elif reply.done and not ticket.changed:
                del reply
                yield from self._await_change(ticket)
        except GeneratorExit:
            raise
        except BaseException:
            session.stop_waiting(ticket, self.wake)
            raise
        # Otherwise the thread that noted the change has ended the wait.
        if ticket.awaits:
            session.stop_waiting(ticket, self.wake)
        if ticket.handed_over:
            return None
        return (yield from self._request(step.reads, replies=early))

    def _look_again(self, step: WaitGone, early: list[Reply]) -> None:
        """End a wait whose node is gone, and send its reads; with the session's lock held.

        On kazoo's thread, or on that of the holder ahead.
        """
        session, ticket = self.session, step.ticket
        if early or ticket.handed_over or not session.link.connected:
            self.wake()
        else:
            # After a long wait the lease may need a new proof, which this write gives before the replies to the reads.
            if not ticket.lease.believed(session.clock() + session.timeout / 20):
                session.link.check([ticket.node], HandledReply(lambda _: None))
            wakes = [no_wakeup] * (len(step.reads) - 1) + [self.wake]
            sent = [_REQUESTS[type(read)](self, read, wake, None) for read, wake in zip(step.reads, wakes, strict=True)]
            early.extend(sent)
        # R2: if an interrupt comes before this, the next event does all of it again.
        session.stop_waiting(ticket, self.wake)

    def _prove(self, step: ProveLease) -> Steps[None]:
        session, ticket = self.session, step.ticket
        if ticket.lease.heard == NEVER:
            # An old connection that the library has just begun to use has proved nothing yet. A free lock or
            # permit is not refused for that.
            self._first_replies_by = max(self._first_replies_by, session.now() + ticket.lease.gap + session.patience)
        # One later proof is good for all permits of the call.
        for each in {ticket, *self.tickets}:
            each.doubted = ticket.lease.heard
        try:
            ticket.proving = True
            if not ticket.lease.renewed and ticket.lease.renewable - session.clock() > RENEWS_FROM:
                session.link.transport.renew()
            session.wake_keeper()
            while not ticket.lease.believed(session.clock(), ticket.doubted):
                yield from self._connected(ticket)
                yield from self._park(session.now() + POLL_INTERVAL)
        finally:
            ticket.proving = False

    def _watch(self, step: Watch) -> Steps[list[Any]]:
        self._begin_wait()
        self.session.start_waiting(step.ticket, self.wake, *(read.path for read in step.reads))
        replies = yield from self._request(step.reads, self.session.on_event)
        listings = [
            (read.path, names) for read, names in zip(step.reads, replies, strict=True) if type(read) is Children
        ]
        shown = tuple(f"{path}/{name}" for path, names in listings for name in names)
        step.ticket.shown = self.session.shared(step.ticket, shown) if shown else ()
        return replies

    def _watch_tree(self, step: WatchRecursive) -> Steps[object]:
        self._begin_wait()
        self.session.watch_tree(step.ticket.path, step.changes)
        return (yield from self._request((step,)))[0]

    def _wait_tree(self, step: WaitRecursive) -> Steps[bool]:
        session, ticket, link = self.session, step.ticket, self.session.link
        # Before the test of `changes`: from here on, the call misses no change.
        session.start_waiting(ticket, self.wake, ticket.path)
        try:
            if not step.changes and link.connected and link.connection is step.connection:
                yield from self._await_change(ticket)
        except GeneratorExit:
            raise
        except BaseException:
            session.stop_waiting(ticket, self.wake)
            raise
        session.stop_waiting(ticket, self.wake)
        return link.connected and link.connection is step.connection

    def _wait(self, step: Wait) -> Steps[None]:
        try:
            if not step.ticket.changed:
                yield from self._await_change(step.ticket, step.left)
        except GeneratorExit:
            raise
        except BaseException:
            self.session.stop_waiting(step.ticket, self.wake)
            raise
        self.session.stop_waiting(step.ticket, self.wake)

    def _keep(self, step: DetachTicket) -> Steps[None]:
        self.tickets.remove(step.ticket)
        return
        yield

    def _discard_one(self, step: Discard) -> Steps[None]:
        yield from self._discard([step.ticket])

    def _discard(self, tickets: list[Ticket]) -> Steps[None]:
        """Delete the tickets' nodes, which wakes the next waiters; not for long, as the keeper continues."""
        for ticket in tickets:
            held = ticket.state is State.HELD
            if self.session.discard(ticket):
                yield from self.gone(ticket, held=held)

    def gone(self, ticket: Ticket, *, held: bool = True) -> Steps[None]:
        """Wait until the node of a discarded ticket is gone; not for long, as the keeper continues.

        Args:
            ticket: the ticket.
            held: whether it held. If so, the wait takes a sixth of the session timeout at most, otherwise also no more
                than `CLEAN_UP_PATIENCE`. Both count from the deadline, if that has passed.
        """
        session = self.session
        if self._leaves_clean_up or session.exiting or session.link.on_own_thread():
            return
        # Only now: the delete was sent first, as other threads and clients may wait for it.
        ticket.wake = self.wake
        now = session.now()
        until = now if self._deadline is None else min(now, self._deadline)
        until += session.timeout / 6 if held else min(session.timeout / 6, CLEAN_UP_PATIENCE)
        while not session.is_discarded(ticket) and ticket.refusal is None and session.link.connected:
            left = until - session.now()
            if left <= 0:
                return
            yield left
            session.run_posted()
            # If the keeper is stuck, this thread repeats a delete whose reply was lost.
            session.keeper.stand_in()

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
            session.check_seen(self.path)
            # kazoo does not report that it gives up, or stops, while disconnected.
            yield from self._park(session.now() + POLL_INTERVAL)

    def _await_change(self, ticket: Ticket, left: Callable[[], float] | None = None) -> Steps[None]:
        """Wait until the nodes that the ticket awaits may be gone, or changed; with `left`, while any time is left."""
        try:
            check_not_interrupted(self)
        except ClientError:
            if self._cutoff is None or self.session.now() < self._cutoff:
                raise
            # A single attempt has no time to wait anyway: it ends by its deadline, in a signal handler too.
            raise DeadlinePassed from None
        while not ticket.changed:
            pause = math.inf if left is None else left()
            if pause <= 0:
                return
            yield from self._park(math.inf if left is None else self.session.now() + min(pause, CLOCK_POLL_INTERVAL))

    def _await_first_replies(self, since: float | None = None) -> None:
        """Wait for replies even past the deadline: as long as it takes to detect a dead link, from now or `since`."""
        session = self.session
        self._before_wait = self._deadline is not None
        patience = session.patience if self._before_wait and session.link.connected else 0.0
        self._first_replies_by = (session.now() if since is None else since) + patience

    def _begin_wait(self) -> None:
        """Apply the deadline from here on: the recipe's next requests belong to its waiting."""
        self._before_wait = False
        if self._cutoff is not None and self.session.now() >= self._cutoff:
            raise DeadlinePassed

    def _time_limit(self) -> float | None:
        """Return when the recipe's time is up."""
        if self._before_wait and self._cutoff is not None:
            return max(self._cutoff, self._first_replies_by)
        return self._cutoff

    def _reply_limit(self) -> float:
        """Return the latest time of a reply: by then kazoo has dropped the connection, or the request."""
        return self.session.now() + self.session.longest_reply

    def _park(self, bound: float | None = None) -> Steps[bool]:
        """Sleep until woken; False if that did not happen before `bound`, which is `_reply_limit()` unless given.

        Raises:
            DeadlinePassed: the recipe's time is up.
            OutOfReach: the service is out of reach for longer than `max_outage`.
        """
        session = self.session
        until = bound = self._reply_limit() if bound is None else bound
        limit = self._time_limit()
        if limit is not None:
            until = min(until, limit)
        if self.max_outage is not None:
            until = min(until, self._reachable_until(self.max_outage * session.timeout))
        if session.keeper.stuck:
            until = min(until, session.now() + STUCK_AFTER)
        woken = yield None if until == math.inf else max(0.0, until - session.now())
        session.run_posted()
        session.keeper.stand_in()
        if not woken and limit is not None and session.now() >= limit:
            raise DeadlinePassed
        return woken or session.now() < bound

    def _reachable_until(self, patience: float) -> float:
        """Return until when to wait for a lost connection to come back; the loss itself wakes the call."""
        now = self.session.now()
        if self.session.link.connected:
            self._down_since = None
            return math.inf
        if self._down_since is None:
            self._down_since = now
        elif now - self._down_since > patience:
            raise OutOfReach
        return self._down_since + patience + POLL_INTERVAL / 10


# The reads, which may leave a watcher, have functions of their own: every acquire lists, and this saves it a call.
def _get(call: Call, step: Get, wake: Callable[[], None], watcher: Watcher | None) -> Reply:
    reply = Reply(wake)
    call.session.link.get(step.path, reply, watcher)
    return reply


def _children(call: Call, step: Children, wake: Callable[[], None], watcher: Watcher | None) -> Reply:
    reply = Reply(wake)
    call.session.link.children(step.path, reply, watcher)
    return reply


def _exists(call: Call, step: Exists, wake: Callable[[], None], watcher: Watcher | None) -> Reply:
    reply = Reply(wake)
    call.session.link.exists(step.path, reply, watcher)
    return reply


def _plain(send: Callable[[Session, Any, Reply], None]) -> Callable[..., Reply]:
    """Return the function that sends any other request whose reply concerns the recipe alone."""

    def request(call: Call, step: Any, wake: Callable[[], None], _: object) -> Reply:
        reply = Reply(wake)
        send(call.session, step, reply)
        return reply

    return request


# How each operation is done: in steps of the call, or at once by the session; any other is one request.
_STEPS: dict[type, str] = {
    tuple: "_request",
    NewTicket: "_new_ticket",
    CheckChroot: "_check_chroot",
    ProveLease: "_prove",
    DetachTicket: "_keep",
    Discard: "_discard_one",
    WaitGone: "_wait_gone",
    Watch: "_watch",
    WatchRecursive: "_watch_tree",
    Wait: "_wait",
    WaitRecursive: "_wait_tree",
}
_AT_ONCE: dict[type, str] = {
    Grant: "grant",
    SuspendHold: "suspend_hold",
    MarkDeleted: "mark_deleted",
    MarkMissing: "mark_missing",
}
# How each request is sent, given the function that its reply calls, and the watcher of a read.
_REQUESTS: dict[type, Callable[..., Reply]] = {
    CreateEphemeral: Call._create,
    Multi: Call._multi,
    Get: _get,
    Children: _children,
    Exists: _exists,
    Sync: _plain(lambda session, step, reply: session.link.sync(step.path, reply)),
    GetWithZxid: _plain(lambda session, step, reply: session.link.look(step.path, reply)),
    WatchRecursive: _plain(lambda session, step, reply: session.link.watch_tree(step.path, reply)),
    CreatePersistent: _plain(lambda session, step, reply: session.link.create_persistent(step.path, step.data, reply)),
    SetNode: _plain(lambda session, step, reply: session.link.set_data(step.path, step.data, step.version, reply)),
    Delete: _plain(lambda session, step, reply: session.link.delete(step.path, reply, step.version)),
    CreateTogether: _plain(lambda session, step, reply: session.link.multi(step.operations, reply)),
    EnsureContainer: _plain(lambda session, step, reply: session.link.make_container(step.path, reply)),
}
# What the failure of a request means, where that depends on more than its error.
_FAILURES: dict[type, Callable[[Call, Any, Exception, Exception], Exception]] = {
    EnsureContainer: Call._container_failure,
    CreatePersistent: Call._persistent_failure,
    CreateTogether: Call._together_failure,
    Multi: Call._together_failure,
    WatchRecursive: Call._tree_failure,
}
