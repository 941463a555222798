"""Persistent nodes: they keep flags, counts and the numbers that all clients must agree on."""

from __future__ import annotations

from collections.abc import Sequence

from .._errors import ForeignNodeError
from .._paths import ancestors
from .operations import Children, CreatePersistent, EnsureContainer, Node, NoNode, Recipe


def make(path: str, data: bytes) -> Recipe[None]:
    """Make the node unless it exists. Its ancestors are containers, so that they disappear once it is destroyed."""
    while True:
        try:
            yield CreatePersistent(path, data)
            return
        except NoNode:  # never used, or reaped
            yield tuple(EnsureContainer(above) for above in ancestors(path))


def lay_out(containers: Sequence[str], path: str, data: bytes) -> Recipe[None]:
    """Make containers, with their ancestors, and then a persistent node, in one round trip; what exists stays.

    Args:
        containers: the containers, one of which is beside the node or above it.
        path: the persistent node.
        data: its content.
    """
    above = dict.fromkeys(each for container in containers for each in (*ancestors(container), container))
    while True:
        try:
            yield (*map(EnsureContainer, above), CreatePersistent(path, data))
            return
        except NoNode:
            continue  # a parent was just reaped


def agreed(path: str, node: Node, ours: str) -> int:
    """Return the number in a node, on which all clients must agree.

    Args:
        path: the primitive's path.
        node: the node that was read.
        ours: what the node should have, for the error message.

    Raises:
        ForeignNodeError: the node has other data.
    """
    if not node.data.isdigit() or len(node.data) > 19:
        raise foreign_data(path, node.data, ours)
    return int(node.data)


def with_child(paths: Sequence[str]) -> Recipe[tuple[str, str] | None]:
    """Return the first of these nodes that has a child, and that child; None if none has: a delete can't end."""
    listings = (yield tuple(map(Children, paths))) if paths else ()
    return next(((path, names[0]) for path, names in zip(paths, listings, strict=True) if names), None)


def foreign_data(path: str, data: bytes, ours: str) -> ForeignNodeError:
    """Return the error for a node that has another program's data, where `ours` is expected."""
    return ForeignNodeError(
        path,
        f"the node's data is {data[:100]!r}, but {ours}; delete the node if something else left it behind, or use "
        "another path",
    )


def foreign_child(path: str, child: str, kind: str) -> ForeignNodeError:
    """Return the error for a node that has another program's child; `kind` is the primitive's."""
    return ForeignNodeError(
        path,
        f"the node has a child {child!r}, which is no {kind}'s; delete the child if something else left it behind, or "
        "use another path",
    )
