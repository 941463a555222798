"""The requests of atomic numbers and shared values."""

from __future__ import annotations

import weakref
from typing import Any

from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.contenders import waits
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import JSON, AtomicLong, SharedValue
from zkconcurrent._recipes.value import READ_AFTER


def test_a_number(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A read is a `sync` and a read; a change is one write, and after eight of them three reads go before it."""
    number = AtomicLong(counted, zk_path)
    number.add()
    with proxy.costs(multi=READ_AFTER - 1, flights=READ_AFTER - 1):
        for _ in range(READ_AFTER - 1):
            number.add()
    with proxy.costs(sync=1, getData=1, getChildren=1, multi=1, flights=2):
        number.add()
    with proxy.costs(sync=1, getData=1, flights=1):
        number.get()
    with proxy.costs(sync=1, getData=1, getChildren=1, flights=1):
        assert not number.compare_and_set(-1, 1)
    with proxy.costs(multi=2):
        assert number.compare_and_set(READ_AFTER + 1, 1)
        assert number.update(lambda old: old + 1) == 2


def test_a_conflict(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A change that meets another client's is a write that fails, three reads together, and a write."""
    mine, theirs = AtomicLong(counted, zk_path), AtomicLong(zk, zk_path)
    mine.add()
    theirs.add()
    with proxy.costs(multi=2, sync=1, getData=1, getChildren=1, flights=3):
        assert mine.add() == 3


def test_threads_share_requests(counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """Of changes that threads make at the same time, all that gather meanwhile go in one write."""
    number = AtomicLong(counted, zk_path)
    number.add()
    with proxy.costs(multi=2):
        proxy.stall()
        results = [in_thread(number.add) for _ in range(8)]
        eventually(lambda: len(number._path_state.combiner.pending) == 8)
        proxy.resume()
        assert sorted(each.result(60) for each in results) == list(range(2, 10))


def test_a_shared_value(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """A read is a `sync` and a read; a wait 3 reads until it waits, and one for each change; idle, it sends nothing."""
    shared: SharedValue[Any] = SharedValue(counted, zk_path, 0, codec=JSON)
    shared.set(1)
    with proxy.costs(sync=1, getData=1, flights=1):
        shared.get()
    with proxy.costs(multi=2):
        shared.set(2)
        shared.update(lambda old: old + 1)
    theirs: SharedValue[Any] = SharedValue(zk, zk_path, 0, codec=JSON)
    with proxy.costs(sync=1, getData=2):
        wait = in_thread(shared.wait_for, lambda value: value == "end")
        eventually(lambda: waits(shared))
    theirs.set("end")
    assert wait.result(20)


def test_the_first_change(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """The first change of a client lays out the nodes, makes its receipt, looks for old ones and at the number.

    That of a later object uses the receipt of the first.
    """
    AtomicLong(zk, zk_path).add()
    number = AtomicLong(counted, zk_path)
    with proxy.counting() as first:
        assert number.add() == 2
    assert first.flights == 6
    assert first.requests["multi"] == 1
    assert first.requests["create"] == 1  # the number was there
    assert first.requests["getChildren"] == 3
    state = weakref.ref(number._path_state)
    del number
    assert state() is None
    number = AtomicLong(counted, zk_path)
    with proxy.counting() as later:
        assert number.add() == 3
    assert later.flights == 3
    assert (later.requests["multi"], later.requests["create"], later.requests["getChildren"]) == (1, 0, 2)
