"""The loop is never blocked, and all come to their end: through cuts, a service out of reach, and an expiry."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.calls import LOCKS
from tests.aio.loops import left, nodes, run, soon, until
from tests.conftest import FAST, PATIENCE, Connect
from tests.helpers.proxy import Proxy
from zkconcurrent import LockLostError, aio
from zkconcurrent.aio import _tasks
from zkconcurrent.testing import Server


def test_cuts_and_an_expiry(connect: Connect, far: KazooClient, zookeeper: Server, proxy: Proxy, zk_path: str) -> None:
    """Tasks that acquire, wait and are cancelled all the time: no callback keeps the loop for 50 ms, nothing stays."""
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


@pytest.mark.fault(196)
def test_an_interrupt_as_the_thread_for_the_background_has_begun(
    zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls are made one after the other all the same."""
    latch, begin, strikes = aio.CountDownLatch(zk, zk_path, 9), threading.Thread.start, [KeyboardInterrupt]
    inside: list[Any] = []
    most: list[int] = []
    wait, second = _tasks.wait, threading.Event()

    def start(thread: threading.Thread) -> None:
        begin(thread)
        if thread.name == "zkconcurrent background" and strikes:
            raise strikes.pop()

    def waited(*args: Any) -> Any:
        inside.append(args)
        most.append(len(inside))
        if len(inside) > 1:
            second.set()
        second.wait(0.5)
        inside.pop()
        return wait(*args)

    async def main() -> None:
        with pytest.raises(KeyboardInterrupt):
            latch.count_down()
        await asyncio.gather(*(latch.count_down() for _ in range(3)))
        assert await latch.fetch_count() in (5, 6)  # whether the first was made is unknown

    monkeypatch.setattr(threading.Thread, "start", start)
    monkeypatch.setattr(_tasks, "wait", waited)
    asyncio.run(main())
    assert max(most) == 1


@pytest.mark.fault(167)
def test_no_thread_for_the_background(zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that raised an error is not made by the next call that finds a thread."""
    latch = aio.CountDownLatch(zk, zk_path, 5)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError, match="new thread"):
                latch.count_down()
        await latch.count_down()
        assert await latch.fetch_count() == 4

    asyncio.run(main())


@pytest.mark.fault(167)
def test_no_thread_for_a_task_done(zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An item whose `task_done()` raised an error can be done by the next call."""
    queue = aio.Queue[bytes](zk, zk_path)

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        await queue.put(b"item")
        await queue.get(timeout=PATIENCE)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError, match="new thread") as kept:
                queue.task_done()
        await queue.task_done()
        await soon(queue.join())
        assert kept

    asyncio.run(main())


@pytest.mark.fault(418)
def test_a_log_handler_that_raises_in_the_background(zk: KazooClient, zk_path: str) -> None:
    """It raises as a failed call is logged that no task awaits; the next one is made all the same."""
    zk.create(f"{zk_path}/foreign", b"of another program", makepath=True)
    foreign, event, log = aio.Event(zk, f"{zk_path}/foreign"), aio.Event(zk, f"{zk_path}/e"), _tasks.log
    begun: list[aio.Completion] = []

    def fail(record: logging.LogRecord) -> bool:
        if "no task awaits it" in record.getMessage():
            begun.append(event.set())
            raise OSError
        return True

    async def main() -> None:
        foreign.set()
        await until(lambda: begun)
        await asyncio.wait_for(begun[0]._wait(), PATIENCE)

    log.addFilter(fail)
    try:
        run(main())
    finally:
        log.removeFilter(fail)
    assert zkconcurrent.Event(zk, event.path).is_set()


@pytest.mark.fault(418)
def test_a_log_handler_that_raises_at_an_unknown_outcome(
    connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str
) -> None:
    """It raises as the library logs that the outcome of a cancelled change is unknown; others go on."""
    number, log = aio.AtomicLong(connect(hosts=proxy.hosts, **FAST), zk_path), _tasks.log
    logged = list[str]()

    def fail(record: logging.LogRecord) -> bool:
        if "outcome is unknown" in record.getMessage():
            logged.append(record.getMessage())
            raise OSError
        return True

    async def main() -> None:
        await number.add(1)
        (receipt,) = zk.get_children(f"{zk_path}/receipts")
        await asyncio.to_thread(proxy.refuse)
        with proxy.lose_answer("multi") as fault:
            changes = [asyncio.create_task(number.add(1)) for _ in range(2)]
            await asyncio.to_thread(fault.wait)
            changes[0].cancel()
            await asyncio.to_thread(zk.delete, f"{zk_path}/receipts/{receipt}")
        await asyncio.to_thread(proxy.resume)
        done = await asyncio.wait_for(asyncio.gather(*changes, return_exceptions=True), PATIENCE)
        assert isinstance(done[0], asyncio.CancelledError)
        assert done[1] == 3
        assert len(logged) == 1

    log.addFilter(fail)
    try:
        run(main())
    finally:
        log.removeFilter(fail)
