"""Levels, and what each side sees, where our RLock and Curator's InterProcessMutex are one lock."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.helpers.contenders import children
from tests.helpers.curator import CuratorClient
from tests.helpers.curator_threads import LONG, SHORT
from tests.helpers.eventually import eventually
from zkconcurrent import RLock

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
