"""Levels, deaths and what each side sees, where our RLock and Curator's InterProcessMutex are one lock."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.helpers.contenders import children
from tests.helpers.curator import CuratorClient, CuratorPeer
from tests.helpers.curator_threads import LONG, SHORT
from tests.helpers.eventually import eventually
from tests.helpers.processes import Spawn, line_from
from tests.interop.conftest import SESSION
from zkconcurrent import LockLostError, RLock
from zkconcurrent.testing import Server

pytestmark = pytest.mark.fault(21)

BRIEF, PATIENT = (round(each * 1000) for each in (SHORT, LONG))


def test_every_level_of_ours_excludes_java(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """Java gets in when the last of our levels is released, and not before."""
    lock = RLock(client, zk_path)
    with lock:
        with lock:
            assert java.call("mutex.acquire", zk_path, BRIEF).result(LONG) == "false"
        assert java.call("mutex.acquire", zk_path, BRIEF).result(LONG) == "false"
    assert java.call("mutex.acquire", zk_path, PATIENT).result(LONG) == "true"


def test_every_level_of_javas_excludes_us(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """We get in when the last of Java's levels is released, and not before."""
    lock = RLock(client, zk_path)
    for _ in range(2):
        java.call("mutex.acquire", zk_path).result(LONG)
    java.call("mutex.release", zk_path).result(LONG)
    assert not lock.acquire(timeout=SHORT)
    java.call("mutex.release", zk_path).result(LONG)
    assert lock.acquire(timeout=LONG)
    lock.release()


def test_java_process_is_killed_while_holding(zookeeper: Server, client: KazooClient, zk_path: str) -> None:
    """When a Java holder is killed, the one that waits here gets in as its session times out."""
    lock = RLock(client, zk_path)
    with CuratorPeer() as peer:
        peer.client(zookeeper.hosts, SESSION).call("mutex.acquire", zk_path).result(LONG)
        peer.kill()
        assert not lock.acquire(blocking=False)
        assert lock.acquire(timeout=LONG)
    lock.release()


def test_our_process_is_killed_while_holding(java: CuratorClient, spawn: Spawn, zk_path: str) -> None:
    """When a Python holder is killed, Java gets in as its session times out."""
    holder = spawn("hold")
    line_from(holder)
    assert java.call("mutex.acquire", zk_path, BRIEF).result(LONG) == "false"
    holder.kill()
    assert java.call("mutex.acquire", zk_path, PATIENT).result(LONG) == "true"


def test_our_process_is_killed_while_waiting(
    java: CuratorClient, client: KazooClient, spawn: Spawn, zk_path: str
) -> None:
    """When a Python waiter between two Java contenders is killed, the one behind it is not granted too early."""
    java.call("mutex.acquire", zk_path, thread="one").result(LONG)
    waiter = spawn("hold")
    eventually(lambda: len(children(client, zk_path)) == 2)
    behind = java.call("mutex.acquire", zk_path, thread="two")
    eventually(lambda: len(children(client, zk_path)) == 3)
    waiter.kill()
    eventually(lambda: len(children(client, zk_path)) == 2)
    assert java.call("mutex.owned", zk_path, thread="one").result(LONG) == "true"
    assert not behind.done()
    java.call("mutex.release", zk_path, thread="one").result(LONG)
    assert behind.result(LONG) == "true"


def test_our_session_ends_while_holding(
    java: CuratorClient, zookeeper: Server, client: KazooClient, zk_path: str
) -> None:
    """When the server ends the session of a holder here, Java gets in, and the holder is told by its release."""
    lock = RLock(client, zk_path)
    lock.acquire()
    lost = lock.lost
    waiting = java.call("mutex.acquire", zk_path)
    eventually(lambda: len(children(client, zk_path)) == 2)
    zookeeper.expire(client)
    assert waiting.result(LONG) == "true"
    assert lost.wait(LONG)
    with pytest.raises(LockLostError):
        lock.release()
    assert java.call("mutex.owned", zk_path).result(LONG) == "true"


def test_we_see_java_in_the_queue(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """The owner and the waiters are told with what can be known of Java's: the session, the node, the address."""
    lock = RLock(client, zk_path)
    java.call("mutex.acquire", zk_path, thread="one").result(LONG)
    waiting = java.call("mutex.acquire", zk_path, thread="two")
    eventually(lambda: len(children(client, zk_path)) == 2)
    contenders = [lock.owner(), *lock.waiters()]
    assert [each and each.node for each in contenders] == [f"{zk_path}/{name}" for name in children(client, zk_path)]
    for place, each in enumerate(contenders):
        assert (each.session, each.pid, each.thread, each.position) == (java.session, None, None, place)
        assert each.host == client.get(each.node)[0].decode()
    java.call("mutex.release", zk_path, thread="one").result(LONG)
    assert waiting.result(LONG) == "true"
