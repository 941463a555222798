"""`release(wait=False)` and `hold(wait_release=False)`: the delete is sent, and nobody waits for its reply."""

from __future__ import annotations

import logging

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import AnyLock, Kind, every
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock, LockLostError, LossCause, RLock, Semaphore, synchronized
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server


@every
def test_it_returns_before_the_reply(kind: Kind, connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str) -> None:
    """While the reply to the delete is held back, the call has returned; the next client has its turn."""
    client = connect(proxy.hosts)
    lock, other = kind(client, zk_path), kind(zk, zk_path)
    lock.acquire()
    with proxy.hold("delete") as held:
        lock.release(wait=False)  # type: ignore[call-arg]
        assert lock.hold_count() == 0
        held.wait()
        assert Session.of(client).registry.deletes
        with other:
            pass


@every
def test_the_next_acquire_goes_behind_it(kind: Kind, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A client never waits for itself: each cycle is a create, a listing and a delete, and each token is higher."""
    lock, tokens, n = kind(connect(proxy.hosts), zk_path), [], 30
    with lock:
        pass
    with proxy.counting() as count:
        for _ in range(n):
            lock.acquire()
            tokens.append(lock.fencing_token)
            lock.release(wait=False)  # type: ignore[call-arg]
        lock.acquire()
        lock.release()
    sent = count.requests
    # An unfair lock may keep its node.
    assert set(sent) <= {"create2", "getChildren", "delete"}
    assert sent["create2"] == sent["delete"] == n + 1
    assert sorted(set(tokens)) == tokens


@every
def test_a_block(kind: Kind, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """The end of the block waits for nothing; one that acquires again waits for nothing either."""
    client = connect(proxy.hosts)
    lock: AnyLock = kind(client, zk_path)
    with lock.hold(wait_release=False):  # type: ignore[call-arg]
        pass
    block = lock.hold(5, wait_release=False)  # type: ignore[call-arg]
    with proxy.hold("delete") as held:
        with block:
            assert lock.hold_count() == 1
        assert lock.hold_count() == 0
        held.wait()
        assert Session.of(client).registry.deletes


@pytest.mark.fault(295)
def test_a_node_that_was_gone(
    connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`lost` is set, `on_lost` called, and a warning logged; no call raises, not the next acquire either."""
    told: list[object] = []
    lock = Lock(connect(proxy.hosts), zk_path, on_lost=told.append)
    lock.acquire()
    lost, (node,) = lock.lost, zk.get_children(zk_path)
    with caplog.at_level(logging.WARNING, "zkconcurrent.losses"):
        # Until the release, the client hears nothing of it.
        proxy.stall(to_server=False)
        zk.delete(f"{zk_path}/{node}")
        lock.release(wait=False)
        proxy.resume()
        lock.acquire()
        assert lost.wait(20)
        eventually(lambda: told == [lock])
        eventually(lambda: [each.name for each in caplog.records].count("zkconcurrent.losses") == 1)
    assert node in caplog.text
    assert not lock.lost.is_set()
    lock.release()


def test_a_hold_that_is_known_to_be_lost(connect: Connect, zookeeper: Server, zk_path: str) -> None:
    """The lease is checked before, so the call raises, as any release does."""
    client = connect()
    lock = Lock(client, zk_path)
    lock.acquire()
    lost = lock.lost
    zookeeper.expire(client)
    assert lost.wait(20)
    with pytest.raises(LockLostError) as raised:
        lock.release(wait=False)
    assert raised.value.cause is LossCause.SESSION_EXPIRED
    with pytest.raises(RuntimeError):
        lock.release(wait=False)


def test_synchronized(connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """The end of a call waits for nothing; a lock whose release always waits is refused."""
    client = connect(proxy.hosts)
    lock = RLock(client, zk_path)
    call = synchronized(client, zk_path, wait_release=False)(lambda: lock.hold_count())
    with proxy.hold("delete") as held:
        assert call() == 1
        held.wait()
        assert Session.of(client).registry.deletes
    with pytest.raises(TypeError, match="always waits"):
        synchronized(Semaphore(client, f"{zk_path}-permits"), wait_release=False)
