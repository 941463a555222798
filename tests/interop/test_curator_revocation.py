"""`revoke()` asks a Java holder on Curator, and Curator's `Revoker` asks a holder here; waiters wait on as before."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import children, queued
from tests.helpers.curator import CuratorClient
from tests.helpers.curator_threads import LONG
from tests.helpers.eventually import eventually
from tests.interop.conftest import ConnectJava
from zkconcurrent import Lock, ReadWriteLock, RLock
from zkconcurrent._protocol.ticket import REVOKED

KINDS = {
    "mutex": RLock,
    "read": lambda *args, **options: ReadWriteLock(*args, **options).read_lock,
    "write": lambda *args, **options: ReadWriteLock(*args, **options).write_lock,
}
every = pytest.mark.parametrize("name", KINDS)


@every
def test_we_ask_java(java: CuratorClient, client: KazooClient, zk_path: str, name: str) -> None:
    """A Java holder's listener is called once for each `revoke()`; once it lets go, we get in."""
    lock = KINDS["write" if name == "read" else name](client, zk_path)
    java.call(f"{name}.makeRevocable", zk_path).result(LONG)
    java.call(f"{name}.acquire", zk_path).result(LONG)
    for n in range(1, 4):
        assert lock.revoke() == 1
        eventually(lambda n=n: java.call(f"{name}.revoked", zk_path).result(LONG) == str(n))
    owner = lock.owner()
    assert (owner.host, owner.revoked) == (None, True)
    assert not lock.acquire(timeout=0.2)
    java.call(f"{name}.release", zk_path).result(LONG)
    assert lock.acquire(timeout=LONG)
    lock.release()
    assert lock.revoke() == 0


@every
def test_java_asks_us(java: CuratorClient, client: KazooClient, zk_path: str, name: str) -> None:
    """`on_revoke` is called once for each `attemptRevoke`; Java waits until we let go, and then gets in."""
    told: list[object] = []
    lock = KINDS[name](client, zk_path, on_revoke=told.append)
    other = "write" if name == "read" else name
    with lock:
        for n in range(1, 4):
            asked = java.call(f"{name}.revoke", zk_path).result(LONG)
            assert client.get(asked)[0] == REVOKED
            eventually(lambda n=n: told == [lock] * n)
        waiting = java.call(f"{other}.acquire", zk_path)
        eventually(lambda: lock.waiters())
        # Java's watch on our node fires, and it waits on.
        java.call(f"{name}.revoke", zk_path, thread="other").result(LONG)
        eventually(lambda: told == [lock] * 4)
        assert not waiting.done()
    assert waiting.result(LONG) == "true"
    java.call(f"{other}.release", zk_path).result(LONG)


@pytest.mark.fault(291)
def test_a_java_waiter_is_asked(java: CuratorClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A Java waiter keeps its place between two of ours, whose waits also bear the overwritten node."""
    first, last = Lock(connect(), zk_path), Lock(connect(), zk_path)
    java.call("mutex.makeRevocable", zk_path).result(LONG)
    first.acquire()
    waiting = java.call("mutex.acquire", zk_path)
    eventually(queued(first.client, zk_path, 2))
    behind = in_thread(last.acquire, timeout=LONG)
    eventually(queued(first.client, zk_path, 3))
    first.client.set(f"{zk_path}/{children(first.client, zk_path)[1]}", REVOKED)
    assert not waiting.done()
    first.release()
    assert waiting.result(LONG) == "true"
    assert not behind.done()
    java.call("mutex.release", zk_path).result(LONG)
    assert behind.result(LONG)
    last.release()


@pytest.mark.fault(291)
def test_a_python_waiter_is_asked(
    connect_java: ConnectJava, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """A waiter here keeps its place between two Java clients; it is told once it holds."""
    ahead, behind = connect_java(), connect_java()
    told: list[object] = []
    lock = Lock(connect(), zk_path, on_revoke=told.append)
    ahead.call("mutex.acquire", zk_path).result(LONG)
    getting = in_thread(lock.acquire, timeout=LONG)
    eventually(queued(lock.client, zk_path, 2))
    waiting = behind.call("mutex.acquire", zk_path)
    eventually(queued(lock.client, zk_path, 3))
    lock.client.set(f"{zk_path}/{children(lock.client, zk_path)[1]}", REVOKED)
    ahead.call("mutex.release", zk_path).result(LONG)
    assert getting.result(LONG)
    eventually(lambda: told == [lock])
    assert not waiting.done()
    lock.release()
    assert waiting.result(LONG) == "true"
