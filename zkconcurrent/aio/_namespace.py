"""`namespace`: the names of `asyncio`, for one base path of ZooKeeper or for one loop of this process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, overload

from .._connect import Client
from .._kazoo.link import KazooClient
from .._local.aio import LocalNamespace
from .._local.namespace import check_names
from .._namespace import BasePath, OnLost, is_local, named
from .._runtime.public import public
from . import (
    _atomic,
    _barrier,
    _condition,
    _dict,
    _double_barrier,
    _election,
    _event,
    _group,
    _latch,
    _lock,
    _multilock,
    _queue,
    _rlock,
    _rwlock,
    _semaphore,
    _shared_value,
)


@public
class SharedNamespace(BasePath):
    """The names of `asyncio` for all processes that open the same base path: see `namespace`."""

    _package = "zkconcurrent.aio"

    Lock: Final = named(_lock.Lock)
    RLock: Final = named(_rlock.RLock)
    Condition: Final = named(_condition.Condition)
    Semaphore: Final = named(_semaphore.Semaphore)
    BoundedSemaphore: Final = named(_semaphore.BoundedSemaphore)
    Event: Final = named(_event.Event)
    Barrier: Final = named(_barrier.Barrier)
    ReadWriteLock: Final = named(_rwlock.ReadWriteLock)
    CountDownLatch: Final = named(_latch.CountDownLatch)
    Election: Final = named(_election.Election)
    AtomicLong: Final = named(_atomic.AtomicLong)
    AtomicInteger: Final = named(_atomic.AtomicInteger)
    SharedValue: Final = named(_shared_value.SharedValue)
    AtomicReference: Final = SharedValue
    DoubleBarrier: Final = named(_double_barrier.DoubleBarrier)
    Group: Final = named(_group.Group)
    Queue: Final = named(_queue.Queue)
    LifoQueue: Final = named(_queue.LifoQueue)
    PriorityQueue: Final = named(_queue.PriorityQueue)
    DelayQueue: Final = named(_queue.DelayQueue)
    Dict: Final = named(_dict.Dict)
    Set: Final = named(_dict.Set)

    def MultiLock(self, names: Iterable[str], *, on_lost: OnLost | None = None) -> _multilock.MultiLock:  # noqa: N802
        """Return a `MultiLock` of the RLocks with those names."""
        return _multilock.MultiLock([self.RLock(name) for name in check_names(names)], on_lost=on_lost)


Namespace: TypeAlias = SharedNamespace | LocalNamespace


# This one comes first: a type checker that does not know kazoo takes a Client for anything.
@overload
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
