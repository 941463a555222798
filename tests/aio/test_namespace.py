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
    counts = dict.fromkeys(["lock", "rlock", "bounded", "multi"], 0)
    inside = turn = most = 0

    async def add(lock: Any, what: str) -> None:
        async with lock:
            before = counts[what]
            await asyncio.sleep(0)
            counts[what] = before + 1

    async def party(number: int) -> None:
        nonlocal inside, turn, most
        latch, start = tasks.CountDownLatch("latch", PARTIES), tasks.Event("start")
        latch.count_down()
        if number == 0:
            assert await latch.wait()
            assert await latch.fetch_count() == 0
            start.set()
        assert await start.wait()
        for _ in range(ROUNDS):
            await add(tasks.Lock("lock"), "lock")
            async with tasks.RLock("rlock"):
                await add(tasks.RLock("rlock"), "rlock")
            await add(tasks.BoundedSemaphore("bounded"), "bounded")
            await add(tasks.MultiLock(["locks/x", "locks/y"]), "multi")
            async with tasks.Semaphore("semaphore", 2):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1
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
    assert most <= 2
    assert turn == PARTIES


every = pytest.mark.parametrize("kind", named(aio.Namespace))


@every
def test_no_name_leaves_the_base(tasks: aio.Namespace, kind: str) -> None:
    """A name that is empty, absolute, or would lead out of the base is a ValueError that shows it."""
    for name in ("", "/etc", "..", "a/../../x", "a//b", "a/", "a\0"):
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            pytest.fail(f"{name!r} is allowed: {make_named(tasks, kind, name)}")
        assert repr(name) in str(raised.value)


@every
def test_a_name_is_text_of_one_kind(tasks: aio.Namespace, kind: str) -> None:
    """A name is a str; it belongs to one kind of object; a name below that of another is refused."""
    with pytest.raises(TypeError, match="name must be a str"):
        make_named(tasks, kind, 1)
    kept = tasks.Lock("lock")
    if kind != "Lock":
        with pytest.raises(ValueError, match=r"/lock' for Lock already|nest"):
            make_named(tasks, kind, "lock")
    with pytest.raises(ValueError, match=r"/lock' for Lock already; use another path for Lock\(fair=False\)"):
        tasks.Lock("lock", fair=False)
    with pytest.raises(ValueError, match="nest"):
        make_named(tasks, kind, "lock/below")
    assert kept


def test_what_a_multilock_is_of(tasks: aio.Namespace) -> None:
    """It is of several names, each once; one string is not several."""
    with pytest.raises(TypeError, match="several names"):
        tasks.MultiLock("cart")
    with pytest.raises(ValueError, match="twice"):
        tasks.MultiLock(["a", "a"])
    with pytest.raises(ValueError, match="at least one"):
        tasks.MultiLock([])


def test_a_condition_gives_up_all_levels(tasks: aio.Namespace) -> None:
    """A wait lets others in at any level of the lock, and has all levels again after it."""

    async def main() -> None:
        lock = tasks.RLock("lock")
        condition = tasks.Condition("condition", lock)
        waits = asyncio.Event()

        async def waiter() -> None:
            async with lock, condition:
                waits.set()
                await condition.wait()
                lock.release()
                await lock.acquire()

        waiting = asyncio.create_task(waiter())
        await waits.wait()
        while not waiting.done():
            async with condition:
                condition.notify()
            await asyncio.sleep(0.01)
        await waiting
        with pytest.raises(RuntimeError):
            await condition.wait()

    asyncio.run(asyncio.wait_for(main(), 20))


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


def test_bad_bases_and_clients() -> None:
    """A base that is no path and a client that is no client are refused, as `zkconcurrent.namespace` refuses them."""
    for client, path in [("local", "app"), (KazooClient(), "/a/../b"), ("zk://u:secret@a", "/app"), (None, "/app")]:
        with pytest.raises((ValueError, TypeError)) as expected:
            zkconcurrent.namespace(client, path)
        with pytest.raises(expected.type) as told:
            aio.namespace(client, path)
        assert str(told.value) == str(expected.value)
        assert "secret" not in str(told.value)
