"""The locks of tasks: what differs from those of threads, whose tests run on tasks too (`test_tests_of_threads.py`)."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.calls import LOCKS
from tests.aio.loops import nodes, run, soon, until
from tests.conftest import FAST, Connect
from tests.helpers.proxy import Proxy
from zkconcurrent import LockLostError, WaitCancelledError, aio
from zkconcurrent._threads.base.cancel import waits

TWINS = {"Lock": zkconcurrent.Lock, "Semaphore": zkconcurrent.Semaphore}


@pytest.mark.parametrize("make", TWINS)
def test_threads_and_tasks_in_order(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Threads and tasks of one client, and of another process, get one path in the order in which they came."""
    order: list[int] = []
    lock, elsewhere = LOCKS[make](zk, zk_path), LOCKS[make](far, zk_path)
    inside = 0

    def enter(n: int) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        order.append(n)

    def leave() -> None:
        nonlocal inside
        inside -= 1

    def in_thread(n: int) -> None:
        with TWINS[make](zk, zk_path):
            enter(n)
            leave()

    async def in_task(n: int, lock: Any) -> None:
        async with lock:
            enter(n)
            await asyncio.sleep(0)
            leave()

    async def main() -> None:
        await lock.acquire()
        waiting = []
        for n in range(9):
            waiting.append(
                asyncio.create_task(
                    asyncio.to_thread(in_thread, n) if n % 3 == 1 else in_task(n, elsewhere if n % 3 == 2 else lock)
                )
            )
            await until(lambda n=n: len(nodes(far, zk_path)) == n + 2)
        lock.release()
        await soon(asyncio.gather(*waiting))

    run(main())
    assert order == list(range(9))


@pytest.mark.parametrize("make", ["RLock", "MultiLock"])
async def test_a_task_that_would_own_it_and_end(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A task made for an acquire alone is refused before anything is sent; so is wait_for, up to Python 3.11."""
    lock = aio.MultiLock([aio.RLock(zk, zk_path)]) if make == "MultiLock" else LOCKS[make](zk, zk_path)
    with pytest.raises(RuntimeError, match="timeout="):
        await asyncio.create_task(lock.acquire())
    if sys.version_info < (3, 12):
        with pytest.raises(RuntimeError, match="timeout="):
            await asyncio.wait_for(lock.acquire(), 5)
    else:
        assert await asyncio.wait_for(lock.acquire(), 5)
        await lock.release()
    assert not await asyncio.to_thread(nodes, far, zk_path)
    assert await lock.acquire(timeout=5)
    await lock.release()


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
async def test_a_loss(plain: bool, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """`lost` can be awaited, `on_lost` runs on the loop that acquired, and may be async."""
    told: list[tuple[Any, int]] = []

    def tell(lock: Any) -> None:
        told.append((lock, threading.get_ident()))

    async def tell_later(lock: Any) -> None:
        await asyncio.sleep(0)
        tell(lock)

    lock = aio.Lock(zk, zk_path, on_lost=tell if plain else tell_later)
    await lock.acquire()
    lost = lock.lost
    waiting = asyncio.create_task(lost.wait())
    (node,) = await asyncio.to_thread(nodes, far, zk_path)
    await asyncio.to_thread(far.delete, node)
    assert await soon(waiting)
    assert lost.is_set()
    await until(lambda: told)
    assert told == [(lock, threading.get_ident())]
    with pytest.raises(LockLostError):
        lock.release()


@pytest.mark.fault(355)
@pytest.mark.parametrize("make", ["Lock", "MultiLock"])
async def test_a_hold_that_no_task_asks_about(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A plain thread, or a callback of the loop, is told of this process's newest hold."""
    lock: Any = LOCKS[make](zk, zk_path)

    def ask() -> tuple[bool, bool, bool]:
        return lock.lost.is_set(), lock.suspect, lock.remaining() > 0

    loop = asyncio.get_running_loop()
    async with lock:
        assert await asyncio.to_thread(ask) == (False, False, True)
        told = loop.create_future()
        loop.call_soon(lambda: told.set_result(ask()))
        assert await told == (False, False, True)
        lost = await asyncio.to_thread(lambda: lock.lost)
        for node in (await asyncio.to_thread(nodes, far, zk_path))[:2]:
            await asyncio.to_thread(far.delete, node)
        assert await soon(lost.wait())
        assert await asyncio.to_thread(lambda: lock.lost.is_set())
        with pytest.raises(LockLostError):
            lock.release()
        await lock.acquire()


@pytest.mark.fault(354)
def test_a_loss_after_a_try_on_another_loop(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """`on_lost` is called on the loop that holds the lock, not on one that has only tried since, and is closed."""
    told: list[int] = []
    lock = aio.Lock(zk, zk_path, on_lost=lambda _: told.append(threading.get_ident()))

    async def attempt() -> None:
        assert not await lock.acquire(blocking=False)

    async def main() -> None:
        await lock.acquire()
        await asyncio.to_thread(lambda: asyncio.run(attempt()))
        (node,) = await asyncio.to_thread(nodes, far, zk_path)
        await asyncio.to_thread(far.delete, node)
        await until(lambda: told)
        assert told == [threading.get_ident()]
        with pytest.raises(LockLostError):
            lock.release()

    run(main())


async def test_locked_as_last_seen(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Acts of this process show at once; a loop that asks again and again sees those of others."""
    lock, again, other = (aio.Lock(client, zk_path) for client in (zk, zk, far))
    assert not lock.locked()
    async with lock:
        assert lock.locked()
        assert await again.fetch_locked()
    assert not again.locked()
    async with other:
        assert await lock.fetch_locked()
        assert lock.locked()
    await until(lambda: not lock.locked(), "it is seen")
    event = aio.Event(zk, f"{zk_path}-event")
    event.set()
    cleared = event.clear()
    while not cleared.done():
        assert not event.is_set()
        await asyncio.sleep(0)
    assert not event.is_set()
    await aio.Event(far, event.path).set()
    await until(event.is_set, "it is seen")


async def test_a_completion_of_several(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Any number of tasks, of any loops, and nobody at all, await what a plain method has begun."""
    lock, event = aio.Lock(zk, zk_path), aio.Event(far, f"{zk_path}-event")

    async def both(*completions: aio.Completion) -> None:
        await asyncio.gather(*(await_it(each) for each in completions for _ in range(3)))

    async def await_it(completion: aio.Completion) -> None:
        await completion
        assert completion.done()

    await lock.acquire()
    completions = lock.release(), event.set()
    await asyncio.gather(
        both(*completions), asyncio.to_thread(lambda: asyncio.run(both(*completions))), both(*completions)
    )
    await both(*completions)
    event.clear()  # nobody awaits it
    await until(lambda: zkconcurrent.Event(zk, f"{zk_path}-event").is_set() is False)


def test_the_last_line(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A `set()`, a `count_down()` and a `release()` in the last line of a program's main reach the server."""
    event, latch, lock = aio.Event(zk, f"{zk_path}-e"), aio.CountDownLatch(zk, f"{zk_path}-l", 1), aio.Lock(zk, zk_path)

    async def main() -> None:
        await lock.acquire()
        event.set()
        latch.count_down()
        lock.release()

    run(main())
    assert zkconcurrent.Event(far, f"{zk_path}-e").wait(20)
    assert zkconcurrent.CountDownLatch(far, f"{zk_path}-l", 1).wait(20)
    with zkconcurrent.Lock(far, zk_path):
        pass


def test_two_loops(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """One object serves several loops, one after the other and at once."""
    lock = aio.Lock(zk, zk_path)
    counted = 0

    async def main() -> None:
        nonlocal counted
        for _ in range(20):
            async with lock:
                seen = counted
                await asyncio.sleep(0)
                counted = seen + 1

    async def twice() -> None:
        await asyncio.gather(main(), asyncio.to_thread(lambda: asyncio.run(main())))

    run(main())
    run(twice())
    assert counted == 60
    assert not nodes(far, zk_path)


@pytest.mark.fault(392)
@pytest.mark.parametrize("make", [aio.Lock, aio.RLock], ids=lambda make: make.__name__)
async def test_a_task_that_only_waits_for_a_condition(make: Any, zk: KazooClient, zk_path: str) -> None:
    """It does not hold an RLock, and is told so; with a Lock, which belongs to no task, it waits."""
    condition = aio.Condition(zk, zk_path, make(zk, f"{zk_path}/lock"))
    async with condition:
        waiting = asyncio.create_task(condition.wait(timeout=0.05))
        if make is aio.RLock:
            with pytest.raises(RuntimeError, match=r"Await wait\(timeout="):
                await waiting
        else:
            assert await waiting is False
        if sys.version_info >= (3, 12) or make is aio.Lock:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(condition.wait(), 0.05)


def test_the_twin_of_threads_in_the_loop(zk: KazooClient, zk_path: str) -> None:
    """A call of the threads' twin that would stop the loop until one of the loop's own tasks releases is refused."""
    lock, twin = aio.Lock(zk, zk_path), zkconcurrent.Lock(zk, zk_path)

    async def main() -> None:
        async with lock:
            for options in ({}, {"timeout": 5}):
                with pytest.raises(RuntimeError, match=f"holds {zk_path}.* zkconcurrent.aio instead"):
                    twin.acquire(**options)  # type: ignore[arg-type]
            assert not twin.acquire(blocking=False)
            assert not await asyncio.to_thread(twin.acquire, timeout=0.05)

    asyncio.run(main())


@pytest.mark.fault(120)
def test_a_detached_lock_whose_release_takes_long(
    connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str
) -> None:
    """An acquire waits for it up to its deadline, or until it is told to end, and does not get the old hold."""
    lock = aio.DetachedLock(connect(hosts=proxy.hosts, timeout=20, **FAST), zk_path, "job")

    async def main() -> None:
        await lock.acquire()
        proxy.refuse()
        proxy.cut()
        await until(lambda: not lock.client.connected)
        released = lock.release()
        assert lock.hold_count() == 0
        assert not await lock.acquire(timeout=0.05)
        assert not await lock.acquire(blocking=False)
        acquiring = asyncio.ensure_future(lock.acquire())
        await until(lambda: waits(lock._core._session.calls, lock._core._lock_core.queue_key))
        assert lock.cancel_waits() == 1
        with pytest.raises(WaitCancelledError):
            await acquiring
        acquiring = asyncio.ensure_future(lock.acquire())
        await asyncio.sleep(0)
        proxy.resume()
        assert await acquiring
        assert released.done()
        assert zk.get_children(zk_path)
        await lock.release()
        assert not zk.get_children(zk_path)

    run(main())
