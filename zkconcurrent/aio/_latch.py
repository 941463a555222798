"""The CountDownLatch for tasks."""

from __future__ import annotations

from typing import Final

from .._kazoo.link import KazooClient
from .._threads import latch as _latch
from ._tasks import of_tasks
from ._twin import PrimitiveTwin, awaited, backgrounded

_Core = of_tasks(_latch.CountDownLatch)


class CountDownLatch(PrimitiveTwin):
    """A count that goes down to zero, once; see `zkconcurrent.CountDownLatch`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the latch's path; its node is created by the first `count_down`, or by a `wait` that has to wait.
        count: the number to count down from; all processes must give the same.
    """

    def __init__(self, client: KazooClient, path: str, count: int) -> None:
        super().__init__(_Core(client, path, count))

    async def fetch_count(self) -> int:
        """Return how much is left to count down; asks the leader."""
        return int(await self._core.count)

    count_down: Final = backgrounded(
        _latch.CountDownLatch.count_down,
        """Count down by `n`; an open latch stays open.

        Raises:
            TypeError: `n` is not an int.
            ValueError: `n` is less than 1, or larger than 2**63 - 1.
            ClientError: the client can't be used here.
        """,
    )
    wait: Final = awaited(_latch.CountDownLatch.wait)
    destroy: Final = awaited(_latch.CountDownLatch.destroy)
