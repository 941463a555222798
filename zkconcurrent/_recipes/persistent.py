"""A node that outlives its makers: what all must agree on, flags and counts are kept in one."""

from __future__ import annotations

from .._ops import Make, MakeContainer, NoNode, Recipe
from .._paths import ancestors


def make(path: str, data: bytes) -> Recipe[None]:
    """Make the node unless it is there; what is above it are containers, so that they go when it is destroyed."""
    while True:
        try:
            yield Make(path, data)
            return
        except NoNode:  # never used, or reaped
            yield tuple(MakeContainer(above) for above in ancestors(path))
