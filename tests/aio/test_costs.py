"""Each call of `aio` sends the same requests as its twin for threads, counted on the wire, and leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from collections.abc import Iterator

import pytest

from tests.aio.loops import idle, left, nodes, until
from tests.aio.test_tests_of_threads import generic
from tests.conftest import Connect
from tests.costs import test_costs as of_threads
from tests.helpers.proxy import Proxy
from zkconcurrent import aio
from zkconcurrent._engine.session import Session
from zkconcurrent._runtime.identity import _living
from zkconcurrent.testing import Server

SLOW_WIRE = 0.05  # seconds each way: no task is kept from sending the next request for as long
CYCLES = int(os.environ.get("TASK_CYCLES", "500"))
CANCELS = 1_000


@pytest.fixture
def proxy(zookeeper: Server) -> Iterator[Proxy]:
    """A proxy that delays, so that pipelined requests are seen to be pipelined."""
    with Proxy(zookeeper.hosts) as proxy:
        proxy.delay(SLOW_WIRE)
        yield proxy


TestCosts = generic(of_threads)


def grown(before: tracemalloc.Snapshot, path: str) -> int:
    """Return how many bytes the library has allocated since then, and has still."""
    gc.collect()
    only = [tracemalloc.Filter(True, path)]
    now = tracemalloc.take_snapshot().filter_traces(only)
    return sum(each.size_diff for each in now.compare_to(before.filter_traces(only), "filename"))


@pytest.mark.long
def test_cycles(connect: Connect, zk_path: str) -> None:
    """Hundreds of cycles, each with an object of its own, and a thousand cancelled acquires leave nothing."""
    zk, far = connect(timeout=60), connect(timeout=60)  # tracing may keep kazoo's threads waiting for seconds
    held = aio.Lock(far, f"{zk_path}-held")

    def nothing_is_left() -> bool:
        # The paths of watches linger for a while: they are removed together.
        watches, lingering = Session.of(zk).watches, Session.of(zk).registry.left
        return not (left(zk) or lingering or watches._idle or watches._due or watches._unanswered)

    async def cycles(n: int) -> None:
        for _ in range(n):
            async with aio.Lock(zk, zk_path):
                pass

    async def many(n: int) -> None:
        await asyncio.gather(*(cycles(n // 20) for _ in range(20)))

    async def cancels(n: int) -> None:
        async def wait() -> None:
            await aio.Lock(zk, f"{zk_path}-held").acquire()

        for k in range(n // 50):
            waiting = [asyncio.create_task(wait()) for _ in range(50)]
            if k % 2:
                await idle(zk)  # all wait; else they are cancelled at whatever they do
            else:
                await asyncio.sleep(0.001 * (k % 7))
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            assert all(task.cancelled() for task in waiting)

    async def main() -> None:
        async with held:
            await many(200)
            await cancels(100)
            await until(nothing_is_left)
            # Garbage of these cycles would make room for a leak.
            gc.collect()
            owners, before = len(_living), tracemalloc.take_snapshot()
            await many(CYCLES)
            await cancels(CANCELS)
            await until(nothing_is_left)
            assert grown(before, "*/zkconcurrent/*") < 50_000
            assert len(_living) < owners + 100
            assert len(nodes(far, f"{zk_path}-held")) == 1
        assert not nodes(far, zk_path)

    tracemalloc.start()
    try:
        asyncio.run(main())  # without debug mode, which notes where each future was made
    finally:
        tracemalloc.stop()
