"""Limits: no argument may make a request that is larger than the server accepts.

A server closes the connection of a client that sends more than `jute.maxbuffer` allows, 1 MB by default. So numbers are
checked when they are passed, as `paths` checks the lengths of paths.
"""

from __future__ import annotations

import operator

LARGEST = 2**63 - 1
"""The largest number an argument may have: Java's largest long, and `sys.maxsize` on 64-bit systems."""

MOST_TOGETHER = 1000
"""How many nodes one request may name if their paths have usual lengths."""

CHECK_BYTES = 17
"""How many bytes of a request one check takes, besides the path."""

REQUEST_OVERHEAD = 2_048
"""How many bytes a request may take besides a value and the paths: a thread's name alone may take 240."""

LONGEST_LABEL = 60
"""The most bytes of UTF-8 in a label: up to 1,000 nodes of one request may contain it, see `_NODE`."""

# In bytes; the rest of 1 MB is left for access control lists and a chroot.
_REQUEST = 800_000
# How many bytes of a request each node takes besides its path, for its name, data and access control list.
_NODE = 400


def check_int(name: str, value: object) -> int:
    """Return `value` as an int; True is 1.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is larger than `LARGEST`.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an int, not {type(value).__name__}") from None
    if number > LARGEST:
        raise ValueError(f"{name} must be at most 2**63 - 1")
    return number


def is_seconds(value: object) -> bool:
    """Return whether `threading` accepts the value as seconds: a float or an integer, but not a Decimal."""
    return hasattr(value, "__float__") and (isinstance(value, float) or hasattr(value, "__index__"))


def check_seconds(name: str, value: object) -> None:
    """Refuse a value that is not a number of seconds.

    Raises:
        TypeError: it is not a number.
    """
    if not is_seconds(value):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}")


def check_positive(name: str, value: object) -> int:
    """Return `value` as an int of one or more.

    Raises:
        TypeError: it is not an integer.
        ValueError: it is less than one, or larger than `LARGEST`.
    """
    number = check_int(name, value)
    if number < 1:
        raise ValueError(f"{name} must be one or more: {number}")
    return number


def most_together(path: str) -> int:
    """Return how many nodes below `path` one request may name: `MOST_TOGETHER`, or fewer if the path is long."""
    return min(MOST_TOGETHER, _REQUEST // (_NODE + len(path.encode())))


def check_label(label: object) -> None:
    """Refuse a bad label: people read labels in a line of a table or of the log.

    Raises:
        TypeError: it is neither a string nor None.
        ValueError: it is empty, too long, or has characters that can't be printed.
    """
    if label is None:
        return
    if not isinstance(label, str):
        raise TypeError(f"label must be a string, not {type(label).__name__}")
    if not label.isprintable() or not 1 <= len(label.encode()) <= LONGEST_LABEL:
        raise ValueError(f"label must have 1 to {LONGEST_LABEL} bytes, all printable: {label!r}")
