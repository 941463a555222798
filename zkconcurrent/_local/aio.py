"""The names of a namespace for the tasks of one loop: for tests without a server, and for programs of one process.

Where `asyncio` has the class, the objects are `asyncio`'s own. The others are minimal implementations.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._arguments.codec import BYTES, Codec, check_codec
from .._arguments.limits import check_int
from .._threads.base.candidacy import check_layout
from .._threads.base.primitive import check_on_lost
from .._threads.election import candidate_id
from . import dict as _local_dict
from . import lock as _local_lock
from .election import AsyncElection
from .group import AsyncDoubleBarrier, AsyncGroup
from .lock import warn_dropped
from .namespace import NamedObjects, check_names
from .queue import AsyncDelayQueue, AsyncPriorityQueue
from .value import AsyncAtomicInteger, AsyncAtomicLong, AsyncSharedValue

OnLost = Callable[[Any], object]


class LocalNamespace(NamedObjects):
    """The names of `asyncio` for the tasks of one loop: see `namespace`.

    The same name gives the same object while the program keeps a reference to it. All objects but locks and conditions
    live as long as the namespace. A lock that is dropped while it is held gives a ResourceWarning; the next lock with
    its name is a new one, and free.

    Every object has only `asyncio`'s interface: `acquire()` takes no `timeout`, and methods such as `release()` and
    `Event.set()` return None. No hold is ever lost here, so `on_lost` is never called. There is no `ReadWriteLock`. A
    program that must run on both kinds of namespace uses only that interface.
    """

    __module__ = _package = "zkconcurrent.aio"

    def Lock(self, name: str, *, fair: bool = True, on_lost: OnLost | None = None) -> asyncio.Lock:  # noqa: N802
        """Return the `asyncio.Lock` with that name."""
        check_on_lost(on_lost)
        return self._one("Lock" if fair else "Lock(fair=False)", name, lambda: Lock(self._at(name)))

    def RLock(self, name: str, *, fair: bool = True, on_lost: OnLost | None = None) -> RLock:  # noqa: N802
        """Return the re-entrant lock with that name: the task that holds it may acquire it again."""
        check_on_lost(on_lost)
        return self._one("RLock" if fair else "RLock(fair=False)", name, lambda: RLock(self._at(name)))

    def Condition(self, name: str, lock: asyncio.Lock | None = None) -> asyncio.Condition:  # noqa: N802
        """Return the `asyncio.Condition` with that name, on a lock of this namespace or an `RLock` of its own."""
        if lock is not None and not isinstance(lock, Lock):
            raise TypeError(f"lock must be a Lock or RLock of this namespace, not {type(lock).__name__}")
        if lock is not None and lock not in self._made_as:
            raise ValueError(f"the lock is of another namespace than the condition {name!r}")
        return self._one("Condition", name, lambda: Condition(lock or RLock(self._at(name))), lock=lock)

    def Semaphore(self, name: str, value: int = 1, *, on_lost: OnLost | None = None) -> asyncio.Semaphore:  # noqa: N802
        """Return the `asyncio.Semaphore` with that name."""
        check_on_lost(on_lost)
        check_int("value", value)
        return self._one("Semaphore", name, lambda: asyncio.Semaphore(value), keep=True, value=value)

    def BoundedSemaphore(  # noqa: N802
        self, name: str, value: int = 1, *, on_lost: OnLost | None = None
    ) -> asyncio.BoundedSemaphore:
        """Return the `asyncio.BoundedSemaphore` with that name."""
        check_on_lost(on_lost)
        check_int("value", value)
        return self._one("BoundedSemaphore", name, lambda: asyncio.BoundedSemaphore(value), keep=True, value=value)

    def Event(self, name: str) -> asyncio.Event:  # noqa: N802
        """Return the `asyncio.Event` with that name."""
        return self._one("Event", name, asyncio.Event, keep=True)

    if sys.version_info >= (3, 11) or not TYPE_CHECKING:

        def Barrier(self, name: str, parties: int) -> asyncio.Barrier:  # noqa: N802
            """Return the `asyncio.Barrier` with that name.

            Raises:
                NotImplementedError: this is Python 3.10, whose `asyncio` has none.
            """
            if sys.version_info < (3, 11):
                raise NotImplementedError("asyncio has no Barrier before Python 3.11")
            if check_int("parties", parties) < 1:
                raise ValueError("parties must be >= 1")
            return self._one("Barrier", name, lambda: asyncio.Barrier(parties), keep=True, parties=parties)

    def CountDownLatch(self, name: str, count: int) -> CountDownLatch:  # noqa: N802
        """Return the `CountDownLatch` with that name."""
        return self._one("CountDownLatch", name, lambda: CountDownLatch(count), keep=True, count=count)

    def Election(  # noqa: N802
        self,
        name: str,
        *,
        id: str | None = None,  # noqa: A002
        layout: str = "selector",
    ) -> AsyncElection:
        """Return the `Election` with that name, whose candidates are tasks of one loop."""
        check_layout(layout)
        named = candidate_id(id)
        return self._one(
            "Election", name, lambda: AsyncElection(self._at(name), named), keep=True, id=named, layout=layout
        )

    def DoubleBarrier(self, name: str, parties: int) -> AsyncDoubleBarrier:  # noqa: N802
        """Return the `DoubleBarrier` with that name."""
        return self._one("DoubleBarrier", name, lambda: AsyncDoubleBarrier(parties), keep=True, parties=parties)

    def Group(self, name: str) -> AsyncGroup:  # noqa: N802
        """Return the `Group` with that name."""
        return self._one("Group", name, lambda: AsyncGroup(self._at(name)), keep=True)

    # asyncio's queues pass items on as they are: they have no codec, and no claims.

    def AtomicLong(self, name: str) -> AsyncAtomicLong:  # noqa: N802
        """Return the number of 64 bits with that name."""
        return self._one("AtomicLong", name, AsyncAtomicLong, keep=True)

    def AtomicInteger(self, name: str) -> AsyncAtomicInteger:  # noqa: N802
        """Return the number of 32 bits with that name."""
        return self._one("AtomicInteger", name, AsyncAtomicInteger, keep=True)

    def SharedValue(  # noqa: N802
        self, name: str, value: Any, *, codec: Codec[Any] = BYTES
    ) -> AsyncSharedValue:
        """Return the value with that name; it is not encoded."""
        data = check_codec(codec).encode(value)
        return self._one("SharedValue", name, lambda: AsyncSharedValue(value), keep=True, value=data)

    AtomicReference = SharedValue

    def Queue(  # noqa: N802
        self, name: str, maxsize: int = 0, *, codec: Codec[Any] = BYTES, max_attempts: int | None = None
    ) -> asyncio.Queue[Any]:
        """Return the `asyncio.Queue` with that name."""
        return self._queue("Queue", name, maxsize, codec, max_attempts, asyncio.Queue)

    def LifoQueue(  # noqa: N802
        self, name: str, maxsize: int = 0, *, codec: Codec[Any] = BYTES, max_attempts: int | None = None
    ) -> asyncio.LifoQueue[Any]:
        """Return the `asyncio.LifoQueue` with that name."""
        return self._queue("LifoQueue", name, maxsize, codec, max_attempts, asyncio.LifoQueue)

    def PriorityQueue(  # noqa: N802
        self,
        name: str,
        maxsize: int = 0,
        *,
        codec: Codec[Any] = BYTES,
        max_attempts: int | None = None,
        priority: Callable[[Any], float] | None = None,
        floats: bool = False,
    ) -> AsyncPriorityQueue:
        """Return the `asyncio.PriorityQueue` with that name; its priority is that of the first call."""

        def make(size: int) -> AsyncPriorityQueue:
            return AsyncPriorityQueue(size, priority, floats)

        return self._queue("PriorityQueue", name, maxsize, codec, max_attempts, make)

    def DelayQueue(  # noqa: N802
        self, name: str, maxsize: int = 0, *, codec: Codec[Any] = BYTES, max_attempts: int | None = None
    ) -> AsyncDelayQueue:
        """Return the queue of delayed items with that name."""
        return self._queue("DelayQueue", name, maxsize, codec, max_attempts, AsyncDelayQueue)

    def Dict(  # noqa: N802
        self, name: str, *, codec: Codec[Any] = BYTES, ephemeral: bool = False
    ) -> _local_dict.AsyncDict:
        """Return the dictionary with that name; its codec is that of the first call."""
        check_codec(codec)
        return self._one("Dict", name, lambda: _local_dict.AsyncDict(codec), keep=True, ephemeral=bool(ephemeral))

    def Set(self, name: str, *, ephemeral: bool = False) -> _local_dict.AsyncSet:  # noqa: N802
        """Return the set with that name."""
        return self._one("Set", name, _local_dict.AsyncSet, keep=True, ephemeral=bool(ephemeral))

    def MultiLock(  # noqa: N802
        self,
        names: Iterable[str],
        *,
        on_lost: OnLost | None = None,
    ) -> MultiLock:
        """Return a `MultiLock` of the RLocks with those names."""
        check_on_lost(on_lost)
        return MultiLock([self.RLock(name) for name in check_names(names)])


class Lock(asyncio.Lock):
    """An `asyncio.Lock` that warns when it is dropped while it is held."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def __del__(self) -> None:
        if self.locked():
            # The report of the warning may keep it alive.
            asyncio.Lock.release(self)
            warn_dropped(self._path)


class RLock(Lock):
    """A re-entrant lock: the task that holds it may acquire it again."""

    _owner: object = None
    _levels = 0

    # asyncio's returns a Literal.
    async def acquire(self) -> bool:  # type: ignore[override]
        """Acquire the lock, or one level more."""
        me = asyncio.current_task()
        if self._owner is not me:
            await super().acquire()
            self._owner = me
        self._levels += 1
        return True

    def release(self) -> None:
        """Release one level.

        Raises:
            RuntimeError: this task does not hold it.
        """
        if self._owner is None or self._owner is not asyncio.current_task():
            raise RuntimeError("cannot release un-acquired lock")
        self._levels -= 1
        if not self._levels:
            self._owner = None
            super().release()


class Condition(asyncio.Condition):
    """An `asyncio.Condition` whose `wait` releases all levels of an `RLock`, and acquires them again."""

    def __init__(self, lock: asyncio.Lock) -> None:
        super().__init__(lock)
        self._levelled = lock if isinstance(lock, RLock) else None

    # asyncio's returns a Literal.
    async def wait(self) -> bool:  # type: ignore[override]
        """Wait until notified."""
        lock = self._levelled
        if lock is None or lock._owner is not asyncio.current_task():
            return await super().wait()
        levels, lock._levels = lock._levels, 1
        try:
            return await super().wait()
        finally:
            lock._levels = levels


class MultiLock:
    """Several RLocks as one: a task acquires all or none, in the order of their names."""

    def __init__(self, locks: list[RLock]) -> None:
        self._locks = tuple(locks)

    async def acquire(self) -> bool:
        """Acquire all locks or none."""
        async with AsyncExitStack() as taken:
            for lock in self._locks:
                await lock.acquire()
                taken.callback(lock.release)
            taken.pop_all()
        return True

    def release(self) -> None:
        """Release all locks, the last one first, even if the release of another fails."""
        with ExitStack() as taken:
            for lock in self._locks:
                taken.callback(lock.release)

    def locked(self) -> bool:
        """Return whether all of them are held."""
        return all(lock.locked() for lock in self._locks)

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


class CountDownLatch:
    """A count that goes down to zero, once; then all waiters go on, and later calls of `wait` return at once."""

    def __init__(self, count: int) -> None:
        self._latch = _local_lock.CountDownLatch(count)
        self._open = asyncio.Event()
        self._look()

    def _look(self) -> None:
        if not self._latch.count:
            self._open.set()

    async def fetch_count(self) -> int:
        """Return how much is left to count down."""
        return self._latch.count

    def count_down(self, n: int = 1) -> None:
        """Count down by `n`; an open latch stays open."""
        self._latch.count_down(n)
        self._look()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to count down; return whether the latch is open, False at the deadline."""
        try:
            await asyncio.wait_for(self._open.wait(), timeout)
        except asyncio.TimeoutError:
            return self._open.is_set()
        return True
