"""Queues of delayed items on a real ZooKeeper: an item is taken when it is due, by one consumer, the earliest first."""

from __future__ import annotations

import asyncio
import math
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.manual_clock import jump
from tests.helpers.processes import Spawn, spawning
from zkconcurrent import TEXT, DelayQueue, Empty, ForeignNodeError, Full, Queue, ShutDown, aio
from zkconcurrent._engine.session import Session

spawn = spawning("tests.integration.queue_party", 2.0)


def names(zk: KazooClient, path: str, folder: str) -> list[str]:
    """Return the names in a folder of a queue."""
    return sorted(zk.get_children(f"{path}/{folder}")) if zk.exists(f"{path}/{folder}") else []


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return time.time() + self.ahead


def with_clock(*clients: KazooClient) -> Clock:
    """Give some clients one wall clock; before their first queues."""
    clock = Clock()
    for client in clients:
        Session.of(client).wall_clock = clock
    return clock


def test_an_item_comes_when_it_is_due(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Not before, and the earliest first, of any producer; equal ones in the order of their puts."""
    other = connect()
    clock = with_clock(zk, other)
    mine, theirs = DelayQueue[str](zk, zk_path, codec=TEXT), DelayQueue[str](other, zk_path, codec=TEXT)
    mine.put("late", delay=300)
    theirs.put("early", delay=200)
    assert (mine.qsize(), mine.empty(), mine.full()) == (2, False, False)
    for call in (mine.get_nowait, lambda: theirs.get(timeout=0.1)):
        with pytest.raises(Empty):
            call()
    mine.put("now")
    theirs.put("too", delay=-5)
    assert [theirs.get_nowait(), mine.get_nowait()] == ["now", "too"]
    clock.ahead = 200
    assert mine.get() == "early"
    with pytest.raises(Empty):
        mine.get_nowait()
    clock.ahead = 300
    with theirs.claim() as claim:
        assert claim.item == "late"
    assert names(zk, zk_path, "items") == names(zk, zk_path, "claims") == names(zk, zk_path, "consumers") == []


@pytest.mark.parametrize(
    ("delay", "error"),
    [
        (math.nan, ValueError),
        (math.inf, ValueError),
        (-math.inf, ValueError),
        (threading.TIMEOUT_MAX * 2, OverflowError),
        (10**400, OverflowError),
        (True, TypeError),
        ("1", TypeError),
        (None, TypeError),
        (timedelta(seconds=1), TypeError),
    ],
)
def test_bad_delays(delay: Any, error: type[Exception], zk: KazooClient, zk_path: str) -> None:
    """A delay that is none is refused at once, and nothing is sent."""
    queue = DelayQueue[bytes](zk, zk_path)
    for call in (queue.put, queue.put_nowait):
        with pytest.raises(error, match="delay"):
            call(b"x", delay=delay)
    tasks = aio.DelayQueue[bytes](zk, zk_path)
    for put in (tasks.put, tasks.put_nowait):
        with pytest.raises(error, match="delay"):
            asyncio.run(put(b"x", delay=delay))
    assert zk.exists(zk_path) is None


@pytest.mark.parametrize("delay", [-(10**400), -1e300, -0.0, 0, threading.TIMEOUT_MAX])
def test_extreme_delays(delay: float, zk: KazooClient, zk_path: str) -> None:
    """Those that are long over are due at once; the longest one is not due in our time."""
    queue = DelayQueue[bytes](zk, zk_path)
    queue.put(b"x", delay=delay)
    if delay <= 0:
        assert queue.get_nowait() == b"x"
    else:
        with pytest.raises(Empty):
            queue.get(timeout=0.2)
        assert queue.qsize() == 1


def test_an_earlier_item_wakes_the_one_that_sleeps(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """A consumer that sleeps until an item is due takes an earlier one that comes meanwhile, and so does the next."""
    mine, theirs = DelayQueue[str](zk, zk_path, codec=TEXT), DelayQueue[str](connect(), zk_path, codec=TEXT)
    mine.put("later", delay=60)
    first = in_thread(theirs.get)
    eventually(lambda: len(names(zk, zk_path, "consumers")) == 1)
    second = in_thread(mine.get)
    eventually(lambda: len(names(zk, zk_path, "consumers")) == 2)
    mine.put("soon", delay=0.5)
    mine.put("now")
    assert [first.result(20), second.result(20)] == ["now", "soon"]
    assert mine.qsize() == 1


@pytest.mark.fault(87)
def test_one_that_gives_up_leaves_the_watch_to_the_next(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """The first in the queue of consumers ends by its deadline before the item is due; the second takes it in time."""
    other = connect()
    clock = with_clock(zk, other)
    mine, theirs = DelayQueue[str](zk, zk_path, codec=TEXT), DelayQueue[str](other, zk_path, codec=TEXT)
    mine.put("x", delay=3600)
    first = in_thread(mine.get, timeout=60)
    eventually(lambda: len(names(zk, zk_path, "consumers")) == 1)
    second = in_thread(theirs.get)
    eventually(lambda: len(names(zk, zk_path, "consumers")) == 2)
    jump(Session.of(zk), 60)
    with pytest.raises(Empty):
        first.result(20)
    clock.ahead = 3601
    assert second.result(20) == "x"


@pytest.mark.fault(87)
def test_a_consumer_that_is_killed(zk: KazooClient, zk_path: str, spawn: Spawn, in_thread: InThread) -> None:
    """One that sleeps leaves the item to the next."""
    clock = with_clock(zk)
    queue = DelayQueue[bytes](zk, zk_path, max_attempts=5)
    queue.put(b"later", delay=3600.0)
    sleeper = spawn("delayed")
    eventually(lambda: len(names(zk, zk_path, "consumers")) == 1)
    waiting = in_thread(lambda: queue.claim().__enter__())
    eventually(lambda: len(names(zk, zk_path, "consumers")) == 2)
    sleeper.send_signal(signal.SIGKILL)
    eventually(lambda: len(names(zk, zk_path, "consumers")) == 1)
    assert not waiting.done()
    clock.ahead = 3601.0
    claim = waiting.result(20)
    assert (claim.item, claim.attempts) == (b"later", 1)
    claim.__exit__(None, None, None)


@pytest.mark.fault(86)
def test_a_clock_that_is_set(connect: Connect, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """A consumer whose clock is behind waits; one that sleeps goes by the new time once its clock is set forward."""
    client = connect()
    clock = with_clock(client)
    consumer, producer = DelayQueue[bytes](client, zk_path), DelayQueue[bytes](zk, zk_path)
    clock.ahead = -3600
    producer.put(b"x")
    with pytest.raises(Empty):
        consumer.get_nowait()
    waiting = in_thread(consumer.get)
    eventually(lambda: names(zk, zk_path, "consumers"))
    assert not waiting.done()
    assert producer.qsize() == 1
    for ahead, item in ((0, b"x"), (3601, b"later")):
        clock.ahead = ahead
        assert waiting.result(20) == item
        if not ahead:
            producer.put(b"later", delay=3600)
            waiting = in_thread(consumer.get)
            eventually(lambda: names(zk, zk_path, "consumers"))
            assert not waiting.done()


def test_a_full_queue(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """An item that is not due keeps its place; the delay counts from the call of `put`."""
    queue = DelayQueue[bytes](zk, zk_path, 1)
    queue.put(b"1", delay=0.8)
    assert queue.full()
    with pytest.raises(Full):
        queue.put_nowait(b"2", delay=5)
    with pytest.raises(Full):
        queue.put(b"2", timeout=0.1)
    putting = in_thread(queue.put, b"2", delay=0.4)
    eventually(lambda: names(zk, zk_path, "producers"))
    assert queue.get() == b"1"
    putting.result(10)
    assert queue.get(timeout=5) == b"2"


def test_shut_down(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The last items are taken when they are due; then `get` raises ShutDown. With `immediate` none is left."""
    client = connect()
    clock = with_clock(client)
    queue, other = DelayQueue[bytes](zk, zk_path), DelayQueue[bytes](client, zk_path)
    queue.put(b"x", delay=3600)
    waiting = in_thread(other.get)
    eventually(lambda: names(zk, zk_path, "consumers"))
    queue.shutdown()
    with pytest.raises(ShutDown):
        other.put(b"y", delay=1)
    with pytest.raises(Empty):
        queue.get_nowait()
    clock.ahead = 3601
    assert waiting.result(20) == b"x"
    with pytest.raises(ShutDown):
        other.get()
    queue.task_done() if queue._view.unfinished else other.task_done()
    queue.join()
    second = DelayQueue[bytes](zk, f"{zk_path}-i")
    second.put(b"x", delay=60)
    joining, ending = in_thread(second.join), in_thread(second.get)
    eventually(lambda: names(zk, f"{zk_path}-i", "consumers"))
    second.shutdown(immediate=True)
    with pytest.raises(ShutDown):
        ending.result(10)
    joining.result(10)


def test_what_is_no_delay_queues(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Another order is an error that names both; an item of another order is never taken."""
    queue = DelayQueue[bytes](zk, zk_path)
    queue.put(b"x", delay=60)
    for call in (Queue[bytes](connect(), zk_path).get, lambda: Queue[bytes](connect(), zk_path).put(b"y")):
        with pytest.raises(ValueError, match="made as delay"):
            call()
    zk.create(f"{zk_path}-x/items/queue-1000000050000000001", b"data", makepath=True)
    with pytest.raises(ForeignNodeError, match="delay queue"):
        DelayQueue[bytes](zk, f"{zk_path}-x").get()


def test_tasks(zk: KazooClient, zk_path: str) -> None:
    """Tasks sleep until an item is due; a cancelled one takes none."""
    clock = with_clock(zk)

    async def main() -> None:
        queue = aio.DelayQueue[str](zk, zk_path, codec=TEXT)
        await queue.put("later", delay=300)
        await queue.put_nowait("soon", delay=200)
        cancelled, waiting = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
        while len(await asyncio.to_thread(names, zk, zk_path, "consumers")) < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(aio.QueueEmpty):
            await queue.get_nowait()
        cancelled.cancel()
        clock.ahead = 200
        assert await waiting == "soon"
        clock.ahead = 300
        async with queue.claim(timeout=20) as claim:
            assert claim.item == "later"
        assert await queue.empty()
        with pytest.raises(asyncio.CancelledError):
            await cancelled

    asyncio.run(main())
