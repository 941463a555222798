"""The locks and the latch of a local namespace: those of `threading`, and minimal ones where it has none."""

from __future__ import annotations

import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._arguments.limits import check_int, check_positive
from .._runtime.identity import identity
from .._threads.base.primitive import check_timeout, not_held


class Held(ABC):
    """A `with` block over `acquire` and `release`."""

    @abstractmethod
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it; as `threading.RLock`."""

    @abstractmethod
    def release(self) -> None:
        """Release it; as `threading.RLock`."""

    def __enter__(self) -> bool:
        if not self.acquire():
            raise not_held(self)
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def warn_dropped(path: str, warn: Callable[..., None] = warnings.warn) -> None:  # bound, for the interpreter's exit
    """Warn, from `__del__`, that a lock was dropped while it was held."""
    warn(f"the last object of {path!r} was garbage collected while held", ResourceWarning, stacklevel=3)


class Lock(Held):
    """A `threading.Lock` that warns when it is dropped while it is held."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock: Any = self._make()

    _make: Callable[[], Any] = staticmethod(threading.Lock)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it; see `threading`."""
        return self._lock.acquire(blocking, timeout)  # type: ignore[no-any-return]

    def release(self) -> None:
        """Release it; see `threading`."""
        self._lock.release()

    # With it, a type checker would accept any attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "_lock":
                raise AttributeError(name)
            return getattr(self._lock, name)

    def _held(self) -> bool:
        return self._lock.locked()  # type: ignore[no-any-return]

    def __del__(self) -> None:
        if self._held():
            # The code that reports the warning may keep this alive.
            self._lock = self._make()
            warn_dropped(self._path)

    def __repr__(self) -> str:
        return repr(self._lock)


class RLock(Lock):
    """A `threading.RLock` that warns when it is dropped while it is held."""

    _make = staticmethod(threading.RLock)

    def _held(self) -> bool:
        if self._lock._is_owned():
            return True
        if free := self._lock.acquire(blocking=False):
            self._lock.release()
        return not free


class MultiLock(Held):
    """Several RLocks as one: a thread acquires all or none, in the order of their names."""

    def __init__(self, locks: dict[str, Any]) -> None:
        self._locks = tuple(locks.values())

    @property
    def locks(self) -> tuple[Any, ...]:
        """The locks, in the order in which they are acquired."""
        return self._locks

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire all locks or none; `timeout` bounds the whole."""
        check_timeout(blocking, timeout)
        until = time.monotonic() + timeout
        with ExitStack() as taken:
            for lock in self._locks:
                if not lock.acquire(blocking, timeout if timeout <= 0 else max(0.0, until - time.monotonic())):
                    return False
                taken.callback(lock.release)
            taken.pop_all()
        return True

    def release(self) -> None:
        """Release all locks, the last one first, even if the release of another fails."""
        with ExitStack() as taken:
            for lock in self._locks:
                taken.callback(lock.release)


class ReadWriteLock:
    """A pair of locks: any number of threads hold `read_lock` together; one thread holds `write_lock` alone.

    Invariant:
        A reader gets in unless a thread writes or a writer arrived before it. A writer gets in once no thread holds
        either lock and none arrived before it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._changed = threading.Condition()
        self._identity = identity()
        # The waiters in order of arrival, and whether each writes.
        self._line: list[tuple[object, bool]] = []
        # How often each thread reads, and writes.
        self._holds: tuple[dict[int, int], dict[int, int]] = {}, {}
        self._read_lock, self._write_lock = Side(self, False), Side(self, True)

    def __del__(self) -> None:
        if any(self._holds):
            for holds in self._holds:
                # The code that reports the warning may keep this alive.
                holds.clear()
            warn_dropped(self._path)

    @property
    def read_lock(self) -> Side:
        """The lock that any number of threads may hold together."""
        return self._read_lock

    @property
    def write_lock(self) -> Side:
        """The lock that one thread holds alone."""
        return self._write_lock

    def _lets_in(self, turn: tuple[object, bool], me: int) -> bool:
        readers, writers = self._holds
        ahead = self._line[: self._line.index(turn)]
        if turn[1]:
            return not (ahead or readers or writers)
        return me in writers or not (writers or any(writes for _, writes in ahead))


class Side(Held):
    """One of a pair's two locks, with the interface of `threading.RLock`."""

    def __init__(self, pair: ReadWriteLock, writes: bool) -> None:
        self._pair = pair
        self._writes = writes
        self._mine = pair._holds[writes]

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock in order of arrival, or one level more if this thread holds it; as `threading.RLock`.

        Raises:
            RuntimeError: this is the write lock, and the thread holds only the read lock: it would wait for itself.
        """
        check_timeout(blocking, timeout)
        return self._take(1, 0.0 if not blocking else None if timeout == -1 else timeout)

    def _take(self, depth: int, timeout: float | None) -> bool:
        me, pair = self._pair._identity(), self._pair
        with pair._changed:
            if me in self._mine:
                self._mine[me] += depth
                return True
            self._refuse_upgrade(me)
            turn = object(), self._writes
            pair._line.append(turn)
            try:
                if got := pair._changed.wait_for(lambda: pair._lets_in(turn, me), timeout):
                    self._mine[me] = depth
                return got
            finally:
                pair._line.remove(turn)
                pair._changed.notify_all()

    def _refuse_upgrade(self, me: int) -> None:
        if self._writes and me in self._pair._holds[False]:
            raise RuntimeError(
                "this thread holds the read lock, and the write lock would wait for it: release the read lock first"
            )

    def release(self) -> None:
        """Release the lock once.

        Raises:
            RuntimeError: this thread does not hold it.
        """
        self._give(1)

    def _give(self, levels: int) -> None:
        me = self._pair._identity()
        with self._pair._changed:
            if me not in self._mine:
                raise RuntimeError("cannot release un-acquired lock")
            self._mine[me] -= levels
            if not self._mine[me]:
                del self._mine[me]
                self._pair._changed.notify_all()

    def locked(self) -> bool:
        """Return whether a thread holds it."""
        return bool(self._mine)

    # The methods that threading.Condition calls.

    def _is_owned(self) -> bool:
        return self._pair._identity() in self._mine

    def _release_save(self) -> int:
        me = self._pair._identity()
        self._refuse_upgrade(me)
        depth = self._mine.get(me, 1)
        self._give(depth)
        return depth

    def _acquire_restore(self, depth: int) -> None:
        self._take(depth, None)


class CountDownLatch:
    """A count that goes down to zero, once; then all waiters go on, and later calls of `wait` return at once."""

    def __init__(self, count: int) -> None:
        self._count = check_int("count", count)
        if self._count < 0:
            raise ValueError(f"count must not be negative: {count}")
        self._changed = threading.Condition()

    @property
    def count(self) -> int:
        """How much is left to count down."""
        return self._count

    def count_down(self, n: int = 1) -> None:
        """Count down by `n`; an open latch stays open."""
        n = check_positive("n", n)
        with self._changed:
            self._count = max(0, self._count - n)
            self._changed.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the latch is open; return False if the timeout passes first."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._count, timeout)
