"""The QuorumLock for tasks."""

from __future__ import annotations

from collections.abc import Iterable

from .._threads import quorum as _quorum
from .._threads.base.primitive import OnLost, OnSuspect, kind_of
from .._threads.joint_lock import listed
from ._losses import Lost, on_loop
from ._tasks import of_tasks
from ._twin import CompositeLock, LockBase, wrapped

_Core = of_tasks(_quorum.QuorumLock)


class QuorumLock(CompositeLock):
    """A majority of several locks as one lock; see `zkconcurrent.QuorumLock`.

    Args:
        locks: each a `Lock`, an `RLock`, or a read or write lock, of `aio`.
        quorum: how many locks must be held; more than half, which is the default.
        on_lost: called with the QuorumLock, once for each time that it was acquired and then lost so many of its locks
            that no quorum was left; may be async.
        on_suspect: called with the QuorumLock, and for how many seconds it surely lasts, each time that `suspect`
            becomes True; may be async.
    """

    def __init__(
        self,
        locks: Iterable[LockBase],
        *,
        quorum: int | None = None,
        on_lost: OnLost | None = None,
        on_suspect: OnSuspect | None = None,
    ) -> None:
        self._given = tuple(listed(locks, "QuorumLock"))
        for lock in self._given:
            if not isinstance(lock, LockBase):
                raise TypeError(f"a QuorumLock takes locks of zkconcurrent.aio, not {kind_of(lock)}")
        cores = list(map(wrapped, self._given))
        super().__init__(_Core(cores, quorum=quorum, **on_loop(self, on_lost, on_suspect)))

    @property
    def locks(self) -> tuple[LockBase, ...]:
        """The locks."""
        return self._given

    @property
    def quorum(self) -> int:
        """How many of the locks must be held."""
        return int(self._core.quorum)

    def locked(self) -> bool:
        """Return whether a quorum of the locks is held, as last seen; see `Lock.locked`."""
        return sum([lock.locked() for lock in self._given]) >= self.quorum

    @property
    def lost(self) -> Lost:
        """Set when too few of the current holds are left for a quorum. Each quorum has its own.

        Keep a reference to the QuorumLock while you use the result.
        """
        return Lost([(self._core._all, self._core._loss)])
