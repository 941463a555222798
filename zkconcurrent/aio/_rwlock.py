"""The ReadWriteLock for tasks."""

from __future__ import annotations

from .._kazoo.link import KazooClient
from .._threads import rwlock as _rwlock
from .._threads.base.primitive import OnLost
from ._losses import on_loop
from ._tasks import Tasks, of_tasks
from ._twin import LockBase, PrimitiveTwin

_ReadLockCore = of_tasks(_rwlock.ReadLock)
_WriteLockCore = of_tasks(_rwlock.WriteLock)


class ReadLock(LockBase):
    """The lock of a `ReadWriteLock` that any number of tasks, threads and processes may hold together."""


class WriteLock(LockBase):
    """The lock of a `ReadWriteLock` that one task of one process holds alone."""


class _ReadWriteLockCore(Tasks, _rwlock.ReadWriteLock):
    """`zkconcurrent.ReadWriteLock`, of two locks that tasks own."""

    def __init__(self, read_lock: _rwlock.ReadLock, write_lock: _rwlock.WriteLock) -> None:
        self._read_lock, self._write_lock = read_lock, write_lock


class ReadWriteLock(PrimitiveTwin):
    """A pair of locks: any number of tasks hold `read_lock` together; one task holds `write_lock` alone.

    Otherwise it is a `zkconcurrent.ReadWriteLock`; the two exclude each other on one path.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the path of the pair; missing nodes are created as containers.
        on_lost: called with the read lock or the write lock, once for each hold that is lost; may be async.
    """

    def __init__(self, client: KazooClient, path: str, *, on_lost: OnLost | None = None) -> None:
        self._read_lock, self._write_lock = ReadLock.__new__(ReadLock), WriteLock.__new__(WriteLock)
        reads = _ReadLockCore(client, path, on_lost=on_loop(self._read_lock, on_lost))
        writes = _WriteLockCore(client, path, on_lost=on_loop(self._write_lock, on_lost))
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
