"""Our Semaphore and Curator's InterProcessSemaphoreV2 and InterProcessSemaphoreMutex share their permits."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.contenders import permits_awaited, permits_out
from tests.helpers.curator import CuratorClient
from tests.helpers.curator_threads import LONG, SHORT
from tests.helpers.eventually import eventually
from zkconcurrent import BoundedSemaphore, Semaphore

pytestmark = pytest.mark.fault(21)

BRIEF = round(SHORT * 1000)


def test_java_holds(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """A permit that Java holds is not available here: of three permits with two out, one is."""
    semaphore = Semaphore(client, zk_path, 3)
    assert java.call("semaphore.acquire", zk_path, 3, 2).result(LONG) == "true"
    assert not semaphore.acquire(permits=2, blocking=False)
    assert not semaphore.acquire(permits=2, timeout=SHORT)
    assert semaphore.acquire(timeout=LONG)
    assert semaphore.locked()
    semaphore.release()
    java.call("semaphore.release", zk_path, 3).result(LONG)
    assert semaphore.acquire(permits=2, timeout=LONG)
    semaphore.release(2)


def test_we_hold(java: CuratorClient, client: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Java can't have a permit that we hold; it gets in as we release, and we behind it as it releases."""
    semaphore = Semaphore(client, zk_path, 2)
    semaphore.acquire(permits=2)
    assert java.call("semaphore.acquire", zk_path, 2, 1, BRIEF).result(LONG) == "false"
    eventually(permits_out(client, zk_path, 2))
    first = java.call("semaphore.acquire", zk_path, 2)
    eventually(permits_out(client, zk_path, 3))  # Curator makes its lease before it knows whether it may
    behind = in_thread(semaphore.acquire)
    eventually(permits_awaited(client, zk_path, 2))
    assert not semaphore.acquire(blocking=False)
    semaphore.release()
    assert first.result(LONG) == "true"
    eventually(permits_awaited(client, zk_path, 1))
    assert not behind.done()
    java.call("semaphore.release", zk_path, 2).result(LONG)
    assert behind.result(LONG)
    semaphore.release(2)
    eventually(permits_out(client, zk_path, 0))


def test_java_waits_behind_us(java: CuratorClient, client: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Java keeps its place behind one of ours that waits for more than is free."""
    semaphore = Semaphore(client, zk_path, 2)
    semaphore.acquire()
    first = in_thread(semaphore.acquire, permits=2)
    eventually(permits_awaited(client, zk_path, 1))
    behind = java.call("semaphore.acquire", zk_path, 2)
    eventually(permits_awaited(client, zk_path, 2))
    assert not behind.done()
    semaphore.release()
    assert first.result(LONG)
    assert not behind.done()
    semaphore.release()
    assert behind.result(LONG) == "true"
    semaphore.release()


def test_a_semaphore_mutex(java: CuratorClient, client: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Curator's InterProcessSemaphoreMutex is a Semaphore of one permit, both ways."""
    semaphore = BoundedSemaphore(client, zk_path)
    with semaphore:
        assert java.call("semaphoreMutex.acquire", zk_path, BRIEF).result(LONG) == "false"
        theirs = java.call("semaphoreMutex.acquire", zk_path)
        eventually(permits_out(client, zk_path, 2))
    assert theirs.result(LONG) == "true"
    assert not semaphore.acquire(blocking=False)
    mine = in_thread(semaphore.acquire)
    eventually(permits_awaited(client, zk_path, 1))
    java.call("semaphoreMutex.release", zk_path).result(LONG)
    assert mine.result(LONG)
    semaphore.release()
