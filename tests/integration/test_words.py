"""What errors and pages say, on a real server: the cause of a loss, and what excludes what."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from zkconcurrent import Lock, LockLostError, RLock


def test_they_exclude_each_other(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Either waits for the other."""
    lock, rlock = Lock(zk, zk_path), RLock(connect(), zk_path)
    with lock:
        assert not rlock.acquire(timeout=0.2)
    with rlock:
        assert not lock.acquire(timeout=0.2)


@pytest.mark.fault(259)
def test_the_loss_of_a_stopped_client(connect: Connect, zk_path: str) -> None:
    """The loss of a hold after `stop` and after `restart` names this cause alone."""
    for end in (KazooClient.stop, KazooClient.restart):
        client = connect()
        lock = Lock(client, zk_path)
        lock.acquire()
        end(client)
        with pytest.raises(
            LockLostError,
            match=r"lost \(its client was stopped; held for [\d.]+ s; the last proof of its lease was sent [\d.]+ s",
        ):
            lock.release()
