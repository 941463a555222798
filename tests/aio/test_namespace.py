"""`aio.namespace`: one program runs on ZooKeeper and in one process alike; names keep the same rules."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect
from tests.helpers.kinds import make_named, named
from zkconcurrent import aio

PARTIES, ROUNDS = 4, 3


@pytest.fixture(params=["zookeeper", "local"])
def tasks(request: pytest.FixtureRequest) -> aio.Namespace:
    """A namespace of each kind."""
    if request.param == "local":
        return aio.namespace("local", "/app")
    return aio.namespace(request.getfixturevalue("zk"), request.getfixturevalue("zk_path"))


def test_one_program(tasks: aio.Namespace) -> None:
    """Tasks count without losing any, take turns, and wait for each other."""
    counts = dict.fromkeys(["lock", "rlock", "multi"], 0)
    turn = 0

    async def add(lock: Any, what: str) -> None:
        async with lock:
            before = counts[what]
            await asyncio.sleep(0)
            counts[what] = before + 1

    async def party(number: int) -> None:
        nonlocal turn
        latch, start = tasks.CountDownLatch("latch", PARTIES), tasks.Event("start")
        latch.count_down()
        if number == 0:
            assert await latch.wait()
            start.set()
        assert await start.wait()
        for _ in range(ROUNDS):
            await add(tasks.Lock("lock"), "lock")
            async with tasks.RLock("rlock"):
                await add(tasks.RLock("rlock"), "rlock")
            await add(tasks.MultiLock(["locks/x", "locks/y"]), "multi")
        async with tasks.Barrier("barrier", PARTIES):
            pass
        condition = tasks.Condition("condition")
        async with condition:  # each in turn, by number
            await condition.wait_for(lambda: turn == number)
            turn += 1
            condition.notify_all()

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(*(party(number) for number in range(PARTIES))), 60)

    asyncio.run(main())
    assert set(counts.values()) == {PARTIES * ROUNDS}
    assert turn == PARTIES


@pytest.mark.parametrize("kind", named(aio.Namespace))
def test_no_name_leaves_the_base(kind: str) -> None:
    """A name that is empty, absolute, or would lead out of the base is a ValueError that shows it."""
    tasks = aio.namespace("local", "/app")
    for name in ("", "/etc", "..", "a/../../x", "a//b", "a/", "a\0"):
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            pytest.fail(f"{name!r} is allowed: {make_named(tasks, kind, name)}")
        assert repr(name) in str(raised.value)


def test_the_paths(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A name's path lies below the base; threads that have the same name share it."""
    tasks = aio.namespace(zk, zk_path)
    assert tasks.RLock("cart").path == f"{zk_path}/cart"
    assert aio.namespace(zk).Barrier("barrier", 2).path == "/barrier"
    assert tasks.ReadWriteLock("pair").read_lock.path == f"{zk_path}/pair"
    assert (tasks.client, tasks.path) == (zk, zk_path)
    assert repr(tasks) == f"<zkconcurrent.aio.Namespace path={zk_path!r}>"
    threads = zkconcurrent.namespace(connect(), zk_path)

    async def main() -> None:
        async with tasks.RLock("cart"):
            assert not await asyncio.to_thread(threads.RLock("cart").acquire, False)

    asyncio.run(main())
