"""Tasks, threads and Curator's clients on one path exclude each other, in one order of arrival."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.aio.loops import run, soon, until
from tests.helpers.contenders import children
from tests.helpers.curator import CuratorClient
from tests.helpers.curator_threads import LONG, SHORT, Thread
from tests.interop.conftest import ConnectJava
from zkconcurrent import RLock, aio

PERMITS = 2
KINDS = {
    "mutex": lambda client, path: aio.Lock(client, path),
    "mutex again": lambda client, path: aio.RLock(client, path),
    "read": lambda client, path: aio.ReadWriteLock(client, path).write_lock,
    "write": lambda client, path: aio.ReadWriteLock(client, path).read_lock,
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_excludes_the_other(java: CuratorClient, client: KazooClient, zk_path: str, kind: str) -> None:
    """A task fails and waits while Java holds, and Java while a task holds. A cancelled task leaves the queue."""
    lock, theirs = KINDS[kind](client, zk_path), kind.partition(" ")[0]

    def in_java(command: str, *words: object) -> Future[str]:
        return java.call(f"{theirs}.{command}", zk_path, *words)

    async def enter() -> None:
        async with lock:
            pass

    async def main() -> None:
        await asyncio.wrap_future(in_java("acquire"))
        assert not await lock.acquire(blocking=False)
        assert not await lock.acquire(timeout=SHORT)
        cancelled, waiting = asyncio.create_task(enter()), asyncio.create_task(enter())
        await until(lambda: len(children(client, zk_path)) == 3)
        cancelled.cancel()
        await until(lambda: len(children(client, zk_path)) == 2)
        assert not waiting.done()
        await asyncio.wrap_future(in_java("release"))
        await soon(waiting, LONG)
        async with lock:
            refused = in_java("acquire", round(SHORT * 1000))
            assert await asyncio.wrap_future(refused) == "false"
            granted = in_java("acquire")
            await until(lambda: len(children(client, zk_path)) == 2)
            assert not granted.done()
        assert await soon(asyncio.wrap_future(granted), LONG) == "true"

    run(main())


def test_permits(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """Java's permits and those of tasks are the same ones."""
    semaphore = aio.Semaphore(client, zk_path, PERMITS)

    async def main() -> None:
        assert await semaphore.acquire()
        assert await asyncio.wrap_future(java.call("semaphore.acquire", zk_path, PERMITS)) == "true"
        assert not await semaphore.acquire(blocking=False)
        refused = java.call("semaphore.acquire", zk_path, PERMITS, 1, round(SHORT * 1000))
        assert await asyncio.wrap_future(refused) == "false"
        await asyncio.wrap_future(java.call("semaphore.release", zk_path, PERMITS))
        assert await semaphore.acquire(timeout=LONG)
        semaphore.release(2)

    run(main())


def test_order_of_arrival(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """A task, a thread, and Java, twice over, get the lock in the order in which they came."""
    order: list[str] = []
    tasks, threads = aio.RLock(client, zk_path), RLock(client, zk_path)

    async def of_tasks() -> None:
        async with tasks:
            order.append("task")

    async def of_threads() -> None:
        thread = Thread(threads)
        await asyncio.wrap_future(thread.acquire())
        order.append("thread")
        thread.release()

    async def of_java(number: int) -> None:
        await asyncio.wrap_future(java.call("mutex.acquire", zk_path, thread=f"contender {number}"))
        order.append("java")
        await asyncio.wrap_future(java.call("mutex.release", zk_path, thread=f"contender {number}"))

    async def main() -> None:
        async with tasks:
            waiting = []
            for turn in range(2):
                for come in (of_java(turn), of_tasks(), of_threads()):
                    waiting.append(asyncio.create_task(come))
                    await until(lambda: len(children(client, zk_path)) == len(waiting) + 1)
        await soon(asyncio.gather(*waiting), LONG)
        assert order == ["java", "task", "thread"] * 2

    run(main())


def test_a_counter(connect_java: ConnectJava, client: KazooClient, zk_path: str, tmp_path: Path) -> None:
    """A counter that two Java sessions and eight tasks increment under the lock loses nothing."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    cycles = 20

    async def add() -> None:
        lock = aio.Lock(client, zk_path)
        for _ in range(cycles):
            async with lock:
                seen = int(await asyncio.to_thread(counter.read_text))
                await asyncio.to_thread(counter.write_text, str(seen + 1))

    sessions = [connect_java() for _ in range(2)]

    async def main() -> None:
        java = [each.call("mutex.increment", zk_path, counter, cycles) for each in sessions]
        await asyncio.gather(*(add() for _ in range(8)), *map(asyncio.wrap_future, java))
        assert int(counter.read_text()) == 10 * cycles

    run(main())
