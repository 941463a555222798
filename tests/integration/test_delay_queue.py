"""Queues of delayed items on a real ZooKeeper: an item is taken when it is due, by one consumer, the earliest first."""

from __future__ import annotations

import math
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from zkconcurrent import TEXT, DelayQueue, Empty, ShutDown
from zkconcurrent._engine.session import Session


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


@pytest.mark.parametrize("delay", [math.nan, math.inf, threading.TIMEOUT_MAX * 2, True, "1", timedelta(seconds=1)])
def test_bad_delays(delay: Any, zk: KazooClient, zk_path: str) -> None:
    """A delay that is none is refused at once, and nothing is sent."""
    with pytest.raises((ValueError, OverflowError, TypeError), match="delay"):
        DelayQueue[bytes](zk, zk_path).put(b"x", delay=delay)
    assert zk.exists(zk_path) is None


def test_an_earlier_item_wakes_the_one_that_sleeps(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """A consumer that sleeps until an item is due takes an earlier one that comes meanwhile, and so does the next."""
    other = connect()
    clock = with_clock(zk, other)
    mine, theirs = DelayQueue[str](zk, zk_path, codec=TEXT), DelayQueue[str](other, zk_path, codec=TEXT)
    mine.put("later", delay=6000)
    first = in_thread(theirs.get)
    eventually(lambda: len(names(zk, zk_path, "consumers")) == 1)
    second = in_thread(mine.get)
    eventually(lambda: len(names(zk, zk_path, "consumers")) == 2)
    mine.put("soon", delay=600)
    mine.put("now")
    assert first.result(20) == "now"
    clock.ahead = 601
    assert second.result(20) == "soon"
    assert mine.qsize() == 1


def test_shut_down(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The last items are taken when they are due; then `get` raises ShutDown."""
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
