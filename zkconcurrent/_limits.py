"""Limits: how much one call may ask for, so that no argument makes a request that is larger than the server takes.

A server closes the connection of a client that sends more than `jute.maxbuffer` allows, 1 MB unless it is configured
otherwise. So numbers are checked where they are given, as `_paths` checks the lengths of paths.
"""

from __future__ import annotations

import operator

LARGEST = 2**63 - 1
"""The largest number that may be given: `sys.maxsize`, and Java's largest long."""

MOST_TOGETHER = 1000
"""How many nodes one request may name, of paths of usual length."""

_REQUEST = 800_000  # bytes: what is left of 1 MB is for access control lists and a chroot
_NODE = 400  # bytes that a request has for each node besides the path: its name, data and access control list


def check_int(name: str, value: object) -> int:
    """Return `value` as an int; True is 1.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is too large.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__}") from None
    if number > LARGEST:
        raise ValueError(f"{name} must be at most 2**63 - 1")
    return number


def most_together(path: str) -> int:
    """Return how many nodes below `path` one request may name: `MOST_TOGETHER`, but fewer where the path is long."""
    return min(MOST_TOGETHER, _REQUEST // (_NODE + len(path.encode())))
