"""The locks of a path that moves from one ensemble to another: each is held when it is held on both.

So it excludes the processes that know only the old place, and those that know only the new one. A namespace returns
them in place of `Lock`, `RLock` and `ReadWriteLock` while it has `joining=` ensembles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .._engine.calls import Calls
from .._engine.driver import Call
from .._engine.ensembles import token_of
from .._runtime.waiting import Steps
from .base.contender import Contender
from .base.lock_base import Holding
from .multilock import MultiLock


class MovingLock(MultiLock):
    """A lock at a path that moves, made of the lock at the old place and the one at the new."""

    _kind = "MovingLock"

    @property
    def path(self) -> str:
        """The path; the same on both ensembles."""
        return self._locks[0].path

    @property
    def fencing_token(self) -> int:
        """A number that never decreases from holder to holder, before, during and after the move.

        Raises:
            LockLostError: one of the two holds is lost.
            RuntimeError: the caller has no hold that it may release.
        """
        return max(token_of(core.session, core.must_hold().ticket) for core in self._cores)

    def locked(self) -> bool:
        """Return whether any process holds the lock, at either place; asks the leaders. Cost: up to 4 reads."""
        return self._locked(decides=True)

    def owner(self) -> Contender | None:
        """Return the holder, read from the servers; None if there is none. Cost: up to that of both locks' `owner`."""
        calls = Calls(self._session)

        def ask() -> Steps[Contender | None]:
            # A contender that holds the lock at the first place may still wait for that at the last one.
            for core in reversed(self._cores):
                line = yield from calls.add(Call(core.session, core.path)).run(core.contenders())
                if line is not None and line[0]:
                    return line[0][0]
            return None

        return self._await(calls, ask())

    def __reduce__(self) -> tuple[object, ...]:
        # This raises TypeError, which tells why.
        return self._locks[0].__reduce__()

    def release(self, *, wait: bool = True) -> None:  # noqa: ARG002
        """Release both locks; it always waits until they are free. Errors as those of `MultiLock.release`."""
        super().release()

    def hold(self, timeout: float | None = None, *, blocking: bool = True, wait_release: bool = True) -> Holding:  # noqa: ARG002
        """Return a `with` block that holds both locks; see `Lock.hold`. Its end always waits until they are free."""
        return super().hold(timeout, blocking=blocking)


class _Pair(Protocol):
    @property
    def read_lock(self) -> object: ...

    @property
    def write_lock(self) -> object: ...


class MovingReadWriteLock:
    """A `ReadWriteLock` at a path that moves, made of those at the old place and at the new.

    Attributes:
        read_lock: the lock that any number of threads, or tasks, may hold together.
        write_lock: the lock that one holds alone.
    """

    def __init__(self, make: Callable[..., object], pairs: Sequence[_Pair], options: dict[str, object]) -> None:
        self.read_lock = make([each.read_lock for each in pairs], **options)
        self.write_lock = make([each.write_lock for each in pairs], **options)
