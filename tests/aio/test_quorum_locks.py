"""The cancellation contract of a QuorumLock, which waits in no queue."""

from __future__ import annotations

import asyncio
import gc

import pytest
from kazoo.client import KazooClient

from tests.aio.calls import quorum
from tests.aio.loops import cancelled, left, nodes, owning, run, soon, until
from tests.conftest import FAST, Connect
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock, LockLostError, aio


def test_cancelled_while_it_waits(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Wherever the cancel strikes, nothing is held and no node is left; another task goes on."""
    lock, other = quorum(zk, zk_path), quorum(far, zk_path)

    async def main() -> None:
        await other.acquire()
        held = len(await asyncio.to_thread(nodes, far, zk_path))
        for pause in range(20):
            waiting = [owning(lock.acquire), owning(lock.acquire)]
            await asyncio.sleep(pause * 0.005)
            for task in waiting:
                task.cancel()
                await cancelled(task)
        await until(lambda: len(nodes(far, zk_path)) == held)
        late = owning(lock.acquire)
        await asyncio.sleep(0.1)
        await other.release()
        assert await soon(late)
        await until(lambda: not nodes(far, zk_path))  # its task has ended
        for pause in range(20):  # when it would have been acquired
            trying = owning(lock.acquire)
            await asyncio.sleep(pause * 0.001)
            trying.cancel()
            await asyncio.wait([trying])
            await until(lambda: not nodes(far, zk_path))
        await until(lambda: not left(zk))
        assert not lock._core._acquiring

    with pytest.warns(ResourceWarning, match="without releasing"):
        run(main())


def test_clean_up_never_suspends(connect: Connect, far: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """While nothing is answered, a cancelled task ends at once, and its nodes go afterwards."""
    zk = connect(hosts=proxy.hosts, **FAST)
    lock, session = quorum(zk, zk_path), zk.client_id[0]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with lock:
            pass
        await asyncio.to_thread(proxy.stall)
        began = loop.time()
        trying = owning(lock.acquire)
        await asyncio.sleep(0.05)
        trying.cancel()
        await cancelled(trying)
        assert loop.time() - began < 2
        await asyncio.to_thread(proxy.resume)
        await until(lambda: not nodes(far, zk_path, session))
        assert await lock.acquire(timeout=10)
        await lock.release()
        await until(lambda: not left(zk))

    run(main())


async def test_lost(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """The loss of one lock changes nothing; that of a second cancels the body of a `hold()`."""
    told: list[aio.QuorumLock] = []
    locks = [aio.Lock(zk, f"{zk_path}/{name}") for name in "abc"]
    lock = aio.QuorumLock(locks, on_lost=told.append)

    async def lose(each: aio.Lock) -> None:
        lost = each.lost
        await asyncio.to_thread(lambda: [far.delete(node) for node in nodes(far, each.path)])
        await soon(lost.wait())

    for _ in range(2):
        with pytest.raises(LockLostError) as raised:
            async with lock.hold():
                lost = lock.lost
                await lose(locks[0])
                assert not lost.is_set()
                assert lock.hold_count() == 1
                await lose(locks[1])
                await soon(asyncio.Event().wait())
        assert isinstance(raised.value.__cause__, asyncio.CancelledError)
        assert lost.is_set()
        await soon(lost.wait())
    async with lock.hold():
        assert not lock.lost.is_set()
    await until(lambda: not nodes(far, zk_path))
    # The keeper's thread tells after the block has ended.
    await until(lambda: told == [lock, lock])


def test_a_waiter_whose_loop_is_closed(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Its call is abandoned, at any step, and leaves no node."""
    lock, rivals = quorum(zk, zk_path), [Lock(far, f"{zk_path}/{name}") for name in "ab"]
    kept = []

    async def own() -> None:
        await lock.acquire()

    with rivals[0], rivals[1]:
        for pause in range(10):
            loop = asyncio.new_event_loop()
            task = loop.create_task(own())
            loop.run_until_complete(asyncio.sleep(pause * 0.005))
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            kept.append(task)
            loop.close()
        eventually(lambda: not nodes(far, f"{zk_path}/c"))
    eventually(lambda: not left(zk))


def test_a_holder_whose_loop_is_closed(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A task that is thrown away in its `async with` holds nothing any more."""
    lock = quorum(zk, zk_path)

    async def hold(held: asyncio.Event) -> None:
        async with lock:
            held.set()
            await asyncio.Event().wait()

    async def main() -> None:
        held = asyncio.Event()
        task = asyncio.create_task(hold(held))
        await held.wait()
        task._log_destroy_pending = False  # type: ignore[attr-defined]

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    assert nodes(far, zk_path)
    loop.close()
    del loop
    gc.collect()
    eventually(lambda: not nodes(far, zk_path))
