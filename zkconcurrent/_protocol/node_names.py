"""The name of a contender's node, as Curator writes it: `_c_`, a UUID, `-`, the role, and the server's number.

The UUID makes the name unique, so that a client finds its node again after a lost reply. Twenty of its digits stand for
the client; the last twelve count the client's tickets. The first of these twelve has two marks, so that a listing alone
shows which nodes must be read.
"""

from __future__ import annotations

PREFIX_LENGTH = len("_c_") + 36 + len("-")
"""The length of a name before its role, as in Curator: `_c_`, a UUID, and `-`."""

# Where a UUID has the marks, and where a node's name has them.
_MARKED_DIGIT = 24
_MARKED_AT = len("_c_") + _MARKED_DIGIT

MARK = 8 << 44
"""Marks the number of a ticket if its node's data list holds, so that a listing alone shows which nodes to read."""

_DETACHED = 4 << 44
"""Marks the number of a `DetachedLock`'s ticket: another node may take the place of its node; see `way_to_grant`."""


def unique_prefix(client: str, number: int, *, marked: bool, detached: bool) -> str:
    """Return the beginning of the name of a client's node, up to the role.

    Args:
        client: the first twenty digits of the UUID.
        number: the ticket's number; less than 2**44.
        marked: whether the node's data list its owner's holds.
        detached: whether a `DetachedLock` makes it.
    """
    return f"_c_{client}-{number | marked * MARK | detached * _DETACHED:012x}-"


def unique(name: str) -> str:
    """Return the unique part of a node's name, the 32 digits of its UUID, as other nodes' data contain it."""
    return name[3 : PREFIX_LENGTH - 1].replace("-", "")


def is_marked(name: str) -> bool:
    """Return whether a name has the mark for data that list holds; another program's name may have it by chance."""
    return name[_MARKED_AT : _MARKED_AT + 1] in {*"89abcdef"}


def as_detached(unique: str) -> str:
    """Return a UUID with the mark of a node that a `DetachedLock` made."""
    return f"{unique[:_MARKED_DIGIT]}4{unique[_MARKED_DIGIT + 1 :]}"


def is_detached(name: str) -> bool:
    """Return whether a `DetachedLock` may have made a node; half of other programs' names have this mark by chance."""
    return name[:3] == "_c_" and name[_MARKED_AT : _MARKED_AT + 1] in {*"4567cdef"}
