"""The ReadWriteLock for tasks."""

from __future__ import annotations

from typing import Any

from .._kazoo.link import KazooClient
from .._observe.deadlock_search import OnDeadlock
from .._observe.hold_limits import AfterLimit
from .._threads import rwlock as _rwlock
from .._threads.base.primitive import OnLost, OnSuspect
from ._lock import RevocableLock
from ._losses import on_loop
from ._tasks import Tasks, of_tasks
from ._twin import PrimitiveTwin

_ReadLockCore = of_tasks(_rwlock.ReadLock)
_WriteLockCore = of_tasks(_rwlock.WriteLock)


class ReadLock(RevocableLock):
    """The lock of a `ReadWriteLock` that any number of tasks, threads and processes may hold together."""


class WriteLock(RevocableLock):
    """The lock of a `ReadWriteLock` that one task of one process holds alone."""


class _ReadWriteLockCore(Tasks, _rwlock.ReadWriteLock):
    """`zkconcurrent.ReadWriteLock`, of two locks that tasks own."""

    def __init__(self, read_lock: _rwlock.ReadLock, write_lock: _rwlock.WriteLock) -> None:
        self._read_lock, self._write_lock = read_lock, write_lock


class ReadWriteLock(PrimitiveTwin):
    """A pair of locks: any number of tasks hold `read_lock` together; one task holds `write_lock` alone.

    Otherwise it is a `zkconcurrent.ReadWriteLock`. On the same path, objects of the two classes exclude each other.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the path of the pair; missing nodes are created as containers.
        on_lost: called with the read lock or the write lock, once for each hold that is lost; may be async.
        on_suspect, on_revoke, on_deadlock, hold_limit, on_hold_limit, label: as for `Lock`, for the holds of
            both locks.
    """

    def __init__(
        self,
        client: KazooClient,
        path: str,
        *,
        on_lost: OnLost | None = None,
        on_suspect: OnSuspect | None = None,
        on_revoke: OnLost | None = None,
        on_deadlock: OnDeadlock = "warn",
        hold_limit: float | None = None,
        on_hold_limit: AfterLimit = "warn",
        label: str | None = None,
    ) -> None:
        self._read_lock, self._write_lock = ReadLock.__new__(ReadLock), WriteLock.__new__(WriteLock)
        options: Any = {"on_deadlock": on_deadlock, "hold_limit": hold_limit, "on_hold_limit": on_hold_limit}
        options["label"] = label
        called: Any = {"on_lost": on_lost, "on_suspect": on_suspect, "on_revoke": on_revoke}
        reads = _ReadLockCore(client, path, **options, **on_loop(self._read_lock, **called))
        writes = _WriteLockCore(client, path, **options, **on_loop(self._write_lock, **called))
        ReadLock.__init__(self._read_lock, reads)
        WriteLock.__init__(self._write_lock, writes)
        super().__init__(_ReadWriteLockCore(reads, writes))

    @property
    def read_lock(self) -> ReadLock:
        """The lock that any number of tasks, threads and processes may hold together."""
        return self._read_lock

    @property
    def write_lock(self) -> WriteLock:
        """The lock that one task holds alone."""
        return self._write_lock
