"""The nodes that clients share: containers, and persistent nodes with flags, counts and agreed numbers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from .._errors import ForeignNodeError
from .._limits import most_together
from .._paths import ancestors
from .operations import (
    Children,
    Container,
    Create,
    CreatePersistent,
    CreateTogether,
    EnsureContainer,
    Exists,
    Get,
    Node,
    NoNode,
    Recipe,
    Sync,
)

Lacking: TypeAlias = tuple[Container | Create, ...]
"""What creates the missing nodes, in this order."""


def missing(parts: Sequence[Container | Create], *reads: Get | Children) -> Recipe[tuple[Lacking, list[Any]]]:
    """Return what creates those of some nodes that are missing, and the containers above them; the highest first.

    The caller creates all of these in one request, with a child of the lowest container. A server removes an empty
    container only if that once had a child. So one that was made alone would stay for good if its client were killed,
    or its call ended, before the child came.

    Args:
        parts: the nodes, each after the nodes above it.
        reads: what to read besides, behind the same `sync`; the second result.
    """
    wanted: dict[str, Container | Create] = {}
    for part in parts:
        for above in ancestors(part.path):
            wanted.setdefault(above, Container(above))
        wanted[part.path] = part
    seen = yield (Sync(parts[0].path), *map(Exists, wanted), *reads)
    found = zip(wanted.values(), seen[1:], strict=False)
    lacking = tuple(part for part, there in found if not there)
    most = most_together(parts[-1].path)
    if len(lacking) > most:  # of a path with hundreds of parts
        yield tuple(EnsureContainer(part.path) for part in lacking[:-most])
    return lacking[-most:], seen[len(wanted) + 1 :]


def lay_out(*parts: Container | Create) -> Recipe[None]:
    """Create those of some nodes that are missing, and the containers above them, all in one request."""
    while lacking := (yield from missing(parts))[0]:
        with suppress(NoNode):  # a parent was just reaped
            if (yield CreateTogether(lacking)):
                return


def make(path: str, data: bytes) -> Recipe[None]:
    """Make the node unless it exists. Its ancestors are containers, so that they disappear once it is destroyed."""
    try:
        yield CreatePersistent(path, data)
    except NoNode:  # never used, or reaped
        yield from lay_out(Create(path, data))


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
