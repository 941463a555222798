"""Queues for tasks, on a real ZooKeeper: CPython's own tests of `asyncio`'s, and the leftovers of a cancellation.

CPython's tests call `put_nowait`, `get_nowait`, `qsize`, `empty` and `full` as plain functions, and look into the queue
between two turns of the loop: ours are coroutines. So those of their tests that do neither run as they are; `LEFT_OUT`
names the others, and the tests below say the same of ours.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest.mock import patch

import pytest
from kazoo.client import KazooClient
from test.test_asyncio import test_queues as theirs

import zkconcurrent
from tests.conftest import Connect
from zkconcurrent import JSON, aio
from zkconcurrent.testing import Server

_numbers = itertools.count()
NAMES = ("Queue", "LifoQueue", "PriorityQueue")

PLAIN = "calls `put_nowait`, `get_nowait`, `qsize`, `empty` or `full` as a plain function"
INSIDE = "looks into `_getters`, `_putters`, `_queue` or `_format`"
CLOCK = "runs on a loop whose clock the test moves on, before Python 3.11"
TURNS = "counts turns of the loop: ours takes a reply of ZooKeeper for each step"
LEFT_OUT = {
    "QueueBasicTests": {
        "test_repr": INSIDE,
        "test_str": INSIDE,
        "test_generic_alias": "wants a `types.GenericAlias`: ours is generic by `typing.Generic`",
        "test_empty": PLAIN,
        "test_full": PLAIN,
        "test_maxsize": TURNS,
        "test_maxsize_deprecated": "passes `loop=`",
    },
    "QueueGetTests": {
        "test_blocking_get": PLAIN,
        "test_get_with_putters": INSIDE,
        "test_get_with_waiting_putters": TURNS,
        "test_blocking_get_wait": PLAIN,
        "test_nonblocking_get": PLAIN,
        "test_nonblocking_get_exception": PLAIN,
        "test_get_cancelled_race": TURNS,
        "test_cancelled_getters_not_being_held_in_self_getters": INSIDE,
    },
    "QueuePutTests": {
        "test_blocking_put_wait": PLAIN,
        "test_nonblocking_put": PLAIN,
        "test_get_cancel_drop_one_pending_reader": PLAIN,
        "test_get_cancel_drop_many_pending_readers": PLAIN,
        "test_put_cancel_drop": PLAIN,
        "test_nonblocking_put_exception": PLAIN,
        "test_float_maxsize": "has a maxsize that is no whole number, which all clients would have to agree on",
        "test_put_cancelled": TURNS,
        "test_put_cancelled_race": TURNS,
        "test_why_are_putters_waiting": PLAIN,
        "test_cancelled_puts_not_being_held_in_self_putters": INSIDE,
        "test_cancelled_put_silence_value_error_exception": PLAIN,
    },
    "LifoQueueTests": {},
    "PriorityQueueTests": {},
    "QueueJoinTests": {"test_format": INSIDE, "test_task_done": PLAIN},
}
if sys.version_info < (3, 11):
    LEFT_OUT["QueueBasicTests"]["test_order"] = PLAIN
    LEFT_OUT["QueueGetTests"] |= {"test_get_cancelled": CLOCK, "test_why_are_getters_waiting": CLOCK}
    LEFT_OUT["QueuePutTests"] |= {"test_blocking_put": CLOCK, "test_put_with_waiting_getters": CLOCK}
    LEFT_OUT["LifoQueueTests"]["test_order"] = LEFT_OUT["PriorityQueueTests"]["test_order"] = PLAIN
    LEFT_OUT["QueueJoinTests"]["test_join_empty_queue"] = CLOCK


class Asyncio:
    """The module `asyncio`, as CPython's tests see it: its queues are ours."""

    def __init__(self, client: KazooClient) -> None:
        for name in NAMES:
            setattr(self, name, bound(getattr(aio, name), client))

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


def bound(kind: Callable[..., Any], client: KazooClient) -> type:
    """Return a class of that name that asks for no client, and makes each object on a path of its own."""

    def init(self: Any, maxsize: int = 0) -> None:
        kind.__init__(  # type: ignore[misc]
            self, client, f"/aio-queue/{next(_numbers)}", maxsize, codec=JSON
        )

    return type(kind.__name__, (kind,), {"__init__": init})  # type: ignore[arg-type]


class OnZooKeeper:
    """Has each test run with queues of ours, each on a path of its own."""

    @pytest.fixture(autouse=True)
    def _ours(self, zookeeper: Server) -> Iterator[None]:
        with zookeeper.client() as client, patch.object(theirs, "asyncio", Asyncio(client)) as ours:
            for name in NAMES:
                tests = getattr(theirs, f"{name}JoinTests")
                tests.q_class = getattr(ours, name)
            yield


def without(tests: type) -> type:
    """Return CPython's tests without those that are left out."""
    left_out = LEFT_OUT.get(tests.__name__, LEFT_OUT["QueueJoinTests"])
    return type(tests.__name__, (tests,), {name: None for name in left_out if hasattr(tests, name)})


class TestBasic(OnZooKeeper, without(theirs.QueueBasicTests)):  # type: ignore[misc]
    """`asyncio.Queue`'s tests."""


class TestGet(OnZooKeeper, without(theirs.QueueGetTests)):  # type: ignore[misc]
    """Those of `get`."""


class TestPut(OnZooKeeper, without(theirs.QueuePutTests)):  # type: ignore[misc]
    """Those of `put`."""


class TestLifo(OnZooKeeper, without(theirs.LifoQueueTests)):  # type: ignore[misc]
    """`asyncio.LifoQueue`'s tests."""


class TestPriority(OnZooKeeper, without(theirs.PriorityQueueTests)):  # type: ignore[misc]
    """`asyncio.PriorityQueue`'s tests."""


class TestJoin(OnZooKeeper, without(theirs.QueueJoinTests)):  # type: ignore[misc]
    """Those of `join` and `task_done`."""


class TestLifoJoin(OnZooKeeper, without(theirs.LifoQueueJoinTests)):  # type: ignore[misc]
    """The same of a `LifoQueue`."""


class TestPriorityJoin(OnZooKeeper, without(theirs.PriorityQueueJoinTests)):  # type: ignore[misc]
    """The same of a `PriorityQueue`."""


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test in a loop of its own."""
    asyncio.run(asyncio.wait_for(test, 60))


def test_put_get_and_ask(zk: KazooClient, zk_path: str) -> None:
    """The methods are those of asyncio, and raise its errors; threads share the path."""

    async def test() -> None:
        queue: aio.Queue[Any] = aio.Queue(zk, zk_path, 2, codec=JSON)
        await queue.put_nowait(1)
        await queue.put({"a": 2})
        assert (await queue.qsize(), await queue.full(), await queue.empty(), queue.maxsize) == (2, True, False, 2)
        with pytest.raises(asyncio.QueueFull):
            await queue.put_nowait(3)
        with pytest.raises(asyncio.QueueFull):
            await queue.put(3, timeout=0.05)
        twin = zkconcurrent.Queue[Any](zk, zk_path, 2, codec=JSON)
        assert await asyncio.to_thread(twin.get) == 1
        assert await queue.get() == {"a": 2}
        for call in (queue.get_nowait(), queue.get(timeout=0.05)):
            with pytest.raises(asyncio.QueueEmpty):
                await call
        getting = asyncio.create_task(queue.get())
        await asyncio.sleep(0.1)
        await asyncio.to_thread(twin.put, "late")
        assert await getting == "late"

    run(test())


def test_join_and_shut_down(zk: KazooClient, zk_path: str) -> None:
    """`task_done` and `shutdown` are plain, and may be awaited; tasks that wait are told."""

    async def test() -> None:
        queue: aio.Queue[Any] = aio.Queue(zk, zk_path, codec=JSON)
        with pytest.raises(ValueError, match="too many"):
            queue.task_done()
        for n in range(20):
            await queue.put(n)
        seen = []

        async def work() -> None:
            while True:
                seen.append(await queue.get())
                queue.task_done()

        workers = [asyncio.create_task(work()) for _ in range(4)]
        await queue.join()
        assert sorted(seen) == list(range(20))
        await queue.shutdown()
        for worker in workers:
            with pytest.raises(aio.QueueShutDown):
                await worker
        with pytest.raises(aio.QueueShutDown):
            await queue.put(1)

    run(test())


def test_claims(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The end of the block acknowledges; an exception, and a cancellation, give the item back."""
    other = zkconcurrent.Queue[bytes](connect(), zk_path, max_attempts=5)

    async def test() -> None:
        queue: aio.Queue[bytes] = aio.Queue(zk, zk_path, max_attempts=5)
        await queue.put(b"one")
        with pytest.raises(KeyError):
            async with queue.claim() as claim:
                assert (claim.item, claim.attempts) == (b"one", 1)
                raise KeyError

        async def work() -> None:
            async with queue.claim():
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        while not await queue.empty():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with queue.claim(timeout=5) as claim:
            assert claim.attempts == 3
        assert await queue.empty()

    run(test())
    assert other.empty()
