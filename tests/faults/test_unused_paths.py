"""A call that ends early at a new path leaves no container that no server would remove.

A server removes an empty container only if that once had a child. So a container comes with its first child, in one
request.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from tests.conftest import Connect
from tests.helpers.eventually import eventually
from zkconcurrent import aio
from zkconcurrent.testing import Server

PATHS = 80


@pytest.mark.fault(239)
def test_cancelled_at_any_moment(connect: Connect) -> None:
    """An acquire of a new path that is cancelled, wherever it is, leaves nothing once the server has looked."""
    with Server(container_check_interval=0.3) as tidy:
        zk = connect(tidy.hosts)
        paths = [f"/cancelled-{n}" for n in range(PATHS)]

        async def main() -> None:
            for n, path in enumerate(paths):
                lock = aio.Lock(zk, path)
                acquiring = asyncio.ensure_future(lock.acquire())
                for _ in range(n % 20):
                    await asyncio.sleep(0)
                await asyncio.sleep((n % 10) / 4000)
                acquiring.cancel()
                with suppress(asyncio.CancelledError):
                    await acquiring
                    await lock.release()

        asyncio.run(main())
        eventually(lambda: not any(zk.exists(path) for path in paths), "the paths go")
        zk.stop()
