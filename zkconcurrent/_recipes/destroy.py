"""To destroy a primitive whose state would outlive everybody who used it; and to see who uses it still."""

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
from .._paths import ancestors
from .._registry import Ticket

Users = list[tuple[str, Node]]  # nodes by their paths


def users(path: str, parts: Sequence[str]) -> Recipe[list[Users]]:
    """Return who has a node in each of the parts below `path`, as the leader has them, in no order."""
    _, *listings = yield (Sync(path), *(Children(f"{path}/{part}") for part in parts))
    found: list[Users] = []
    for part, names in zip(parts, listings, strict=True):
        paths = [f"{path}/{part}/{name}" for name in names]
        nodes = (yield tuple(map(Get, paths))) if paths else []
        found.append([(each, node) for each, node in zip(paths, nodes, strict=True) if node is not None])
    return found


def destroy(path: str, state: Sequence[str], parts: Sequence[str]) -> Recipe[Users]:
    """Delete the state, if nobody has a node in the parts; return who has.

    It is deleted together with the parts, all or nothing: that a part can be deleted shows that nobody is in it. So the
    parts are made before, where they are missing. `path` itself is a container, which the server removes.

    Args:
        path: the primitive's path.
        state: the PERSISTENT nodes below it; each may have children, which have none.
        parts: the containers below it in which everybody who uses the primitive has a node.
    """
    while True:
        ticket: Ticket = yield Begin(path)
        try:
            while True:
                _, *listings = yield (
                    Sync(path, ticket),
                    *(Children(f"{path}/{name}", ticket) for name in state),
                    *(Get(f"{path}/{name}", ticket) for name in state),
                )
                there = [name for name, node in zip(state, listings[len(state) :], strict=True) if node is not None]
                using = [each for found in (yield from users(path, parts)) for each in found]
                if using or not there:
                    yield Discard(ticket)
                    return using
                above = [*ancestors(path), path]
                yield tuple(map(MakeContainer, [*above, *(f"{path}/{part}" for part in parts)]))
                below = [
                    f"{path}/{name}/{child}" for name, names in zip(state, listings, strict=False) for child in names
                ]
                paths = [*below, *(f"{path}/{name}" for name in (*there, *parts))]
                try:
                    yield Multi(ticket, tuple(map(Delete, paths)))
                except (NoNode, NotEmpty, ConnectionLost):
                    continue  # somebody was faster, or we were, and the answer was lost: look again
                yield Discard(ticket)
                return []
        except StartAgain:
            yield Discard(ticket)
        except GeneratorExit:
            raise
        except BaseException:
            yield Discard(ticket)
            raise
