"""`aio.Barrier` on a real server: asyncio's interface, among tasks, threads and clients."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.loops import soon, until
from tests.conftest import Connect
from zkconcurrent import aio

BROKEN = asyncio.BrokenBarrierError if sys.version_info >= (3, 11) else threading.BrokenBarrierError


def come(zk: KazooClient, path: str, n: int, generation: int = 0) -> Callable[[], bool]:
    """Return a condition: so many parties are in the generation."""
    where = f"{path}/{generation:010d}"
    return lambda: zk.exists(where) is not None and len(zk.get_children(where)) == n


async def test_it_trips_again_and_again(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Tasks of two clients and a thread pass together, with indices of their own, in each generation."""
    other = connect()
    threads = zkconcurrent.Barrier(connect(), zk_path, 4)

    async def work(client: KazooClient) -> list[int]:
        barrier = aio.Barrier(client, zk_path, 4)
        told = [await barrier.wait() for _ in range(5)]
        async with barrier as index:
            told.append(index)
        return told

    in_thread = asyncio.to_thread(lambda: [threads.wait(20) for _ in range(6)])
    told = await soon(asyncio.gather(work(zk), work(other), work(zk), in_thread))
    assert [sorted(each) for each in zip(*told, strict=True)] == [[0, 1, 2, 3]] * 6


@pytest.mark.parametrize("end", ["timeout", "reset", "abort"])
async def test_a_party_that_is_sent_away(end: str, zk: KazooClient, zk_path: str) -> None:
    """A time that is up breaks the barrier, as with threads; `reset` and `abort` send all away."""
    barrier = aio.Barrier(zk, zk_path, 2)
    waiting = asyncio.create_task(barrier.wait(timeout=0.3 if end == "timeout" else None))
    await until(come(zk, zk_path, 1))
    if end != "timeout":
        await getattr(barrier, end)()
    with pytest.raises(BROKEN):
        await soon(waiting)
    assert barrier.broken == (end != "reset")
    await barrier.destroy()
    assert not zk.exists(zk_path)


async def test_what_was_seen(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """`n_waiting` and `broken` wait for nothing, and tell the news in time; `fetch_` asks the leader."""
    barrier, other = aio.Barrier(zk, zk_path, 3), aio.Barrier(connect(), zk_path, 3)
    assert (barrier.parties, barrier.n_waiting, barrier.broken) == (3, 0, False)
    assert (await barrier.fetch_n_waiting(), await barrier.fetch_broken()) == (0, False)
    waiting = [asyncio.create_task(other.wait()) for _ in range(2)]
    await until(come(zk, zk_path, 2))
    assert (await barrier.fetch_n_waiting(), await barrier.fetch_broken()) == (2, False)
    await until(lambda: barrier.n_waiting == 2)
    assert not barrier.broken
    await other.abort()
    assert other.broken
    await until(lambda: barrier.broken)
    assert barrier.n_waiting == 0
    assert (await barrier.fetch_n_waiting(), await barrier.fetch_broken()) == (0, True)
    assert all(isinstance(each, BROKEN) for each in await asyncio.gather(*waiting, return_exceptions=True))
