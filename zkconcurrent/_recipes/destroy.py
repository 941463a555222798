"""Destroy the persistent nodes of a primitive, and nothing else; list the clients that still use it, and name them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from .._arguments.limits import most_together
from .._errors import ForeignNodeError
from .._protocol.operations import (
    MALFORMED,
    NOWHERE,
    BadVersion,
    Check,
    CheckChroot,
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
from .._protocol.ticket import Ticket
from .nodes import with_child

NAMED = 5
Users = list[tuple[str, Node]]  # nodes by their paths


def users(path: str, folders: Sequence[str]) -> Recipe[list[Users]]:
    """Return the nodes in each of the folders, read behind a `sync`, in no order."""
    _, *listings = yield (Sync(path), *map(Children, folders))
    if NOWHERE in listings:
        yield CheckChroot(path)
    found: list[Users] = []
    for folder, names in zip(folders, listings, strict=True):
        found.append((yield from there([f"{folder}/{name}" for name in names])))
    return found


def there(paths: Sequence[str]) -> Recipe[Users]:
    """Return those of the nodes that exist."""
    nodes = (yield tuple(map(Get, paths))) if paths else []
    return [(path, node) for path, node in zip(paths, nodes, strict=True) if node is not None]


def named(found: Users) -> str:
    """Return how an error message names the clients of these nodes: by thread, process and host."""
    words = [_name(path, node) for path, node in found[:NAMED]]
    more = len(found) - len(words)
    return ", ".join([*words, f"and {more:,} more"] if more else words)


def _name(path: str, node: Node) -> str:
    try:
        said = json.loads(node.data)
        return f"thread {said['thread']!r} of process {said['pid']} on host {said['host']!r} ({path})"
    except MALFORMED:
        # Another program has made the node, such as one on Curator.
        return f"session {node.session % 2**64:#x}, which says {node.data[:100]!r} ({path})"


def destroy(
    path: str, check: Callable[[Node], object], child: re.Pattern[str], folders: Sequence[str] = ()
) -> Recipe[Users]:
    """Remove a node and its children unless a client has a node in one of the folders; return those nodes.

    One `multi` deletes the node together with the folders. A folder can only be deleted while it is empty, so the
    `multi` fails if a client is using the primitive; missing folders are made first. If there are more children than
    one request can name, most are deleted in batches before. A node that is gone already is success.

    Args:
        path: the node; its children are leaves.
        check: raises ForeignNodeError for a node of another kind.
        child: matches the names of the node's children; any other name shows a node of another kind.
        folders: nodes without data, beside the node, in which every client that uses the primitive has a node.

    Raises:
        ForeignNodeError: the path has other nodes; none of them was touched.
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
        # A node that was made since is not ours to destroy.
        if using or node is None or node.czxid != (made or node.czxid):
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
            # The delete names the version that was checked: data that was written since may be of another kind.
            yield Multi(ticket, (*left, Delete(path, version=node.version), *map(Delete, folders)))
        except (NoNode, BadVersion, NotEmpty, ConnectionLost, Requeue) as error:
            # The nodes have changed meanwhile, or the outcome is unknown: look again.
            yield Discard(ticket)
            paths = [each.path for each in left[:most]] if isinstance(error, NotEmpty) else []
            if (found := (yield from with_child(paths))) is not None:
                raise _foreign(path, f"the node's child {found[0]!r} has children") from None
        else:
            yield Discard(ticket)
            return []


def _foreign(path: str, why: str) -> ForeignNodeError:
    return ForeignNodeError(
        path, f"{why}, so it belongs to something else, and was not deleted; delete it by hand if that left it behind"
    )
