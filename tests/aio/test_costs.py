"""Each call of `aio` sends the same requests as its twin for threads, counted on the wire, and leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.aio.loops import idle, left, nodes, run, until
from tests.aio.test_tests_of_threads import generic
from tests.conftest import Connect
from tests.costs import test_costs as of_threads
from tests.helpers.count import Count, answered
from tests.helpers.proxy import Proxy
from zkconcurrent import aio
from zkconcurrent._engine.local_handoff import LocalHandoff
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

LEAVES = {  # of three parties: the client's, the one that leaves, and the requests that the client sends then
    "the one that leaves": (2, 2, {"sync": 1, "getData": 3, "multi": 1}, 2),
    "the first": (0, 2, {"getData": 2, "getChildren": 1}, 1),
    "another, as the first leaves": (2, 0, {"getData": 5, "getChildren": 1}, 3),
    "the next first": (1, 0, {"getData": 5, "getChildren": 2}, 3),
}


def _reading(count: Count) -> bool:
    """Whether replies are on their way."""
    asked = {id(each.request) for each in list(count.trace) if each.request is not None}
    return any(each.kind == "request" and id(each) not in asked for each in list(count.trace))


@pytest.mark.parametrize("which", LEAVES)
def test_a_leave(which: str, zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A cancelled party leaves by 4 reads and a write; the first reads 3 or 6 times; if it was the first, all read."""
    ours, leaver, *_ = LEAVES[which]
    near, far = aio.Barrier(counted, zk_path, 5), aio.Barrier(zk, zk_path, 5)

    async def main() -> None:
        parties = []
        for n in range(3):
            parties.append(asyncio.create_task((near if n == ours else far).wait()))
            await until(lambda n=n: len(nodes(zk, zk_path)) == n + 1)  # type: ignore[misc]
            await idle(counted, zk)
        with proxy.counting() as count:
            *_, requests, flights = LEAVES[which]
            parties[leaver].cancel()
            await until(answered(count, "getData", requests["getData"]))
            await until(lambda: not _reading(count))
            await idle(zk)
        if count.flights > flights:  # the leave's second event came behind the reads for its first
            assert which == "the first"
            requests, flights = {name: 2 * n for name, n in requests.items()}, 2
        assert (count.requests, count.flights) == (requests, flights)
        for party in parties:
            party.cancel()
        await asyncio.wait(parties)
        await until(lambda: not nodes(zk, zk_path))

    run(main())


@pytest.mark.parametrize("left", [False, True])
async def test_to_come_after_a_leave(
    left: bool, zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str
) -> None:
    """A party that arrives after a leave reads twice more, in one more round trip."""
    near, far = aio.Barrier(counted, zk_path, 5), aio.Barrier(zk, zk_path, 5)
    parties = []
    for n in range(2):
        parties.append(asyncio.create_task(far.wait()))
        await until(lambda n=n: len(nodes(zk, zk_path)) == n + 1)  # type: ignore[misc]
    if left:
        parties[0].cancel()
        await until(lambda: len(nodes(zk, zk_path)) == 1)
    await idle(zk)
    with proxy.costs(sync=1, getData=3 + left, multi=1, getChildren=1 + left, flights=3 + left) as count:
        parties.append(asyncio.create_task(near.wait()))
        await until(answered(count, "getData", 3 + left))
        await idle(zk)
    for party in parties:
        party.cancel()
    await asyncio.wait(parties)
    await until(lambda: not nodes(zk, zk_path))


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


async def test_waiting_for_an_unfair_lock(zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that wait for another task of their process sleep until it is their turn."""
    looks = 0
    is_open = LocalHandoff._is_open

    def counted(handoff: LocalHandoff) -> bool:
        nonlocal looks
        looks += 1
        return is_open(handoff)

    lock = aio.Lock(zk, zk_path, fair=False)

    async def enter() -> None:
        async with lock:
            pass

    async with lock:
        waiting = [asyncio.create_task(enter()) for _ in range(100)]
        while len(lock._core._path_state.handoff._waiting) < len(waiting):
            await asyncio.sleep(0.01)
        await idle(zk)
        monkeypatch.setattr(LocalHandoff, "_is_open", counted)
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(1.5)
        seconds = asyncio.get_running_loop().time() - began
        assert looks < 50 / 1.5 * seconds, "about one look of the keeper every 50 ms"
    await asyncio.gather(*waiting)
