"""The record of an ensemble that shares a base path with others: it gets a name, joins a list, and moves to the next.

The rules are in `_protocol/ensembles.py`. Each write names the version of the record that it was decided by, so a
write whose reply was lost, or that another process was faster with, is decided anew.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from .._arguments.paths import ancestors
from .._errors import ClientError, ForeignNodeError
from .._protocol import operations as op
from .._protocol.ensembles import MEMBER, RECORD, List, ListMember, Plan, Record, gone, refused
from .._protocol.operations import Recipe
from .._protocol.ticket import Ticket
from .nodes import make

# So many nodes are read in one round trip.
_TOGETHER = 100


def read(at: str) -> Recipe[tuple[Record | None, int]]:
    """Return the record, None if there is none yet, and its version.

    Raises:
        ForeignNodeError: the node has other data.
    """
    _, node = yield op.Sync(at), op.Get(at)
    if node is None:
        return None, 0
    if (record := Record.load(node.data)) is None:
        raise ForeignNodeError(at, f"the node's data is {node.data[:100]!r}, but this is the place of a list's record")
    return record, node.version


def named(at: str, name: str) -> Recipe[Record]:
    """Return the record; give the ensemble a name if it has none.

    Raises:
        ForeignNodeError: a base path above is that of several ensembles, too: it would have the names in other places.
    """
    base = at.removesuffix(f"/{RECORD}")
    above = [f"{each}/{RECORD}" for each in (("", *ancestors(base)) if base else ())]
    for path, there in zip(above, (yield tuple(map(op.Exists, above))) if above else (), strict=True):
        if there:
            raise ForeignNodeError(path, f"this namespace has {base!r} on other ensembles: use names below its path")
    while True:
        record, _ = yield from read(at)
        if record is not None:
            return record
        yield from make(at, Record(name).dump())


def agree(at: str, plan: Plan, wanted: Record) -> Recipe[None]:
    """Write the record of an ensemble that has no list yet, or is about to join.

    Raises:
        ClientError: the ensemble has other users.
    """
    while True:
        record, version = yield from read(at)
        if record is None:
            raise gone(at)
        if record == wanted or record.lists[-1:] == (plan.ends,):
            return
        if record.lists or record.next not in (None, plan.ends):
            raise refused(at, plan, record)
        with suppress(op.ConnectionLost):
            yield op.SetNode(at, wanted.dump(), version)


def close(at: str, plan: Plan, old: List, leaves: Callable[[str], bool]) -> Recipe[int]:
    """Close the old list of an ensemble, if none of its members would still use it; return the record's version.

    Args:
        at: the path of the record.
        plan: that of a process of the new list.
        old: the old list.
        leaves: returns whether the paths with this first part leave the ensemble.

    Raises:
        ClientError: the old list is in use; or values, items or other nodes that stay would be left behind. The error
            names them.
    """
    while True:
        record, version = yield from read(at)
        if record is None:
            raise gone(at)
        if record.lists[-1:] == (plan.ends,):
            return version
        if record.lists[-1:] != (old,) or record.next not in (None, plan.ends):
            raise refused(at, plan, record)
        if record.next == plan.ends:
            break
        # Mostly there is an obstacle for long, and then nobody should see the list closed meanwhile.
        yield from _look(at, plan, leaves)
        with suppress(op.ConnectionLost):
            yield op.SetNode(at, record._replace(next=plan.ends).dump(), version)
    # From here on, no process of the old list becomes a member.
    yield from _look(at, plan, leaves)
    return version


def _look(at: str, plan: Plan, leaves: Callable[[str], bool]) -> Recipe[None]:
    if why := (yield from _others(at, plan)) or (yield from _left_behind(at, leaves)):
        raise ClientError(at, why)


def reopen(at: str, plan: Plan) -> Recipe[None]:
    """Undo what `close` has done."""
    record, version = yield from read(at)
    while record is not None and record.next == plan.ends:
        with suppress(op.ConnectionLost):
            yield op.SetNode(at, record._replace(next=None).dump(), version)
        record, version = yield from read(at)


def move(at: str, plan: Plan, version: int) -> Recipe[bool]:
    """Go on to the new list, and leave a mark; return False if the list was opened since `close` gave this version.

    It may be closed again by now, but a process of the old list may have become a member in between.
    """
    record, present = yield from read(at)
    while record is not None and record.next == plan.ends and present == version:
        moved = Record(record.name, (*record.lists, plan.ends))
        ticket: Ticket = yield op.NewTicket(at)
        with suppress(op.ConnectionLost, op.BadVersion, op.NodeExists, op.NoNode, op.Requeue):
            yield op.Multi(ticket, (op.SetNode(at, moved.dump(), version), op.Create(mark(at, len(record.lists)), b"")))
        yield op.Discard(ticket)
        record, present = yield from read(at)
    if record is None:
        raise gone(at)
    return record.lists[-1:] == (plan.ends,)


def mark(at: str, number: int) -> str:
    """Return the path of the mark that the `number`th move leaves."""
    return f"{at}/move-{number}"


def marked(path: str) -> Recipe[int]:
    """Return the creation zxid of a mark; 0 if the ensemble has not moved."""
    _, node = yield op.Sync(path), op.Get(path)
    return 0 if node is None else node.czxid


def _members(at: str) -> Recipe[list[op.Node]]:
    names = [name for name in (yield op.Children(at)) if name.startswith(MEMBER)]
    nodes = (yield tuple(op.Get(f"{at}/{name}") for name in names)) if names else ()
    return [node for node in nodes if node is not None]


def _others(at: str, plan: Plan) -> Recipe[str]:
    """Return why the old list can't end yet: the members that use it."""
    told = [ListMember.load(node.data) for node in (yield from _members(at))]
    old = sorted(each.by for each in told if each.ends != plan.ends)
    if not old:
        return ""
    return (
        f"{len(old)} processes use a list without the new ensembles, such as {_some(old)}: first give all of them the "
        "new ensembles as joining=, and stop those that do not have it"
    )


def _left_behind(at: str, leaves: Callable[[str], bool]) -> Recipe[str]:
    """Return why the paths that leave can't leave yet: the nodes that would stay, or that no member has made."""
    base = at.removesuffix(f"/{RECORD}")
    names = yield op.Children(base or "/")
    todo = [f"{base}/{name}" for name in names if name not in (RECORD, "zookeeper") and leaves(name)]
    stay: list[str] = []
    held: dict[int, str] = {}
    while todo:
        some, todo = todo[-_TOGETHER:], todo[:-_TOGETHER]
        found = yield (*map(op.Get, some), *map(op.Children, some))
        for path, node, children in zip(some, found, found[len(some) :], strict=False):
            todo += (f"{path}/{name}" for name in children)
            if node is not None and node.session:
                held.setdefault(node.session, path)
            # Servers do not tell containers from other nodes; but nobody writes to a container.
            elif node is not None and (node.data or node.version):
                stay.append(path)
    for member in (yield from _members(at)) if held else ():
        held.pop(member.session, None)
    if stay:
        return (
            f"{len(stay)} nodes would be left behind, such as {_some(stay)}: copy what they keep while no process uses "
            "it, and delete them here"
        )
    if held:
        return f"clients that know of no list hold or wait for {_some(list(held.values()))}: give them the list"
    return ""


def _some(texts: list[str]) -> str:
    return ", ".join(sorted(texts)[:5])
