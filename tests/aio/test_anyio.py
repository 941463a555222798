"""Cancel scopes: anyio cancels a task at each turn of its loop until the scope ends, asyncio's own do so once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.loops import counting, idle, left, nodes, soon, until
from tests.conftest import FAST, Connect
from tests.helpers.proxy import Proxy
from zkconcurrent import LockLostError, aio
from zkconcurrent._engine.session import Session

TIME = 0.1  # the scopes' time limits, in seconds


async def by_anyio(call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Have anyio end a call that waits for others."""
    with anyio.move_on_after(TIME) as scope:
        await call()
    assert scope.cancelled_caught


async def by_a_timeout(call: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Have a timeout of asyncio end it, in a group of tasks."""

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(call())

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(TIME):
            await group()


ENDS = [by_anyio, *([by_a_timeout] if sys.version_info >= (3, 11) else [])]
ends = pytest.mark.parametrize("end", ENDS)


@pytest.mark.fault(220)
@ends
@pytest.mark.parametrize("make", [aio.Lock, aio.RLock], ids=lambda make: make.__name__)
async def test_a_wait_for_a_condition(end: Any, make: Any, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """The task is out as soon as it has the lock again, with one node and few requests."""
    condition = aio.Condition(zk, f"{zk_path}/c", make(zk, f"{zk_path}/lock"))

    async def wait() -> None:
        async with condition:
            try:
                await condition.wait()
            finally:
                assert condition._lock.hold_count() == 1

    for _ in range(20):  # on a busy machine, the time may be up before the wait has begun
        with counting(zk) as counts:
            await soon(end(wait))
        if counts.tickets >= 3:
            break
    assert counts.tickets == 3  # the lock's, the waiter's and the lock's again
    assert counts.requests < 40, counts
    await until(lambda: not left(zk, far) and not nodes(far, zk_path), "nothing is left")


@pytest.mark.fault(220)
async def test_a_condition_inside_its_lock(zk: KazooClient, zk_path: str) -> None:
    """A scope within the block of the lock ends while the lock is held, and the block goes on."""
    condition = aio.Condition(zk, zk_path)
    async with condition:
        with anyio.move_on_after(TIME) as scope:
            await condition.wait()
        assert scope.cancelled_caught
        assert condition._lock.hold_count() == 1
    assert condition._lock.hold_count() == 0


@pytest.mark.fault(220)
@pytest.mark.parametrize("cancels", [1, 2, 100])
async def test_the_place_in_the_queue(cancels: int, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """While others hold the lock, further cancels change nothing: the cancelled wait keeps its place."""
    condition, other = aio.Condition(zk, zk_path), aio.Condition(far, zk_path)
    line = f"{condition._lock.path}"

    async def wait() -> None:
        async with condition:
            await condition.wait()

    def queue() -> list[str]:
        return sorted(name.rpartition("-")[2] for name in far.get_children(line))

    task = asyncio.create_task(wait())
    await idle(zk)
    async with other:
        task.cancel()
        await until(lambda: len(queue()) == 2, "it queues again")
        mine = queue()[1]
        for _ in range(cancels - 1):
            task.cancel()
            await asyncio.sleep(0)
        await idle(zk, far)
        assert queue()[1:] == [mine]
        assert not task.done()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    await until(lambda: not left(zk, far) and not nodes(far, zk_path), "nothing is left")


@pytest.mark.fault(220)
def test_a_condition_out_of_reach(connect: Connect, proxy: Proxy, far: KazooClient, zk_path: str) -> None:
    """Cancelled at each turn while it acquires the lock, a wait gives up a third of T after the outage."""
    zk = connect(proxy.hosts, timeout=4, **FAST)
    condition, other = aio.Condition(zk, zk_path), aio.Condition(far, zk_path)
    session = Session.of(zk)

    async def main() -> None:
        entered = asyncio.Event()

        async def wait() -> None:
            async with condition:
                entered.set()
                with pytest.raises(LockLostError):
                    await condition.wait()
                raise asyncio.CancelledError

        task = asyncio.create_task(wait())
        await entered.wait()
        await idle(zk)
        async with other:
            async with other:
                await other.notify_all()
            await until(lambda: len(far.get_children(condition._lock.path)) == 2, "it acquires the lock again")
            proxy.refuse()
            proxy.cut()
            await until(lambda: not session.link.connected, "the connection is lost")
            began = session.now()
            with counting(zk) as counts:
                while not task.done():  # each turn is a cancel, as anyio's
                    task.cancel()
                    await asyncio.sleep(0.001)
            assert session.now() - began >= session.timeout / 3
            assert counts.tickets == 0
        with pytest.raises(asyncio.CancelledError):
            await task
        proxy.resume()
        await until(lambda: not left(zk, far) and not nodes(far, zk_path), "nothing is left")

    asyncio.run(main())


@ends
@pytest.mark.parametrize("make", [aio.Lock, aio.RLock, aio.Semaphore], ids=lambda make: make.__name__)
async def test_an_acquire(end: Any, make: Any, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """It is out at once and holds nothing; its node goes, and the next gets in."""
    lock, holder = make(zk, zk_path), make(far, zk_path)

    async def acquire() -> None:
        async with lock:
            pytest.fail("acquired")

    async with holder:
        with counting(zk) as counts:
            # In a task of its own: one task would wait for itself.
            await soon(asyncio.create_task(end(acquire)))
        assert counts.tickets == 1
        assert counts.requests < 20, counts
        await until(lambda: len(nodes(far, zk_path)) == 1, "its node is gone")
    assert await soon(lock.acquire())
    await lock.release()


@ends
async def test_a_wait_at_a_barrier(end: Any, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """The party leaves, and the barrier keeps filling."""
    for n in range(20):  # on a busy machine, the time may be up before the wait has begun
        path = f"{zk_path}/{n}"
        barrier, elsewhere = aio.Barrier(zk, path, 2), aio.Barrier(far, path, 2)
        with counting(zk) as counts:
            await soon(end(barrier.wait))
            await until(lambda: not left(zk), "it has left")
        if counts.tickets >= 2:
            break
    assert counts.tickets == 2  # the first finds no node of the generation, and makes it
    assert counts.requests < 40, counts
    assert not await elsewhere.fetch_broken()
    assert sorted(await soon(asyncio.gather(barrier.wait(), elsewhere.wait()))) == [0, 1]


@ends
async def test_a_get_from_an_empty_queue(end: Any, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """It is out at once, and the next item is another consumer's."""
    queue: aio.Queue[bytes] = aio.Queue(zk, zk_path)
    with counting(zk) as counts:
        await soon(end(queue.get))
    assert counts.requests < 40, counts
    await queue.put(b"one")
    assert await soon(aio.Queue[bytes](far, zk_path).get()) == b"one"


@pytest.mark.fault(220)
def test_a_get_whose_item_is_under_way(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """The item is back in its place before the scope ends, so a program may stop its client at once."""
    client = connect(proxy.hosts)
    queue: aio.Queue[bytes] = aio.Queue(client, zk_path)

    async def main() -> None:
        await queue.put(b"one")
        with proxy.hold("multi", where=lambda message: not message.heartbeat) as held:

            async def get() -> None:
                with anyio.CancelScope() as scope:
                    scopes.append(scope)
                    await queue.get()

            scopes: list[anyio.CancelScope] = []
            task = asyncio.create_task(get())
            await asyncio.to_thread(held.wait)
            scopes[0].cancel()
            for _ in range(100):
                await asyncio.sleep(0)
            assert not task.done()
            held.release()
            await task
            assert scopes[0].cancelled_caught

    asyncio.run(main())
    client.stop()
    assert zkconcurrent.Queue[bytes](zk, zk_path).get_nowait() == b"one"
