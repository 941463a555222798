"""Paths: what ZooKeeper accepts, checked before anything is sent, and what lies above a path."""

from __future__ import annotations

import re

LONGEST = 2000
"""How many bytes of UTF-8 a path may have: a request of a hundred such paths is far below a server's 1 MB."""

# ZooKeeper's own rule (PathUtils): control characters, surrogates and private use, and the specials at the end.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")
# It counts in UTF-16, where each of these is two surrogates.
_TWO_OF_UTF_16 = re.compile("[\U00010000-\U0010ffff]")


def check_path(path: object) -> str:
    """Return `path` if a lock may live there.

    Raises:
        TypeError: it is not a string.
        ValueError: ZooKeeper would not accept it; it is the root or ZooKeeper's own; or it has more than `LONGEST`
            bytes of UTF-8.
    """
    if not isinstance(path, str):
        raise TypeError(f"path must be a str, not {type(path).__name__}")
    check_length("path", path)
    if not path.startswith("/"):
        raise ValueError(f"path must start with '/': {path!r}")
    if path == "/":
        raise ValueError("path must name a node below the root: '/' can't be a lock")
    parts = path[1:].split("/")
    if "" in parts:
        raise ValueError(f"path must have no empty part and no '/' at its end: {path!r}")
    if "." in parts or ".." in parts:
        raise ValueError(f"path must not contain '.' or '..': {path!r}")
    if bad := _FORBIDDEN.search(path):
        raise ValueError(f"path contains {bad.group()!r}, which ZooKeeper does not accept: {path!r}")
    if bad := _TWO_OF_UTF_16.search(path):
        raise ValueError(
            f"path contains {bad.group()!r}, which ZooKeeper does not accept, as it counts in UTF-16 and takes that "
            f"for two bad characters: {path!r}"
        )
    if parts[0] == "zookeeper":
        raise ValueError(f"/zookeeper is reserved for ZooKeeper itself: {path!r}")
    return path


def check_name(base: str, name: object) -> str:
    """Return the path of `name` below the path `base`.

    Raises:
        TypeError: it is not a string.
        ValueError: it is empty, absolute or would leave the base; ZooKeeper would not accept it; or it is too long.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    check_length("name", name)
    if not name or name.startswith("/"):
        raise ValueError(f"name must be relative to {base!r} and not empty: {name!r}")
    try:
        return check_path(f"{base.rstrip('/')}/{name}")
    except ValueError as error:
        raise ValueError(f"bad name {name!r}: {error}") from None


def check_length(what: str, text: str) -> None:
    """Refuse a text that is too long for a path, without showing all of it.

    Raises:
        ValueError: it has more than `LONGEST` bytes of UTF-8.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LONGEST:
        raise ValueError(
            f"{what} has {size:,} bytes, and may have {LONGEST:,} bytes of UTF-8 at most: {text[:50]!r}...; of a long "
            "text, take a digest"
        )


def ancestors(path: str) -> list[str]:
    """Return the nodes above `path`, the highest first, without the root."""
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(2, len(parts))]
