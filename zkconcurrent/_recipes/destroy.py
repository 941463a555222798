"""To destroy what a primitive keeps in persistent nodes, all of it in one step; and to see who uses it still."""

from __future__ import annotations

from collections.abc import Sequence

from .._ops import (
    Begin,
    Children,
    ConnectionLost,
    Delete,
    Discard,
    Get,
    MakeContainer,
    Multi,
    Node,
    NoNode,
    NotEmpty,
    Recipe,
    StartAgain,
    Sync,
)
from .._registry import Ticket

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


def destroy(path: str, folders: Sequence[str] = ()) -> Recipe[Users]:
    """Remove a node and its children, if nobody has a node in the folders; return who has.

    It is deleted together with the folders, all or nothing: that a folder can be deleted shows that nobody is in it. So
    those that are missing are made before. That the node is gone already is success.

    Args:
        path: the node; its children have none.
        folders: where everybody who uses the primitive has a node, if there are such; beside the node.
    """
    made = 0
    while True:
        _, node, names = yield Sync(path), Get(path), Children(path)
        using = [each for found in (yield from users(path, folders)) for each in found] if folders else []
        if using or node is None or node.czxid != (made or node.czxid):  # one made anew since is not ours to destroy
            return using
        made = node.czxid
        if folders:
            yield tuple(map(MakeContainer, folders))
        ticket: Ticket = yield Begin(path)
        try:
            nodes = [*(f"{path}/{name}" for name in names), path, *folders]
            yield Multi(ticket, tuple(map(Delete, nodes)))
        except (NoNode, NotEmpty, ConnectionLost, StartAgain):  # somebody changed it meanwhile, or nobody can know
            yield Discard(ticket)
        except GeneratorExit:
            raise  # dropped by its driver, which discards the ticket itself
        except BaseException:
            yield Discard(ticket)
            raise
        else:
            yield Discard(ticket)
            return []
