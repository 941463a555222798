"""`LockLike`: the common type of this library's locks and `threading`'s, for type checkers."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from .._runtime.public import ErrorKind, Traceback, public


@runtime_checkable
@public
class LockLike(Protocol):
    """Anything that can be acquired, released and used in a `with` block, whether or not processes share it.

    `Lock`, `RLock`, the locks of a `ReadWriteLock`, `MultiLock`, `Semaphore` and `Condition` match it, and so do
    `threading.Lock`, `RLock`, `Semaphore` and `Condition`. A function that takes a `LockLike` accepts all of them.

    Source:
        `threading.Lock`.
    """

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire it; return False if the timeout passed first.

        To wait forever, omit `timeout`: locks take -1 for that, semaphores None.
        """

    def release(self) -> None:
        """Release it."""

    def __enter__(self) -> bool: ...

    def __exit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback, /) -> object: ...
