"""The queue of contenders, which all locks share: they acquire in the order of their nodes.

The items of a `Queue` are not here: see the folder `queue`.

When a thread releases while another thread of the same session waits for exactly that node, the waiter goes on as soon
as the delete is *sent*. No other client can hold then: the releasing node was first, the waiter's last listing had no
node between the two, and both nodes end with the same session. The waiter still checks session and lease.

`Rule.hands_over` says whether a queue allows this. A `ReadWriteLock` does not: a releasing reader need not be the last
contender in the way, and a releasing writer may have left a read lock in its place since the waiter's last listing. A
waiter of the same session lists at once, behind the delete, without waiting for the event.

Between processes, a waiter lists after the event, unless its last listing had exactly one contender in its way: then it
may hold at once, by the rule of `_protocol/way_to_grant.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from .._protocol import operations as op
from .._protocol.blocking_rules import MUTEX, Rule, blocker, check_queue, check_sequence, holders, in_the_way, line_up
from .._protocol.operations import Recipe
from .._protocol.ticket import Ticket
from .._protocol.way_to_grant import Way
from .nodes import Lacking, PathCheck, missing

CheckWait: TypeAlias = Callable[["Ticket", Sequence[str]], None]
"""Checks what an acquire would wait for, and may refuse the wait: see `acquire`."""

FindMissing: TypeAlias = Callable[[op.Container], Recipe["Lacking | None"]]
"""Finds, or makes, a queue that is missing: see `create`."""


def acquire(
    path: str,
    rule: Rule,
    data: bytes,
    path_check: PathCheck | None = None,
    check_wait: CheckWait | None = None,
    *,
    marked: bool = False,
) -> Recipe[Ticket]:
    """Join the queue under `path` and wait for our turn.

    Args:
        path: the queue.
        rule: how the queue decides.
        data: the content of our node.
        path_check: checks the path of the queue's primitive, if that path lies above the queue.
        check_wait: called once for each node of ours that queues behind others, with the ticket, and the nodes ahead
            that exclude it. It may raise an error, which refuses the wait.
        marked: the data list the holds of the node's owner. Never set for a candidate, whose data are its program's.

    Source: the lock recipe of ZooKeeper's documentation, with Curator's unique names.
    """
    while True:
        ticket: Ticket = yield op.NewTicket(path, marked)
        listing = op.Children(path, ticket)
        checked = check_wait is None
        try:
            names = yield from join(ticket, rule, data, path_check=path_check)
            assert ticket.name is not None
            while True:
                ahead = blocker(ticket.name, names, rule)
                if ahead is None:
                    # The first in the queue holds.
                    if (yield op.Grant(ticket)):
                        return ticket
                    yield op.ProveLease(ticket)
                    names = yield listing
                else:
                    if not checked and check_wait is not None:
                        check_wait(ticket, in_the_way(ticket.name, names, rule))
                        checked = True
                    way = Way.of(ticket.name, names, rule, ticket.session, ticket.listed_on)
                    # A waiter drops its listing: otherwise n waiters would keep n listings of n names.
                    names = ()
                    read = yield op.WaitGone(ticket, ahead, (listing,), way=way)
                    # The way is clear; or a thread of this process was first in the queue, and has handed its turn
                    # over.
                    our_turn = read is op.CLEAR or (read is None and rule.hands_over)
                    if our_turn and (yield op.Grant(ticket)):
                        return ticket
                    # Neither `CLEAR` nor None has a listing.
                    (names,) = read or [(yield listing)]
                    del read
                check(ticket, names, rule)
        except op.Requeue:
            yield op.Discard(ticket)


def try_acquire(path: str, rule: Rule, data: bytes, path_check: PathCheck | None = None) -> Recipe[Ticket | None]:
    """Acquire without waiting; None if another contender is in the way."""
    _, names = yield op.Sync(path), op.Children(path)
    check_queue(path, names, rule)
    if in_the_way(None, names, rule):
        return None
    ticket: Ticket = yield op.NewTicket(path)
    try:
        names = yield from join(ticket, rule, data, path_check=path_check)
        assert ticket.name is not None
        while blocker(ticket.name, names, rule) is None:
            if (yield op.Grant(ticket)):
                return ticket
            yield op.ProveLease(ticket)
            names = yield op.Children(path, ticket)
            check(ticket, names, rule)
    except op.Requeue:
        pass
    yield op.Discard(ticket)
    return None


def join(
    ticket: Ticket, rule: Rule, data: bytes, find_missing: FindMissing = missing, path_check: PathCheck | None = None
) -> Recipe[Sequence[str]]:
    """Create the ticket's node at the tail of its queue; return a listing that has it.

    Args:
        ticket: the ticket.
        rule: the queue's rule.
        data: the content of the node.
        find_missing: as for `create`.
        path_check: as for `acquire`.

    Raises:
        Requeue: the ticket's node was not created, or is gone.
        ForeignNodeError: another kind of primitive uses the path.
    """
    reads: tuple[op.Children, ...] = (op.Children(ticket.path, ticket),)
    if path_check is not None:
        reads, find_missing = (*reads, *path_check.reads()), path_check.missing
    seen = yield from create(ticket, rule.role, data, reads, find_missing)
    names: Sequence[str] = seen[0]
    assert ticket.name is not None
    ticket.late = check_sequence(ticket.path, ticket.name, rule)
    check(ticket, names, rule)
    if path_check is not None:
        path_check.check_listing(seen[1:])
        yield from path_check.check_now()
    return names


def come_first(ticket: Ticket, data: bytes, find_missing: FindMissing) -> Recipe[None]:
    """Join a queue that gives turns but no holds; wait until no contender is ahead.

    Args:
        ticket: the ticket.
        data: the content of its node.
        find_missing: as for `create`.

    Raises:
        Requeue: the ticket's node was not created, or is gone.
        ForeignNodeError: another kind of primitive uses the path.
    """
    names = yield from join(ticket, MUTEX, data, find_missing)
    assert ticket.name is not None
    while ahead := blocker(ticket.name, names, MUTEX):
        names = ()  # as in `acquire`
        names = yield from wait_behind(ticket, ahead)


def wait_behind(ticket: Ticket, ahead: str) -> Recipe[Sequence[str]]:
    """Wait until the node ahead is gone, or may be; return a listing.

    Raises:
        Requeue: the ticket's node is gone.
    """
    listing = op.Children(ticket.path, ticket)
    seen = yield op.WaitGone(ticket, ahead, (listing,))
    names: Sequence[str] = seen[0] if seen else (yield listing)
    if ticket.name not in names:
        raise op.NodeGone
    return names


def create(
    ticket: Ticket,
    role: str,
    data: bytes,
    reads: tuple[op.Operation, ...] = (),
    find_missing: FindMissing | None = None,
) -> Recipe[Sequence[Any]]:
    """Create the ticket's node, or find it if the reply is lost; return what was read behind it. Errors as `find`.

    Args:
        ticket: the ticket.
        role: the node's role.
        data: its content.
        reads: what to read, behind the create.
        find_missing: called with the queue if that is missing. It makes the queue and the missing nodes above it, or
            returns the operations that make them, which are then sent together with the node. Without it, `NoNode` is
            raised.
    """
    own = op.CreateEphemeral(ticket, role, data)
    create: op.CreateEphemeral | op.Multi = own
    while True:
        try:
            return (yield create, *reads)[1:]  # type: ignore[no-any-return]
        except (op.NoNode, op.NodeExists):
            # The queue was never used, or the server has removed it while idle; or another client has just made the
            # missing nodes.
            if find_missing is None:
                raise
            lacking = yield from find_missing(op.Container(ticket.path))
            create = op.Multi(ticket, (*lacking, own)) if lacking else own
        except op.ConnectionLost:
            yield from find(ticket)
            return (yield reads) if reads else ()


def find(ticket: Ticket) -> Recipe[Sequence[str]]:
    """Find the node whose create got no reply, by its unique name; return the listing.

    Raises:
        NodeGone: it was not created in the ticket's session.
    """
    _, names = yield op.Sync(ticket.path, ticket), op.Children(ticket.path, ticket)
    mine = next((name for name in names if name.startswith(ticket.prefix)), None)
    node: op.Node | None = None if mine is None else (yield op.Get(f"{ticket.path}/{mine}", ticket))
    if mine is None or node is None or node.session != ticket.session:
        raise op.NodeGone
    ticket.queued_as(mine, node.czxid)
    return names  # type: ignore[no-any-return]


def downgrade(writer: Ticket, rule: Rule, data: bytes) -> Recipe[Ticket | None]:
    """Take a read lock in the place of the held write lock; None if the write lock is lost.

    The read node has the writer's number, so that a waiter behind the writer then finds the reader in the writer's
    place. The read node is created only while the writer's node exists, so no other contender can have got in: the
    reader holds without a listing.

    Source: Curator's `InterProcessReadWriteLock` since 5.5, which makes the node without the check.
    """
    assert writer.name is not None
    while True:
        ticket: Ticket = yield op.NewTicket(writer.path)
        try:
            try:
                yield op.Multi(
                    ticket, (op.Check(writer.node), op.CreateEphemeral(ticket, rule.role, data, rule.key(writer.name)))
                )
            except op.ConnectionLost:
                yield from find(ticket)
            # The two nodes are one hold, so both have its fencing token.
            ticket.token = writer.token
            while not (yield op.Grant(ticket)):
                yield op.ProveLease(ticket)
            return ticket
        except op.NoNode:
            yield op.Discard(ticket)
            yield op.MarkMissing(writer)
            return None
        except op.Requeue:
            yield op.Discard(ticket)


def check(ticket: Ticket, names: Sequence[str], rule: Rule) -> None:
    """Refuse a listing without our own node, or with a contender of another rule.

    Raises:
        NodeGone: our own node is missing.
        ForeignNodeError: as `check_queue`.
    """
    if ticket.name not in names:
        raise op.NodeGone
    check_queue(ticket.path, names, rule)


def list_queue(path: str, rule: Rule) -> Recipe[Sequence[str]]:
    """Return the names of all contenders, read behind a `sync`."""
    _, names = yield op.Sync(path), op.Children(path)
    check_queue(path, names, rule)
    return names  # type: ignore[no-any-return]


def contenders(path: str, rule: Rule) -> Recipe[tuple[int, list[tuple[str, op.Node]]]]:
    """Return how many contenders hold, and every node of the queue with its content, the holders first."""
    queue = yield from list_queue(path, rule)
    hold = holders(queue, rule)
    names = [*hold, *(name for name in line_up(queue, rule) if name not in hold)]
    if not names:
        return 0, []
    nodes = yield tuple(op.Get(f"{path}/{name}") for name in names)
    there = [(name, node) for name, node in zip(names, nodes, strict=True) if node is not None]
    return sum(name in hold for name, _ in there), there
