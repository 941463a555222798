"""The semaphores for tasks."""

from __future__ import annotations

from typing import Any, Final

from .._kazoo.link import KazooClient
from .._observe.hold_limits import AfterLimit
from .._threads import semaphore as _semaphore
from .._threads.base.primitive import OnLost, OnSuspect
from .._threads.semaphore import PermitCore
from ._losses import on_loop
from ._tasks import AnyTask, Completion, Pending, ReleaseCompletion, of_tasks
from ._twin import LockBase, awaited


class Semaphore(LockBase):
    """`asyncio.Semaphore` for every process that opens the same path; see `zkconcurrent.Semaphore`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the semaphore's path; missing nodes are created.
        value: the number of permits. All processes must give the same, until one has called `resize`; None takes the
            current number.
        on_lost: called with the semaphore, once for each `acquire` whose permits are lost; may be async.
        on_suspect, hold_limit, on_hold_limit, label: as for `Lock`. The permits of one `acquire` are one hold.
    """

    _owned = False
    _lock_core: PermitCore
    _kind = of_tasks(_semaphore.Semaphore, AnyTask)

    def __init__(
        self,
        client: KazooClient,
        path: str,
        value: int | None = 1,
        *,
        on_lost: OnLost | None = None,
        on_suspect: OnSuspect | None = None,
        hold_limit: float | None = None,
        on_hold_limit: AfterLimit = "warn",
        label: str | None = None,
    ) -> None:
        callbacks = on_loop(self, on_lost, on_suspect)
        limit: Any = {"hold_limit": hold_limit, "on_hold_limit": on_hold_limit}
        super().__init__(self._kind(client, path, value, label=label, **limit, **callbacks))

    async def acquire(self, *, blocking: bool = True, timeout: float | None = None, permits: int = 1) -> bool:
        """Take permits, all or none, in the order of arrival; errors as `zkconcurrent.Semaphore.acquire`.

        Args:
            blocking: whether to wait for permits. If False, the call takes them only if enough are free for the
                contenders ahead and for itself.
            timeout: how long to wait, in seconds; None waits forever; zero or less acts as `blocking=False`.
            permits: how many to take.

        Returns:
            Whether the permits were taken. If False, the attempt leaves no node behind.
        """
        return await self._acquired(self._core.acquire(blocking, timeout, permits=permits))

    def release(self, n: int = 1) -> Completion:
        """Give back permits; if `n` is more than this process holds, add new permits for all processes.

        Args:
            n: how many permits to give back.

        Raises:
            TypeError: `n` is not an int.
            LockLostError: permits were lost; the call acknowledges the loss of up to `n` of them.
            ValueError: `n` is less than one, or too large; or, for a `BoundedSemaphore`, more than this process holds.
        """
        core = self._lock_core
        call, holds = core.begin_giving_back(n)
        if n > len(holds):
            return self._in_background(Pending(call, core.given_back(call, n, holds)))
        return ReleaseCompletion([(core, hold) for hold in holds])

    def locked(self) -> bool:
        """Return whether no permit is free, as last seen; updated from the server at most once a second."""
        size = self._lock_core.size()
        self._refresh("locked", self._core.locked)
        return size is not None and self._held_here() + self._held_elsewhere() >= size

    available: Final = awaited(_semaphore.Semaphore.available)
    resize: Final = awaited(_semaphore.Semaphore.resize)
    destroy: Final = awaited(_semaphore.Semaphore.destroy)


class BoundedSemaphore(Semaphore):
    """A semaphore that refuses a `release()` of more permits than this process holds."""

    _kind = of_tasks(_semaphore.BoundedSemaphore, AnyTask)
