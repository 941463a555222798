"""The map and the set of a local namespace: for threads of this process, and for tasks of one loop."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSet
from collections.abc import Set as AbstractSet
from typing import Any

from .._arguments.codec import Codec, equal

_MISSING: Any = object()


def check_key(key: Any) -> str:
    """Return a key, if a `Dict` in ZooKeeper would accept it.

    Raises:
        TypeError: it is not a string.
        ValueError: it is empty.
    """
    if not isinstance(key, str):
        raise TypeError(f"a key must be a str, not {type(key).__name__}")
    if not key:
        raise ValueError("a key must not be empty")
    return key


class _Entries:
    """Encoded values by key, and a lock for operations that must be atomic."""

    stale = False

    def __init__(self) -> None:
        self._entries: dict[str, bytes] = {}
        self._lock = threading.RLock()

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))


class _Read(_Entries):
    """A map whose values are encoded, so that each read has a copy of its own."""

    def __init__(self, codec: Codec[Any]) -> None:
        super().__init__()
        self._codec = codec

    def __getitem__(self, key: str) -> Any:
        return self._codec.decode(self._entries[key])

    def copy(self) -> dict[str, Any]:
        """Return the entries as a `dict` of its own."""
        return {key: self._codec.decode(data) for key, data in list(self._entries.items())}

    def items(self) -> Any:
        """Return the keys and values."""
        return self.copy().items()

    def values(self) -> Any:
        """Return the values."""
        return self.copy().values()

    def _put(self, key: str, value: Any) -> None:
        data = self._codec.encode(value)
        self._entries[check_key(key)] = data

    def _setdefault(self, key: str, default: Any) -> Any:
        data = self._codec.encode(default)
        return self._codec.decode(self._entries.setdefault(check_key(key), data))

    def _replace(self, key: str, old: Any, new: Any) -> bool:
        data = self._codec.encode(old if new is _MISSING else new)
        with self._lock:
            if check_key(key) not in self._entries or (new is not _MISSING and not self._has(key, old)):
                return False
            self._entries[key] = data
            return True

    def _remove(self, key: str, value: Any) -> bool:
        with self._lock:
            if check_key(key) not in self._entries or not self._has(key, value):
                return False
            del self._entries[key]
            return True

    def _has(self, key: str, value: Any) -> bool:
        return equal(self._codec, self._entries[key], value)

    def _pop(self, key: str, default: Any) -> Any:
        data = self._entries.pop(check_key(key)) if default is _MISSING else self._entries.pop(check_key(key), _MISSING)
        return default if data is _MISSING else self._codec.decode(data)

    def _popitem(self) -> tuple[str, Any]:
        key, data = self._entries.popitem()
        return key, self._codec.decode(data)


class Dict(_Read, MutableMapping[str, Any]):
    """A dictionary of strings to values; see `zkconcurrent.Dict`."""

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __setitem__(self, key: str, value: Any) -> None:
        self._put(key, value)

    def __delitem__(self, key: str) -> None:
        del self._entries[key]

    def setdefault(self, key: str, default: Any = None, /) -> Any:
        """Return the value of a key; if the key is missing, set it to the default first."""
        return self._setdefault(key, default)

    def replace(self, key: str, old: Any, new: Any = _MISSING, /) -> bool:
        """Replace a key's value, if it has any, or if it has `old`; return whether it was replaced."""
        return self._replace(key, old, new)

    def remove(self, key: str, value: Any, /) -> bool:
        """Remove a key if it has that value; return whether it was removed."""
        return self._remove(key, value)

    def pop(self, key: str, default: Any = _MISSING, /) -> Any:
        """Remove a key and return its value, or the default."""
        return self._pop(key, default)

    def popitem(self) -> tuple[str, Any]:
        """Remove an arbitrary entry and return its key and value."""
        return self._popitem()

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()

    def ready(self) -> None:
        """Do nothing: there is no copy to be read."""


class Set(_Entries, MutableSet[str]):
    """A set of strings; see `zkconcurrent.Set`."""

    def __hash__(self) -> int:
        return object.__hash__(self)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> set[Any]:
        return set(it)

    def add(self, value: str) -> None:
        """Add an element."""
        self._entries[check_key(value)] = b""

    def discard(self, value: str) -> None:
        """Remove an element, if it is there."""
        self._entries.pop(check_key(value), None)

    def remove(self, value: str) -> None:
        """Remove an element."""
        del self._entries[check_key(value)]

    def pop(self) -> str:
        """Remove an arbitrary element and return it."""
        return self._entries.popitem()[0]

    def clear(self) -> None:
        """Remove all elements."""
        self._entries.clear()

    def ready(self) -> None:
        """Do nothing: there is no copy to be read."""


class AsyncDict(_Read, Mapping[str, Any]):
    """A dictionary of strings to values, for tasks; see `zkconcurrent.aio.Dict`."""

    def __hash__(self) -> int:
        return object.__hash__(self)

    async def put(self, key: str, value: Any) -> None:
        """Set a key's value."""
        self._put(key, value)

    async def delete(self, key: str) -> None:
        """Remove a key."""
        del self._entries[key]

    async def update(self, other: Any = (), /, **kwds: Any) -> None:
        """Set the value of each key."""
        for key, value in dict(other, **kwds).items():
            self._put(key, value)

    async def setdefault(self, key: str, default: Any = None, /) -> Any:
        """Return the value of a key; if the key is missing, set it to the default first."""
        return self._setdefault(key, default)

    async def replace(self, key: str, old: Any, new: Any = _MISSING, /) -> bool:
        """Replace a key's value, if it has any, or if it has `old`; return whether it was replaced."""
        return self._replace(key, old, new)

    async def remove(self, key: str, value: Any, /) -> bool:
        """Remove a key if it has that value; return whether it was removed."""
        return self._remove(key, value)

    async def pop(self, key: str, default: Any = _MISSING, /) -> Any:
        """Remove a key and return its value, or the default."""
        return self._pop(key, default)

    async def popitem(self) -> tuple[str, Any]:
        """Remove an arbitrary entry and return its key and value."""
        return self._popitem()

    async def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()

    async def ready(self) -> None:
        """Do nothing: there is no copy to be read."""


class AsyncSet(_Entries, AbstractSet[str]):
    """A set of strings, for tasks; see `zkconcurrent.aio.Set`."""

    def __hash__(self) -> int:
        return object.__hash__(self)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> set[Any]:
        return set(it)

    async def add(self, value: str) -> None:
        """Add an element."""
        self._entries[check_key(value)] = b""

    async def discard(self, value: str) -> None:
        """Remove an element, if it is there."""
        self._entries.pop(check_key(value), None)

    async def remove(self, value: str) -> None:
        """Remove an element."""
        del self._entries[check_key(value)]

    async def pop(self) -> str:
        """Remove an arbitrary element and return it."""
        return self._entries.popitem()[0]

    async def clear(self) -> None:
        """Remove all elements."""
        self._entries.clear()

    async def ready(self) -> None:
        """Do nothing: there is no copy to be read."""
