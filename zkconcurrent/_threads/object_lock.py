"""`ObjectLock`: a read-write lock that belongs to an object, not to a thread, for other interfaces of locks, as tooz's.

Any thread may release a user's `Lock`, so one user of it can end the hold of another; only its own thread can release a
`ReadLock`. Here the object that has acquired releases, on any thread, and ends no other hold.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import TypeAlias

from .._engine.holds import Hold
from .._errors import LockLostError
from .._kazoo.link import KazooClient
from .._protocol.rules import READ, WRITE
from .._runtime.interrupts import insist
from .base.contender import Contender
from .base.lock_base import core_of
from .lock import Lock


class _ExclusiveLock(Lock):
    """A `Lock` that is a writer of the `ReadWriteLock` at its path; unlike the write lock, it is not re-entrant."""

    _rule = WRITE


class _SharedLock(Lock):
    """A `Lock` that is a reader there."""

    _rule = READ


class ObjectLock:
    """A lock of one object.

    Args:
        client: the client.
        path: the path, with the layout of a `ReadWriteLock`.
        levels: each acquire of the client that was not released: its object, and the hold of which it is a level. The
            objects of one client share it.

    Invariant:
        A thread has at most one hold as a reader, which ends with the last level of it that an object has.
    """

    def __init__(self, client: KazooClient, path: str, levels: Levels) -> None:
        self._exclusive, self._shared = _ExclusiveLock(client, path), _SharedLock(client, path)
        # Either machinery ends the holds of both.
        self._core = core_of(self._exclusive)
        self._levels = levels

    def acquire(self, level: object, blocking: bool, timeout: float | None, *, shared: bool) -> bool:
        """Acquire the lock; return whether it was acquired. After an error, call `drop`.

        Args:
            level: stands for this acquire.
            blocking: whether to wait.
            timeout: for how many seconds to wait; None waits forever.
            shared: whether others may hold it, too, who acquire it so. A thread that shares it acquires it so again at
                once, also by another object. There is no way from one mode to the other but a release.
        """
        lock = self._shared if shared else self._exclusive
        core = core_of(lock)
        core.session.check_not_forked(core.path)
        hold = core.mine()
        # This thread may not have settled a loss, which another object at this path has reported, or may yet report.
        if hold is not None and not hold.alive:
            core.drop(hold)
        if shared:
            with core.session.lock:
                # A thread that shares the lock must not wait behind a writer, which waits for it.
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
        """Undo an acquire that has raised an error; if an interrupt struck after the grant, its caller holds."""
        core = core_of(self._shared if shared else self._exclusive)
        insist(lambda: self._drop(level, core.mine()))

    def release(self) -> bool:
        """Release the newest level of this object, of those that the calling thread has acquired if there are any.

        Returns:
            Whether there was one; False in a forked child, where the holds are the parent's.

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
            # If an interrupt struck before the release, nothing would repeat that.
            insist(partial(self._drop, level, hold))
            raise
        return True

    def remaining(self) -> float:
        """Return for how many seconds this object surely holds the lock; 0 if it does not. Sends nothing."""
        mine = self._own_levels()
        return self._left(mine[-1][1]) if mine else 0.0

    def holders(self) -> list[Contender]:
        """Return all who hold the lock, read from the server."""
        return self._exclusive._run(self._core.contenders(), itemgetter(0))

    def waiters(self) -> list[Contender]:
        """Return all who wait for it, read from the server."""
        return self._exclusive.waiters()

    def _own_levels(self) -> list[tuple[object, Hold]]:
        """Return the levels of this object, the newest last, and this thread's own behind those of others."""
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
        self._core.session.lost_holds.end_past_lease()
        return self._core.left(hold) if hold.alive else 0.0


Levels: TypeAlias = dict[object, tuple[ObjectLock, Hold]]


def least_remaining(levels: Levels) -> float | None:
    """Return for how many seconds all holds surely last that still last; None if there is none."""
    left = [lock._left(hold) for lock, hold in list(levels.values())]
    return min(filter(None, left), default=None)
