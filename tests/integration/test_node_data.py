"""What a node tells of its owner: of a waiter, also what it holds meanwhile and for how long it waits."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from zkconcurrent import (
    Condition,
    DeadlockError,
    DetachedLock,
    Lock,
    MultiLock,
    ReadWriteLock,
    RLock,
    Semaphore,
    aio,
    inspect,
)
from zkconcurrent._threads.base.node_data import MOST_BYTES, MOST_HOLDS
from zkconcurrent.testing import Server


def unique(node: str) -> str:
    """Return the unique part of a node's name."""
    return node.rpartition("/")[2][len("_c_") :][:36].replace("-", "")


def marked(node: str) -> bool:
    """Return whether a node's name shows that its data tell of holds."""
    return unique(node)[-12] in {*"89abcdef"}


def test_a_waiter_tells_what_it_holds(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The waiter's data name each re-entrant hold of its thread, in any client, its timeout, and its thread."""
    lock, outer, pair = Lock(zk, f"{zk_path}/a"), RLock(zk, f"{zk_path}/b"), ReadWriteLock(connect(), f"{zk_path}/c")

    def wait() -> list[str]:
        with outer, outer, pair.read_lock, Lock(zk, f"{zk_path}/d"):
            nodes = [outer.owner(), pair.read_lock.owner(), Lock(zk, f"{zk_path}/d").owner()]
            lock.acquire(timeout=30)
            lock.release()
        return [each.node for each in nodes if each is not None]

    with lock:
        waiting = in_thread(wait)
        eventually(queued(zk, f"{zk_path}/a", 2))
        (waiter,), owner = lock.waiters(), lock.owner()
    outer_node, reader_node, inner_node = waiting.result(10)
    nodes = {"b": outer_node, "c": reader_node, "d": inner_node}
    assert waiter.holds == tuple((f"{zk_path}/{name}", unique(node)) for name, node in nodes.items())
    assert marked(waiter.node)
    assert not marked(outer_node)
    # The reader held `outer` when it queued.
    assert marked(reader_node)
    assert waiter.timeout is not None
    assert 0 < waiter.timeout <= 30
    assert owner is not None
    assert (owner.holds, owner.timeout) == ((), None)
    assert None not in (owner.by, waiter.by)
    assert owner.by != waiter.by
    # One process; two threads.
    assert str(owner.by)[:9] == str(waiter.by)[:9]


def test_full_paths(zookeeper: Server, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A hold is named by its full path, so that clients of other chroots find it."""
    zk.ensure_path(f"{zk_path}/root")
    lock, rooted = Semaphore(zk, f"{zk_path}/a"), RLock(connect(f"{zookeeper.hosts}{zk_path}/root"), "/b")

    def wait() -> None:
        with rooted:
            lock.acquire()
            lock.release()

    lock.acquire()
    waiting = in_thread(wait)
    eventually(lambda: bool(lock.waiters()))
    (waiter,) = lock.waiters()
    lock.release()
    waiting.result(10)
    assert [path for path, _ in waiter.holds] == [f"{zk_path}/root/b"]
    assert waiter.timeout is None


def test_a_release_ends_it(zk: KazooClient, zk_path: str) -> None:
    """A waiter does not tell of a hold that was released or lost, nor of a try."""
    held, lost, lock = (RLock(zk, f"{zk_path}/{name}") for name in "abc")
    with held:
        pass
    lost.acquire()
    owner = lost.owner()
    assert owner is not None
    zk.delete(owner.node)
    lost.lost.wait(20)
    with pytest.raises(zkconcurrent.LockLostError):
        lost.release()
    with lock:
        assert [each.holds for each in (lock.owner(),) if each is not None] == [()]


def test_many_holds_and_long_names(zk: KazooClient, zk_path: str) -> None:
    """The data stay below a thousand bytes, and name as many holds as there is room for."""
    thread = threading.current_thread()
    before, thread.name = thread.name, "\N{SNOWMAN}" * 80
    try:
        many = MultiLock([RLock(zk, f"{zk_path}/{n}") for n in range(30)])
        last = RLock(zk, f"{zk_path}/last")
        with many, last:
            node = last.owner()
            assert node is not None
            data, _ = zk.get(node.node)
    finally:
        thread.name = before
    assert len(data) <= MOST_BYTES
    assert 0 < len(node.holds) <= MOST_HOLDS


@pytest.mark.fault(264)
@pytest.mark.parametrize("holds", ["x", [1], [[1, 2, 3]], [[{}, 1]]])
def test_strangers_data(holds: object, zk: KazooClient, zk_path: str) -> None:
    """Whatever strangers wrote, each field has its type: a program may compare, hash and format what it gets."""
    fields = {"host": {}, "pid": "1\nx", "thread": [], "by": [1], "owner": {}, "label": ["x"], "timeout": "x"}
    fields["holds"] = holds
    zk.create(f"{zk_path}/x-lock-", json.dumps(fields).encode(), sequence=True, makepath=True, ephemeral=True)
    owner = Lock(zk, zk_path).owner()
    assert owner is not None
    assert {owner}
    assert (owner.pid, owner.thread, owner.by, owner.owner, owner.label, owner.timeout) == (None,) * 6
    # Data that are no pairs are text, which may be a host's name.
    assert isinstance(owner.host, str | None)
    assert owner.holds == ((("{}", "1"),) if holds == [[{}, 1]] else ())


def test_a_forked_child_holds_nothing(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """In a forked child, a waiter tells of no hold of the parent, and is another owner."""
    with RLock(zk, f"{zk_path}/a"), RLock(zk, f"{zk_path}/b") as _:
        mine = RLock(zk, f"{zk_path}/b").owner()
        read, write = os.pipe()
        if (pid := os.fork()) == 0:
            try:
                child = connect()
                with RLock(child, f"{zk_path}/c") as _, open(write, "w") as out:
                    owner = RLock(child, f"{zk_path}/c").owner()
                    json.dump([owner and owner.by, owner and owner.holds], out)
                    out.flush()
            finally:
                os._exit(0)
        os.close(write)
        with open(read) as answer:
            by, holds = json.load(answer)
        os.waitpid(pid, 0)
    assert mine is not None
    assert len(mine.holds) == 1
    assert holds == []
    assert by is not None
    assert by[:9] != str(mine.by)[:9]


@pytest.mark.fault(275)
@pytest.mark.parametrize("kind", ["rlock", "read-write", "write-read", "multi", "detached"])
def test_waits_for_itself_through_another_client(
    zk: KazooClient, connect: Connect, zk_path: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A thread that would wait for its own hold in another client learns of it at once; with a timeout, by the log."""
    other = connect()
    held, wanted = {
        "rlock": lambda: (RLock(zk, zk_path), RLock(other, zk_path)),
        "read-write": lambda: (ReadWriteLock(zk, zk_path).read_lock, ReadWriteLock(other, zk_path).write_lock),
        "write-read": lambda: (ReadWriteLock(zk, zk_path).write_lock, ReadWriteLock(other, zk_path).read_lock),
        "multi": lambda: (RLock(zk, zk_path), MultiLock([Lock(other, zk_path)])),
        "detached": lambda: (RLock(zk, zk_path), DetachedLock(other, zk_path, owner="it")),
    }[kind]()
    with held:
        with pytest.raises(DeadlockError, match="would wait for itself") as caught:
            wanted.acquire()
        assert zk_path in str(caught.value)
        assert wanted.acquire(timeout=0.1) is False
        assert wanted.acquire(blocking=False) is False
        assert len(zk.get_children(zk_path)) == 1
        (by,) = {hold.owner and hold.owner.by for hold in inspect().holds if hold.path == zk_path}
    (record,) = (each for each in caplog.records if "would wait for itself" in each.getMessage())
    assert (record.name, vars(record)["zk_path"]) == ("zkconcurrent.deadlocks", zk_path)
    assert vars(record)["zk_by"] == by
    with wanted:
        pass


def test_tasks(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The owner is the task: one task waits for another of the same thread, and not for itself."""
    one, two = aio.RLock(zk, zk_path), aio.RLock(connect(), zk_path)

    async def main() -> None:
        async def inner() -> None:
            async with two:
                pass

        async with one:
            with pytest.raises(DeadlockError):
                await two.acquire()
            waiting = asyncio.create_task(inner())
            while not (found := await one.waiters()):
                await asyncio.sleep(0.01)
            owner = await one.owner()
            assert owner is not None
            assert found[0].by != owner.by
            assert found[0].holds == ()
        await waiting

    asyncio.run(main())


@pytest.mark.fault(437)
@pytest.mark.parametrize("kind", ["with", "hold", "multi"])
def test_a_block_in_a_generator(zk: KazooClient, zk_path: str, in_thread: InThread, kind: str) -> None:
    """Any thread may end the block of a `Lock` in a generator, so the one that began it may wait for it."""
    lock = Lock(zk, zk_path)
    block = {"with": lock, "hold": lock.hold(), "multi": MultiLock([lock])}[kind]

    def dependency() -> Iterator[None]:
        with block:
            yield

    def end() -> None:
        eventually(queued(zk, zk_path, 2))
        begun.close()

    begun = dependency()
    next(begun)
    ending = in_thread(end)
    lock.acquire()
    lock.release()
    ending.result(10)


@pytest.mark.fault(437)
def test_a_block_in_a_generator_of_tasks(zk: KazooClient, zk_path: str) -> None:
    """Asyncio may close an asynchronous generator in another task, so the first may wait for its block."""
    lock = aio.Lock(zk, zk_path)

    async def rows() -> AsyncIterator[int]:
        async with lock:
            try:
                yield 1
            finally:
                while not await lock.waiters():
                    await asyncio.sleep(0.01)

    async def main() -> None:
        async for _ in rows():
            break
        async with lock:
            pass

    asyncio.run(main())


@pytest.mark.fault(437)
def test_a_wait_on_a_lock_that_no_block_holds(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Another thread may release what a bare `acquire()` holds, also after a condition's wait."""
    lock = Lock(zk, f"{zk_path}/l")
    condition = Condition(zk, f"{zk_path}/c", lock)
    condition.acquire()
    condition.wait(timeout=0.01)

    def end() -> None:
        eventually(queued(zk, lock.path, 2))
        lock.release()

    ending = in_thread(end)
    lock.acquire()
    lock.release()
    ending.result(10)


@pytest.mark.fault(274)
def test_waits_for_itself_behind_another_thread(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """Where a client's threads hand an unfair lock on, one that holds it elsewhere does not wait for its turn."""
    other = connect()
    held, wanted = RLock(zk, zk_path, fair=False), RLock(other, zk_path, fair=False)
    with held:
        waiting = in_thread(lambda: wanted.acquire() and wanted.release())
        eventually(queued(zk, zk_path, 2))
        assert wanted.acquire(timeout=0.1) is False
        with pytest.raises(DeadlockError, match="would wait for itself"):
            wanted.acquire()
    waiting.result(10)
