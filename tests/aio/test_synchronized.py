"""`aio.synchronized`: coroutine functions and async generators whose calls hold a lock, made by the same templates."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect
from zkconcurrent import aio

client = KazooClient()  # never started: nothing is sent
local = aio.namespace("local")


def held(name: str) -> bool:
    """Return whether this task holds the lock of that name."""
    return local.RLock(name).hold_count() > 0


async def pay(user: Any, amount: int = 1) -> object:
    """Pay."""
    return user, amount


@aio.synchronized(local, "named/{n}")
async def doubled(n: int) -> tuple[int, bool]:
    """Return what can be checked."""
    return 2 * n, held(f"named/{n}")


@aio.synchronized(local, "generators/{name}")
async def counting(name: str, n: int = 3) -> AsyncGenerator[Any, Any]:
    """Count, and say whether the lock is held."""
    for _ in range(n):
        try:
            sent = yield held(f"generators/{name}")
        except KeyError as error:
            sent = error
        if sent is not None:
            yield sent


class Account:
    """Has methods of all kinds."""

    number = 7

    @aio.synchronized(local, "methods/{self.number}/{amount}")
    async def method(self, amount: int = 1) -> bool:
        """Pay from it."""
        return held(f"methods/{self.number}/{amount}")

    @aio.synchronized(local, "classes/{cls.number}")
    @classmethod
    async def above(cls) -> bool:
        """Pay from all."""
        return held(f"classes/{cls.number}")

    @staticmethod
    @aio.synchronized(local, "statics/{amount}")
    async def static(amount: int = 1) -> bool:
        """Pay."""
        return held(f"statics/{amount}")


def test_exclusion(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Calls by tasks of two clients, and by threads, with one value count without losing one; no node is left."""
    counted = 0

    async def add(client: KazooClient) -> None:
        @aio.synchronized(client, f"{zk_path}/{{name}}")
        async def one(name: str) -> None:  # noqa: ARG001 - it is in the path
            nonlocal counted
            before = counted
            await asyncio.sleep(0.001)
            counted = before + 1

        @zkconcurrent.synchronized(client, f"{zk_path}/{{name}}")
        def other(name: str) -> None:  # noqa: ARG001
            nonlocal counted
            before = counted
            threading.Event().wait(0.001)
            counted = before + 1

        for _ in range(5):
            await one("a/b")
            await asyncio.to_thread(other, name="a/b")

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(*(add(client) for client in (zk, zk, connect()))), 60)

    asyncio.run(main())
    assert counted == 30
    assert zk.get_children(zk_path) == ["a%2Fb"]


@pytest.mark.parametrize(
    ("use", "error", "told"),
    [
        (lambda: aio.synchronized(client, "/users")(lambda: 0), TypeError, "<lambda> is none: use zkconcurrent.sync"),
        (lambda: aio.synchronized(client, "/{x}")(pay), ValueError, "no argument 'x'.* it has user, amount"),
        (lambda: aio.synchronized(threading.Lock()), TypeError, r"not @synchronized\(_thread\.lock"),
        (lambda: zkconcurrent.synchronized(client, "/users")(pay), TypeError, r"zkconcurrent\.aio\.synchronized"),
        (lambda: aio.synchronized(local, "users/{user}")(pay)(None), TypeError, "has no text"),
    ],
)
def test_what_is_wrong(use: Callable[[], Any], error: type[Exception], told: str) -> None:
    """A mistake raises when the function is decorated, or called: no error waits to be awaited."""
    with pytest.raises(error, match=told):
        use()


def test_functions_and_methods() -> None:
    """Each kind of function, called in each way, holds the lock that its arguments name; not after it."""

    async def main() -> None:
        account = Account()
        for call in (account.method, functools.partial(Account.method, account)):
            assert await call()
            assert await call(amount=2)
        assert await account.above()
        assert await Account.above()
        assert await Account.static(4)
        assert await doubled(4) == (8, True)
        assert await asyncio.create_task(doubled(5)) == (10, True)
        assert await asyncio.wait_for(doubled(6), 20) == (12, True)
        assert not local.RLock("named/4").locked()
        with pytest.raises(TypeError, match="no arguments for user"):
            async with aio.synchronized(local, "users/{user}"):
                pass

    asyncio.run(main())


def test_generators() -> None:
    """A generator holds the lock from its first step to its last; sent values and thrown errors reach it."""

    async def main() -> None:
        running = counting("a")
        assert not held("generators/a")
        assert await running.__anext__() is True
        assert held("generators/a")
        assert await running.asend("sent") == "sent"
        assert await running.__anext__() is True
        assert isinstance(await running.athrow(KeyError("thrown")), KeyError)
        assert await running.__anext__() is True
        with pytest.raises(StopAsyncIteration):
            await running.__anext__()
        assert not held("generators/a")
        assert [each async for each in counting("a")] == [True] * 3
        with pytest.raises(ZeroDivisionError):
            await (running := counting("a")).__anext__()
            await running.athrow(ZeroDivisionError())
        assert not held("generators/a")
        await counting("a").aclose()  # never begun
        assert not held("generators/a")

    asyncio.run(main())


async def others_get(name: str, timeout: float = 0) -> bool:
    """Return whether another task gets the lock of that name."""

    async def get() -> bool:
        lock = local.RLock(name)
        if got := await lock.acquire(timeout=timeout):
            await lock.release()
        return got

    return await asyncio.create_task(get())


@pytest.mark.fault(525)
def test_a_break_out_of_a_loop() -> None:
    """The task that closes a generator ends its hold: after a `break`, the loop closes it, in a task of its own."""
    told: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async for _ in counting("broken"):
            break
        assert await others_get("generators/broken", 20)
        async with local.RLock("generators/broken"):
            async for _ in counting("broken"):
                break
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0)
            assert held("generators/broken")
            assert not await others_get("generators/broken")
        assert await others_get("generators/broken")

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert not told
    assert not warned


@pytest.mark.fault(530)
def test_a_step_that_is_cancelled() -> None:
    """The end of a step that is cancelled has the generator's lock, whichever task makes the step."""
    inside = asyncio.Event()

    @aio.synchronized(local, "cancelled")
    async def steps() -> AsyncIterator[None]:
        yield
        async with local.RLock("cancelled").hold(20):
            inside.set()
            await asyncio.Event().wait()

    async def main() -> None:
        running: Any = steps()
        await asyncio.create_task(running.__anext__())
        step = asyncio.create_task(running.__anext__())
        await inside.wait()
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        assert await others_get("cancelled", 20)

    asyncio.run(main())


@pytest.mark.fault(530)
@pytest.mark.parametrize("by", ["collector", "end of the run"])
def test_a_generator_that_the_loop_closes(by: str) -> None:
    """Where the loop closes all generators, or those of a cycle, a lock is held until its own has ended."""
    told: list[Any] = []
    left: list[Any] = []

    @aio.synchronized(local, "left")
    async def steps() -> AsyncGenerator[None, object]:
        try:
            itself = yield
            yield
            del itself
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            told.append(await others_get("left"))

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        running = steps()
        await running.__anext__()
        if by == "collector":
            await running.asend(running)
            del running
            gc.collect()
            while not told:
                await asyncio.sleep(0)
        else:
            left.append(running)

    asyncio.run(main())
    assert told == [False]
    assert asyncio.run(others_get("left", 20))


def test_blocks_and_locks_that_are_there() -> None:
    """A path without fields is a block too, re-entrant; a lock of any kind is held as it is."""

    async def main() -> None:
        block = aio.synchronized(local, "report")
        async with block, block:
            assert held("report")
        assert not held("report")
        for lock in (asyncio.Lock(), local.Lock("there"), local.MultiLock(["x", "y"])):
            where: Any = lock

            @aio.synchronized(where)
            async def function(lock: Any) -> bool:
                return bool(lock.locked())

            assert await function(lock)
            assert not lock.locked()

    asyncio.run(main())
