"""Each call of `aio` sends the same requests as its threaded twin, counted on the wire, and leaves nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.aio.calls import AGAINST, LOCKS
from tests.aio.loops import idle, left, nodes, run, soon, until
from tests.conftest import Connect
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


async def counting(proxy: Proxy, call: Callable[[], Any]) -> Count:
    """Return what a call sends."""
    with proxy.counting() as count:
        await call()
    return count


LOCK = {"create2": 1, "getChildren": 1}
PERMIT = {"create2": 1, "getChildren": 3, "getData": 1, "multi": 1}
ACQUIRE = {
    **dict.fromkeys(LOCKS, (LOCK, 1)),
    **dict.fromkeys(("Semaphore", "BoundedSemaphore", "three permits"), (PERMIT, 2)),
    "MultiLock": ({"create2": 2, "getChildren": 2}, 2),
}
RELEASE = {**dict.fromkeys(LOCKS, 1), "three permits": 3, "MultiLock": 2}


@pytest.mark.parametrize("make", LOCKS)
async def test_uncontended(make: str, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """Acquire and release cost what those of threads do: the writes, the reads and the round trips."""
    lock = LOCKS[make](counted, zk_path)
    await lock.acquire()
    await lock.release()
    acquiring = await counting(proxy, lock.acquire)
    releasing = await counting(proxy, lambda: lock.release())
    requests, flights = ACQUIRE[make]
    assert acquiring.requests == requests
    assert acquiring.flights == flights
    assert releasing.requests == {"delete": RELEASE[make]}
    assert releasing.flights == 1


@pytest.mark.parametrize("make", ["Lock", "RLock", "read lock", "write lock", "unfair Lock"])
async def test_contended(make: str, zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """Until it waits: one write, three reads, two round trips. Handed over by another process: one event, no request.

    The second event is that of its own node. A writer behind a writer has one read and one event less, and lists.
    """
    lists = make == "write lock"
    mine, theirs = AGAINST.get(make, LOCKS[make])(zk, zk_path), LOCKS[make](counted, zk_path)

    async def acquire() -> None:
        await theirs.acquire()
        await theirs.release()

    await mine.acquire()
    with proxy.costs(**LOCK, getData=2 - lists, flights=2) as until_waiting:
        waiting = asyncio.create_task(acquire())
        await until(answered(until_waiting, "getData", 2 - lists))
    with proxy.costs(delete=1, getChildren=lists) as handed_over:
        mine.release()
        await soon(waiting)
    assert sum(handed_over.events.values()) == 2 - lists


async def test_between_tasks(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """Between tasks of one process, a release is one delete, and the next goes on without any request."""
    lock = aio.Lock(counted, zk_path)
    await lock.acquire()
    with proxy.counting() as until_waiting:
        waiting = asyncio.create_task(lock.acquire())
        await until(answered(until_waiting, "getData", 2))
    with proxy.costs(delete=1):
        released = lock.release()
        assert await soon(waiting)  # it may go on once the delete was sent, before the proxy has it
        await released
    await lock.release()


async def test_again_and_tries(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """To acquire again sends nothing; a failing try is two reads in one round trip."""
    lock, other = aio.RLock(counted, zk_path), aio.RLock(zk, zk_path)

    async def again() -> None:
        for _ in range(3):
            async with lock:
                pass

    async with lock:
        assert not (await counting(proxy, again)).requests
    async with other:
        count = await counting(proxy, lambda: lock.acquire(blocking=False))
    assert count.requests == {"sync": 1, "getChildren": 1}
    assert count.flights == 1


async def test_an_event_and_a_latch(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A question is two reads in one round trip; a change is these, and one write."""
    event, latch = aio.Event(counted, zk_path), aio.CountDownLatch(counted, f"{zk_path}-l", 3)
    await event.set()
    await latch.count_down()
    looks = {"sync": 1, "getData": 1}
    for call in (event.fetch, event.wait, event.set):
        count = await counting(proxy, call)
        assert count.requests == looks
        assert count.flights == 1
    count = await counting(proxy, event.clear)
    assert count.requests == {**looks, "setData": 1}
    assert count.flights == 2
    assert (await counting(proxy, latch.fetch_count)).requests == {**looks, "getChildren": 1}
    assert (await counting(proxy, latch.count_down)).requests == {**looks, "getChildren": 1, "create": 1}


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
