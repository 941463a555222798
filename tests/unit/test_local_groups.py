"""Groups and double barriers of a local namespace: those of ZooKeeper, for the threads or the tasks of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import zkconcurrent
from tests.conftest import InThread
from zkconcurrent import LocalNamespace, aio

ROUNDS = 200


@pytest.fixture
def threads() -> LocalNamespace:
    """A namespace for threads."""
    return zkconcurrent.namespace("local", "/app")


@pytest.fixture
def tasks() -> aio.LocalNamespace:
    """A namespace for tasks."""
    return aio.namespace("local", "/app")


def run(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Run calls at the same time, each in a task; return their results."""

    async def main() -> list[Any]:
        return await asyncio.wait_for(asyncio.gather(*(call() for call in calls)), 30)

    return asyncio.run(main())


def test_rounds_of_threads(threads: LocalNamespace, in_thread: InThread) -> None:
    """Parties enter together and leave together, time after time, also if one comes back before another is awake."""
    barrier, count = threads.DoubleBarrier("round", 2), [0, 0]

    def take_part(me: int) -> None:
        for n in range(ROUNDS):
            with barrier as inside:
                assert inside
                count[me] += 1
                assert n <= count[1 - me] <= n + 1

    for each in [in_thread(take_part, me) for me in (0, 1)]:
        each.result(30)
    assert count == [ROUNDS, ROUNDS]


def test_rounds_of_tasks(tasks: aio.LocalNamespace) -> None:
    """The same for tasks."""
    barrier, count = tasks.DoubleBarrier("round", 3), [0, 0, 0]

    async def take_part(me: int) -> None:
        for n in range(ROUNDS):
            async with barrier as inside:
                assert inside
                count[me] += 1
                assert all(n <= each <= n + 1 for each in count)

    run(*(lambda me=me: take_part(me) for me in range(3)))
    assert count == [ROUNDS] * 3


def test_a_barrier_of_threads(threads: LocalNamespace, in_thread: InThread) -> None:
    """Times that are up, a party that comes late, one that leaves early, and misuse."""
    barrier = threads.DoubleBarrier("round", 2)
    assert barrier.parties == 2
    assert threads.DoubleBarrier("round", 2) is barrier
    with pytest.raises(ValueError, match="parties"):
        threads.DoubleBarrier("none", 0)
    assert not barrier.enter(0.01)
    with pytest.raises(RuntimeError, match="not inside"):
        barrier.leave()
    other = in_thread(lambda: (barrier.enter(30), barrier.leave(30)))
    assert barrier.enter(30)
    with pytest.raises(RuntimeError, match="already"):
        barrier.enter()
    assert in_thread(lambda: (barrier.enter(0), barrier.leave(0))).result(30) == (True, False)  # it came late
    assert barrier.leave(30)
    assert other.result(30) == (True, True)
    assert not barrier.enter(0)


def test_a_barrier_of_tasks(tasks: aio.LocalNamespace) -> None:
    """The same for tasks; a party that is cancelled as it waits is gone."""
    barrier = tasks.DoubleBarrier("round", 2)
    assert barrier.parties == 2

    async def first() -> None:
        assert not await barrier.enter(0.01)
        with pytest.raises(RuntimeError, match="not inside"):
            await barrier.leave()
        waiting = asyncio.create_task(barrier.enter())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        other = asyncio.create_task(second())
        assert await barrier.enter(30)
        with pytest.raises(RuntimeError, match="already"):
            await barrier.enter()
        assert await barrier.leave(0)  # the other waits to leave, so it has left
        assert await other

    async def second() -> bool:
        return await barrier.enter(30) and await barrier.leave(30)

    run(first)


def test_a_group_of_threads(threads: LocalNamespace, in_thread: InThread) -> None:
    """Members come, are seen, and go; an id that is taken is waited for."""
    group = threads.Group("workers")
    looks = group.observe(30)
    assert next(looks) == {}
    one = group.join(b"1", "one")
    assert next(looks) == {"one": b"1"}
    with pytest.raises(ValueError, match="another member 'one'"):
        group.join(id="one")
    waiting = in_thread(lambda: group.join(b"2", "one", wait=30))
    with group.join() as two:
        assert two.active
        assert list(group.members()) == ["one", two.id]
        assert two.path.endswith(two.id)
    assert not two.active
    assert not two.lost.is_set()
    one.leave()
    one.leave()
    assert waiting.result(30).active
    assert group.members() == {"one": b"2"}
    *_, last = group.observe(0)
    assert last == {"one": b"2"}
    for arguments, error in (
        ({"data": "text"}, TypeError),
        ({"id": "a/b"}, ValueError),
        ({"id": 1}, TypeError),
        ({"wait": -1.0}, ValueError),
        ({"wait": 1e10}, OverflowError),
    ):
        with pytest.raises(error):
            group.join(**arguments)


def test_a_group_of_tasks(tasks: aio.LocalNamespace) -> None:
    """The same for tasks."""
    group = tasks.Group("workers")

    async def main() -> None:
        looks = group.observe(30)
        assert await anext(looks) == {}
        one = await group.join(b"1", "one")
        assert await anext(looks) == {"one": b"1"}
        with pytest.raises(ValueError, match="another member 'one'"):
            await group.join(id="one")
        waiting = asyncio.create_task(wait_for_the_id())
        async with group.join() as two:
            assert two.active
            assert list(await group.members()) == ["one", two.id]
        assert not two.active
        await one.leave()
        await one.leave()
        await waiting
        assert await group.members() == {"one": b"2"}
        assert [each async for each in group.observe(0)] == [{"one": b"2"}]
        await looks.aclose()

    async def wait_for_the_id() -> None:
        assert (await group.join(b"2", "one", wait=30)).active

    run(main)
