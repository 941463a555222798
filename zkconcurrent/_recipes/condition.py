"""The condition: release a lock and wait to be notified; notify the longest-waiting waiter.

A wait releases the lock and queues a waiter in one `multi`. The next holder of the lock finds the waiter in the queue,
so no notification can fall between the two. The waiter does not go on before the reply. If the reply is lost, the
lock's node decides, as its delete guards the whole `multi`: if it exists, nothing was done, and the same `multi` is
sent again. If it is gone in the same session, all was done, and a waiter without a node has already been notified.
Before the `multi` is sent, the hold is suspended (`SuspendHold`): otherwise the heartbeat would take its missing node
for a loss.

A notifier deletes the waiter's node. It lists the queue without a `sync`: its hold was granted on a listing newer than
any waiter's `multi`, and its client never goes back to an older state. A waiter deletes its own node at its deadline,
and the server's replies show which of the two came first: a notifier that finds a node gone takes the next in line, and
a waiter that finds its node gone reports that it was notified. If a reply is lost and the node is gone, both assume the
case that wakes one waiter more, never one fewer.

Before its thread goes on, even after an interrupt, a waiter makes sure that its node is gone. If the keeper deleted the
node later, a notification could be spent on a waiter that no longer waits. Then, as in `threading`, `wait()` reacquires
all levels of the lock, despite further interrupts, before it raises what interrupted it. Deleting the node and
acquiring the lock may take as long as the service is out of reach, except after an interrupt: if no server is in reach
for a third of the session timeout, the hold counts as lost. Besides a loss, only errors of the library itself leave the
lock released: with a stopped client, or a path that can't be used, the acquire would fail each time.

A thread that ends a hold, for good or for a wait, claims it under the session's lock. If two threads release one `Lock`
at the same instant, one gets the error that it is not locked.
"""

from __future__ import annotations

from contextlib import suppress

from .._errors import ForeignNodeError, RefusedError
from .._protocol import operations as op
from .._protocol.blocking_rules import Rule, line_up
from .._protocol.operations import Recipe
from .._protocol.ticket import Ticket
from .nodes import Lacking, PathCheck

WAITER = Rule("waiter-", ("waiter-",))
"""The queue of waiters. The first has waited longest and is notified first. No contender holds."""


def release_and_queue(held: Ticket, path: str, data: bytes, path_check: PathCheck) -> Recipe[Ticket | None]:
    """Release a lock and queue as a waiter under `path`, in one write; return the waiter's ticket, if it must wait.

    The call returns only once it is known whether the write was applied. The write deletes the lock's node, so it
    applies at most once; after a lost reply, that node shows whether the write was applied. If it was, `held` is
    released. Otherwise the state of `held` shows the outcome: it is still a hold, or lost, or to be discarded (the
    session is over, or an error is raised).

    Args:
        held: the lock's ticket.
        path: the parent of the waiters.
        data: the content of the waiter's node.
        path_check: refuses a path that another kind of primitive uses: then nothing is released.
    """
    yield from path_check.check_now()
    ticket: Ticket = yield op.NewTicket(path)
    own = op.CreateEphemeral(ticket, WAITER.role, data)
    in_doubt = False
    lacking: Lacking = ()
    try:
        # From here on, the session does not take a missing lock node for a loss.
        if not (yield op.SuspendHold(held)):
            yield op.Discard(ticket)
            return None
        while True:
            unmade = False
            try:
                yield op.Multi(ticket, (*lacking, op.Delete(held.node, held), own))
                return ticket
            except (op.NoNode, op.NodeExists):
                # The waiters' parent is missing, or the lock's node; or another client has just made the parent.
                unmade = True
            except op.ConnectionLost:
                in_doubt = True
            _, node, names = yield op.Sync(path, ticket), op.Get(held.node, ticket), op.Children(path, ticket)
            if node is None:
                return (yield from (queued(held, ticket, names) if in_doubt else lost(held, ticket)))
            if unmade:
                lacking = yield from path_check.missing(op.Container(path))
    except op.Requeue:
        yield op.Discard(ticket)
        return None
    except (RefusedError, ForeignNodeError):
        yield op.Discard(ticket)
        if not in_doubt:
            yield from keep(held)
        raise


def queued(held: Ticket, ticket: Ticket, names: list[str]) -> Recipe[Ticket | None]:
    """Record the release and the waiter's name; return the waiter's ticket, or None if it was already notified."""
    yield op.MarkDeleted(held)
    mine = next((name for name in names if name.startswith(ticket.prefix)), None)
    if mine is None:
        yield op.MarkDeleted(ticket)
        return None
    ticket.queued_as(mine, 0)
    return ticket


def lost(held: Ticket, ticket: Ticket) -> Recipe[None]:
    """Record a loss: the lock's node was gone before the release, as an operator had deleted it."""
    yield op.Discard(ticket)
    yield from keep(held)
    yield op.MarkMissing(held)


def keep(held: Ticket) -> Recipe[None]:
    """Make the suspended hold a hold again, unless its session is over."""
    with suppress(op.Requeue):
        while not (yield op.Grant(held)):
            yield op.ProveLease(held)


def outwait(ticket: Ticket) -> Recipe[bool]:
    """Wait until the ticket's node is gone: another client deleted it, or its session ended, which looks the same."""
    try:
        while True:
            (node,) = yield op.Watch(ticket, (op.Get(ticket.node, ticket),))
            if node is None:
                yield op.MarkDeleted(ticket)
                return True
            yield op.Wait(ticket)
    except op.Requeue:
        yield op.Discard(ticket)
        return True


def withdraw(ticket: Ticket) -> Recipe[bool]:
    """Stop waiting; return whether another client had already deleted the ticket's node, or may have.

    No deadline bounds this call: a notifier would spend a notification on a node that is left behind.
    """
    try:
        return (yield op.Delete(ticket.node, ticket)) is not True
    except op.Requeue:
        yield op.Discard(ticket)
        return True


def clear(ticket: Ticket) -> Recipe[None]:
    """Delete whatever is left of a discarded ticket, without waiting for the keeper."""
    _, names = yield op.Sync(ticket.path), op.Children(ticket.path)
    yield tuple(op.Delete(f"{ticket.path}/{name}") for name in names if name.startswith(ticket.prefix))


def notify(path: str, n: int | None) -> Recipe[None]:
    """Wake the `n` longest-waiting waiters under `path`; None wakes all.

    The listing needs no `sync`: our hold was granted on a listing newer than any waiter's `multi`, and a client never
    reads an older state afterwards. If another client deleted a waiter's node, or may have, this call has not woken
    that waiter, and wakes the next one instead.
    """
    while n is None or n > 0:
        names = yield op.Children(path)
        line = line_up([name for name in names if WAITER.role in name], WAITER)[:n]
        if not line:
            return
        deleted = yield tuple(op.Delete(f"{path}/{name}") for name in line)
        if n is None:
            return
        n -= sum(each is True for each in deleted)


def pass_on(path: str) -> Recipe[None]:
    """Wake the longest-waiting waiter under `path`, in place of one that was notified and did not return.

    The caller may no longer hold the lock, so the listing is behind a `sync`.
    """
    yield op.Sync(path)
    yield from notify(path, 1)
