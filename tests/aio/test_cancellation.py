"""The cancellation contract, clause by clause: faults, and moments that meet."""

from __future__ import annotations

import asyncio

import pytest
from kazoo.client import KazooClient

from tests.aio.calls import AGAINST, LOCKS
from tests.aio.loops import cancelled, idle, left, nodes, owning, run, soon, until
from tests.conftest import FAST, Connect
from tests.helpers.proxy import Proxy
from zkconcurrent import LockLostError, aio

every = pytest.mark.parametrize("make", LOCKS)


@every
async def test_true_means_held(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Clause 3: acquire returns True, a cancel that comes after it changes nothing, and the lock is held."""
    kind = LOCKS[make]
    lock, other = kind(zk, zk_path), AGAINST.get(make, kind)(far, zk_path)

    async def own() -> bool:
        assert await lock.acquire()
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(0)
        assert not await other.acquire(blocking=False)
        await lock.release()
        return True

    assert await asyncio.create_task(own())
    assert await other.acquire(timeout=10)
    await other.release()


@every
def test_granted_and_cancelled_together(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Clause 2: the waiter that is granted the lock as it is cancelled hands it on to the next in line."""
    against = AGAINST.get(make, LOCKS[make])
    lock, held, behind = LOCKS[make](zk, zk_path), against(far, zk_path), against(zk, zk_path)

    async def main() -> None:
        for locally in (False, True):
            holder = against(zk, zk_path) if locally else held
            await holder.acquire()
            first = owning(lock.acquire)
            await idle(zk)
            got, over = asyncio.Event(), asyncio.Event()
            second = asyncio.create_task(hold_until(over, got))
            await idle(zk)
            holder.release()  # hands it to a task of this client in this very moment
            first.cancel()
            await cancelled(first)
            await soon(got.wait())
            await until(lambda: len(nodes(far, zk_path)) <= (3 if "permits" in make else 2))
            hold = behind._lock_core.newest() if hasattr(behind, "_lock_core") else None
            assert hold is None or hold.alive
            over.set()
            await second
        await until(lambda: not nodes(far, zk_path))

    async def hold_until(over: asyncio.Event, got: asyncio.Event) -> None:
        await behind.acquire()
        got.set()
        await over.wait()
        behind.release()

    run(main())


@every
def test_clean_up_never_suspends(make: str, connect: Connect, far: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """Clauses 1 and 4: while nothing is answered, a cancelled task ends at once, and its node goes afterwards."""
    zk = connect(hosts=proxy.hosts, **FAST)
    lock, held = LOCKS[make](zk, zk_path), AGAINST.get(make, LOCKS[make])(far, zk_path)
    session = zk.client_id[0]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await held.acquire()
        waiting = owning(lock.acquire)
        await idle(zk)
        there = len(await asyncio.to_thread(nodes, far, zk_path, session))
        assert there == (2 if make == "MultiLock" else 1) or "unfair" in make
        await asyncio.to_thread(proxy.stall)
        began = loop.time()
        waiting.cancel()
        await cancelled(waiting)
        assert loop.time() - began < 2
        late = owning(lock.acquire)  # one whose create is not answered
        await asyncio.sleep(0.05)
        late.cancel()
        await cancelled(late)
        assert loop.time() - began < 3
        await asyncio.to_thread(proxy.resume)
        await until(lambda: not nodes(far, zk_path, session))
        await held.release()
        assert await lock.acquire(timeout=10)
        await lock.release()
        await until(lambda: not left(zk))

    run(main())


@every
def test_cancelled_while_out_of_reach(
    make: str, connect: Connect, far: KazooClient, zk_path: str, proxy: Proxy
) -> None:
    """Clause 1: nobody answers, or takes connections; the delete is owed by the session, and done when it is back."""
    zk = connect(hosts=proxy.hosts, **FAST)
    lock, held = LOCKS[make](zk, zk_path), AGAINST.get(make, LOCKS[make])(far, zk_path)
    session = zk.client_id[0]

    async def main() -> None:
        await held.acquire()
        waiting = [owning(lock.acquire) for _ in range(3)]
        await idle(zk)
        await asyncio.to_thread(proxy.refuse)
        await asyncio.to_thread(proxy.cut)
        await until(lambda: not zk.connected)
        new = owning(lock.acquire)
        await asyncio.sleep(0.02)
        for task in (*waiting, new):
            task.cancel()
            await cancelled(task)
        await asyncio.to_thread(proxy.resume)
        await until(lambda: not nodes(far, zk_path, session))
        await held.release()
        assert await lock.acquire(timeout=10)
        await lock.release()
        await until(lambda: not left(zk))

    run(main())


async def test_a_wait_takes_its_lock_back(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Clause 6: a cancelled wait goes on waiting for its lock, despite further cancels, and ends with the lock held."""
    mine, theirs = aio.Condition(zk, zk_path), aio.Condition(far, zk_path)

    async def wait() -> None:
        await mine.acquire()
        try:
            await mine.wait()
        finally:
            assert mine._lock.fencing_token
            assert not await theirs.acquire(blocking=False)
            mine.release()

    task = asyncio.create_task(wait())
    await idle(zk)
    async with theirs:
        for _ in range(5):
            task.cancel()
            await idle(zk)
            assert not task.done()
    await cancelled(task)
    await until(lambda: not nodes(far, zk_path))


async def test_a_notification_is_not_lost(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Clause 6: one that was notified, and is cancelled before it has its lock back, has another waiter notified."""
    mine, theirs = aio.Condition(zk, zk_path), aio.Condition(far, zk_path)

    async def wait(condition: aio.Condition) -> bool:
        async with condition:
            return await condition.wait()

    first = asyncio.create_task(wait(mine))
    await idle(zk)
    second = asyncio.create_task(wait(theirs))
    await idle(far)
    async with theirs:
        await theirs.notify()
        await idle(zk)
        first.cancel()
    await cancelled(first)
    assert await soon(second)
    await until(lambda: not nodes(far, zk_path))


def test_a_wait_that_is_cut_off(connect: Connect, far: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """Clause 6: cancelled while the service is out of reach, it ends in bounded time; its lock is a loss."""
    zk = connect(hosts=proxy.hosts, timeout=4, **FAST)
    mine, theirs = aio.Condition(zk, zk_path), aio.Condition(far, zk_path)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def wait() -> None:
            async with mine:
                try:
                    await mine.wait()
                finally:
                    with pytest.raises(LockLostError):
                        mine.release()
                    with pytest.raises(RuntimeError):
                        mine.release()
                    await mine.acquire()  # the end of the block releases

        task = asyncio.create_task(wait())
        await idle(zk)
        await asyncio.to_thread(proxy.refuse)
        await asyncio.to_thread(proxy.cut)
        await until(lambda: not zk.connected)
        began = loop.time()
        task.cancel()
        await asyncio.sleep(2.5)
        await asyncio.to_thread(proxy.resume)
        await soon(asyncio.wait([task]))
        assert task.cancelled()
        assert loop.time() - began < 15
        await until(lambda: not nodes(far, zk_path))
        async with theirs:
            await theirs.notify()
        await until(lambda: not left(zk, far))

    run(main())
