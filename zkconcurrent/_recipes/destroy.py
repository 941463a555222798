"""To destroy what a primitive keeps in persistent nodes, and nothing else; and to see who uses it still."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from .._errors import ForeignNodeError
from .._limits import most_together
from .operations import (
    BadVersion,
    Check,
    Children,
    ConnectionLost,
    Delete,
    Discard,
    EnsureContainer,
    Get,
    Multi,
    NewTicket,
    Node,
    NoNode,
    NotEmpty,
    Recipe,
    Requeue,
    Sync,
)
from .ticket import Ticket

Users = list[tuple[str, Node]]  # nodes by their paths


def users(path: str, folders: Sequence[str]) -> Recipe[list[Users]]:
    """Return who has a node in each of the folders, as the leader has them, in no order."""
    _, *listings = yield (Sync(path), *map(Children, folders))
    found: list[Users] = []
    for folder, names in zip(folders, listings, strict=True):
        paths = [f"{folder}/{name}" for name in names]
        nodes = (yield tuple(map(Get, paths))) if paths else []
        found.append([(each, node) for each, node in zip(paths, nodes, strict=True) if node is not None])
    return found


def destroy(
    path: str, check: Callable[[Node], object], child: re.Pattern[str], folders: Sequence[str] = ()
) -> Recipe[Users]:
    """Remove a node and its children, if nobody has a node in the folders; return who has.

    It is deleted together with the folders, all or nothing: that a folder can be deleted shows that nobody is in it. So
    those that are missing are made before. More children than one request can name go in pieces, before that. That the
    node is gone already is success.

    Args:
        path: the node; its children have none.
        check: raises ForeignNodeError for a node that is something else.
        child: the names of its children; one of another name shows that the node is something else.
        folders: where everybody who uses the primitive has a node, if there are such; beside the node, without data.

    Raises:
        ForeignNodeError: something else is there; nothing of it was touched.
    """
    made, most = 0, most_together(path)
    while True:
        _, node, names, *rooms = yield Sync(path), Get(path), Children(path), *map(Get, folders)
        if node is not None:
            check(node)
            if node.session:
                raise _foreign(path, "the node is not persistent")
            if strange := [name for name in names if not child.fullmatch(name)]:
                raise _foreign(path, f"the node has a child {strange[0]!r}")
        for folder, room in zip(folders, rooms, strict=True):
            if room is not None and room.data:
                raise _foreign(path, f"the node {folder!r} has data, {room.data[:100]!r}")
        using = [each for found in (yield from users(path, folders)) for each in found] if folders else []
        if using or node is None or node.czxid != (made or node.czxid):  # one made anew since is not ours to destroy
            return using
        made = node.czxid
        if folders:
            yield tuple(map(EnsureContainer, folders))
        left = [Delete(f"{path}/{name}") for name in names]
        ticket: Ticket = yield NewTicket(path)
        try:
            while len(left) > most:
                yield Multi(ticket, (Check(path, node.version), *left[:most]))
                del left[:most]
            # Of the version that was looked at: what was written since may be something else.
            yield Multi(ticket, (*left, Delete(path, version=node.version), *map(Delete, folders)))
        except (NoNode, BadVersion, NotEmpty, ConnectionLost, Requeue) as error:
            yield Discard(ticket)  # somebody changed it meanwhile, or nobody can know: look again
            if isinstance(error, NotEmpty):
                yield from _check_leaves(path, [each.path for each in left[:most]])
        else:
            yield Discard(ticket)
            return []


def _check_leaves(path: str, leaves: Sequence[str]) -> Recipe[None]:
    """Refuse to delete nodes that have children: to try again would be to try for ever.

    Raises:
        ForeignNodeError: one has.
    """
    below = (yield tuple(map(Children, leaves))) if leaves else []
    for leaf, found in zip(leaves, below, strict=True):
        if found:
            raise _foreign(path, f"the node's child {leaf!r} has children")


def _foreign(path: str, why: str) -> ForeignNodeError:
    return ForeignNodeError(
        path, f"{why}, so it is something else's, and was not deleted; delete it by hand if it is left from that"
    )
