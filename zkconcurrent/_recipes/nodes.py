"""A node that outlives its makers: what all must agree on, flags and counts are kept in one."""

from __future__ import annotations

from .._errors import ForeignNodeError
from .._paths import ancestors
from .operations import CreatePersistent, EnsureContainer, Node, NoNode, Recipe


def make(path: str, data: bytes) -> Recipe[None]:
    """Make the node unless it is there; what is above it are containers, so that they go when it is destroyed."""
    while True:
        try:
            yield CreatePersistent(path, data)
            return
        except NoNode:  # never used, or reaped
            yield tuple(EnsureContainer(above) for above in ancestors(path))


def agreed(path: str, node: Node, ours: str) -> int:
    """Return the number that all must agree on, which a node has as text.

    Args:
        path: the primitive's.
        node: what was read.
        ours: what such a node has, for the error.

    Raises:
        ForeignNodeError: the node has something else.
    """
    if not node.data.isdigit() or len(node.data) > 19:
        raise ForeignNodeError(
            path,
            f"the node's data is {node.data[:100]!r}, and {ours}; delete the node if it is left from something else, "
            "or use another path",
        )
    return int(node.data)
