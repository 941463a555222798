"""More threads than kazoo's pipe has room for, on one client; and more waiters than any sane program has."""

from __future__ import annotations

import itertools
import math

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock
from zkconcurrent._observe import long_waits
from zkconcurrent.testing import Server

WAITERS = 300
THREADS = 300  # each with two requests under way, where the pipe holds 278


@pytest.mark.fault(26)
@pytest.mark.long
def test_hundreds_of_threads_on_one_client(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """However many requests are under way at once, nobody waits for kazoo with what kazoo waits for."""
    client = connect(timeout=60)  # so many threads may keep the heartbeat waiting for long

    def work(number: int) -> int:
        lock = Lock(client, f"{zk_path}/{number}")
        for _ in range(3):
            with lock:
                pass
        return number

    futures = [in_thread(work, number) for number in range(THREADS)]
    assert [future.result(60) for future in futures] == list(range(THREADS))
    eventually(lambda: all(queued(zk, f"{zk_path}/{number}", 0)() for number in range(THREADS)))


@pytest.mark.fault(33)
@pytest.mark.long
def test_hundreds_of_waiters(
    zookeeper: Server,
    zk: KazooClient,
    connect: Connect,
    proxy: Proxy,
    zk_path: str,
    in_thread: InThread,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each release wakes one, by one event; it lists once, or not at all where its own process released.

    The first waiter has a single contender ahead, watches its own node, too, and does not list.
    """
    # On a busy machine they wait for long, and the log would ask who holds.
    monkeypatch.setattr(long_waits, "LONG", math.inf)
    # So many threads may keep a heartbeat waiting for long, also that of a client that has none of them.
    clients = [connect(hosts=proxy.hosts, timeout=60) for _ in range(4)]
    order: list[int] = []

    def work(lock: Lock) -> None:
        with lock:
            order.append(lock.fencing_token)

    held = Lock(connect(timeout=60), zk_path)
    held.acquire()
    waiting = [in_thread(work, Lock(clients[n % 4], zk_path)) for n in range(WAITERS)]
    eventually(lambda: len(zk.get_children(zk_path)) == WAITERS + 1, patience=60)
    # Each waiter watches one node, the first its own, too, and so does the holder after a beat.
    eventually(lambda: int(zookeeper.mntr()["zk_watch_count"]) == WAITERS + 2, patience=60)
    queue = [name[: len("_c_") + 23] for name in sorted(zk.get_children(zk_path), key=lambda name: name[-10:])]
    between_clients = sum(one != other for one, other in itertools.pairwise(queue))
    with proxy.costs(getChildren=between_clients - 1, delete=WAITERS) as count:
        held.release()
        for each in waiting:
            each.result(120)
    # Both watches on the first waiter's node are one, if it and the next are of one client.
    events = WAITERS + (queue[1] != queue[2])
    # On a slow machine, heartbeats meet some holders, and then watch their nodes: one event more, between clients.
    met = sum(each.heartbeat and each.name == "getData" for each in count.trace if each.kind == "request")
    assert events <= count.events.total() <= events + met
    assert order == sorted(order)
    assert len(order) == WAITERS
