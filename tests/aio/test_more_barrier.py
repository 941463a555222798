"""`aio.Barrier` on a real server: asyncio's interface, among tasks, threads and clients."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from zkconcurrent import aio

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


def test_a_cancelled_party_breaks_it(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The others get asyncio's own error, and so do all who come, until a reset; the cancelled one leaves no node."""
    other = aio.Barrier(connect(), zk_path, 3)

    async def main() -> None:
        barrier = aio.Barrier(zk, zk_path, 3)
        first, second = asyncio.create_task(barrier.wait()), asyncio.create_task(other.wait())
        await until(come(zk, zk_path, 2))
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(BROKEN, match="reset"):
            await second
        with pytest.raises(BROKEN):
            await barrier.wait()
        assert barrier.broken
        assert other.broken
        await until(come(zk, zk_path, 0))
        await barrier.reset()
        assert not barrier.broken
        assert sorted(await asyncio.gather(barrier.wait(), barrier.wait(), other.wait())) == [0, 1, 2]

    asyncio.run(main())


@pytest.mark.parametrize("way", ["timeout", "wait_for", "argument"])
def test_a_time_that_is_up(way: str, zk: KazooClient, zk_path: str) -> None:
    """A party whose time is up breaks the barrier, whatever has measured it."""

    async def main() -> None:
        barrier = aio.Barrier(zk, zk_path, 2)
        if way == "argument":
            with pytest.raises(BROKEN):
                await barrier.wait(timeout=0.3)
        elif way == "wait_for":
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(barrier.wait(), 0.3)
        elif sys.version_info >= (3, 11):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await barrier.wait()
        with pytest.raises(BROKEN):
            await asyncio.wait_for(barrier.wait(), 20)

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


def test_an_interrupted_program(zk: KazooClient, zk_path: str) -> None:
    """A loop that closes while a party waits leaves no node of it."""

    async def main() -> None:
        task = asyncio.create_task(aio.Barrier(zk, zk_path, 2).wait())
        await until(come(zk, zk_path, 1))
        assert not task.done()

    asyncio.run(main())
    assert come(zk, zk_path, 0)()
