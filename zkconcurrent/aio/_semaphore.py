"""The semaphores for tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .._kazoo.link import KazooClient
from .._runtime.identity import of_caller
from .._threads import semaphore as _semaphore
from ._losses import on_loop
from ._tasks import Completion, Pending, ReleaseCompletion, Tasks
from ._twin import LockBase, resolve


class _SemaphoreCore(Tasks, _semaphore.Semaphore):
    """`zkconcurrent.Semaphore`, owned by tasks; a callback of the loop may release it, too."""

    _caller = staticmethod(of_caller)


class _BoundedSemaphoreCore(Tasks, _semaphore.BoundedSemaphore):
    """`zkconcurrent.BoundedSemaphore`, owned by tasks; a callback of the loop may release it, too."""

    _caller = staticmethod(of_caller)


class Semaphore(LockBase):
    """`asyncio.Semaphore` for every process that opens the same path; see `zkconcurrent.Semaphore`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the semaphore's path; missing nodes are created.
        value: the number of permits. All processes must give the same, until one has called `resize`; None takes the
            current number.
        on_lost: called with the semaphore, once for each `acquire` whose permits are lost; may be async.
    """

    _owned = False
    _kind: type[_semaphore.Semaphore] = _SemaphoreCore

    def __init__(
        self, client: KazooClient, path: str, value: int | None = 1, *, on_lost: Callable[[Any], object] | None = None
    ) -> None:
        super().__init__(self._kind(client, path, value, on_lost=on_loop(self, on_lost)))

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
        self._loop = asyncio.get_running_loop()
        return await resolve(self._core.acquire(blocking, timeout, permits=permits))

    def release(self, n: int = 1) -> Completion:
        """Give back permits; add new permits for all, if `n` is more than this process holds.

        Args:
            n: how many permits.

        Raises:
            TypeError: `n` is not an int.
            LockLostError: permits were lost; the call acknowledges the loss of up to `n`.
            ValueError: `n` is less than one, or too large; or, for a `BoundedSemaphore`, more than this process holds.
        """
        core = self._core
        call, holds = core._release_permits(n)
        if n > len(holds):
            return self._in_background(Pending(call, core._giving_back(call, n, holds)))
        return ReleaseCompletion([(core, hold) for hold in holds])

    def locked(self) -> bool:
        """Return whether no permit is free, as last seen; updated from the server at most once a second."""
        size = self._core._size()
        self._refresh("locked", self._core.locked)
        return size is not None and self._held_here() + self._held_elsewhere() >= size

    async def available(self) -> int:
        """Return how many permits are free; asks the leader. See `zkconcurrent.Semaphore.available`."""
        return int(await self._core.available())

    async def resize(self, n: int) -> None:
        """Set the number of permits; see `zkconcurrent.Semaphore.resize`.

        A waiter for more permits than `n` keeps all clients behind it waiting, until it gives up or there are enough
        permits again.
        """
        await self._core.resize(n)

    async def destroy(self) -> None:
        """Remove the nodes that outlive the semaphore's users; see `zkconcurrent.Semaphore.destroy`."""
        await self._core.destroy()


class BoundedSemaphore(Semaphore):
    """A semaphore that refuses a `release()` of more permits than this process holds."""

    _kind = _BoundedSemaphoreCore
