"""Proofs that are far apart do not delay the end of a hold that is lost, and end none that is to survive an outage."""

from __future__ import annotations

import time

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import InThread
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock, LossCause
from zkconcurrent._engine.session import Session
from zkconcurrent._engine.watches import LINGER
from zkconcurrent.testing import Server

pytestmark = pytest.mark.long
LONG = 40.0  # seconds: a proof each 10 s, a beat each 3 s


def watched(zk: KazooClient, lock: Lock) -> str:
    """Return the node of a hold once it is watched."""
    owner = lock.owner()
    assert owner is not None
    eventually(lambda: owner.node in zk._data_watchers, patience=LONG / 4)
    return owner.node


def told_at_once(zk: KazooClient, lock: Lock, node: str) -> None:
    """Delete the node of a hold just after a proof; the hold is lost long before the next."""
    heartbeat, lease = Session.of(zk).heartbeat, Session.of(zk).registry.lease
    before = heartbeat._checked
    eventually(lambda: heartbeat._checked > before, patience=LONG)
    eventually(lambda: node in zk._data_watchers, patience=LONG / 4)
    due = heartbeat._checked + lease.spacing
    zk.delete(node)
    eventually(lock.lost.is_set, patience=lease.spacing)
    assert Session.of(zk).clock() < due - lease.spacing / 4
    with pytest.raises(zkconcurrent.LockLostError) as caught:
        lock.release()
    assert caught.value.cause is LossCause.NODE_DELETED


def test_a_node_that_an_operator_deletes(zookeeper: Server, zk_path: str) -> None:
    """Its watch tells the holder; so it does after a change of the node's data has used up a first watch."""
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}", timeout=LONG) as zk:
        lock = Lock(zk, zk_path)
        lock.acquire()
        node = watched(zk, lock)
        zk.set(node, zk.get(node)[0])
        told_at_once(zk, lock, node)
        assert lock.acquire(timeout=LONG)
        lock.release()


def test_a_waiter_of_the_same_client(zookeeper: Server, zk_path: str, in_thread: InThread) -> None:
    """A wait for the same node that ends has its own watch removed, and leaves that of the hold."""
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}", timeout=LONG) as zk:
        lock = Lock(zk, zk_path)
        lock.acquire()
        node = watched(zk, lock)
        assert not in_thread(lambda: Lock(zk, zk_path).acquire(timeout=0.5)).result(LONG)
        session = Session.of(zk)
        until = time.monotonic() + 3 * LINGER
        eventually(lambda: time.monotonic() > until and not session.registry.left, patience=LONG)
        told_at_once(zk, lock, node)


def test_a_watch_ends_with_the_hold(zookeeper: Server, zk_path: str) -> None:
    """Neither the client nor the server keeps the watch of a hold that was released."""
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}", timeout=4.0) as zk:
        for n in range(20):
            lock = Lock(zk, f"{zk_path}/{n}")
            with lock:
                node = watched(zk, lock)
            eventually(lambda node=node: node not in zk._data_watchers)
        eventually(lambda: not Session.of(zk).registry.tickets)


@pytest.mark.parametrize("known", [{}, {"tick": 0.2}, {"tick": 0.2, "survive": 1.0}], ids=str)
def test_an_outage_at_any_moment(known: dict[str, float], proxy: Proxy, zk_path: str) -> None:
    """A hold survives each outage that it is to survive, whenever it begins between two proofs."""
    timeout = 6.0
    with zkconcurrent.connect(f"zk://{proxy.hosts}", timeout=timeout, **known) as zk:
        lock = Lock(zk, zk_path)
        lock.acquire()
        session = Session.of(zk)
        lease = session.registry.lease
        survives = known.get("survive", 0.4 * timeout)
        n = 0
        while n < 6:
            # The lease of the last outage's end is a short one, until a later request is its q.
            now = session.clock()
            eventually(lambda now=now: lease.renewed and lease.heard > now, patience=2 * timeout)
            time.sleep(n / 6 * lease.spacing)
            began = session.clock()
            proxy.stall()
            time.sleep(0.75 * survives)
            proxy.resume()
            lost, lasted = lock.lost.is_set(), session.clock() - began
            # On a busy machine an outage may last for longer than the hold is to survive.
            n += lasted < survives
            assert not lost or lasted >= survives, n
            if lost:
                lock = Lock(zk, zk_path)
                assert lock.acquire(timeout=2 * timeout)
        assert lock.locked()
