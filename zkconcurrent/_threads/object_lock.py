"""`ObjectLock`: a read-write lock that belongs to an object, not a thread, for other lock interfaces, such as tooz's.

Any thread may release a `Lock`, so one user can end the hold of another. Only the thread that acquired a `ReadLock` can
release it. Here the object that has acquired the lock releases it, on any thread, and ends no other hold.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import TypeAlias

from .._engine.holds import Hold
from .._errors import LockLostError
from .._kazoo.link import KazooClient
from .._protocol.blocking_rules import READ, WRITE
from .._runtime.interrupts import insist
from .base.contender import Contender
from .base.lock_base import core_of
from .lock import Lock


class _ExclusiveLock(Lock):
    """A `Lock` that is a writer of the `ReadWriteLock` at its path; unlike the write lock, it is not re-entrant."""

    _rule = WRITE


class _SharedLock(Lock):
    """A `Lock` that is a reader of the `ReadWriteLock` at its path."""

    _rule = READ


class ObjectLock:
    """A lock of one object.

    Args:
        client: the client.
        path: the path, with the layout of a `ReadWriteLock`.
        levels: the client's acquires that are not released yet, each with its object, and with the hold of which it is
            a level. The objects of one client share this dictionary.

    Invariant:
        A thread has at most one hold as a reader, which ends with its last level, whichever object has that level.
    """

    def __init__(self, client: KazooClient, path: str, levels: Levels) -> None:
        self._exclusive, self._shared = _ExclusiveLock(client, path), _SharedLock(client, path)
        # The machinery of either lock can end the holds of both.
        self._core = core_of(self._exclusive)
        self._levels = levels

    def acquire(self, level: object, blocking: bool, timeout: float | None, *, shared: bool) -> bool:
        """Acquire the lock; return whether it was acquired. After an error, call `drop`.

        Args:
            level: identifies this acquire.
            blocking: whether to wait.
            timeout: how many seconds to wait; None waits forever.
            shared: whether to share the lock with other shared acquires. A thread that already shares it acquires it
                again at once, also through another object. To change the mode, release first.
        """
        lock = self._shared if shared else self._exclusive
        core = core_of(lock)
        core.session.check_not_forked(core.path)
        hold = core.mine()
        # This thread may have a loss to settle, which another object at this path has reported, or may still report.
        if hold is not None and not hold.alive:
            core.drop(hold)
        if shared:
            with core.session.lock:
                # A thread that shares the lock must not wait behind a writer that waits for this thread.
                if (hold := core.mine()) is not None and self._left(hold):
                    self._levels[level] = self, hold
                    return True
        if not lock.acquire(blocking, timeout if blocking and timeout is not None else -1):
            return False
        hold = core.mine()
        assert hold is not None
        self._levels[level] = self, hold
        return True

    def drop(self, level: object, *, shared: bool) -> None:
        """Undo an acquire that raised an error: if an interrupt struck after the grant, the caller holds the lock."""
        core = core_of(self._shared if shared else self._exclusive)
        insist(lambda: self._drop(level, core.mine()))

    def release(self) -> bool:
        """Release the calling thread's newest level of this object or, if it has none, the object's newest.

        Returns:
            Whether there was a level; False in a forked child, where the holds are the parent's.

        Raises:
            LockLostError: the hold was lost.
        """
        core, level, hold, call = self._core, None, None, None
        if core.session.forked:
            return False
        try:
            with core.session.lock:
                if not (mine := self._own_levels()):
                    return False
                level, hold = mine[-1]
                del self._levels[level]
                if self._has_level(hold):
                    core.check(hold, 0)
                else:
                    call = core.begin_release(hold)
            if call is not None:
                self._exclusive._await(call, core.released(call, hold))
        except LockLostError:
            raise
        except BaseException:
            # If an interrupt struck before the release, nothing else would repeat the release.
            insist(partial(self._drop, level, hold))
            raise
        return True

    def remaining(self) -> float:
        """Return how many seconds this object is sure to hold the lock; 0 if it does not hold it. Sends nothing."""
        mine = self._own_levels()
        return self._left(mine[-1][1]) if mine else 0.0

    def holders(self) -> list[Contender]:
        """Return all who hold the lock, read from the server."""
        return self._exclusive._run(self._core.contenders(), itemgetter(0))

    def waiters(self) -> list[Contender]:
        """Return all who wait for the lock, read from the server."""
        return self._exclusive.waiters()

    def _own_levels(self) -> list[tuple[object, Hold]]:
        """Return this object's levels: first other threads' levels, then this thread's own, each from old to new."""
        me = self._core.identity()
        mine = [(level, hold) for level, (lock, hold) in list(self._levels.items()) if lock is self]
        return sorted(mine, key=lambda each: each[1].owner == me)

    def _has_level(self, hold: Hold) -> bool:
        return any(each is hold for _, each in list(self._levels.values()))

    def _drop(self, level: object, hold: Hold | None) -> None:
        """Drop a level, and the hold if that was its last."""
        self._levels.pop(level, None)
        if hold is not None and not self._has_level(hold):
            self._core.drop(hold)

    def _left(self, hold: Hold) -> float:
        self._core.session.expired_holds.end_past_lease()
        return self._core.left(hold) if hold.alive else 0.0


Levels: TypeAlias = dict[object, tuple[ObjectLock, Hold]]


def least_remaining(levels: Levels) -> float | None:
    """Return how many seconds all holds that have not ended are sure to last; None if all have ended."""
    left = [lock._left(hold) for lock, hold in list(levels.values())]
    return min(filter(None, left), default=None)
