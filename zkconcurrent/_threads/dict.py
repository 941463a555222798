"""`Dict`: a map that all processes share; reads come from a local copy."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, MutableMapping, ValuesView
from functools import partial
from typing import Any, Protocol, TypeVar, overload

from .._arguments.codec import BYTES, Codec, check_codec, decoded, encoded, equal
from .._kazoo.link import KazooClient
from .._recipes.map import write
from .base.map_base import MapBase
from .base.primitive import discard_result

T = TypeVar("T")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

_MISSING: Any = object()
# The default that `popitem` gives to `pop`, for which `_MISSING` means that there is no default.
_TAKEN: Any = object()


class HasKeys(Protocol[V_co]):
    """A mapping, as far as `dict.update` needs it."""

    def keys(self) -> Iterable[str]:
        """Return the keys."""

    def __getitem__(self, key: str, /) -> V_co: ...


class Dict(MapBase, MutableMapping[str, V]):
    """A dictionary of strings to values that all processes share. Reads come from a local copy, and send nothing.

    A watch keeps the copy current: another client's write shows as soon as its event has arrived. Two promises hold in
    this client: after `d[k] = v`, `d[k]` is `v` or a later value; and no read returns an older value than an earlier
    read. While no server is in reach, reads return the last known values, and `stale` is True. Once a server is in
    reach again, reads wait until the entries have been listed again.

    Iteration is weakly consistent, as in a `ConcurrentHashMap`: it shows the keys that exist when it begins, never
    raises because of a change, and may or may not show later changes.

    Layout:
        `<path>`, PERSISTENT, whose version counts the entries created and deleted; `<path>/entries/<key>`, PERSISTENT
        (EPHEMERAL if `ephemeral`), with the encoded value; `<path>/writers/_c_<uuid>-writer-<number>`, EPHEMERAL, one
        for each of a client's concurrent writes. The nodes above are containers.

    Invariant:
        Each write is applied once, even if its reply is lost: it is one request that also writes the client's own
        writer node, on condition of that node's version. `replace` and `remove` with an old value, `setdefault` and
        `pop` are atomic.

    Cost:
        A read: nothing. `d[k] = v` and `del d[k]`: one write. `setdefault`: one write or two reads; `replace` with an
        old value, `remove` and `pop`: three reads and one write, in two round trips. Each change costs every other
        client that reads the map one event and one read. The first read, and each reconnect: four requests, and a read
        for each entry.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the map's path; the first write creates the missing nodes.
        codec: turns values into bytes and back: `BYTES`, `TEXT`, `JSON`, `MSGPACK`, or any object with `encode` and
            `decode`. Each read decodes the value again, so changing a returned object changes nothing else.
        ephemeral: whether an entry ends with the session of the client that wrote it. All processes must give the same.

    Raises:
        TypeError: the path is not a string, or the codec lacks a method.
        ValueError: the path is invalid; or this client already uses it for another primitive, or with another
            `ephemeral`. The first use raises it if other clients use the path with another `ephemeral`.

    Source:
        `collections.abc.MutableMapping`; java.util.concurrent's `ConcurrentMap`.
    """

    _kind = "Dict"

    @overload
    def __init__(self: Dict[bytes], client: KazooClient, path: str, *, ephemeral: bool = False) -> None: ...
    @overload
    def __init__(self, client: KazooClient, path: str, *, codec: Codec[V], ephemeral: bool = False) -> None: ...
    def __init__(self, client: KazooClient, path: str, *, codec: Codec[Any] = BYTES, ephemeral: bool = False) -> None:
        self._codec: Codec[V] = check_codec(codec)
        super().__init__(client, path, ephemeral=ephemeral)

    # -- reads -------------------------------------------------------------------------------------------------------

    def __getitem__(self, key: str) -> V:
        return self._decoded(key, self._copy()[key].data)

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, default: V, /) -> V: ...
    @overload
    def get(self, key: str, default: T, /) -> V | T: ...
    def get(self, key: str, default: object = None, /) -> object:
        """Return the value of a key, or the default."""
        found = self._copy().get(key)
        return default if found is None else self._decoded(key, found.data)

    def keys(self) -> KeysView[str]:
        """Return a view of the keys."""
        return KeysView(self)

    def items(self) -> ItemsView[str, V]:
        """Return a view of the keys and values."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """Return a view of the values."""
        return _Values(self)

    def copy(self) -> dict[str, V]:
        """Return a `dict` with all entries. `dict(d)` reads key by key, and raises KeyError if a key is removed."""
        return dict(self._entries())

    def _entries(self) -> Iterator[tuple[str, V]]:
        return ((key, self._decoded(key, entry.data)) for key, entry in list(self._copy().items()))

    def _decoded(self, key: str, data: bytes) -> V:
        return decoded(self._codec, data, self._layout.entry(key))

    # -- writes ------------------------------------------------------------------------------------------------------

    def __setitem__(self, key: str, value: V) -> None:
        # Return the result: the twin for tasks awaits it.
        key, data = self._check_key(key), self._encode(value)
        return self._write(lambda map_write: write.put(map_write, key, data), discard_result)

    def __delitem__(self, key: str) -> None:
        def deleted(there: bool) -> None:
            if not there:
                raise KeyError(key)

        return self._remove(key, write.delete, False, deleted)

    def update(self, other: HasKeys[V] | Iterable[tuple[str, V]] = (), /, **kwds: V) -> None:
        """Set the value of each key, one after the other."""
        super().update(other.copy() if isinstance(other, Dict) else other, **kwds)

    @overload
    def setdefault(self, key: str, default: V, /) -> V: ...
    @overload
    def setdefault(self: Dict[T | None], key: str, default: None = None, /) -> T | None: ...
    def setdefault(self, key: str, default: Any = None, /) -> object:
        """Return the value of a key; if the key is missing, set it to the default first. Atomic; asks ZooKeeper."""
        key, data = self._check_key(key), self._encode(default)

        def done(there: bytes | None) -> object:
            return default if there is None else self._decoded(key, there)

        return self._write(lambda map_write: write.put_if_absent(map_write, key, data), done)

    @overload
    def replace(self, key: str, value: V, /) -> bool: ...
    @overload
    def replace(self, key: str, old: V, new: V, /) -> bool: ...
    def replace(self, key: str, old: V, new: V = _MISSING, /) -> bool:
        """Replace a key's value: `replace(key, value)` if the key exists, `replace(key, old, new)` if it is `old`.

        Atomic: of several clients that replace the same value, one succeeds.

        Returns:
            Whether the value was replaced.
        """
        key, data = self._check_key(key), self._encode(old if new is _MISSING else new)
        matches = _anything if new is _MISSING else self._equals(key, old)
        return self._write(lambda map_write: write.replace(map_write, key, data, matches), bool)

    def remove(self, key: str, value: V, /) -> bool:
        """Remove a key if it has that value; return whether it was removed. Atomic."""
        matches = self._equals(key, value)
        return self._remove(key, partial(write.pop, matches=matches), None, lambda found: found is not None)

    @overload
    def pop(self, key: str, /) -> V: ...
    @overload
    def pop(self, key: str, default: V, /) -> V: ...
    @overload
    def pop(self, key: str, default: T, /) -> V | T: ...
    def pop(self, key: str, default: object = _MISSING, /) -> object:
        """Remove a key and return its value, or the default if it is missing. Only one client gets the value.

        Raises:
            KeyError: the key is missing, and there is no default.
        """
        value: V | None = None

        def accepts(data: bytes) -> bool:
            nonlocal value
            # Decode before the entry is removed, so that an entry which the codec can't decode stays.
            value = self._decoded(key, data)
            return True

        def popped(found: bytes | None) -> object:
            if found is not None:
                return value
            if default is _MISSING:
                raise KeyError(key)
            return default

        return self._remove(key, partial(write.pop, matches=accepts), None, popped)

    def popitem(self) -> tuple[str, V]:
        """Remove an arbitrary entry and return its key and value. Only one client gets the entry.

        Raises:
            KeyError: there are no entries.
        """
        while (key := self._any_key()) is not None:
            if (value := self.pop(key, _TAKEN)) is not _TAKEN:
                return key, value
        raise KeyError(f"{self._path!r} has no entries")

    def _encode(self, value: V) -> bytes:
        return encoded(self._codec, value, self._path)

    def _equals(self, key: str, value: V) -> Callable[[bytes], bool]:
        return lambda data: equal(self._codec, self._decoded(key, data), data, value)


def _anything(_: bytes) -> bool:
    return True


class _Items(ItemsView[str, V]):
    """A view of the items. It reads each entry once, as a key may be gone before a second read."""

    _mapping: Dict[V]

    def __iter__(self) -> Iterator[tuple[str, V]]:
        return self._mapping._entries()


class _Values(ValuesView[V]):
    """A view of the values."""

    _mapping: Dict[V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping._entries())

    def __contains__(self, value: object) -> bool:
        return any(each is value or each == value for each in self)
