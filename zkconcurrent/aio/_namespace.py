"""`namespace`: the names of `asyncio`, for one base path of ZooKeeper or for one loop of this process."""

from __future__ import annotations

# The classes have an underscore here, as inside of the class their names are the methods'.
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias, overload

from .._arguments.codec import BYTES as _BYTES
from .._arguments.codec import JSON as _JSON
from .._arguments.codec import Codec as _Codec
from .._connect import Client
from .._kazoo.link import KazooClient
from .._local.aio import LocalNamespace
from .._local.namespace import check_names
from .._namespace import BasePath, is_local
from .._runtime.public import public
from ._atomic import AtomicInteger as _AtomicInteger
from ._atomic import AtomicLong as _AtomicLong
from ._barrier import Barrier as _Barrier
from ._condition import Condition as _Condition
from ._dict import Dict as _Dict
from ._dict import Set as _Set
from ._double_barrier import DoubleBarrier as _DoubleBarrier
from ._election import Election as _Election
from ._event import Event as _Event
from ._group import Group as _Group
from ._latch import CountDownLatch as _CountDownLatch
from ._lock import Lock as _Lock
from ._multilock import MultiLock as _MultiLock
from ._queue import DelayQueue as _DelayQueue
from ._queue import LifoQueue as _LifoQueue
from ._queue import PriorityQueue as _PriorityQueue
from ._queue import Queue as _Queue
from ._rlock import RLock as _RLock
from ._rwlock import ReadWriteLock as _ReadWriteLock
from ._rwlock import WriteLock as _WriteLock
from ._semaphore import BoundedSemaphore as _BoundedSemaphore
from ._semaphore import Semaphore as _Semaphore
from ._shared_value import SharedValue as _SharedValue

OnLost: TypeAlias = Callable[[Any], object]


@public
class SharedNamespace(BasePath):
    """The names of `asyncio` for all processes that open the same base path: see `namespace`."""

    _package = "zkconcurrent.aio"

    def Lock(  # noqa: N802 - as asyncio has it
        self, name: str, *, fair: bool = True, on_lost: OnLost | None = None
    ) -> _Lock:
        """Return the `Lock` with that name."""
        return _Lock(self._client, self._at(name), fair=fair, on_lost=on_lost)

    def RLock(self, name: str, *, fair: bool = True, on_lost: OnLost | None = None) -> _RLock:  # noqa: N802
        """Return the `RLock` with that name."""
        return _RLock(self._client, self._at(name), fair=fair, on_lost=on_lost)

    def Condition(self, name: str, lock: _Lock | _RLock | _WriteLock | None = None) -> _Condition:  # noqa: N802
        """Return the `Condition` with that name."""
        return _Condition(self._client, self._at(name), lock)

    def Semaphore(self, name: str, value: int | None = 1, *, on_lost: OnLost | None = None) -> _Semaphore:  # noqa: N802
        """Return the `Semaphore` with that name."""
        return _Semaphore(self._client, self._at(name), value, on_lost=on_lost)

    def BoundedSemaphore(  # noqa: N802
        self, name: str, value: int | None = 1, *, on_lost: OnLost | None = None
    ) -> _BoundedSemaphore:
        """Return the `BoundedSemaphore` with that name."""
        return _BoundedSemaphore(self._client, self._at(name), value, on_lost=on_lost)

    def Event(self, name: str) -> _Event:  # noqa: N802
        """Return the `Event` with that name."""
        return _Event(self._client, self._at(name))

    def Barrier(self, name: str, parties: int) -> _Barrier:  # noqa: N802
        """Return the `Barrier` with that name."""
        return _Barrier(self._client, self._at(name), parties)

    def ReadWriteLock(self, name: str, *, on_lost: OnLost | None = None) -> _ReadWriteLock:  # noqa: N802
        """Return the `ReadWriteLock` with that name."""
        return _ReadWriteLock(self._client, self._at(name), on_lost=on_lost)

    def CountDownLatch(self, name: str, count: int) -> _CountDownLatch:  # noqa: N802
        """Return the `CountDownLatch` with that name."""
        return _CountDownLatch(self._client, self._at(name), count)

    def Election(  # noqa: N802
        self,
        name: str,
        *,
        id: str | None = None,  # noqa: A002
        layout: str = "selector",
    ) -> _Election:
        """Return the `Election` with that name."""
        return _Election(self._client, self._at(name), id=id, layout=layout)

    def AtomicLong(self, name: str) -> _AtomicLong:  # noqa: N802
        """Return the `AtomicLong` with that name."""
        return _AtomicLong(self._client, self._at(name))

    def AtomicInteger(self, name: str) -> _AtomicInteger:  # noqa: N802
        """Return the `AtomicInteger` with that name."""
        return _AtomicInteger(self._client, self._at(name))

    def SharedValue(  # noqa: N802
        self, name: str, value: Any, *, codec: _Codec = _BYTES
    ) -> _SharedValue[Any]:
        """Return the `SharedValue` with that name."""
        return _SharedValue(self._client, self._at(name), value, codec=codec)

    AtomicReference = SharedValue

    def DoubleBarrier(self, name: str, parties: int) -> _DoubleBarrier:  # noqa: N802
        """Return the `DoubleBarrier` with that name."""
        return _DoubleBarrier(self._client, self._at(name), parties)

    def Group(self, name: str) -> _Group:  # noqa: N802
        """Return the `Group` with that name."""
        return _Group(self._client, self._at(name))

    def Queue(  # noqa: N802
        self, name: str, maxsize: int = 0, *, codec: _Codec = _BYTES, max_attempts: int | None = None
    ) -> _Queue[Any]:
        """Return the `Queue` with that name."""
        return _Queue(self._client, self._at(name), maxsize, codec=codec, max_attempts=max_attempts)

    def LifoQueue(  # noqa: N802
        self, name: str, maxsize: int = 0, *, codec: _Codec = _BYTES, max_attempts: int | None = None
    ) -> _LifoQueue[Any]:
        """Return the `LifoQueue` with that name."""
        return _LifoQueue(self._client, self._at(name), maxsize, codec=codec, max_attempts=max_attempts)

    def PriorityQueue(  # noqa: N802
        self,
        name: str,
        maxsize: int = 0,
        *,
        codec: _Codec = _JSON,
        max_attempts: int | None = None,
        priority: Callable[[Any], float] | None = None,
        floats: bool = False,
    ) -> _PriorityQueue[Any]:
        """Return the `PriorityQueue` with that name."""
        more: dict[str, Any] = {"codec": codec, "max_attempts": max_attempts, "priority": priority, "floats": floats}
        return _PriorityQueue(self._client, self._at(name), maxsize, **more)

    def DelayQueue(  # noqa: N802
        self, name: str, maxsize: int = 0, *, codec: _Codec = _BYTES, max_attempts: int | None = None
    ) -> _DelayQueue[Any]:
        """Return the `DelayQueue` with that name."""
        return _DelayQueue(self._client, self._at(name), maxsize, codec=codec, max_attempts=max_attempts)

    def Dict(  # noqa: N802
        self, name: str, *, codec: _Codec = _BYTES, ephemeral: bool = False
    ) -> _Dict[Any]:
        """Return the `Dict` with that name."""
        return _Dict(self._client, self._at(name), codec=codec, ephemeral=ephemeral)

    def Set(self, name: str, *, ephemeral: bool = False) -> _Set:  # noqa: N802
        """Return the `Set` with that name."""
        return _Set(self._client, self._at(name), ephemeral=ephemeral)

    def MultiLock(self, names: Iterable[str], *, on_lost: OnLost | None = None) -> _MultiLock:  # noqa: N802
        """Return a `MultiLock` of the RLocks with those names."""
        return _MultiLock([self.RLock(name) for name in check_names(names)], on_lost=on_lost)


Namespace: TypeAlias = SharedNamespace | LocalNamespace


@overload  # a type checker that knows nothing of kazoo takes a Client for anything: it comes first
@public
def namespace(client: Client, path: str = "/") -> SharedNamespace: ...
@overload
@public
def namespace(client: Literal["local"], path: str = "/") -> LocalNamespace: ...
@overload
@public
def namespace(client: KazooClient, path: str = "/") -> SharedNamespace: ...
@public
def namespace(client: KazooClient | Literal["local"], path: str = "/") -> Namespace:
    """Return an object with the names of `asyncio`, for ZooKeeper or for one loop of this process.

    After `tasks = aio.namespace(zk, "/app")`, `tasks.Lock("cart")` is the `aio.Lock` at `/app/cart`, and so on, as with
    `zkconcurrent.namespace` for threads. Both share the paths.

    `tasks = aio.namespace("local")` has the names on the standard library alone: `asyncio`'s own `Lock`, `Condition`,
    `Semaphore`, `BoundedSemaphore`, `Event`, `Queue`, `LifoQueue` and, from Python 3.11 on, `Barrier`; and small ones
    of its own for `RLock`, `MultiLock`, `CountDownLatch`, `DoubleBarrier`, `Group`, `Election`, `PriorityQueue`,
    `DelayQueue`, `AtomicLong`, `AtomicInteger`, `SharedValue`, `Dict` and `Set`. It has no `ReadWriteLock`. The same
    name gives the same object. Each local namespace is independent of all others. `Namespace` is the type of both.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later; or "local".
        path: the base path of all names. No name can leave it.

    Raises:
        TypeError: the client is neither.
        ValueError: the path is invalid. The namespace's methods raise it if a name is invalid, or belongs to another
            kind of object.

    Source:
        The module `asyncio`.
    """
    return LocalNamespace(path) if is_local(client) else SharedNamespace(client, path)
