"""Parties that leave an `aio.Barrier`, as their tasks are cancelled: the others wait on."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.loops import left
from tests.aio.test_barrier import BROKEN, come, until
from tests.conftest import FAST, Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import aio


@pytest.mark.parametrize("leaver", [0, 1])
def test_a_cancelled_party_leaves(leaver: int, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The others wait for another party in its place, and pass with indices of their own; it leaves no node."""
    clients = [zk, connect(), connect()]

    async def main() -> None:
        here, there, third = (aio.Barrier(client, zk_path, 3) for client in clients)
        waiting = [asyncio.create_task(here.wait())]
        await until(come(zk, zk_path, 1))
        waiting.append(asyncio.create_task(there.wait()))
        await until(come(zk, zk_path, 2))
        for _ in range(3):
            gone = waiting.pop(leaver)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            await until(come(zk, zk_path, 1))
            waiting.insert(leaver, asyncio.create_task(third.wait()))
            await until(come(zk, zk_path, 2))
        assert not any(task.done() for task in waiting)
        assert sorted(await asyncio.wait_for(asyncio.gather(*waiting, here.wait()), 20)) == [0, 1, 2]
        assert sorted(await asyncio.wait_for(asyncio.gather(*(each.wait() for each in (here, there, third))), 20)) == [
            0,
            1,
            2,
        ]
        assert not await asyncio.to_thread(lambda: zkconcurrent.Barrier(connect(), zk_path, 3).broken)

    asyncio.run(main())


def test_many_are_cancelled_at_once(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """All of a client's parties leave together, and those of another go on waiting."""
    other = connect()

    async def main() -> None:
        here, there = aio.Barrier(zk, zk_path, 31), aio.Barrier(other, zk_path, 31)
        waiting = [asyncio.create_task(barrier.wait()) for _ in range(15) for barrier in (here, there)]
        await until(come(zk, zk_path, 30))
        for task in waiting[::2]:
            task.cancel()
        await until(come(zk, zk_path, 15))
        coming = [here.wait() for _ in range(16)]
        told = await asyncio.wait_for(asyncio.gather(*waiting[1::2], *coming), 20)
        assert sorted(told) == list(range(31))

    asyncio.run(main())


def test_threads_go_on_waiting(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A task that is cancelled lets threads wait on; one that is cancelled while the action runs is counted still."""
    acting, may_end = threading.Event(), threading.Event()

    def act() -> None:
        acting.set()
        assert may_end.wait(20)

    threads = [zkconcurrent.Barrier(connect(), zk_path, 3, act) for _ in range(2)]
    waiting = in_thread(threads[0].wait, 20)

    async def main() -> int:
        barrier = aio.Barrier(zk, zk_path, 3)
        await until(come(zk, zk_path, 1))
        first = asyncio.create_task(barrier.wait())
        await until(come(zk, zk_path, 2))
        first.cancel()
        await until(come(zk, zk_path, 1))
        second = asyncio.create_task(barrier.wait())
        await until(come(zk, zk_path, 2))
        last = in_thread(threads[1].wait, 20)
        await until(acting.is_set)
        second.cancel()
        await asyncio.wait([second])
        assert second.cancelled()
        await until(come(zk, zk_path, 2))
        may_end.set()
        return await asyncio.to_thread(last.result, 20) + await asyncio.to_thread(waiting.result, 20)

    assert asyncio.run(main()) == 1  # the thread that came last took the place of the task that left first
    assert not threads[0].broken


def test_a_party_that_comes_late_gets_a_seat(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """A task that arrives as one leaves takes its place, although all had arrived when it came."""
    acting, may_fail = threading.Event(), threading.Event()

    def act() -> None:
        acting.set()
        assert may_fail.wait(20)

    last = zkconcurrent.Barrier(connect(), zk_path, 2, act)

    async def main() -> list[int]:
        barrier = aio.Barrier(zk, zk_path, 2)
        first = asyncio.create_task(barrier.wait())
        await until(come(zk, zk_path, 1))
        waiting = in_thread(last.wait, 20)
        await until(acting.is_set)
        late = [asyncio.create_task(barrier.wait()) for _ in range(2)]
        await until(come(zk, zk_path, 4))
        late[0].cancel()
        await until(come(zk, zk_path, 3))
        may_fail.set()
        return [
            await first,
            await asyncio.to_thread(waiting.result, 20),
            *await asyncio.gather(late[1], barrier.wait()),
        ]

    told = asyncio.run(asyncio.wait_for(main(), 20))
    assert told[:2] == [0, 1]
    assert sorted(told[2:]) == [0, 1]


def test_an_interrupted_program(zk: KazooClient, zk_path: str) -> None:
    """A loop that closes while a party waits leaves no node of it for long, and the barrier whole."""

    async def main() -> None:
        task = asyncio.create_task(aio.Barrier(zk, zk_path, 2).wait())
        await until(come(zk, zk_path, 1))
        assert not task.done()

    asyncio.run(main())
    assert eventually(come(zk, zk_path, 0))
    assert not zkconcurrent.Barrier(zk, zk_path, 2).broken


@pytest.mark.fault(1, 4)
@pytest.mark.parametrize("effect", ["lose_answer", "lose_request"])
def test_a_lost_leave(effect: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A party leaves once, whether the reply to that or the request was lost."""
    near = connect(hosts=proxy.hosts, timeout=10, **FAST)

    async def main() -> None:
        here, there = aio.Barrier(near, zk_path, 2), aio.Barrier(zk, zk_path, 2)
        waiting = [asyncio.create_task(here.wait())]
        await until(come(zk, zk_path, 1))
        with getattr(proxy, effect)("multi") as fault:
            waiting[0].cancel()
            await asyncio.wait(waiting)
            await asyncio.to_thread(fault.wait)
        await until(come(zk, zk_path, 0))
        assert sorted(await asyncio.wait_for(asyncio.gather(there.wait(), there.wait()), 20)) == [0, 1]

    asyncio.run(main())
    eventually(lambda: not left(near))


def test_a_leave_out_of_reach(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A cancel waits for nothing; the party leaves after the reconnect, and the others wait on."""
    near = connect(hosts=proxy.hosts, timeout=10, **FAST)

    async def main() -> None:
        here, there = aio.Barrier(near, zk_path, 2), aio.Barrier(zk, zk_path, 2)
        leaving = asyncio.create_task(here.wait())
        await until(come(zk, zk_path, 1))
        proxy.refuse()
        proxy.cut()
        await until(lambda: not near.connected)
        began = time.monotonic()
        leaving.cancel()
        await asyncio.wait([leaving])
        assert time.monotonic() < began + 3
        assert come(zk, zk_path, 1)()
        proxy.resume()
        await until(come(zk, zk_path, 0))
        assert sorted(await asyncio.wait_for(asyncio.gather(there.wait(), here.wait()), 20)) == [0, 1]

    asyncio.run(main())


def test_a_leave_and_the_end_of_the_session(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A party that cannot leave before its session ends breaks the barrier, as one that is killed; nothing hangs."""
    near = connect(hosts=proxy.hosts, timeout=4, **FAST)

    async def main() -> None:
        here, there = aio.Barrier(near, zk_path, 3), aio.Barrier(zk, zk_path, 3)
        leaving = asyncio.create_task(here.wait())
        await until(come(zk, zk_path, 1))
        waiting = asyncio.create_task(there.wait())
        await until(come(zk, zk_path, 2))
        proxy.refuse()
        proxy.cut()
        leaving.cancel()
        with pytest.raises(BROKEN):
            await asyncio.wait_for(waiting, 30)
        assert leaving.cancelled()

    asyncio.run(main())
    proxy.resume()
    eventually(lambda: not left(near), patience=30)
