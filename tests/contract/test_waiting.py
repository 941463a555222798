"""The loop that runs calls in tasks: the same steps as threads run, on a real server."""

from __future__ import annotations

import asyncio

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock
from zkconcurrent._engine.driver import Call
from zkconcurrent._runtime.waiting import wait_async

ONE, OTHER = -1, -2  # owners that are no thread


async def acquire(lock: Lock, owner: int, timeout: float | None = None) -> bool:
    """Acquire a lock in the running task."""
    call = Call(lock._session, lock.path, lock._path_state)
    deadline = None if timeout is None else lock._session.now() + timeout
    return await wait_async(call, lock._lock_core.acquire_steps(call, True, deadline, owner, 1))


async def release(lock: Lock, owner: int) -> None:
    """Release it there."""
    hold = lock._path_state.own(lock._rule.role, owner)
    assert hold is not None
    core = lock._lock_core
    core.identity = lambda: owner
    call = core.end_hold(hold)
    assert call is not None
    await wait_async(call, core.released(call, hold))


async def until_queued(zk: KazooClient, path: str, n: int) -> None:
    """Wait until so many nodes are in the queue."""

    async def until() -> None:
        while not await asyncio.to_thread(queued(zk, path, n)):
            await asyncio.sleep(0.005)

    await asyncio.wait_for(until(), 20)


def test_tasks_take_turns(zk: KazooClient, zk_path: str) -> None:
    """A task that waits lets the others of its loop run, and gets in once the lock is released."""
    lock = Lock(zk, zk_path)

    async def main() -> list[str]:
        assert await acquire(lock, ONE)
        told = []

        async def other() -> None:
            assert await acquire(lock, OTHER)
            told.append("in")
            await release(lock, OTHER)

        waiting = asyncio.create_task(other())
        await until_queued(zk, zk_path, 2)
        told.append("out")
        await release(lock, ONE)
        await waiting
        return told

    assert asyncio.run(main()) == ["out", "in"]
    assert queued(zk, zk_path, 0)()


def test_a_deadline(zk: KazooClient, zk_path: str) -> None:
    """It passes: the call returns False, and leaves nothing."""
    lock = Lock(zk, zk_path)
    with lock:
        assert asyncio.run(acquire(lock, OTHER, 0.2)) is False
        assert queued(zk, zk_path, 1)()


def test_cancelled_at_each_resumption(zk: KazooClient, zk_path: str, proxy: Proxy, connect: Connect) -> None:
    """CancelledError, and neither a node nor a hold is left; one that came too late finds the lock acquired."""
    client = connect(hosts=proxy.hosts)
    # So no reply comes before the task sleeps, also on a busy machine.
    proxy.delay(0.005)
    lock = Lock(client, zk_path)

    async def cancelled_at(k: int) -> bool:
        steps = 0
        task = asyncio.create_task(acquire(lock, ONE))
        sleep = asyncio.get_running_loop().create_future

        def counted() -> asyncio.Future[None]:
            nonlocal steps
            if asyncio.current_task() is task:
                steps += 1
                if steps == k:
                    asyncio.get_running_loop().call_soon(task.cancel)
            return sleep()

        asyncio.get_running_loop().create_future = counted  # type: ignore[method-assign]
        try:
            assert await task
        except asyncio.CancelledError:
            return True
        await release(lock, ONE)
        return False

    k = 1
    for _ in range(50):
        if asyncio.run(cancelled_at(k)):
            eventually(queued(zk, zk_path, 0), f"cancelled at its sleep number {k}")
            assert lock._path_state.own(lock._rule.role, ONE) is None
            k += 1
        # Else a pause of this process was longer than the delay, this once.
        elif k > 1:
            break
    assert k > 1


def test_a_waiter_that_is_cancelled(zk: KazooClient, zk_path: str) -> None:
    """Its node goes, and nobody behind it is held up."""
    lock = Lock(zk, zk_path)

    async def main() -> None:
        assert await acquire(lock, ONE)
        waiting = asyncio.create_task(acquire(lock, OTHER))
        await until_queued(zk, zk_path, 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until_queued(zk, zk_path, 1)
        await release(lock, ONE)

    asyncio.run(main())
    eventually(queued(zk, zk_path, 0))


def test_a_loop_that_is_closed(zk: KazooClient, zk_path: str) -> None:
    """A wake-up of a task whose loop is closed finds nobody, and the task's node goes with it."""
    lock = Lock(zk, zk_path)
    with lock:
        loop = asyncio.new_event_loop()
        waiting = acquire(lock, OTHER)
        task = loop.create_task(waiting)
        loop.run_until_complete(until_queued(zk, zk_path, 2))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        lock._session.wake_calls()
        waiting.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        del task, waiting
        eventually(queued(zk, zk_path, 1))
    eventually(queued(zk, zk_path, 0))
