"""`lock.hold()`: a block that ends when its hold is lost, as that of `asyncio.timeout` does at its deadline."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.aio.calls import BLOCKS, LOCKS
from tests.aio.loops import cancelled, idle, nodes, soon, until
from zkconcurrent import LockLostError, aio


def cancels() -> int:
    """Return how many cancellations of the running task are not taken back; Python 3.10 does not count them."""
    task: Any = asyncio.current_task()
    return int(task.cancelling()) if sys.version_info >= (3, 11) else 0


async def lose(far: KazooClient, path: str) -> None:
    """Have an operator delete the newest node of a path."""
    await asyncio.to_thread(lambda: far.delete(max(nodes(far, path))))


def below(client: KazooClient, path: str) -> list[str]:
    """Return all nodes below a path."""
    names = [f"{path}/{name}" for name in client.get_children(path)]
    return [*names, *(each for name in names for each in below(client, name))]


@pytest.mark.fault(421)
@pytest.mark.parametrize("make", ["Lock", "lead()", "join()", "Condition", "DoubleBarrier"])
async def test_a_forked_child(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """An inherited block ends by its own error there, and what the parent holds stays."""
    child = -1
    try:
        async with BLOCKS[make](zk, zk_path):
            held = await asyncio.to_thread(below, far, zk_path)
            child = os.fork()
            if not child:
                raise LockLostError(zk_path, "as the child ends its block")
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            assert held == await asyncio.to_thread(below, far, zk_path) != []
    except BaseException as raised:
        if not child:
            os._exit(type(raised) is not LockLostError)
        raise


@pytest.mark.parametrize("make", ["Lock", "MultiLock"])
async def test_lost(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A loss cancels the body; LockLostError leaves the block, and its task is not being cancelled after it."""
    lock = LOCKS[make](zk, zk_path)
    for _ in range(2):
        with pytest.raises(LockLostError) as told:
            async with lock.hold():
                await lose(far, zk_path)
                await soon(asyncio.Event().wait())
        assert isinstance(told.value.__cause__, asyncio.CancelledError)
        assert cancels() == 0
        await asyncio.sleep(0)
    async with lock.hold():  # the loss is settled
        pass
    await until(lambda: not nodes(far, zk_path))


@pytest.mark.parametrize("lost", [False, *([True] if sys.version_info >= (3, 11) else [])])  # Python 3.10 counts none
async def test_cancelled(lost: bool, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A cancellation from outside goes on through the block, also if the loss reaches the task together with it."""
    block, inside = aio.Lock(zk, zk_path).hold(), asyncio.Event()

    async def body() -> None:
        async with block:
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(body())
    await soon(inside.wait())
    if lost:
        block._cancel()  # as the loss does
    task.cancel()
    await cancelled(task)
    await until(lambda: not nodes(far, zk_path))


async def test_without_a_cancellation(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """With `cancel_on_loss=False` the body runs to its end; then LockLostError says that the hold was lost."""
    lock = aio.Lock(zk, zk_path)
    done = False
    with pytest.raises(LockLostError):
        async with lock.hold(cancel_on_loss=False):
            lost = lock.lost
            await lose(far, zk_path)
            await soon(lost.wait())
            await asyncio.sleep(0)
            done = True
    assert done


async def test_a_body_that_swallows_it(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A body that goes on in spite of the cancellation gets LockLostError at its end."""
    lock = aio.Lock(zk, zk_path)
    with pytest.raises(LockLostError):
        async with lock.hold():
            await lose(far, zk_path)
            with pytest.raises(asyncio.CancelledError):
                await soon(asyncio.Event().wait())
    assert cancels() == 0
    await idle(zk)


async def test_a_release_by_the_handle_that_shows_the_loss(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """The body has given the hold up, so it goes on."""
    async with aio.Lock(zk, zk_path).hold() as held:
        far.delete(nodes(far, zk_path)[0])  # before the loop can hear of it
        held.release()
        assert await soon(held.lost.wait())
        await asyncio.sleep(0)
    assert cancels() == 0


async def test_a_release_by_the_handle_after_the_loss(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A body that settles the loss is cancelled all the same, and LockLostError leaves the block."""
    with pytest.raises(LockLostError):
        async with aio.Lock(zk, zk_path).hold() as held:
            try:
                await lose(far, zk_path)
                await soon(asyncio.Event().wait())
            finally:
                with pytest.raises(LockLostError):
                    held.release()
    assert cancels() == 0


async def test_after_a_wait_of_a_condition(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A condition's wait in the body replaces the hold: the loss of the new one is raised at the end of the block."""
    lock = aio.RLock(zk, zk_path)
    condition = aio.Condition(zk, f"{zk_path}-condition", lock)
    with pytest.raises(LockLostError):
        async with lock.hold():
            assert not await condition.wait(0.01)
            lost = lock.lost
            await lose(far, zk_path)
            assert await soon(lost.wait())
    assert cancels() == 0
    await until(lambda: not nodes(far, zk_path))
