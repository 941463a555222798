"""`lock.hold()`: a block that ends when its hold is lost, as that of `asyncio.timeout` does at its deadline."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.aio.calls import AGAINST, BLOCKS, LOCKS
from tests.aio.loops import cancelled, idle, nodes, soon, until
from zkconcurrent import LockLostError, aio

some = pytest.mark.parametrize("make", ["Lock", "RLock", "Semaphore", "MultiLock"])


def cancels() -> int:
    """Return how many cancellations of the running task are not taken back; Python 3.10 does not count them."""
    task: Any = asyncio.current_task()
    return int(task.cancelling()) if sys.version_info >= (3, 11) else 0


async def lose(far: KazooClient, path: str) -> None:
    """Have an operator delete the newest node of a path."""
    await asyncio.to_thread(lambda: far.delete(max(nodes(far, path))))


@some
async def test_held(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """The block holds; it releases at its end, also after an error, and leaves its error alone."""
    lock, other = LOCKS[make](zk, zk_path), AGAINST.get(make, LOCKS[make])(far, zk_path)
    async with lock.hold() as nothing:
        assert nothing is None
        assert not await other.acquire(blocking=False)
    await until(lambda: not nodes(far, zk_path))
    for error in (ZeroDivisionError, asyncio.CancelledError, GeneratorExit):
        with pytest.raises(error):
            async with lock.hold(timeout=10):
                raise error
        await until(lambda: not nodes(far, zk_path))
    block = lock.hold(0)
    async with block:
        pass
    with pytest.raises(RuntimeError, match="again for the next"):
        async with block:
            pass
    assert not await asyncio.to_thread(nodes, far, zk_path)


def below(client: KazooClient, path: str) -> list[str]:
    """Return all nodes below a path."""
    names = [f"{path}/{name}" for name in client.get_children(path)]
    return [*names, *(each for name in names for each in below(client, name))]


@pytest.mark.fault(421)
@pytest.mark.parametrize("error", [KeyError, LockLostError])
@pytest.mark.parametrize("make", BLOCKS)
async def test_a_forked_child(
    make: str, error: type[Exception], zk: KazooClient, far: KazooClient, zk_path: str
) -> None:
    """An inherited block ends by its own error there, and what the parent holds stays."""
    child = -1
    try:
        async with BLOCKS[make](zk, zk_path):
            held = await asyncio.to_thread(below, far, zk_path)
            child = os.fork()
            if not child:
                raise error(zk_path, "as the child ends its block")
            _, status = await asyncio.to_thread(os.waitpid, child, 0)
            assert os.waitstatus_to_exitcode(status) == 0
            assert held == await asyncio.to_thread(below, far, zk_path) != []
    except BaseException as raised:
        if not child:
            os._exit(type(raised) is not error)
        raise


@some
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


async def test_a_loss_that_is_not_settled(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """The block is not entered while the task has a loss of the lock to settle."""
    lock = aio.RLock(zk, zk_path)
    async with lock:
        lost = lock.lost
        await lose(far, zk_path)
        await soon(lost.wait())
        with pytest.raises(LockLostError):
            async with lock.hold():
                pytest.fail("the body ran")
        with pytest.raises(LockLostError):
            lock.release()
        await lock.acquire()


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
            await asyncio.sleep(0.1)
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


async def test_within_a_timeout(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A deadline around the block, and one inside it, keep their own errors."""
    if sys.version_info < (3, 11):
        pytest.skip("asyncio.timeout is of Python 3.11")
    lock = aio.Lock(zk, zk_path)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2), lock.hold():
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError):
        async with lock.hold(), asyncio.timeout(0.1):
            await asyncio.Event().wait()
    with pytest.raises(LockLostError):
        async with asyncio.timeout(20), lock.hold():
            await lose(far, zk_path)
            await asyncio.Event().wait()
    await until(lambda: not nodes(far, zk_path))


async def test_an_inner_block_that_settles_the_loss(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Of two permits of one task, the outer block's is lost: LockLostError leaves it, though the inner settles it."""
    semaphore = aio.Semaphore(zk, zk_path, 2)
    with pytest.raises(LockLostError) as told:
        async with semaphore.hold():
            (outer,) = await asyncio.to_thread(nodes, far, zk_path)
            async with semaphore.hold():
                await asyncio.to_thread(far.delete, outer)
                await soon(asyncio.Event().wait())
    assert isinstance(told.value.__cause__, asyncio.CancelledError)
    assert told.value.path == zk_path
    assert cancels() == 0
    await until(lambda: not nodes(far, zk_path))


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
