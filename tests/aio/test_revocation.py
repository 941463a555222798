"""`on_revoke=` of tasks: on the loop, and it may be async."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from zkconcurrent import aio


@pytest.mark.parametrize("is_async", [False, True])
def test_on_revoke_runs_in_the_loop(is_async: bool, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """It is called on the loop that acquired, once for each request, and may be async and release the lock."""
    other_client = connect()

    async def main() -> None:
        loop, told = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def on_revoke(lock: Any) -> None:
            assert asyncio.get_running_loop() is loop
            told.put_nowait(lock)

        async def later(lock: Any) -> None:
            await asyncio.sleep(0)
            on_revoke(lock)

        lock = aio.Lock(zk, zk_path, on_revoke=later if is_async else on_revoke)
        other = aio.Lock(other_client, zk_path)
        await lock.acquire()
        for _ in range(2):
            assert await other.revoke() == 1
            assert await asyncio.wait_for(told.get(), 20) is lock
        waits = asyncio.create_task(use(other))
        while not await lock.waiters():
            await asyncio.sleep(0.01)
        lock.release()
        await asyncio.wait_for(waits, 20)
        assert await other.revoke() == 0
        assert told.empty()

    asyncio.run(main())


async def use(lock: Any) -> None:
    """Hold the lock for a moment."""
    async with lock:
        pass
