"""`namespace`: the names of `asyncio`, for one base path of ZooKeeper or for this process alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

from .._kazoo.link import KazooClient
from .._observe.deadlock_search import OnDeadlock
from .._runtime.public import public
from .._threads.base.primitive import OnLost, OnSuspect
from .._threads.namespace import BasePath, check_names, named, opened
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
class Namespace(BasePath):
    """The names of `asyncio`, for all processes that open the same base path, or for one process: see `namespace`."""

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

    def MultiLock(  # noqa: N802
        self, names: Iterable[str], *, on_lost: OnLost | None = None, on_suspect: OnSuspect | None = None
    ) -> _multilock.MultiLock:
        """Return a `MultiLock` of the RLocks with those names."""
        locks = [self.RLock(name) for name in check_names(names)]
        return _multilock.MultiLock(locks, on_lost=on_lost, on_suspect=on_suspect)


@public
def namespace(
    client: KazooClient | Mapping[str, KazooClient] | Literal["local"],
    path: str = "/",
    *,
    on_deadlock: OnDeadlock = "warn",
    label: str | None = None,
) -> Namespace:
    """Return an object with the names of `asyncio`, for ZooKeeper or for this process alone.

    After `tasks = aio.namespace(zk, "/app")`, `tasks.Lock("cart")` is the `aio.Lock` at `/app/cart`, and so on, as with
    `zkconcurrent.namespace` for threads. Threads and tasks share the paths.

    `tasks = aio.namespace("local")` has the same objects for the tasks of this process alone, in any loop. The first
    such call of a process begins its service, which takes some milliseconds: call it before the loop runs.

    `aio.namespace({"one": zk1, "two": zk2}, "/app")` has its paths on several ensembles; see `zkconcurrent.namespace`.
    It waits for them, so call it before the loop runs, or as `await asyncio.to_thread(aio.namespace, clients, "/app")`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later; or "local". Or a mapping
            of ensemble names to started clients.
        path: the base path of all names. No name can leave it.
        on_deadlock: the default for its locks: see `Lock`.
        label: the default label of its objects.

    Raises:
        TypeError: the client is none of these, or an ensemble's name is not a string.
        ValueError: the path, an option or the ensembles are invalid, as for `zkconcurrent.namespace`. The
            namespace's methods raise it if a name is invalid, or belongs to another kind of object.
        ClientError: other processes use other ensembles, or other names for them.
        RuntimeError: this is an isolated subinterpreter, or it runs on greenlets in a way that the library
            does not support.

    Source:
        The module `asyncio`.
    """
    return opened(Namespace, client, path, on_deadlock, label)
