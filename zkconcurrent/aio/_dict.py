"""`Dict` and `Set` for tasks, which wrap the classes for threads: reads are plain, and writes are awaited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeVar, overload

from .._arguments.codec import BYTES, Codec
from .._kazoo.link import KazooClient
from .._recipes.map.mirror import Mirror
from .._threads import dict as _dict
from .._threads import set as _set
from .._threads.base import map_base
from ._tasks import AnyTask, of_tasks
from ._twin import PrimitiveTwin, awaited, forwarded

T = TypeVar("T")
V = TypeVar("V")
_MISSING = object()


class _Plain(AnyTask):
    """Reads never wait: they use the last known copy."""

    _mirror: Mirror
    _path: str

    def _await_copy(self) -> None:
        if not self._mirror.listed:
            self._session.check_usable(self._path)
            raise RuntimeError(f"the copy of {self._path!r} was not read yet: await ready() before the first read")


_DictCore = of_tasks(_dict.Dict, _Plain)
_SetCore = of_tasks(_set.Set, _Plain)


class _MapBase(PrimitiveTwin):
    """The methods that `Dict` and `Set` share."""

    @property
    def stale(self) -> bool:
        """Whether the copy may be old: no server is in reach, or it is from an earlier connection. Sends nothing."""
        return bool(self._core.stale)

    ready: Final = awaited(
        map_base.MapBase.ready,
        """Wait until the copy is listed on the present connection: before the first read, or after a reconnect.

        Raises:
            ClientError: the client can't be used here.
            ForeignNodeError: the path belongs to something else.
            ValueError: other clients use the path with another `ephemeral`.
        """,
    )

    clear: Final = awaited(map_base.MapBase.clear)
    destroy: Final = awaited(map_base.MapBase.destroy)

    def __contains__(self, key: object) -> bool:
        return key in self._core

    def __len__(self) -> int:
        return len(self._core)

    def __iter__(self) -> Iterator[str]:
        return iter(self._core)


class Dict(_MapBase, Mapping[str, V]):
    """A dictionary that all processes share, for tasks; see `zkconcurrent.Dict`.

    Reads are plain calls. They read the local copy and never wait, so await `ready()` once before the first read. After
    a reconnect they return the last known values until the copy is up to date again; `stale` is True until then, and
    `ready()` waits for it.

    A cancelled write may or may not have been applied; the caller can't tell which.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the map's path; the first write makes the missing nodes.
        codec: turns values into bytes and back.
        ephemeral: whether an entry ends with the session of the client that wrote it. All processes must give the same.
    """

    @overload
    def __init__(self: Dict[bytes], client: KazooClient, path: str, *, ephemeral: bool = False) -> None: ...
    @overload
    def __init__(self, client: KazooClient, path: str, *, codec: Codec[V], ephemeral: bool = False) -> None: ...
    def __init__(self, client: KazooClient, path: str, *, codec: Codec[Any] = BYTES, ephemeral: bool = False) -> None:
        super().__init__(_DictCore(client, path, codec=codec, ephemeral=ephemeral))

    def __getitem__(self, key: str) -> V:
        value: V = self._core[key]
        return value

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, default: V, /) -> V: ...
    @overload
    def get(self, key: str, default: T, /) -> V | T: ...
    def get(self, key: str, default: object = None, /) -> object:
        """Return the value of a key, or the default."""
        return self._core.get(key, default)

    items: Final = forwarded(_dict.Dict[V].items)
    values: Final = forwarded(_dict.Dict[V].values)
    copy: Final = forwarded(_dict.Dict[V].copy)

    async def put(self, key: str, value: V) -> None:
        """Set a key's value, as `d[key] = value` does for threads."""
        await self._core.__setitem__(key, value)

    async def delete(self, key: str) -> None:
        """Remove a key, as `del d[key]` does for threads.

        Raises:
            KeyError: the key is missing.
        """
        await self._core.__delitem__(key)

    async def update(self, other: Mapping[str, V] | Iterable[tuple[str, V]] = (), /, **kwds: V) -> None:
        """Set the value of each key, one after the other."""
        there: Any = other.copy() if isinstance(other, Dict) else other
        for key, value in dict(there, **kwds).items():
            await self.put(key, value)

    setdefault: Final = awaited(_dict.Dict[V].setdefault)
    replace: Final = awaited(_dict.Dict[V].replace)
    remove: Final = awaited(_dict.Dict[V].remove)
    pop: Final = awaited(_dict.Dict[V].pop)

    async def popitem(self) -> tuple[str, V]:
        """Remove an arbitrary entry and return its key and value. Only one client gets it.

        Raises:
            KeyError: there are no entries.
        """
        while (key := self._core._any_key()) is not None:
            if (value := await self._core.pop(key, _MISSING)) is not _MISSING:
                return key, value
        raise KeyError(f"{self.path!r} has no entries")


class Set(_MapBase, AbstractSet[str]):
    """A set of strings that all processes share, for tasks; see `zkconcurrent.Set` and `Dict`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the set's path; the first write makes the missing nodes.
        ephemeral: whether an element ends with the session of the client that added it last.
    """

    def __init__(self, client: KazooClient, path: str, *, ephemeral: bool = False) -> None:
        super().__init__(_SetCore(client, path, ephemeral=ephemeral))

    @classmethod
    def _from_iterable(cls, it: Iterable[T]) -> set[T]:
        return set(it)

    add: Final = awaited(_set.Set.add)
    discard: Final = awaited(_set.Set.discard)
    remove: Final = awaited(_set.Set.remove)

    async def pop(self) -> str:
        """Remove an arbitrary element and return it. Only one client gets it.

        Raises:
            KeyError: there are no elements.
        """
        while (element := self._core._any_key()) is not None:
            if await self._core._discard(element, bool):
                return str(element)
        raise KeyError(f"{self.path!r} has no elements")
