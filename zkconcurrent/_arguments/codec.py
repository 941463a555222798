"""Codecs: how the items of a queue become bytes, and bytes become items."""

from __future__ import annotations

import importlib
import json
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from .._errors import ForeignNodeError
from .._runtime.public import public
from .functions import check_callable

T = TypeVar("T")


@public
class Codec(Protocol[T]):
    """Turns items into bytes and back; any object with these two methods is a codec, and `T` is the type of its items.

    A queue, map or value takes the type of its items from its codec. So if you annotate the methods of your own codec,
    a type checker knows the type of the items.
    """

    def encode(self, item: T, /) -> bytes:
        """Return an item as bytes."""

    def decode(self, data: bytes, /) -> T:
        """Return the item that was encoded as these bytes.

        Raises:
            ValueError: these bytes can't be decoded. A queue then moves the item to `<path>/dead`, and other classes
                raise `ForeignNodeError`. Any other error is raised as it is, and the item stays where it is.
        """


class _Named:
    """A codec of the package, pickled by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __reduce__(self) -> str:
        return self._name

    def __repr__(self) -> str:
        return f"zkconcurrent.{self._name}"


@public
class _Bytes(_Named):
    def encode(self, item: bytes, /) -> bytes:
        if not isinstance(item, bytes | bytearray | memoryview):
            raise TypeError(
                f"must be bytes, not {type(item).__name__}; or pass a codec, such as codec=zkconcurrent.JSON"
            )
        return bytes(item)

    def decode(self, data: bytes, /) -> bytes:
        return data


@public
class _Text(_Named):
    def encode(self, item: str, /) -> bytes:
        if not isinstance(item, str):
            raise TypeError(
                f"must be a str, not {type(item).__name__}; or pass a codec, such as codec=zkconcurrent.JSON"
            )
        return item.encode()

    def decode(self, data: bytes, /) -> str:
        return data.decode()


@public
class _Json(_Named):
    def encode(self, item: Any, /) -> bytes:
        try:
            return json.dumps(item, separators=(",", ":"), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            # UTF-8 has no lone surrogates, such as those of a file name that is not UTF-8; JSON has escapes for them.
            return json.dumps(item, separators=(",", ":")).encode()

    def decode(self, data: bytes, /) -> Any:
        try:
            return json.loads(data)
        except RecursionError as error:
            raise ValueError(f"the data are nested too deep: {error}") from None


@public
class _MessagePack(_Named):
    def encode(self, item: Any, /) -> bytes:
        return _msgpack().packb(item)  # type: ignore[no-any-return]

    def decode(self, data: bytes, /) -> Any:
        return _msgpack().unpackb(data)


def _msgpack() -> Any:
    try:
        return importlib.import_module("msgpack")
    except ImportError:
        raise ImportError("the codec MSGPACK needs msgpack: pip install 'zkconcurrent[msgpack]'") from None


BYTES: Codec[bytes] = _Bytes("BYTES")
"""Items are bytes, and stay as they are: the default of every queue, map and value.

It imposes no format: an item comes back as it was put, and programs in other languages read the same
bytes. Any other codec imposes a format, so a program must choose it explicitly.
"""

TEXT: Codec[str] = _Text("TEXT")
"""Items are strings, in UTF-8."""

JSON: Codec[Any] = _Json("JSON")
"""Items are JSON values: numbers, strings, lists, dictionaries. A tuple comes back as a list.

A type checker knows nothing more about the items, unless you declare it: `jobs: Queue[int] = Queue(zk, "/jobs",
codec=JSON)`.
"""

MSGPACK: Codec[Any] = _MessagePack("MSGPACK")
"""Items are MessagePack values; needs the package `msgpack`, which `zkconcurrent[msgpack]` installs."""


def encoded(codec: Codec[T], value: T, path: str) -> bytes:
    """Encode a value. The result is a copy, as the codec's buffer may change later.

    Raises:
        TypeError: the codec does not return bytes; or the value is not of a type that the package's codec takes.
    """
    try:
        data: object = codec.encode(value)
    except TypeError as error:
        if not isinstance(codec, _Named):
            raise
        raise TypeError(f"a value for {path!r} can't be encoded by {codec!r}: {error}") from None
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"{path!r}: the codec {codec!r} must encode to bytes, not {type(data).__name__}")
    return bytes(data)


def decoded(codec: Codec[T], data: bytes, path: str) -> T:
    """Decode the data of a node.

    Raises:
        ForeignNodeError: the codec can't decode them.
    """
    try:
        return codec.decode(data)
    except ValueError as error:
        raise ForeignNodeError(
            path,
            f"the node's data is {data[:100]!r}, which the codec {codec!r} can't decode: {type(error).__name__}: "
            f"{error}; give all clients the same codec, or delete the node if something else left it behind",
        ) from error


def equal(codec: Codec[T], found: T, data: bytes, value: T) -> bool:
    """Return whether `value` is encoded as `data`, or is equal to `found`, which was decoded from `data`.

    Equal bytes are enough: the same bytes, decoded twice, may give unequal values, such as NaN, or objects of a class
    without `__eq__`. The bytes are compared first, as comparing two arrays may raise an error.
    """
    # If the codec refuses the value, the bytes were not made from it.
    with suppress(TypeError, ValueError):
        if bytes(codec.encode(value)) == data:
            return True
    return bool(found == value)


def check_codec(codec: Codec[T]) -> Codec[T]:
    """Return the codec, if it is one.

    Raises:
        TypeError: it lacks a method, or has a coroutine function for one.
    """
    for method in ("encode", "decode"):
        if not callable(getattr(codec, method, None)):
            raise TypeError(f"codec must have encode() and decode(), not {type(codec).__name__}")
        check_callable(f"codec.{method}", getattr(codec, method))
    return codec
