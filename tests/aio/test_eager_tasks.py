"""Tasks of a loop with `asyncio.eager_task_factory`: each begins on the stack of its creator, before any other runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import PATIENCE
from tests.helpers.eventually import eventually
from zkconcurrent import aio

if sys.version_info < (3, 12):
    pytest.skip("asyncio.eager_task_factory is of Python 3.12", allow_module_level=True)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end in a loop whose tasks are eager."""

    async def eager() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        await asyncio.wait_for(main, PATIENCE)

    asyncio.run(eager(), debug=True)


def test_the_owner_is_the_task_that_begins(zk: KazooClient, zk_path: str) -> None:
    """A task that begins within its creator's hold has none of it, and waits; its creator goes on with the hold."""
    lock = aio.RLock(zk, zk_path)
    counts: list[int] = []

    async def begin() -> bool:
        counts.append(lock.hold_count())
        return await lock.acquire(timeout=0.1)

    async def leave_held() -> None:
        await lock.acquire()

    async def main() -> None:
        async with lock:
            task = asyncio.create_task(begin())
            assert (counts, lock.hold_count()) == ([0], 1)
            assert not await task
            cancelled = asyncio.create_task(begin())
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        with pytest.raises(RuntimeError, match="does nothing but acquire"):
            await asyncio.create_task(lock.acquire())
        with pytest.warns(ResourceWarning, match="has ended without releasing"):
            await asyncio.create_task(leave_held())
            async with lock:
                pass

    run(main())
    eventually(lambda: not zk.get_children(zk_path))
