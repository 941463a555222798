"""`aio.Barrier` on a real server: asyncio's interface, among tasks, threads and clients."""

from __future__ import annotations

import asyncio
import math
import pickle
import sys
import threading
from collections.abc import Callable, Iterable

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.loops import idle
from tests.conftest import Connect, InThread
from zkconcurrent import aio
from zkconcurrent._recipes import barrier as recipe
from zkconcurrent.aio import _twin

BROKEN = asyncio.BrokenBarrierError if sys.version_info >= (3, 11) else threading.BrokenBarrierError


async def until(condition: Callable[[], object], patience: float = 20.0) -> None:
    """Let the loop run until a condition is true."""

    async def look() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(look(), patience)


def come(zk: KazooClient, path: str, n: int, generation: int = 0) -> Callable[[], bool]:
    """Return a condition: so many parties are in the generation."""
    where = f"{path}/{generation:010d}"
    return lambda: zk.exists(where) is not None and len(zk.get_children(where)) == n


def test_it_trips_again_and_again(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Tasks of two clients pass together, with indices of their own, in each generation."""
    clients = [zk, connect(), zk, connect()]

    async def work(client: KazooClient) -> list[int]:
        barrier = aio.Barrier(client, zk_path, 4)
        told = [await barrier.wait() for _ in range(5)]
        async with barrier as index:
            told.append(index)
        return told

    async def main() -> list[list[int]]:
        return await asyncio.gather(*(work(client) for client in clients))

    told = asyncio.run(main())
    assert [sorted(each) for each in zip(*told, strict=True)] == [[0, 1, 2, 3]] * 6


def test_threads_come_too(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A thread and a task trip one barrier."""
    waiting = in_thread(zkconcurrent.Barrier(connect(), zk_path, 2).wait, 20)
    index = asyncio.run(aio.Barrier(zk, zk_path, 2).wait())
    assert {index, waiting.result(20)} == {0, 1}


@pytest.mark.parametrize("way", ["wait_for", "argument", *(["timeout"] if sys.version_info >= (3, 11) else [])])
def test_a_time_that_is_up(way: str, zk: KazooClient, zk_path: str) -> None:
    """`timeout=` breaks the barrier, as with threads; asyncio's own timeouts cancel, so the party leaves."""

    async def main() -> None:
        barrier = aio.Barrier(zk, zk_path, 2)
        if way == "argument":
            with pytest.raises(BROKEN):
                await barrier.wait(timeout=0.3)
            with pytest.raises(BROKEN):
                await asyncio.wait_for(barrier.wait(), 20)
            return
        if way == "wait_for":
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(barrier.wait(), 0.3)
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await barrier.wait()
        await until(lambda: not zk.get_children(zk_path) or come(zk, zk_path, 0)())
        told = await asyncio.wait_for(asyncio.gather(barrier.wait(), barrier.wait()), 20)
        assert sorted(told) == [0, 1]

    asyncio.run(main())


def test_reset_and_abort(zk: KazooClient, zk_path: str) -> None:
    """Both send away all who wait; after `abort` it stays broken."""

    async def main() -> None:
        barrier = aio.Barrier(zk, zk_path, 2)
        for generation, end in enumerate([barrier.reset, barrier.abort]):
            waiting = asyncio.create_task(barrier.wait())
            await until(come(zk, zk_path, 1, generation))
            await end()
            with pytest.raises(BROKEN):
                await waiting
        assert barrier.broken
        await barrier.destroy()
        assert not zk.exists(zk_path)

    asyncio.run(main())


def test_what_was_seen(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """`n_waiting` and `broken` wait for nothing, and tell the news in time."""

    async def main() -> None:
        barrier, other = aio.Barrier(zk, zk_path, 3), aio.Barrier(connect(), zk_path, 3)
        assert (barrier.parties, barrier.n_waiting, barrier.broken) == (3, 0, False)
        waiting = [asyncio.create_task(other.wait()) for _ in range(2)]
        await until(lambda: barrier.n_waiting == 2)
        assert not barrier.broken
        await other.abort()
        assert other.broken
        await until(lambda: barrier.broken)
        assert barrier.n_waiting == 0
        assert all(isinstance(each, BROKEN) for each in await asyncio.gather(*waiting, return_exceptions=True))

    asyncio.run(main())


def test_what_the_service_says(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """`fetch_n_waiting` and `fetch_broken` ask the leader, so they are right at once."""

    async def main() -> None:
        barrier, other = aio.Barrier(zk, zk_path, 3), aio.Barrier(connect(), zk_path, 3)
        assert (await barrier.fetch_n_waiting(), await barrier.fetch_broken()) == (0, False)
        waiting = [asyncio.create_task(other.wait()) for _ in range(2)]
        await until(come(zk, zk_path, 2))
        assert (await barrier.fetch_n_waiting(), await barrier.fetch_broken()) == (2, False)
        await other.abort()
        assert (await barrier.fetch_n_waiting(), await barrier.fetch_broken()) == (0, True)
        assert all(isinstance(each, BROKEN) for each in await asyncio.gather(*waiting, return_exceptions=True))

    asyncio.run(main())


def test_arguments(zk: KazooClient, zk_path: str) -> None:
    """At least one party; to make one sends nothing; its repr says what it is; it is not pickled."""
    for parties in (0, -1):
        with pytest.raises(ValueError, match="parties must be >= 1"):
            aio.Barrier(zk, zk_path, parties)
    with pytest.raises(TypeError):
        aio.Barrier(zk, zk_path, 1.5)  # type: ignore[arg-type]
    barrier = aio.Barrier(zk, zk_path, 2)
    assert zk.exists(zk_path) is None
    assert repr(barrier).startswith("<zkconcurrent.aio.Barrier at ")
    assert repr(barrier).endswith(": waiters=0/2>")
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(barrier)


def test_all_must_agree_on_the_parties(zk: KazooClient, zk_path: str) -> None:
    """A barrier for another number of parties is a ValueError at its first use."""

    async def main() -> None:
        assert await aio.Barrier(zk, zk_path, 1).wait() == 0
        with pytest.raises(ValueError, match="for 1 parties, not for 2"):
            await aio.Barrier(zk, zk_path, 2).wait()

    asyncio.run(main())


@pytest.mark.fault(226)
def test_a_late_reply_undoes_nothing(zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain query whose reply is seen late undoes nothing that a party has seen meanwhile."""
    looked, go_on = threading.Event(), threading.Event()
    line = recipe.line_of

    def late(names: Iterable[str]) -> dict[int, str]:
        if threading.current_thread().name == "zkconcurrent background":
            looked.set()
            go_on.wait()
        return line(names)

    async def main() -> None:
        barrier = aio.Barrier(zk, zk_path, 2)
        first = asyncio.create_task(barrier.wait())
        await until(come(zk, zk_path, 1))
        assert barrier.n_waiting <= 1
        await until(looked.is_set)
        assert {await barrier.wait(), await first} == {0, 1}
        assert barrier.n_waiting == 0
        go_on.set()
        await idle(zk)
        assert barrier.n_waiting == 0

    monkeypatch.setattr(recipe, "line_of", late)
    monkeypatch.setattr(_twin, "REFRESH", math.inf)  # it is asked once
    asyncio.run(main())


def test_a_barrier_that_is_destroyed_is_broken_no_more(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A barrier forgets what it saw of a broken one, whether this client or another destroys that."""

    async def main() -> None:
        barrier = aio.Barrier(zk, zk_path, 2)
        for other in (aio.Barrier(connect(), zk_path, 2), barrier):
            await barrier.abort()
            assert barrier.broken
            await other.destroy()
            await until(lambda: not barrier.broken)
            assert not await barrier.fetch_broken()

    asyncio.run(main())
