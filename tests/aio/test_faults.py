"""All tasks come to their end: through cuts, a service out of reach, and an expiry."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient

from tests.aio.calls import LOCKS
from tests.aio.loops import left, nodes, run, soon, until
from tests.conftest import FAST, Connect
from tests.helpers.proxy import Proxy
from zkconcurrent import LockLostError, aio
from zkconcurrent.testing import Server


def test_cuts_and_an_expiry(connect: Connect, far: KazooClient, zookeeper: Server, proxy: Proxy, zk_path: str) -> None:
    """Tasks acquire, wait and are cancelled all the time: each comes to its end, and leaves nothing."""
    zk = connect(hosts=proxy.hosts, timeout=4, **FAST)
    locks = {make: LOCKS[make](zk, f"{zk_path}/{n}") for n, make in enumerate(LOCKS) if "permits" not in make}
    condition, event = aio.Condition(zk, f"{zk_path}/c"), aio.Event(zk, f"{zk_path}/e")
    cycles, over = dict.fromkeys(locks, 0), False

    async def use(make: str, lock: Any) -> None:
        while not over:
            with suppress(LockLostError):
                if await lock.acquire(timeout=1):
                    try:
                        await asyncio.sleep(0.001)
                        cycles[make] += 1
                    finally:
                        lock.release()

    async def cancel(lock: Any) -> None:
        while not over:
            with suppress(LockLostError):

                async def acquire() -> None:
                    async with lock:
                        await asyncio.sleep(0.001)

                task = asyncio.create_task(acquire())
                await asyncio.sleep(0.02)
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    task.result()

    async def wait() -> None:
        while not over:
            with suppress(LockLostError):
                async with condition:
                    await condition.wait(0.2)
                    condition.notify()
            event.set()
            await event.wait(0.2)
            event.clear()

    async def main() -> None:
        nonlocal over
        users = [use(make, lock) for make, lock in locks.items() for _ in range(2)]
        tasks = [asyncio.create_task(each) for each in (*users, *map(cancel, locks.values()), wait(), wait())]
        for _ in range(3):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(proxy.cut)
        await asyncio.to_thread(proxy.refuse)
        await asyncio.to_thread(proxy.cut)
        await asyncio.sleep(1)
        await asyncio.to_thread(proxy.resume)
        await until(lambda: zk.connected)
        await asyncio.to_thread(zookeeper.expire, zk)
        await until(lambda: zk.connected)
        before = dict(cycles)
        await until(lambda: all(cycles[make] > before[make] for make in cycles))
        over = True
        await soon(asyncio.gather(*tasks))
        await until(lambda: not nodes(far, zk_path))
        await until(lambda: not left(zk))

    run(main())
