"""`MultiLock`: several locks as one, all or none of which are held."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from types import TracebackType
from typing import Any, TypeAlias

from ._base import LockFace
from ._errors import LockLostError
from ._face import deadline
from ._place import Hold
from ._rules import READ

_Level: TypeAlias = "tuple[Hold | None, int]"


class MultiLock:
    """A lock that is held when all its locks are.

    They may be of any kind, mixed, and of different clients and services. It may be acquired again by its thread if all
    of them may.

    Invariant:
        The locks are acquired in the order of their paths, so that no two can wait for each other. An `acquire` that
        fails, is interrupted or finds one of them lost, leaves none of what it got.

    Cost:
        The sum of its locks', one after the other.

    Args:
        locks: each a `Lock`, an `RLock`, a read or write lock, or a MultiLock, which stands for its locks.

    Raises:
        TypeError: one of them is something else.
        ValueError: there is none, or one of them is there twice: two of one path, role and service.

    Source:
        Curator's `InterProcessMultiLock`, which acquires in the order given.
    """

    def __init__(self, locks: Iterable[LockFace | MultiLock]) -> None:
        flat: list[LockFace] = []
        for lock in locks:
            if isinstance(lock, MultiLock):
                flat += lock.locks
            elif isinstance(lock, LockFace):
                flat.append(lock)
            else:
                raise TypeError(f"a MultiLock is of locks of ours (of a pair, name which), not {type(lock).__name__}")
        if not flat:
            raise ValueError("a MultiLock needs at least one lock")
        # All processes must agree on the order. Of a pair, the write lock comes first: who writes may read.
        ordered = sorted(flat, key=_order)
        for one, other in itertools.pairwise(ordered):
            if _order(one) == _order(other):
                raise ValueError(f"{one.path!r} is twice in the MultiLock: it would wait for itself")
        self._locks = tuple(ordered)

    @property
    def locks(self) -> tuple[LockFace, ...]:
        """The locks, in the order in which they are acquired."""
        return self._locks

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire all locks, or none.

        Args:
            blocking: whether to wait; if not, each lock is tried.
            timeout: how long to wait for all of them together, in seconds; -1 for ever.

        Returns:
            Whether they were acquired. If not, nothing of the attempt is left.

        Raises:
            ValueError: a timeout with `blocking=False`, or a negative one.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            LockLostError: one was lost before all were acquired, and the others were given back; or this thread has a
                loss of earlier, not acknowledged by `release()`.
            ZkConcurrentError: one of them can't be acquired.
        """
        session = self._locks[0]._session
        limit = deadline(session, blocking, timeout)
        before = [_level(lock._mine()) for lock in self._locks]
        try:
            for lock in self._locks:
                if not blocking or timeout <= 0:
                    got = lock.acquire(blocking, timeout)
                else:
                    assert limit is not None
                    left = limit - session.now()
                    got = lock.acquire(timeout=max(left, 0.0))  # once the time is up, what is free is got still
                if not got:
                    self._give_back(before)
                    return False
            for lock in self._locks:
                hold = lock._mine()
                if hold is not None:
                    lock._check(hold)
        except BaseException:
            self._give_back(before)
            raise
        return True

    def release(self) -> None:
        """Release all locks, the last one first; each is released whatever becomes of the others.

        Raises:
            LockLostError: a hold was lost; nothing else of that lock is touched.
            RuntimeError: one of them is not held.
        """
        errors: list[BaseException] = []
        self._release([(lock, _level(lock._own())) for lock in self._locks], errors)
        if not errors:
            return
        first = next((error for error in errors if not isinstance(error, Exception)), errors[0])
        for error in errors:
            if error is not first:
                _note(first, f"also: {type(error).__name__}: {error}")
        raise first

    def locked(self) -> bool:
        """Return whether all locks are held, by whomever; asks the leader. Cost: 2 reads for each lock, at most."""
        return all(lock.locked() for lock in self._locks)

    def _give_back(self, before: list[_Level]) -> None:
        """Release what was acquired since; to do that for a lost one is to settle it.

        What was acquired is seen by the holds themselves: an interrupt may strike between an `acquire` and a note
        of it.
        """
        try:
            for lock, level in zip(self._locks[::-1], before[::-1], strict=True):
                if lock._mine() is not None and _level(lock._mine()) != level:
                    try:
                        lock.release()
                    except LockLostError:
                        continue
        except BaseException:
            self._give_back(before)  # who is interrupted gives back the rest first
            raise

    def _release(self, left: list[tuple[LockFace, _Level]], errors: list[BaseException]) -> None:
        """Release each lock that is still as it was."""
        try:
            while left:
                lock, level = left[-1]
                if level[0] is None or _level(lock._own()) == level:
                    try:
                        lock.release()
                    except Exception as error:
                        errors.append(error)
                left.pop()
        except BaseException as error:
            errors.append(error)
            self._release(left, errors)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if any(lock._session.forked for lock in self._locks):
            return  # the holds are the parent's
        try:
            self.release()
        except LockLostError:
            if kind is None or (issubclass(kind, Exception) and not issubclass(kind, LockLostError)):
                raise

    def __reduce__(self) -> Any:
        raise TypeError(
            f"cannot pickle {type(self).__name__}: open clients in the other process and make the same there, from "
            "the same paths"
        )

    def __repr__(self) -> str:
        newest = [lock._newest() for lock in self._locks]
        state = "locked" if all(hold is not None and hold.alive for hold in newest) else "unlocked"
        paths = [lock.path for lock in self._locks]
        return f"<{state} zkconcurrent.{type(self).__name__} object paths={paths} at {id(self):#x}>"


def _order(lock: LockFace) -> tuple[Any, ...]:
    return (*lock._session.link.place(lock.path), lock._rule is READ, lock._rule.role)


def _level(hold: Hold | None) -> _Level:
    """Return what an acquire or a release of the hold changes."""
    return hold, 0 if hold is None else hold.depth


def _note(error: BaseException, text: str) -> None:
    """Add a note, as Python does by itself since 3.11."""
    if hasattr(error, "add_note"):
        error.add_note(text)
    else:
        error.__notes__ = [*getattr(error, "__notes__", []), text]
