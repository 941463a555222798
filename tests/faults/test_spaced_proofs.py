"""Proofs that are far apart do not delay the end of a hold that is lost."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.helpers.eventually import eventually
from zkconcurrent import Lock, LossCause
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

LONG = 40.0  # seconds: a proof each 10 s, a beat each 3 s


def watched(zk: KazooClient, node: str) -> None:
    """Wait until the node of a hold is watched."""
    eventually(lambda: node in zk._data_watchers, patience=LONG / 4)


@pytest.mark.long
def test_a_node_that_an_operator_deletes(zookeeper: Server, zk_path: str) -> None:
    """Its watch tells the holder; so it does after a change of the node's data has used up a first watch."""
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}", timeout=LONG) as zk:
        lock = Lock(zk, zk_path)
        lock.acquire()
        node = lock.owner().node  # type: ignore[union-attr]
        watched(zk, node)
        zk.set(node, zk.get(node)[0])
        heartbeat, lease = Session.of(zk).heartbeat, Session.of(zk).registry.lease
        before = heartbeat._checked
        eventually(lambda: heartbeat._checked > before, patience=LONG)
        watched(zk, node)
        due = heartbeat._checked + lease.spacing
        zk.delete(node)
        eventually(lock.lost.is_set, patience=lease.spacing)
        assert Session.of(zk).clock() < due - lease.spacing / 4
        with pytest.raises(zkconcurrent.LockLostError) as caught:
            lock.release()
        assert caught.value.cause is LossCause.NODE_DELETED
        assert lock.acquire(timeout=LONG)
        lock.release()
