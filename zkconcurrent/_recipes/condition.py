"""The condition: to give up a lock and wait to be notified, and to notify who waits longest.

A waiter is a node; to notify it is to delete that node. Whoever deletes it knows by the answer whether it was the one,
and so does a waiter whose time is up: a notification is never lost between the two.
"""

from __future__ import annotations

from .._errors import RefusedError
from .._paths import ancestors
from .operations import (
    Children,
    ConnectionLost,
    CreateEphemeral,
    Delete,
    Discard,
    EnsureContainer,
    Get,
    Grant,
    MarkDeleted,
    MarkMissing,
    Multi,
    NewTicket,
    NoNode,
    Prove,
    Recipe,
    Requeue,
    SuspendHold,
    Sync,
    Wait,
    Watch,
)
from .rules import Rule, line_up
from .ticket import Ticket

WAITER = Rule("waiter-", ("waiter-",))
"""The line of those who wait: the first in it has waited longest, and is notified first. Nobody holds."""


def release_and_queue(held: Ticket, path: str, data: bytes) -> Recipe[Ticket | None]:
    """Give up a lock and queue as a waiter under `path`, in one write; return the waiter, if there is one to wait for.

    Nobody goes on before it is known whether that was done. It is guarded by the delete of the lock's node, so it is
    done at most once, and after a lost answer that node tells. `held` is then given up; where it is not, its state
    says what it is: a hold still, or lost, or, if the session is over or an error is raised, to be discarded.
    """
    ticket: Ticket = yield NewTicket(path)
    in_doubt = False
    try:
        if not (yield SuspendHold(held)):  # from here on, that the lock's node goes is no loss
            yield Discard(ticket)
            return None
        while True:
            unmade = False
            try:
                yield Multi(ticket, (Delete(held.node, held), CreateEphemeral(ticket, WAITER.role, data)))
                return ticket
            except NoNode:  # of the waiters' parent, or of the lock
                unmade = True
            except ConnectionLost:
                in_doubt = True
            _, node, names = yield Sync(path, ticket), Get(held.node, ticket), Children(path, ticket)
            if node is None:
                return (yield from (queued(held, ticket, names) if in_doubt else lost(held, ticket)))
            if unmade:
                yield tuple(EnsureContainer(above) for above in [*ancestors(path), path])
    except Requeue:
        yield Discard(ticket)
        return None
    except RefusedError:
        yield Discard(ticket)
        if not in_doubt:
            yield from keep(held)
        raise


def queued(held: Ticket, ticket: Ticket, names: list[str]) -> Recipe[Ticket | None]:
    """Take note that the lock was given up, and by which name we wait; None if we were notified already."""
    yield MarkDeleted(held)
    mine = next((name for name in names if name.startswith(ticket.prefix)), None)
    if mine is None:
        yield MarkDeleted(ticket)
        return None
    ticket.queued_as(mine, 0)
    return ticket


def lost(held: Ticket, ticket: Ticket) -> Recipe[None]:
    """Take note that the lock's node was gone before it was given up: an operator has deleted it."""
    yield Discard(ticket)
    yield from keep(held)
    yield MarkMissing(held)


def keep(held: Ticket) -> Recipe[None]:
    """Take it back that a hold is being given up, for as long as its session lasts."""
    try:
        while not (yield Grant(held)):
            yield Prove(held)
    except Requeue:
        return


def outwait(ticket: Ticket) -> Recipe[bool]:
    """Wait until the ticket's node is gone: somebody else has deleted it, or, what can't be told apart, its session."""
    try:
        while True:
            (node,) = yield Watch(ticket, (Get(ticket.node, ticket),))
            if node is None:
                yield MarkDeleted(ticket)
                return True
            yield Wait(ticket)
    except Requeue:
        yield Discard(ticket)
        return True


def withdraw(ticket: Ticket) -> Recipe[bool]:
    """Wait no longer; return whether somebody else deleted the ticket's node before, or may have.

    It takes as long as it takes: a node left behind would be notified in the place of somebody who waits.
    """
    try:
        return (yield Delete(ticket.node, ticket)) is not True
    except Requeue:
        yield Discard(ticket)
        return True


def clear(ticket: Ticket) -> Recipe[None]:
    """Have nothing of a ticket left that was discarded, whatever the keeper has done of that."""
    _, names = yield Sync(ticket.path), Children(ticket.path)
    yield tuple(Delete(f"{ticket.path}/{name}") for name in names if name.startswith(ticket.prefix))


def notify(path: str, n: int | None) -> Recipe[None]:
    """Wake the `n` longest waiters under `path`, or all of them for None.

    The listing needs no `sync`: our hold was granted on one that was newer than any waiter's multi, and the client
    never goes back to an older state. A node that somebody else deleted, or may have, was not woken by us: the next in
    line is, in its place.
    """
    while n is None or n > 0:
        names = yield Children(path)
        line = line_up([name for name in names if WAITER.role in name], WAITER)[:n]
        if not line:
            return
        deleted = yield tuple(Delete(f"{path}/{name}") for name in line)
        if n is None:
            return
        n -= sum(each is True for each in deleted)


def pass_on(path: str) -> Recipe[None]:
    """Wake the longest waiter under `path` in the place of one that was notified and did not return.

    The caller need not hold the lock any more, so the listing is behind a `sync`.
    """
    yield Sync(path)
    yield from notify(path, 1)
