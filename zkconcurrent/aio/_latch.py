"""The CountDownLatch for tasks."""

from __future__ import annotations

from .._kazoo.link import KazooClient
from .._threads import latch as _latch
from ._tasks import Completion, Tasks
from ._twin import PrimitiveTwin


class _CountDownLatchCore(Tasks, _latch.CountDownLatch):
    """`zkconcurrent.CountDownLatch`, for tasks."""


class CountDownLatch(PrimitiveTwin):
    """A count that goes down to zero, once; see `zkconcurrent.CountDownLatch`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the latch's path; its node is created by the first `count_down`, or by a `wait` that has to wait.
        count: the number to count down from; all processes must give the same.
    """

    def __init__(self, client: KazooClient, path: str, count: int) -> None:
        super().__init__(_CountDownLatchCore(client, path, count))

    async def fetch_count(self) -> int:
        """Return how much is left to count down; asks the leader."""
        return int(await self._core.count)

    def count_down(self, n: int = 1) -> Completion:
        """Count down by `n`; an open latch stays open."""
        return self._in_background(self._core.count_down(n))

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to count down; return whether the latch is open.

        Args:
            timeout: how long to wait, in seconds; None waits forever, zero or less reads the count once.
        """
        return bool(await self._core.wait(timeout))

    async def destroy(self) -> None:
        """Remove the latch's node and all counts; see `zkconcurrent.CountDownLatch.destroy`."""
        await self._core.destroy()
