"""Queues that Java services on Curator share: either side takes the other's items, once, unless they are claimed."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.helpers.curator import CuratorClient, CuratorPeer
from tests.helpers.eventually import eventually
from tests.interop.conftest import SESSION, ConnectJava
from zkconcurrent import TEXT, DelayQueue, Empty, PriorityQueue, Queue
from zkconcurrent.testing import Server


def rank(item: str) -> int:
    """Return the priority of an item such as "-3 x"."""
    return int(item.split()[0])


def taken(java: CuratorClient, kind: str, path: str) -> list[str]:
    """Return what a Java consumer has taken."""
    found = java.call(f"{kind}.taken", path).result(20)
    return found.split("\t") if found else []


def test_java_takes_what_we_put(client: KazooClient, java: CuratorClient, zk_path: str) -> None:
    """In our order, each once; and nothing is left of it."""
    queue = Queue[str](client, zk_path, codec=TEXT)
    items = [f"item {n}" for n in range(20)]
    for item in items:
        queue.put(item)
    java.call("queue.consume", zk_path, 0).result(20)
    eventually(lambda: taken(java, "queue", zk_path) == items)
    queue.put("late")
    eventually(lambda: taken(java, "queue", zk_path) == [*items, "late"])
    eventually(queue.empty)
    eventually(lambda: client.get_children(f"{zk_path}/claims") == [])


def test_we_take_what_java_puts(client: KazooClient, java: CuratorClient, zk_path: str) -> None:
    """In its order, each once, also where Java came first, and where several items are in one node."""
    for n in range(5):
        java.call("queue.put", zk_path, f"item {n}").result(20)
    queue = Queue[str](client, zk_path, codec=TEXT)
    assert [queue.get(timeout=20) for _ in range(5)] == [f"item {n}" for n in range(5)]
    java.call("queue.putMulti", zk_path, "a,b,c").result(20)
    assert queue.get(timeout=20) == "a"
    with queue.claim(timeout=20) as claim:
        assert claim.item == "b"
    assert queue.get(timeout=20) == "c"
    with pytest.raises(Empty):
        queue.get_nowait()
    java.call("queue.put", zk_path, "last").result(20)
    assert queue.get(timeout=20) == "last"
    assert client.get(zk_path)[0] == b"fifo 0 open"


def test_priorities(client: KazooClient, connect_java: ConnectJava, zk_path: str) -> None:
    """The lowest is first, negative ones too, for both."""
    java, consumer = connect_java(), connect_java()
    queue = PriorityQueue[str](client, zk_path, codec=TEXT, priority=rank)
    ranked = ["-2147483648 x", "-3 x", "0 x", "7 x", "2147483647 x"]
    for item in (ranked[3], ranked[0], ranked[4], ranked[2], ranked[1]):
        java.call("priorityQueue.put", zk_path, rank(item), item).result(20)
    eventually(lambda: queue.qsize() == 5)
    assert [queue.get() for _ in range(5)] == ranked
    for item in reversed(ranked):
        queue.put(item)
    consumer.call("priorityQueue.consume", zk_path, 0).result(20)
    eventually(lambda: taken(consumer, "priorityQueue", zk_path) == ranked)


def test_delays(client: KazooClient, connect_java: ConnectJava, zk_path: str) -> None:
    """Either side takes the other's item when it is due, and not before; the earliest first."""
    java, consumer = connect_java(), connect_java()
    queue = DelayQueue[str](client, zk_path, codec=TEXT)
    began = time.time()
    for delay, item in ((2000, "second"), (600_000, "never"), (1000, "first")):
        java.call("delayQueue.put", zk_path, delay, item).result(20)
    assert [queue.get(timeout=20) for _ in range(2)] == ["first", "second"]
    assert time.time() - began >= 2.0
    began = time.time()
    for seconds, item in ((2.0, "c"), (1.0, "b"), (0.0, "a")):
        queue.put(item, delay=seconds)
    consumer.call("delayQueue.consume", zk_path, 0).result(20)
    eventually(lambda: taken(consumer, "delayQueue", zk_path) == ["a", "b", "c"])
    assert time.time() - began >= 2.0
    assert queue.qsize() == 1
    assert client.get(zk_path)[0] == b"delay 0 open"


@pytest.mark.parametrize(
    ("kind", "theirs", "options"), [(Queue, "queue", {}), (DelayQueue, "delayQueue", {"delay": 0.1})]
)
def test_what_we_have_claimed(
    client: KazooClient, java: CuratorClient, zk_path: str, kind: Any, theirs: str, options: dict[str, float]
) -> None:
    """Java does not take it while we have it, and does once we give it back."""
    queue = kind(client, zk_path, codec=TEXT)
    queue.put("one", **options)
    claim = queue.claim(timeout=10)
    claim.__enter__()
    java.call(f"{theirs}.consume", zk_path, 0).result(20)
    # While the earliest is claimed, Curator's consumer of delayed items does not wake for one that is due later.
    queue.put("two")
    eventually(lambda: taken(java, theirs, zk_path) == ["two"])
    time.sleep(0.5)
    assert taken(java, theirs, zk_path) == ["two"]
    claim.__exit__(KeyError, None, None)
    queue.put("three")  # Curator's consumer watches the items alone
    eventually(lambda: sorted(taken(java, theirs, zk_path)) == ["one", "three", "two"])


def test_what_java_fails_to_process(client: KazooClient, java: CuratorClient, zk_path: str) -> None:
    """Its consumer puts it back at the tail, in a multi; each item is taken once in the end, by either of us."""
    queue = Queue[str](client, zk_path, codec=TEXT)
    items = [f"{n}" for n in range(10)]
    for item in items:
        queue.put(item)
    java.call("queue.consume", zk_path, 3).result(20)
    ours: list[str] = []

    def all_taken() -> bool:
        with suppress(Empty):
            ours.append(queue.get_nowait())
        return len(ours) + len(taken(java, "queue", zk_path)) == 10

    eventually(all_taken)
    assert sorted(ours + taken(java, "queue", zk_path)) == items
    eventually(queue.empty)


def test_what_java_puts_back_in_other_orders(
    client: KazooClient, peer: CuratorPeer, zookeeper: Server, zk_path: str
) -> None:
    """Its consumer puts a failed item back without its priority, or its time: we take it, as Java would, at once."""
    best = PriorityQueue[str](client, f"{zk_path}-p", codec=TEXT, priority=rank)
    later = DelayQueue[str](client, f"{zk_path}-d", codec=TEXT)
    best.put("7 x")
    later.put("7 x", delay=0.1)

    def put_back(path: str) -> bool:
        (name,) = client.get_children(f"{path}/items")
        return len(name) == len("queue-0000000001")

    with peer.client(zookeeper.hosts, SESSION) as java:
        for kind, path in (("priorityQueue", best.path), ("delayQueue", later.path)):
            java.call(f"{kind}.consume", path, 1_000_000).result(20)
            eventually(lambda path=path: put_back(path))
    for queue in (best, later):
        assert queue.get(timeout=20) == "7 x"
