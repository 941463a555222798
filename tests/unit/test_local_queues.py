"""The queues of local namespaces: the standard library's own, and small ones by priority and by time."""

from __future__ import annotations

import asyncio
import math
import queue
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

import zkconcurrent
from tests.conftest import InThread
from zkconcurrent import LocalNamespace, aio


@pytest.fixture
def threads() -> LocalNamespace:
    """A namespace."""
    return zkconcurrent.namespace("local", "/app")


@pytest.fixture
def local() -> aio.LocalNamespace:
    """A namespace for tasks."""
    return aio.namespace("local", "/app")


@pytest.mark.parametrize("name", ["Queue", "LifoQueue", "PriorityQueue", "SimpleQueue"])
def test_they_are_queues(threads: LocalNamespace, local: aio.LocalNamespace, name: str) -> None:
    """A queue of the standard library is its own object, one for each name, which stays with its items."""
    getattr(threads, name)("one").put(1)
    one = getattr(threads, name)("one")
    assert isinstance(one, getattr(queue, name))
    assert one.get_nowait() == 1
    with pytest.raises(zkconcurrent.Empty):
        one.get(timeout=0.01)
    if name == "SimpleQueue":
        return
    tasks = getattr(local, name)("one", 2)
    assert isinstance(tasks, getattr(asyncio, name))
    tasks.put_nowait(1)
    assert getattr(local, name)("one", 2).get_nowait() == 1
    assert tasks.maxsize == 2


@pytest.mark.parametrize("name", ["Queue", "LifoQueue", "PriorityQueue", "DelayQueue"])
def test_terms(threads: LocalNamespace, local: aio.LocalNamespace, name: str) -> None:
    """`maxsize` must be given alike, and arguments that the shared ones refuse are refused."""
    for make in (getattr(threads, name), getattr(local, name)):
        one = make("one", -1)
        assert make("one", 0) is one
        with pytest.raises(ValueError, match="maxsize=0, not 3"):
            make("one", 3)
        for options, error in (
            ({"maxsize": 1.5}, TypeError),
            ({"codec": str}, TypeError),
            ({"max_attempts": 0}, ValueError),
            ({"max_attempts": "1"}, TypeError),
        ):
            with pytest.raises(error):
                make("other", **options)
    with pytest.raises(ValueError, match="'/app/one' for"):
        threads.Event("one")


def test_priorities(threads: LocalNamespace, local: aio.LocalNamespace) -> None:
    """The lowest is first; items of the same priority keep their order, and are never compared."""
    items = [(2, {}), (1, "b"), (2, {}), [1, "a"], 0, -1]
    for each in (threads.PriorityQueue("p"), local.PriorityQueue("p")):
        for item in items:
            each.put_nowait(item)
        assert each.qsize() == 6
        assert [each.get_nowait() for _ in items] == [-1, 0, (1, "b"), [1, "a"], (2, {}), (2, {})]
        for wrong, error in (("x", TypeError), (1.5, TypeError), (2**31, OverflowError)):
            with pytest.raises(error):
                each.put_nowait(wrong)
        assert each.empty()
    lengths = threads.PriorityQueue("n", priority=len)
    for text in ("aaa", "b", "cc"):
        lengths.put(text)
    assert [lengths.get() for _ in range(3)] == ["b", "cc", "aaa"]
    exact = threads.PriorityQueue("f", floats=True)
    for number in (0.5, -1.5, 0.25):
        exact.put(number)
    assert [exact.get() for _ in range(3)] == [-1.5, 0.25, 0.5]


def test_delays(threads: LocalNamespace, in_thread: InThread) -> None:
    """An item comes when it is due, the earliest first; one that comes meanwhile wakes a consumer that sleeps."""
    later = threads.DelayQueue("d")
    began = time.time()
    later.put("b", delay=0.4)
    later.put("c", delay=60)
    for call in (later.get_nowait, lambda: later.get(timeout=0.05)):
        with pytest.raises(zkconcurrent.Empty):
            call()
    waiting = [in_thread(later.get) for _ in range(3)]
    later.put("a", delay=0.1)
    later.put("now")
    assert sorted(each.result(10) for each in waiting) == ["a", "b", "now"]
    assert time.time() - began >= 0.4
    assert later.qsize() == 1
    for delay, error in ((math.nan, ValueError), ("1", TypeError), (True, TypeError), (10**400, OverflowError)):
        with pytest.raises(error, match="delay"):
            later.put("x", delay=delay)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="non-negative"):
        later.get(timeout=-1)
    full = threads.DelayQueue("f", 1)
    full.put_nowait("x", delay=60)
    with pytest.raises(zkconcurrent.Full):
        full.put_nowait("y", delay=0)
    if sys.version_info >= (3, 13):
        ending = in_thread(full.get)
        full.shutdown(immediate=True)
        with pytest.raises(zkconcurrent.ShutDown):
            ending.result(10)


def test_a_consumer_that_gives_up_passes_the_word_on(threads: LocalNamespace, in_thread: InThread) -> None:
    """Of several that wait, one has its deadline as an item comes: another takes the item."""
    for n in range(20):
        later = threads.DelayQueue(f"d{n}")
        waiting = [in_thread(later.get, timeout=0.02), in_thread(later.get, timeout=5)]
        time.sleep(0.018)
        later.put("x")
        results: list[Any] = []
        for each in waiting:
            try:
                results.append(each.result(10))
                break
            except zkconcurrent.Empty:
                continue
        assert results == ["x"]
        later.put("y")  # lets the other one go


def test_delays_of_tasks(local: aio.LocalNamespace) -> None:
    """The same for tasks; a cancelled one takes none."""

    async def main() -> None:
        later = local.DelayQueue("d", 3)
        began = time.time()
        await later.put("b", delay=0.4)
        later.put_nowait("c", delay=60)
        with pytest.raises(asyncio.QueueEmpty):
            later.get_nowait()
        cancelled = asyncio.create_task(later.get())
        waiting = [asyncio.create_task(later.get()) for _ in range(2)]
        await asyncio.sleep(0.05)
        cancelled.cancel()
        await later.put("a", delay=0.1)
        with pytest.raises(asyncio.QueueFull):
            later.put_nowait("x")
        assert sorted(await asyncio.gather(*waiting)) == ["a", "b"]
        assert time.time() - began >= 0.4
        assert later.qsize() == 1
        ending = asyncio.create_task(later.get())
        await asyncio.sleep(0.05)
        if sys.version_info >= (3, 13):
            later.shutdown(immediate=True)
            with pytest.raises(asyncio.QueueShutDown):
                await ending
        ending.cancel()

    asyncio.run(main())


def _use(make: Callable[[str], Any]) -> list[object]:
    jobs, later = make("Queue")("jobs", 5), make("DelayQueue")("later")
    jobs.put(b"1")
    later.put(b"2", delay=0.1)
    got = [jobs.get(), later.get(timeout=10)]
    jobs.task_done()
    jobs.join()
    return [*got, jobs.qsize(), later.empty()]


def test_a_program_for_both(threads: LocalNamespace) -> None:
    """A program for `queue` runs here; `integration/test_namespace.py` has the shared one."""
    assert _use(lambda kind: getattr(threads, kind)) == [b"1", b"2", 0, True]
