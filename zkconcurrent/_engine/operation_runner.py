"""Operations: how each is performed for the recipe that has yielded it. The table `POLICIES` lists all.

Most operations are a request, or several that are sent together: `_request` sends them, waits for the replies, and
sends again what may be repeated. The other operations wait, or act on a ticket; each has its own steps here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from .._errors import RefusedError
from .._kazoo.failures import failure, kazoo_errors
from .._kazoo.reply import Reply, Request
from .._kazoo.watches import Watcher
from .._protocol import operations as op
from .._protocol.session_lease import NEVER
from .._protocol.ticket import Ticket
from .._runtime.wait_loops import Steps
from . import operation_requests as requests
from .operation_requests import RunningCall
from .patience import POLL_INTERVAL
from .session import Session

# A new connection takes about this long. A call that would wait longer for a proof of its lease asks for a new
# connection.
RENEWS_FROM = 0.3  # seconds
OLD_CLIENT = (
    "waiting for up to %.1f s until it is proved that the session lives, as the client was started long before the "
    "first lock was made: make the locks when the program starts, not at their first use [%s]"
)
waits = logging.getLogger("zkconcurrent.waits")


# -- requests --------------------------------------------------------------------------------------------------------


def _alone(call: RunningCall, step: op.Operation) -> Steps[object]:
    return (yield from _request(call, (step,)))[0]


def _request(
    call: RunningCall,
    operations: Sequence[Any],
    watcher: Watcher | None = None,
    replies: list[Reply] | None = None,
) -> Steps[list[Any]]:
    """Send requests together and wait for all replies. After a lost connection, repeat the repeatable ones.

    A request that a busy server has not applied is repeated, whatever it is. A read behind a request that is repeated
    is repeated too, as it may show an older state.

    Args:
        call: the call.
        operations: what to request.
        watcher: the watcher to leave on the nodes that the operations read.
        replies: the replies to wait for, if the requests were sent already.
    """
    session = call.session
    results: list[Any] = [None] * len(operations)
    left = list(range(len(operations)))
    again: list[int] = []
    connection: object = None
    while left:
        if not replies:
            ticket = getattr(operations[left[0]], "ticket", None)
            try:
                yield from call.await_session(ticket)
            except op.DeadlinePassed as passed:
                passed.unsent = not again
                raise
            connection = session.link.connection
            replies = _send(call, [operations[i] for i in left], watcher)
        last = replies[-1]
        if not last.done:
            bound = session.reply_limit()
            # After that, the request counts as lost. If its reply comes all the same, its ticket gets to know it.
            while not last.done and (yield from call.park(bound)):
                pass
        # The other replies came before the last one, so kazoo's thread has posted what is to be done with them.
        session.run_posted()
        in_doubt, again = again, []
        for i, reply in zip(left, replies, strict=True):
            # A busy server may have refused an earlier request alone, so this read may show an older state.
            if again and POLICIES[type(operations[i])].reads:
                again.append(i)
                continue
            try:
                results[i] = _result(call, operations[i], reply)
            except op.Busy:
                again.append(i)
            except op.ConnectionLost:
                if not POLICIES[type(operations[i])].repeats:
                    raise
                again.append(i)
            except op.SessionExpired:
                # Only the error of a leader, which has refused a `multi`, names the part that failed.
                refused = getattr(reply.error, "part", None) is not None
                if not refused or not op.makes_ephemerals(getattr(operations[i], "operations", ())):
                    raise
                yield from _check_session(call, operations[i].ticket)
                if session.link.connection is connection:
                    raise failure(kazoo_errors.EphemeralOnLocalSessionError(), call.path) from None
                # The session lives: a former leader was about to end it, and did not.
                again.append(i)
            else:
                if i in in_doubt and results[i] is False:
                    results[i] = None
        left, replies = again, None
    return results


def _send(call: RunningCall, operations: Sequence[Any], watcher: Watcher | None) -> list[Reply]:
    """Send requests together; return their replies. The last reply wakes the call, as it comes after all others."""
    made = [POLICIES[type(each)].request(call, each, watcher) for each in operations]
    made[-1][1].wake = call.wake
    call.session.link.send(*made)
    return [reply for _, reply in made]


def _check_session(call: RunningCall, ticket: Ticket) -> Steps[None]:
    """Ask the leader whether a ticket's session lives: it has refused a `multi` as if the session were over.

    If the session lives, and the connection is still the same, it is a local session: only its own server knows it,
    and is not allowed to upgrade it. A single create would get the error of a local session at once.

    Raises:
        SessionExpired: the session is over.
    """
    # Either error shows that the session lives.
    with contextlib.suppress(op.NoNode, RefusedError):
        yield from _request(call, (op.Multi(ticket, (op.Check(call.path),)),))


def _result(call: RunningCall, step: Any, reply: Reply) -> object:
    """Return the result to send into the recipe, or raise the error to throw into it."""
    if reply.error is not None:
        return _failure_result(call, step, reply.error)
    if not reply.done:
        raise op.ConnectionLost
    policy = POLICIES[type(step)]
    if policy.deletes and step.ticket is not None:
        call.session.mark_deleted(step.ticket)
    return reply.value if policy.result is None else policy.result(step, reply.value)


def _failure_result(call: RunningCall, step: Any, error: Exception) -> object:
    failed, policy = failure(error, call.path), POLICIES[type(step)]
    if policy.failed is not None:
        failed = policy.failed(call, step, error, failed)
    if isinstance(failed, op.SessionExpired) and getattr(step, "ticket", None) is None:
        # A request that is bound to no session continues in the next one.
        failed = op.ConnectionLost()
    if type(failed) in policy.answers:
        if policy.deletes and step.ticket is not None:
            call.session.mark_deleted(step.ticket)
        return policy.answers[type(failed)]
    try:
        raise failed
    finally:
        # Otherwise the traceback and this frame would keep each other alive, and the caller's lock with them.
        del failed


def check_chroot(call: RunningCall) -> Steps[None]:
    """Ask whether the client's chroot exists: ZooKeeper refuses to make nodes below it, but reads would find nothing.

    Raises:
        RefusedError: it does not exist.
    """
    link = call.session.link
    chroot = link.client.chroot
    if not (yield from _request(call, (op.Sync(""), op.Exists(""))))[1]:
        raise requests.no_chroot(call)
    link.seen_chroot = chroot


# -- tickets, and their leases ----------------------------------------------------------------------------------------


def _new_ticket(call: RunningCall, step: op.NewTicket) -> Steps[Ticket]:
    while True:
        if not call.session.link.connected:
            yield from call.await_session(None)
        try:
            return call.session.new_ticket(step.path, call.tickets, marked=step.marked, detached=step.detached)
        except op.SessionExpired:
            # The session has ended, and the call waits for the next one.
            yield from call.await_session(None)


def _prove(call: RunningCall, step: op.ProveLease) -> Steps[None]:
    session, ticket = call.session, step.ticket
    if ticket.lease.heard == NEVER:
        # An old connection that the library has just begun to use has proved nothing yet. That is not a reason to
        # refuse a free lock or permit.
        call.patience.await_proof(session.now() + ticket.lease.gap + session.reply_patience)
    # One later proof is good for all permits of the call.
    for each in {ticket, *call.tickets}:
        each.doubted = ticket.lease.heard
    try:
        others = any(each.proving for each in list(session.registry.tickets.values()))
        ticket.proving = True
        left = min(ticket.lease.gap, ticket.lease.renewable - session.clock())
        if not ticket.lease.renewed and left > RENEWS_FROM and not session.link.transport.renew() and not others:
            session.unlogged.append(partial(waits.info, OLD_CLIENT, left, ticket.path, extra={"zk_path": ticket.path}))
        session.wake_keeper()
        while not ticket.lease.believed(session.clock(), ticket.doubted):
            yield from call.await_session(ticket)
            yield from call.park(session.now() + POLL_INTERVAL)
    finally:
        ticket.proving = False


def _detach(call: RunningCall, step: op.DetachTicket) -> Steps[None]:
    call.tickets.remove(step.ticket)
    return
    # The `yield` makes the function a generator, as in the next function.
    yield


def _at_once(act: Callable[[Session, Ticket], object]) -> Callable[[RunningCall, Any], Steps[object]]:
    """Return the steps of an operation that the session performs on the ticket at once."""

    def steps(call: RunningCall, step: Any) -> Steps[object]:
        return act(call.session, step.ticket)
        yield

    return steps


# -- waiting ---------------------------------------------------------------------------------------------------------


def _wait_gone(call: RunningCall, step: op.WaitGone) -> Steps[list[object] | None]:
    if not step.asks:
        call.patience.begin_wait(call.session.now())
    if call.story is not None:
        call.story.wait()
    session, ticket, ahead = call.session, step.ticket, f"{step.ticket.path}/{step.ahead}"
    # The replies to the step's reads, if `_look_again` has sent the reads before this call goes on.
    early: list[Reply] = []
    # A closure would take more memory for each of a crowd of waiters.
    session.start_waiting(ticket, partial(_look_again, call, step, early), ahead)
    ticket.shown = (ahead,)
    try:
        yield from call.await_session(ticket)
        reply = _read_ahead(call, step, ahead)
        # A change was noted already, so no call needs the watch that this read leaves.
        if not ticket.awaits:
            with session.lock:
                session.registry.left.setdefault(ahead, False)
        bound = session.reply_limit()
        while not (reply.done or ticket.changed):
            if not (yield from call.park(bound)):
                # The request was lost inside kazoo: look again.
                break
        if reply.error is not None:
            failed = failure(reply.error, call.path)
            if not isinstance(failed, op.NoNode | op.ConnectionLost | op.SessionExpired):
                raise failed
        elif reply.done and not ticket.changed:
            del reply
            yield from call.await_change(ticket)
    except GeneratorExit:
        raise
    except BaseException:
        session.stop_waiting(ticket, call.wake)
        raise
    # If the ticket awaits nothing, `_look_again` has ended the wait.
    if ticket.awaits:
        session.stop_waiting(ticket, call.wake)
    if ticket.handed_over:
        ticket.way = None
        return None
    if ticket.way is not None and ticket.way.is_clear:
        # The grant checks the way once more, as an event may still come before the grant.
        return op.CLEAR
    ticket.way = None
    return (yield from _request(call, step.reads, replies=early))


def _read_ahead(call: RunningCall, step: op.WaitGone, ahead: str) -> Reply:
    """Send the read that leaves a watch on the node ahead; if there is a way, first read our own node likewise."""
    session, ticket, way = call.session, step.ticket, step.way
    link, on_event = session.link, session.listener.on_event
    ticket.way = way
    if way is None:
        reply = Reply(call.wake)
        link.send(link.get(ahead, reply, on_event))
        return reply

    # The connection thread calls these functions as the replies come, in order with the events: see `way`.
    def own_read(reply: Reply) -> None:
        found = None if reply.error is not None else reply.value[1].ephemeralOwner
        ticket.watched = link.connection if found else False
        way.read_own(link.connection, found)

    def ahead_read(reply: Reply) -> None:
        gone = isinstance(reply.error, kazoo_errors.NoNodeError)
        way.read_ahead(link.connection, gone=gone if gone or reply.error is None else None)

    reply = Reply(call.wake, ahead_read)
    link.send(link.get(ticket.node, Reply(None, own_read), on_event), link.get(ahead, reply, on_event))
    return reply


def _look_again(call: RunningCall, step: op.WaitGone, early: list[Reply]) -> None:
    """End a wait after a change: send the reads that follow it, or wake the call; with the session's lock held.

    This runs on the thread that notes the change: kazoo's, the thread of the holder ahead, or any thread that does the
    session's posted work.
    """
    session, ticket, way = call.session, step.ticket, step.ticket.way
    our_turn = way is not None and way.is_clear and ticket.lease.believed(session.clock())
    if early or our_turn or ticket.handed_over or not session.link.connected:
        call.wake()
    else:
        ticket.way = None
        # After a long wait the lease may need a new proof, which this write gives before the replies to the reads.
        if not ticket.lease.believed(session.clock() + session.timeout / 20):
            session.link.send(session.link.check([ticket.node], Reply()))
        early.extend(_send(call, step.reads, None))
    # R2: if an interrupt comes before this, the next event does all of it again.
    session.stop_waiting(ticket, call.wake)


def _watch(call: RunningCall, step: op.Watch) -> Steps[list[object]]:
    call.patience.begin_wait(call.session.now())
    call.session.start_waiting(step.ticket, call.wake, *(read.path for read in step.reads))
    replies = yield from _request(call, step.reads, call.session.listener.on_event)
    listings = [
        (read.path, names) for read, names in zip(step.reads, replies, strict=True) if type(read) is op.Children
    ]
    shown = tuple(f"{path}/{name}" for path, names in listings for name in names)
    if shown:
        with call.session.lock:
            shown = call.session.registry.shared(step.ticket, shown)
    step.ticket.shown = shown
    return replies


def _watch_tree(call: RunningCall, step: op.WatchRecursive) -> Steps[object]:
    call.patience.begin_wait(call.session.now())
    with call.session.lock:
        call.session.registry.trees[step.ticket.path] = step.changes
    return (yield from _request(call, (step,)))[0]


def _wait_tree(call: RunningCall, step: op.WaitRecursive) -> Steps[bool]:
    session, ticket, link = call.session, step.ticket, call.session.link
    # This comes before the test of `changes`, so that the call misses no change from here on.
    session.start_waiting(ticket, call.wake, ticket.path)
    if not step.changes and link.connected and link.connection is step.connection:
        yield from call.await_change(ticket)
    session.stop_waiting(ticket, call.wake)
    return link.connected and link.connection is step.connection


def _wait(call: RunningCall, step: op.Wait) -> Steps[None]:
    if call.story is not None:
        call.story.wait()
    if not step.ticket.changed:
        yield from call.await_change(step.ticket, step.left)
    call.session.stop_waiting(step.ticket, call.wake)


# -- the table -------------------------------------------------------------------------------------------------------


class Policy(NamedTuple):
    """How an operation is performed; for a request, also how it is made and how its outcome is handled.

    Attributes:
        steps: makes the steps that perform it. Unless given, they send the request and wait for its reply.
        request: makes the request; called with the call, the operation, and the watcher to leave. None if the operation
            sends no request.
        repeats: the request is sent again after a lost connection; otherwise the recipe gets `ConnectionLost`.
        answers: the failures that are results, with their values; all others are raised.
        result: a function that makes the result from the operation and the reply's value; None if the value is the
            result.
        failed: a function that returns what a failure means, if that depends on more than its error; called with the
            call, the operation, kazoo's error, and the failure that the error alone means.
        reads: the request changes nothing.
        deletes: the request deletes the node of its ticket, if it has a ticket.
    """

    steps: Callable[[Any, Any], Steps[object]] = _alone
    request: Callable[[Any, Any, Watcher | None], Request] = None  # type: ignore[assignment]
    repeats: bool = False
    answers: Mapping[type[Exception], object] = {}
    result: Callable[[Any, Any], object] | None = None
    failed: Callable[[Any, Any, Exception, Exception], Exception] | None = None
    reads: bool = False
    deletes: bool = False


POLICIES: dict[type, Policy] = {
    # Several operations that a recipe has yielded together.
    tuple: Policy(_request),
    # Reads.
    op.Get: Policy(request=requests.get, repeats=True, answers={op.NoNode: None}, result=requests.node, reads=True),
    op.Children: Policy(request=requests.children, repeats=True, answers={op.NoNode: op.NOWHERE}, reads=True),
    op.Exists: Policy(request=requests.exists, repeats=True, result=lambda _, stat: stat is not None, reads=True),
    op.GetWithZxid: Policy(
        request=requests.plainly(lambda link, step, reply: link.get_with_zxid(step.path, reply)),
        repeats=True,
        result=requests.node_with_zxid,
        reads=True,
    ),
    op.Sync: Policy(
        request=requests.plainly(lambda link, step, reply: link.sync(step.path, reply)),
        repeats=True,
        answers={op.NoNode: None},
    ),
    # Writes. After a retry a False becomes None: the first attempt may have made, or deleted, the node.
    op.CreateEphemeral: Policy(request=requests.create),
    op.CreatePersistent: Policy(
        request=requests.plainly(lambda link, step, reply: link.create_persistent(step.path, step.data, reply)),
        repeats=True,
        answers={op.NodeExists: False},
        result=requests.true,
        failed=requests.persistent_failure,
    ),
    op.CreateTogether: Policy(
        request=requests.plainly(lambda link, step, reply: link.multi(step.operations, reply)),
        repeats=True,
        answers={op.NodeExists: False},
        result=requests.true,
        failed=requests.together_failure,
    ),
    op.SetNode: Policy(
        request=requests.plainly(lambda link, step, reply: link.set_data(step.path, step.data, step.version, reply)),
        answers={op.NoNode: False, op.BadVersion: False},
        result=requests.true,
    ),
    op.Delete: Policy(
        request=requests.plainly(lambda link, step, reply: link.delete(step.path, reply, step.version)),
        repeats=True,
        answers={op.NoNode: False},
        result=requests.true,
        deletes=True,
    ),
    op.Multi: Policy(request=requests.multi, failed=requests.together_failure),
    # Waiting.
    op.WaitGone: Policy(_wait_gone),
    op.Watch: Policy(_watch),
    op.Wait: Policy(_wait),
    op.WatchRecursive: Policy(
        _watch_tree,
        request=requests.plainly(lambda link, step, reply: link.watch_tree(step.path, reply)),
        failed=requests.tree_failure,
    ),
    op.WaitRecursive: Policy(_wait_tree),
    # Tickets.
    op.NewTicket: Policy(_new_ticket),
    op.Grant: Policy(_at_once(Session.grant)),
    op.ProveLease: Policy(_prove),
    op.SuspendHold: Policy(_at_once(Session.suspend_hold)),
    op.MarkDeleted: Policy(_at_once(Session.mark_deleted)),
    op.MarkMissing: Policy(_at_once(Session.mark_missing)),
    op.DetachTicket: Policy(_detach),
    op.Discard: Policy(lambda call, step: call.discard([step.ticket])),
}
