"""The requests of a queue: those of each call, the events of each item, and none while it is idle."""

from __future__ import annotations

import math

import pytest
from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.contenders import waits
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Empty, Full, LifoQueue, Queue
from zkconcurrent._recipes.queue import state
from zkconcurrent._recipes.queue.order import frame
from zkconcurrent._recipes.queue.put import LISTED


@pytest.fixture(autouse=True)
def _a_machine_of_any_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No queue reads again what it has read ahead, however long the machine takes to use it."""
    monkeypatch.setattr(state, "READ_FOR", math.inf)


def warm(queue: Queue[bytes]) -> None:
    """Use a queue once, so that its nodes are there."""
    queue.put(b"warm")
    assert queue.get() == b"warm"
    queue.task_done()


def test_put_and_get(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A put is one write. A get is one read and one write; each listing, of four reads, is for up to 64 of them."""
    queue = Queue[bytes](counted, zk_path)
    warm(queue)
    with proxy.costs(multi=70, flights=70):
        for _ in range(70):
            queue.put(b"x" * 100)
    with proxy.costs(sync=1, getData=3, getChildren=2, multi=1, flights=3):
        queue.get()  # two items are read together
    with proxy.costs(getData=62, multi=63) as more:
        for _ in range(63):
            queue.get()
    assert more.flights <= 63 + 63 // 8 + 2  # soon eight of them
    with proxy.costs(multi=1):
        queue.task_done()


def test_claims(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A claim costs what a get does, and another write to acknowledge it or to give it back."""
    queue = Queue[bytes](counted, zk_path, max_attempts=5)
    warm(queue)
    for _ in range(3):
        queue.put(b"x")
    with queue.claim():
        pass
    claim = queue.claim()
    with proxy.costs(multi=1, flights=1):
        claim.__enter__()  # it was read with the one before
    with proxy.costs(multi=1, flights=1):
        claim.__exit__(None, None, None)
    claim.__enter__()
    with proxy.costs(multi=1):
        claim.__exit__(KeyError, None, None)


def test_an_item_that_is_buried(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A burial costs a read and a write; a buried item is not read again, so the next one costs no more than others."""
    queue = Queue[bytes](counted, zk_path, max_attempts=1)
    warm(queue)
    for items in (b"xy", b"0123456789"):  # the first that is buried makes the parent of the dead
        for item in items:
            queue.put(bytes([item]))
        with pytest.raises(KeyError), queue.claim():
            raise KeyError
        with proxy.counting() as burying, queue.claim() as claim:
            assert claim.item == items[1:2]
    assert burying.requests == {"getData": 5, "multi": 3}  # three ahead, the next one, the dead; to bury, and the claim
    assert queue.dead() == [b"x", b"0"]


@pytest.mark.fault(170)
def test_reads_of_large_items(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """About 1 MB is read ahead, so that the client's heartbeats are answered in between."""
    queue = Queue[bytes](counted, zk_path)
    warm(queue)
    for _ in range(14):
        queue.put(bytes(400_000))
    for _ in range(4):
        queue.get()
    with proxy.costs(multi=10, getData=10, flights=10 + 10 // 2):
        for _ in range(10):
            queue.get()


def test_a_queue_with_a_size(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A producer also queues: two writes, and four reads, in three round trips; it is refused for four reads in one."""
    queue = Queue[bytes](counted, zk_path, 2)
    warm(queue)
    with proxy.costs(create2=1, getChildren=3, getData=1, multi=1, flights=3):
        queue.put(b"x")
    queue.put(b"y")
    with proxy.costs(sync=1, getData=1, getChildren=2, flights=1), pytest.raises(Full):
        queue.put_nowait(b"z")


@pytest.mark.fault(246)
def test_a_queue_of_many(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A producer lists the items of a large queue only if they may be too many."""
    queue = Queue[bytes](counted, zk_path, LISTED + 1)
    warm(queue)
    with proxy.costs(create2=1, getChildren=2, getData=2, multi=1, flights=3):
        queue.put(b"x")
    with proxy.costs(sync=1, create2=1, getChildren=3, getData=4, multi=1):
        queue.put_nowait(b"x")


def test_other_calls(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """To ask, and to find nothing, are four reads in one round trip; other orders list the items for each get."""
    queue = Queue[bytes](counted, zk_path)
    warm(queue)
    for call in (queue.qsize, queue.empty, queue.full):
        with proxy.costs(sync=1, getData=1, getChildren=2, flights=1):
            call()
    with proxy.costs(sync=1, getData=1, getChildren=2), pytest.raises(Empty):
        queue.get_nowait()
    last = LifoQueue[bytes](counted, f"{zk_path}-l")
    for _ in range(3):
        last.put(b"x")
    last.get()
    with proxy.costs(sync=1, getData=2, getChildren=2, multi=1):
        last.get()


def test_until_it_waits(counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """A consumer that finds nothing lists, queues and watches: one write, in three round trips."""
    queue = Queue[bytes](counted, zk_path)
    warm(queue)
    with pytest.raises(Empty):
        queue.get(timeout=0.3)
    with proxy.counting() as waiting:
        taking = in_thread(queue.get)
        eventually(lambda: waiting.requests == {"sync": 1, "getData": 2, "getChildren": 4, "create2": 1})
    assert waiting.flights == 3
    queue.put(b"x")
    assert taking.result(20) == b"x"


@pytest.mark.fault(170)
def test_many_dead(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """They are read some at a time, so that the client's heartbeats are answered in between."""
    queue = Queue[bytes](counted, zk_path)
    zk.ensure_path(f"{zk_path}/dead")
    for n in range(250):
        zk.create(f"{zk_path}/dead/queue-{n:010d}", frame([b"%d" % n]))
    with proxy.costs(sync=1, getChildren=1, getData=250, flights=1 + 2):
        assert queue.dead() == [b"%d" % n for n in range(250)]


def test_a_join_of_the_newest_first(
    zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A join watches the item that is taken last, so it sleeps while the others are taken."""
    queue, other = LifoQueue[bytes](counted, zk_path), LifoQueue[bytes](zk, zk_path)
    for _ in range(20):
        other.put(b"x")
    joined = in_thread(queue.join)
    eventually(lambda: waits(queue))
    with proxy.counting() as woken:
        for _ in range(20):
            other.get()
            other.task_done()
        joined.result(20)
    assert woken.requests["getChildren"] <= 4


@pytest.mark.fault(83)
def test_no_herd(zk: KazooClient, counted: KazooClient, zk_path: str, proxy: Proxy, in_thread: InThread) -> None:
    """However many consumers wait, an item wakes the first, which takes it, and so makes the next one first."""
    queue, producer, n = Queue[bytes](counted, zk_path), Queue[bytes](zk, zk_path), 8
    warm(queue)
    taking = [in_thread(queue.get) for _ in range(n)]
    eventually(lambda: waits(queue, n))
    with proxy.counting() as woken:
        for taken in range(1, n + 1):
            producer.put(b"x")
            eventually(lambda taken=taken: sum(each.done() for each in taking) == taken)
    # An item that comes between two looks of a consumer, the second of which sets a watch, costs one event more.
    assert sum(woken.events.values()) <= 3 * n
    assert woken.requests["getChildren"] <= 8 * n
