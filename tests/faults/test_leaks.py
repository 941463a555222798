"""Fault 34: three thousand cycles leave nothing behind, at the client and at the server."""

from __future__ import annotations

import gc
import os
import sys
import threading

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, Eventually, InThread
from tests.helpers.lock_types import write_lock
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock, ReadWriteLock, RLock
from zkconcurrent.testing import Server

CYCLES = 3_000
SOME = 300


def left(client: KazooClient, server: Server) -> dict[str, int]:
    """Return how much there is of what might leak."""
    gc.collect()
    told = server.mntr()
    return {
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        "listeners": len(client.state_listeners),
        "watchers": sum(map(len, [*client._data_watchers.values(), *client._child_watchers.values()])),
        "watched paths": len(client._data_watchers) + len(client._child_watchers),
        **{
            name: int(told[f"zk_{name}"])
            for name in ("watch_count", "ephemerals_count", "znode_count", "num_alive_connections")
        },
    }


def more(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """Return of what there is more; less may be: an earlier test's connections end late."""
    return {what: now[what] - before[what] for what in now if now[what] > before[what]}


@pytest.mark.parametrize("kind", [Lock, RLock, write_lock])
def test_cycles(kind: type[Lock], zk: KazooClient, zookeeper: Server, zk_path: str, eventually: Eventually) -> None:
    """Acquire and release, each time with an object of its own: all counts and the memory stay as they were."""
    lock = kind(zk, zk_path)

    def cycles(n: int) -> None:
        for _ in range(n):
            with kind(zk, zk_path):
                pass

    def look() -> dict[str, int]:
        with lock:  # else the server might reap the path between two cycles, and what the next makes would be more
            return left(zk, zookeeper)

    cycles(SOME)
    before, blocks = look(), sys.getallocatedblocks()
    cycles(CYCLES // 3)
    eventually(lambda: not more(look(), before), str(before))
    assert sys.getallocatedblocks() - blocks < SOME
    session = lock._session
    eventually(lambda: not any((session.registry.tickets, session.registry.deletes, session.deletes.in_flight)))


def test_cycles_of_those_who_wait(
    zk: KazooClient, zookeeper: Server, connect: Connect, zk_path: str, eventually: Eventually, in_thread: InThread
) -> None:
    """Waiters that time out, that are handed the lock, and readers behind writers: nothing of them is left."""
    other = connect()
    held, waits = Lock(other, zk_path), Lock(zk, zk_path)
    pair = ReadWriteLock(zk, f"{zk_path}-pair")

    def cycles(n: int) -> None:
        with held:
            for _ in range(n):
                assert not waits.acquire(timeout=0.001)
        for _ in range(n):
            with pair.write_lock:
                reading = in_thread(lambda: pair.read_lock.acquire() and pair.read_lock.release())
            reading.result(10)

    def look() -> dict[str, int]:
        with held, pair.write_lock:  # as above
            return left(zk, zookeeper)

    cycles(20)
    before, blocks = look(), sys.getallocatedblocks()
    cycles(SOME)
    # A watcher on a node stays until it goes, however many waited for it.
    eventually(lambda: not more(look(), before), str(before))
    # What this test itself keeps: a future and a thread for each.
    assert sys.getallocatedblocks() - blocks < 40 * SOME


def test_connections_that_come_and_go(
    zookeeper: Server, connect: Connect, proxy: Proxy, zk_path: str, eventually: Eventually
) -> None:
    """A hold, and a wait, over many lost connections: no listener, watcher, thread or descriptor is added by one."""
    client = connect(
        hosts=proxy.hosts, timeout=10, connection_retry={"max_tries": -1, "delay": 0.01, "max_delay": 0.05}
    )
    lock = Lock(client, zk_path)

    def drops(n: int) -> None:
        for _ in range(n):
            proxy.cut()
            assert lock.locked()  # waits until it is connected

    with lock:
        drops(3)
        before = left(client, zookeeper)
        drops(30)
        eventually(lambda: not more(left(client, zookeeper), before), str(before))
        assert not lock.lost.is_set()
