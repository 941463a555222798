"""`RevocableLock`: a lock whose holder may be asked to let go, and whose release need not wait."""

from __future__ import annotations

from abc import abstractmethod

from ..._recipes.revoke import revoke
from .held import Held
from .lock_base import Holding, LockBase


class RevocableLock(LockBase):
    """What locks with one holder and read-write locks share: Curator's `Revoker` supports these locks."""

    @abstractmethod
    def release(self, *, wait: bool = True) -> None:
        """Release the lock; with `wait` False, do not wait until it is free."""

    def hold(self, timeout: float | None = None, *, blocking: bool = True, wait_release: bool = True) -> Holding[Held]:
        """Return a `with` block that holds the lock, and runs only if the lock is acquired in time.

        `as` gives the handle of the hold. The block ends as a `with lock` block does.

        Args:
            timeout: how long to wait for the lock, in seconds; None waits forever, 0 makes one attempt.
            blocking: whether to wait. If False, the block makes one attempt.
            wait_release: whether the end of the block waits until the lock is free; see `release`.

        Raises:
            TimeoutError: the lock was not acquired in time. The start of the block raises this, as it raises all errors
                of `acquire`.
            LockLostError: the hold was lost. The end of the block raises this.
        """
        return Holding(self, timeout, blocking, **({} if wait_release else {"wait": False}))

    def _levels_held(self) -> int:
        hold = self._lock_core.mine()
        return 0 if hold is None else hold.depth

    def revoke(self) -> int:
        """Ask the holders that block an `acquire` of this lock to let go; return how many were asked.

        The call does not wait for the holders, and does not force them. Each holder's `on_revoke` is called. For a Java
        holder on Curator, the listener that was given to `makeRevocable` is called instead. After that, `owner()` no
        longer shows the holder's host, process and thread, as the request replaces the data of its node. Cost: 2 reads,
        then a read and a write for each holder.

        Raises:
            ValueError: a `DetachedLock` is the holder; end its hold with `force_release`.
            RefusedError: this client is not allowed to write into the holder's node.
            ClientError: the client can't be used here.
        """

        def checked(asked: int | None) -> int:
            if asked is None:
                raise ValueError(
                    f"{self._path} is held by a DetachedLock, which no process watches: its owner releases it, or "
                    "`force_release(token)` of a DetachedLock ends the hold"
                )
            return asked

        return self._run(revoke(self._path, self._rule), checked)
