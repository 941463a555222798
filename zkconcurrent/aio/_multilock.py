"""The MultiLock for tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NoReturn

from .._threads import multilock as _multilock
from .._threads.base.lock_core import LockCore
from .._threads.base.primitive import OnLost, OnSuspect, kind_of
from ._held import Held
from ._losses import Lost, on_loop
from ._tasks import Completion, ReleaseCompletion, of_tasks
from ._twin import Acquirable, LockBase, awaited, forwarded, wrapped

_Core = of_tasks(_multilock.MultiLock)


class MultiLock(Acquirable[tuple[Held, ...]]):
    """Several locks as one; a task holds all of them or none. See `zkconcurrent.MultiLock`.

    Args:
        locks: each a `Lock`, an `RLock`, a read or write lock, or a MultiLock, of `aio`.
        on_lost: called with the MultiLock, once for each acquire after which one of its locks was lost before all were
            released; may be async.
        on_suspect: called with the MultiLock, and the number of seconds that its holds are sure to last, each time that
            `suspect` becomes True; may be async.
    """

    def __init__(
        self,
        locks: Iterable[LockBase | MultiLock],
        *,
        on_lost: OnLost | None = None,
        on_suspect: OnSuspect | None = None,
    ) -> None:
        given = _multilock.listed(locks)
        for lock in given:
            if not isinstance(lock, LockBase | MultiLock):
                raise TypeError(f"a MultiLock takes locks of zkconcurrent.aio, not {kind_of(lock)}")
        self._given = tuple(each for lock in given for each in (lock.locks if isinstance(lock, MultiLock) else (lock,)))
        super().__init__(_Core(list(map(wrapped, given)), **on_loop(self, on_lost, on_suspect)))

    @property
    def locks(self) -> tuple[LockBase, ...]:
        """The locks, in the order in which they are acquired."""
        given = {id(wrapped(lock)): lock for lock in self._given}
        return tuple(given[id(core)] for core in self._core.locks)

    def _lock_cores(self) -> Iterable[LockCore]:
        return self._core._cores  # type: ignore[no-any-return]

    def _handle(self) -> tuple[Held, ...]:
        return tuple(Held(core, hold, is_part=True) for core, hold in self._core._holds())

    def release(self) -> Completion:
        """Release the locks that this task's last `acquire` has acquired; see `zkconcurrent.MultiLock.release`."""
        ending, errors = self._core._begin_release()
        if errors:
            raise _multilock.first_error(errors)
        return ReleaseCompletion([(core, hold) for core, hold, _ in ending])

    def locked(self) -> bool:
        """Return whether every lock is held, as last seen; see `Lock.locked`."""
        return all(lock.locked() for lock in self.locks)

    @property
    def lost(self) -> Lost:
        """Set when the first of the current holds is lost. Later holds have a `lost` of their own.

        Keep a reference to the MultiLock while you use the result.
        """
        return Lost([(core.session, core.loss) for core in self._lock_cores()])

    @property
    def suspect(self) -> bool:
        """Whether all locks are held while the ZooKeeper service of one of them is out of reach."""
        return bool(self._core.suspect)

    fetch_locked: Final = awaited(_multilock.MultiLock.locked)
    owner: Final = awaited(_multilock.MultiLock.owner)
    remaining: Final = forwarded(_multilock.MultiLock.remaining)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"cannot pickle {type(self).__name__}: open clients in the other process and make the object there, with "
            "the same paths"
        )
