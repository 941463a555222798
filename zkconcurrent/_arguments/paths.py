"""Paths: check them by ZooKeeper's rules before a request is sent, and list a path's ancestors."""

from __future__ import annotations

import re

LONGEST = 2000
"""The most bytes of UTF-8 in a path: a request with a hundred such paths is far below a server's 1 MB."""

# Most programs need none of these patterns, so none is compiled before its use.
# ZooKeeper's own rule (PathUtils): no control, surrogate or private-use characters, and none from U+FFF0 to U+FFFF.
_FORBIDDEN = "[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]"
# ZooKeeper checks names in UTF-16, in which each of these characters is two surrogates.
_TWO_OF_UTF_16 = "[\U00010000-\U0010ffff]"

# The path separator, the mark of an escape, and the characters that ZooKeeper (which checks names in UTF-16) refuses.
_ESCAPED = "[/%\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]"
_ESCAPE = b"%([0-9A-F]{2})"


def check_path(path: object) -> str:
    """Return a path at which a primitive may live, as a plain str: an enum's member, say, becomes the text it equals.

    Raises:
        TypeError: it is not a string.
        ValueError: ZooKeeper does not accept it; it is the root, or reserved for ZooKeeper; or it has more than
            `LONGEST` bytes of UTF-8.
    """
    if not isinstance(path, str):
        raise TypeError(f"path must be a str, not {type(path).__name__}")
    path = plain(path)
    check_length("path", path)
    if not path.startswith("/"):
        raise ValueError(f"path must start with '/': {path!r}")
    if path == "/":
        raise ValueError("path must name a node below the root: '/' itself can't be used")
    parts = path[1:].split("/")
    if "" in parts:
        raise ValueError(f"path must have no empty part and no '/' at its end: {path!r}")
    if "." in parts or ".." in parts:
        raise ValueError(f"path must not contain '.' or '..': {path!r}")
    if not (path.isascii() and path.isprintable()):
        _check_characters(path)
    if parts[0] == "zookeeper":
        raise ValueError(f"/zookeeper is reserved for ZooKeeper itself: {path!r}")
    return path


def _check_characters(path: str) -> None:
    if bad := re.search(_FORBIDDEN, path):
        raise ValueError(f"path contains {bad.group()!r}, which ZooKeeper does not accept: {path!r}")
    if bad := re.search(_TWO_OF_UTF_16, path):
        raise ValueError(
            f"path contains {bad.group()!r}, which ZooKeeper does not accept: in UTF-16 it is two characters, both "
            f"forbidden: {path!r}"
        )


def check_name(base: str, name: object) -> str:
    """Return the path of `name` below the path `base`.

    Raises:
        TypeError: it is not a string.
        ValueError: it is empty or absolute, or would leave the base; ZooKeeper does not accept it; or it is too long.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a str, not {type(name).__name__}")
    name = plain(name)
    check_length("name", name)
    if not name or name.startswith("/"):
        raise ValueError(f"name must be relative to {base!r} and not empty: {name!r}")
    try:
        return check_path(f"{base.rstrip('/')}/{name}")
    except ValueError as error:
        raise ValueError(f"bad name {name!r}: {error}") from None


def plain(text: str) -> str:
    """Return the text as a plain str: an f-string would use the `__format__` of a subclass of str."""
    return str.__str__(text)


def check_length(what: str, text: str) -> None:
    """Refuse a text that is too long for a path; the error shows only its beginning.

    Raises:
        ValueError: it has more than `LONGEST` bytes of UTF-8.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > LONGEST:
        raise ValueError(
            f"{what} has {size:,} bytes; it may have at most {LONGEST:,} bytes of UTF-8: {text[:50]!r}...; use a "
            "digest of a long text"
        )


def escape(text: str) -> str:
    """Return a text escaped as one part of a path, with `%` and the bytes of UTF-8; different texts stay different."""
    if text in (".", ".."):
        return text.replace(".", "%2E")
    return re.sub(_ESCAPED, _bytes_escaped, text)


def _bytes_escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "surrogatepass"))


def unescape(name: str) -> str | None:
    """Return the text that `escape` turns into this name; None if there is no such text."""
    if "%" not in name:
        return name
    plain = re.sub(_ESCAPE, lambda found: bytes([int(found[1], 16)]), name.encode())
    try:
        text = plain.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return text if escape(text) == name else None


def ancestors(path: str) -> list[str]:
    """Return the paths above `path`, the highest first, without the root."""
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(2, len(parts))]
