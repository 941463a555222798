"""`LockLike`: what a lock of this library and one of `threading` have in common, for type checkers."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, runtime_checkable


@runtime_checkable
class LockLike(Protocol):
    """Anything that can be acquired, released and used in a `with` block, whichever processes share it.

    `Lock`, `RLock`, the locks of a `ReadWriteLock`, `MultiLock`, `Semaphore` and `Condition` are such, and so are
    `threading.Lock`, `RLock`, `Semaphore` and `Condition`. A function that takes a `LockLike` takes all of them.

    Source:
        `threading.Lock`.
    """

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it; return whether that was possible in time.

        To wait for ever, leave `timeout` out: the locks take -1 for that, the semaphores None.
        """

    def release(self) -> None:
        """Release it."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> object: ...
