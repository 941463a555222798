"""The double barrier: parties enter together once enough have come, and leave together once all have finished.

Each party has a node. When enough parties are there, one of them creates the node `ready`, which lets all in.

The party whose name sorts first, as text, keeps its node until it is the last. Then it removes `ready` together with
its node. All other parties delete their nodes at once, and wait for the first. So `ready` is there as long as a party
is inside. Curator's parties follow the same order. If a `multi` deletes a party's node but not `ready`, it checks that
another party is there, which will delete `ready`. So two parties that leave at the same moment do not rely on each
other.

Curator's recipe leaves two gaps. First, a party lists the nodes and then creates `ready`; another party may give up
waiting in between. So each of our decisions is a `multi` that writes the barrier's own node on condition of the version
that was read: of two concurrent decisions, one fails, and its party reads again. The opening checks no other party's
node, as a party that dies just before counts like one that dies just after. Second, if all parties die inside, `ready`
stays, and would let in the next party alone. A party that finds `ready` therefore compares it with the nodes: `ready`
is valid if one of these nodes, or the party's own node, is older than `ready`. A party that comes late, while a party
with an older node is inside, deletes `ready` and creates it again in one `multi`. Then the late party's own node is
older than `ready`, too, so `ready` stays valid when the others have left.

While `ready` and the node of the party that leaves last are there, all others are inside; so that party also waits for
parties that came later. The others wait only for the parties that they have seen, as any other party may belong to the
next round.

Waiting parties watch the list. A missing node can't be watched, and Java's parties announce the opening by `ready`
alone. So an arrival wakes all waiting parties, which a `Barrier` avoids.

Source: the double barrier of ZooKeeper's documentation; Curator's `DistributedDoubleBarrier`, whose nodes these are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from .._errors import ForeignNodeError, ZkConcurrentError
from .._protocol import operations as op
from .._protocol.operations import Recipe
from .._protocol.ticket import Ticket
from .destroy import Tree
from .lock import create, find
from .nodes import foreign_child, foreign_data, missing

ROLE = "party-"
READY = "ready"
_PARTY = re.compile(r"(?:_c_[0-9a-f-]{36}-party--?[0-9]+|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z")


class BarrierSnapshot(NamedTuple):
    """A double barrier as a party read it.

    Attributes:
        data: the data of the barrier's node.
        version: the version of that node; each decision writes the node.
        parties: the nodes of the parties.
        open: `ready` is there.
    """

    data: bytes
    version: int
    parties: tuple[str, ...]
    open: bool

    @classmethod
    def of(cls, ticket: Ticket, node: op.Node | None, names: Sequence[str]) -> BarrierSnapshot:
        """Make a snapshot of what was read.

        Raises:
            NodeGone: the ticket's node is missing.
        """
        if node is None or ticket.name not in names:
            raise op.NodeGone
        return cls(node.data, node.version, tuple(name for name in names if name != READY), READY in names)


# After these failures of a decision, read again: the barrier has changed meanwhile, or the outcome is unknown.
_UNDECIDED = (op.NoNode, op.BadVersion, op.ConnectionLost)


def tree(path: str) -> Tree:
    """Return what `destroy` removes: `ready`, if parties that died have left it."""
    return Tree(path, "DoubleBarrier", lambda _: None, {path: READY.__eq__}, (path,))


def enter(path: str, parties: int, data: bytes) -> Recipe[tuple[Ticket, bool, BaseException | None]]:
    """Arrive, and wait until enough parties are there.

    Returns:
        The party's ticket, whether it is inside, and the error that has interrupted the wait, or None. At the deadline,
        or when it is interrupted, the party is not inside, as far as it knows, and must `withdraw`.
    """
    while True:
        ticket: Ticket = yield op.NewTicket(path)
        try:
            snapshot = yield from _close_if_left_open(ticket, (yield from _arrive(ticket, data)))
            watched = False
            while not snapshot.open:
                if len(snapshot.parties) >= parties:
                    snapshot = yield from _open(ticket, snapshot)
                    continue
                if watched:
                    del snapshot  # as in `lock.acquire`
                    yield op.Wait(ticket)
                snapshot = BarrierSnapshot.of(
                    ticket, *(yield op.Watch(ticket, (op.Get(path, ticket), op.Children(path, ticket))))
                )
                watched = True
            return ticket, True, None
        except op.Requeue:
            yield op.Discard(ticket)
        except op.DeadlinePassed:
            return ticket, False, None
        except (ZkConcurrentError, GeneratorExit):
            raise
        except BaseException as error:
            # Other parties may have counted this one, and a mere delete of its node would not show that. So the caller
            # must `withdraw`.
            return ticket, False, error


def _arrive(ticket: Ticket, data: bytes) -> Recipe[BarrierSnapshot]:
    """Create the party's node; return what was read behind that, with all parties that came before."""
    path = ticket.path
    reads = op.Get(path, ticket), op.Children(path, ticket)
    node, names = yield from create(ticket, ROLE, data, reads, missing)
    snapshot = BarrierSnapshot.of(ticket, node, names)
    for name in names:
        if name != READY and not _PARTY.match(name):
            raise foreign_child(path, name, "double barrier")
    if snapshot.data:
        raise foreign_data(path, snapshot.data, "that of a DoubleBarrier has none")
    return snapshot


def _read_snapshot(ticket: Ticket, *before: op.Sync) -> Recipe[BarrierSnapshot]:
    path = ticket.path
    *_, node, names = yield *before, op.Get(path, ticket), op.Children(path, ticket)
    return BarrierSnapshot.of(ticket, node, names)


def _open(ticket: Ticket, snapshot: BarrierSnapshot) -> Recipe[BarrierSnapshot]:
    """Open the barrier, unless a party has given up meanwhile; return the snapshot after that.

    Our own node is checked, so the `multi` fails if an operator has deleted it.
    """
    decide = op.SetNode(ticket.path, snapshot.data, snapshot.version)
    try:
        yield op.Multi(ticket, (op.Check(ticket.node), decide, op.Create(f"{ticket.path}/{READY}", b"")))
    except (op.NoNode, op.NodeExists, op.BadVersion, op.ConnectionLost):
        return (yield from _read_snapshot(ticket))
    return snapshot._replace(open=True)


def _close_if_left_open(ticket: Ticket, snapshot: BarrierSnapshot) -> Recipe[BarrierSnapshot]:
    """Remove `ready` if all parties that it let in are gone: they have died, so none of them could remove it.

    A late party, which comes while one of those parties is inside, makes `ready` anew, and so becomes one of them.
    """
    path, ready = ticket.path, f"{ticket.path}/{READY}"
    while snapshot.open:
        paths = [f"{path}/{name}" for name in snapshot.parties if name != ticket.name]
        found, *nodes = yield op.Get(ready, ticket), *(op.Get(each, ticket) for each in paths)
        if found is not None:
            if ticket.token < found.czxid:
                return snapshot
            there = zip(paths, nodes, strict=True)
            inside = [each for each, node in there if node is not None and node.czxid < found.czxid]
            close = (op.Check(ticket.node), op.SetNode(path, snapshot.data, snapshot.version), op.Delete(ready))
            try:
                if inside:
                    yield op.Multi(ticket, (op.Check(inside[0]), *close, op.Create(ready, b"")))
                    return snapshot
                yield op.Multi(ticket, close)
            except _UNDECIDED:
                pass
            except op.NotEmpty:
                raise _crowded(path) from None
        snapshot = yield from _read_snapshot(ticket)
    return snapshot


def withdraw(ticket: Ticket) -> Recipe[bool]:
    """Give up waiting, unless the barrier has opened; return whether it has.

    If that is unknown at the deadline, the node is deleted, and others may count the party as one that has left.
    """
    with suppress(op.Requeue, op.DeadlinePassed):
        if ticket.sent and ticket.name is None:
            # No reply to the create has come yet, so the node may exist.
            yield from find(ticket)
        while ticket.name is not None:
            snapshot = yield from _close_if_left_open(ticket, (yield from _read_snapshot(ticket)))
            if snapshot.open:
                return True
            with suppress(*_UNDECIDED):
                yield op.Multi(
                    ticket, (op.SetNode(ticket.path, snapshot.data, snapshot.version), op.Delete(ticket.node, ticket))
                )
                return False
    yield op.Discard(ticket)
    return False


def leave(ticket: Ticket, *, wait: bool) -> Recipe[bool]:
    """Leave, and wait until all other parties have left; return whether they have.

    Args:
        ticket: the party's ticket.
        wait: whether to wait for them.

    Raises:
        Requeue: the party's session is over, or its node was deleted, so it counts as having left.
    """
    path = ticket.path
    snapshot = yield from _read_snapshot(ticket, op.Sync(path, ticket))
    try:
        while True:
            others = set(snapshot.parties) - {ticket.name}
            # While our node and `ready` are there, all others are inside, too: no party of a next round can be let in.
            if wait and others and snapshot.open and min(snapshot.parties) == ticket.name:
                yield from _outwait(ticket, max(others))
            else:
                duty: list[op.Part]
                if others:
                    # The check makes sure that the first of the other parties is there, which will remove `ready`.
                    duty = [op.Check(f"{path}/{min(others)}")]
                elif snapshot.open:
                    duty = [op.SetNode(path, snapshot.data, snapshot.version), op.Delete(f"{path}/{READY}")]
                else:
                    # The check fails if another party has just made `ready` again.
                    duty = [op.Check(path, snapshot.version)]
                try:
                    yield op.Multi(ticket, (*duty, op.Delete(ticket.node, ticket)))
                    break
                except _UNDECIDED:
                    pass
                except op.NotEmpty:
                    raise _crowded(path) from None
            snapshot = yield from _read_snapshot(ticket)
    except op.Requeue:
        # Our node is gone, as this call wanted.
        yield op.Discard(ticket)
    return (yield from _outlast(path, others, wait=wait))


def _outlast(path: str, others: Collection[str], *, wait: bool) -> Recipe[bool]:
    """Wait until the other parties have left: wait for the first of them, which leaves last unless it has died.

    A party of a newer Curator removes `ready` although one party is left, which may not have seen it. Then this party
    makes `ready` again. All parties that this one waits for were there when `ready` was there.
    """
    shared = any(ROLE not in name for name in others)
    while others:
        if not wait:
            return False
        ticket: Ticket = yield op.NewTicket(path)
        with suppress(op.Requeue, op.NoNode):
            names = yield op.Children(path, ticket)
            while others := set(others).intersection(names):
                names = yield from _outwait(ticket, min(others), lists=shared)
                if shared and READY not in names and set(others).intersection(names):
                    yield from _open_again(ticket, others)
        yield op.Discard(ticket)
    return True


def _open_again(ticket: Ticket, others: Collection[str]) -> Recipe[None]:
    """Make `ready` again, if it is missing while one of the others is there: that party may not have seen it.

    This counts as a decision: the last of the others, which leaves without removing a `ready` that it does not see,
    checks that no decision was made.
    """
    path = ticket.path
    node, names = yield op.Get(path, ticket), op.Children(path, ticket)
    left = sorted(set(others).intersection(names))
    if node is not None and left and READY not in names:
        decide = op.SetNode(path, node.data, node.version)
        # If the barrier has changed meanwhile, or the outcome is unknown, the caller reads again.
        with suppress(op.NodeExists, op.BadVersion, op.ConnectionLost):
            yield op.Multi(ticket, (op.Check(f"{path}/{left[0]}"), decide, op.Create(f"{path}/{READY}", b"")))


def _outwait(ticket: Ticket, name: str, *, lists: bool = False) -> Recipe[Sequence[str]]:
    """Wait until a party may be gone; return the names of all nodes.

    With `lists`, the wait also ends when any node comes or goes, or if `ready` is missing.

    Raises:
        ForeignNodeError: the node does not belong to a party.
    """
    get, listing = op.Get(f"{ticket.path}/{name}", ticket), op.Children(ticket.path, ticket)
    node, *listed = yield op.Watch(ticket, (get, listing) if lists else (get,))
    if node is not None:
        if not node.session:
            raise foreign_child(ticket.path, name, "party")
        goes_on = not listed or READY in listed[0]
        listed.clear()  # as in `lock.acquire`
        if goes_on:
            yield op.Wait(ticket)
    return (yield listing)  # type: ignore[no-any-return]


def _crowded(path: str) -> ForeignNodeError:
    return ForeignNodeError(
        f"{path}/{READY}", "the node has children, which do not belong to a double barrier; delete them"
    )
