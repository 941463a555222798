"""Each cause of a loss, brought about in earnest: the error and the log name it."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    Condition,
    Election,
    Lock,
    LockLostError,
    LossCause,
    MultiLock,
    Queue,
    ReadWriteLock,
)
from zkconcurrent.testing import Server

SESSION = 4.0  # seconds


def lost(lock: Any) -> LockLostError:
    """Return the error of a lost hold's release."""
    with pytest.raises(LockLostError) as caught:
        lock.release()
    return caught.value


@pytest.fixture
def held(connect: Connect, proxy: Proxy, zk_path: str) -> Lock:
    """A lock that a client holds behind the proxy, with its token as an attribute of the test's own."""
    lock = Lock(connect(hosts=proxy.hosts, timeout=SESSION, **FAST), zk_path)
    lock.acquire()
    return lock


def test_the_session_expired(held: Lock, zookeeper: Server, caplog: pytest.LogCaptureFixture) -> None:
    """The servers have ended the session; the log says the same as the error."""
    token, event, owner = held.fencing_token, held.lost, held.owner()
    assert owner is not None
    zookeeper.expire(held.client)
    assert event.wait(20)
    error = lost(held)
    assert (error.cause, error.token) == (LossCause.SESSION_EXPIRED, token)
    assert "its session expired; held for " in str(error)
    # A thread of the library's own writes the log.
    (record,) = eventually(lambda: [each for each in caplog.records if each.name == "zkconcurrent.losses"])
    assert f"(fencing token {token}): its session expired; held for " in record.getMessage()
    fields = vars(record)
    assert (fields["zk_path"], fields["zk_token"], fields["zk_cause"]) == (held.path, token, "session_expired")
    assert fields["zk_by"] == owner.by
    again = pickle.loads(pickle.dumps(error))
    assert (again.cause, again.token, str(again)) == (error.cause, token, str(error))


@pytest.mark.fault(259)
@pytest.mark.parametrize("end", [KazooClient.stop, KazooClient.restart])
def test_the_client_was_stopped(end: Callable[[KazooClient], None], held: Lock) -> None:
    """The program has stopped or restarted the client; the error names this cause alone."""
    end(held.client)
    error = lost(held)
    assert error.cause is LossCause.CLIENT_STOPPED
    text = r"lost \(its client was stopped; held for [\d.]+ s; the last proof of its lease was sent [\d.]+ s"
    assert re.search(text, str(error))


@pytest.mark.parametrize("how", ["cut", "silent"])
def test_out_of_reach(how: str, held: Lock, proxy: Proxy) -> None:
    """The network is cut, or swallows what is sent: the lease runs out."""
    event = held.lost
    if how == "cut":
        proxy.refuse()
        proxy.cut()
    else:
        proxy.stall()
    assert event.wait(30)
    error = lost(held)
    assert error.cause is LossCause.LEASE_ENDED
    assert "its lease ran out, as ZooKeeper was out of reach; held for " in str(error)
    assert ", so others may have held it since 2" in str(error)


def delete(zk: KazooClient, path: str) -> None:
    """Have an operator delete the only node below a path."""
    (name,) = zk.get_children(path)
    zk.delete(f"{path}/{name}")


@pytest.mark.parametrize("where", ["downgrade", "condition", "term", "multilock"])
def test_a_deleted_node_wherever_it_is_noticed(where: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A downgrade, a condition's wait, a term and a joint lock tell the same cause as a release."""
    client = connect(timeout=SESSION)
    if where == "downgrade":
        both = ReadWriteLock(client, zk_path)
        both.write_lock.acquire()
        delete(zk, zk_path)
        with pytest.raises(LockLostError) as caught:
            both.read_lock.acquire()
        # The write lock's own loss is told, too.
        assert lost(both.write_lock).cause is LossCause.NODE_DELETED
    elif where == "condition":
        condition = Condition(client, zk_path)
        condition.acquire()
        delete(zk, f"{zk_path}/lock")
        with pytest.raises(LockLostError) as caught:
            condition.wait(20)
        with pytest.raises(LockLostError):
            condition.release()
    elif where == "term":
        with pytest.raises(LockLostError) as caught, Election(client, zk_path).lead() as term:
            delete(zk, zk_path)
            assert term.lost.wait(20)
        assert "release()" not in str(caught.value)
    else:
        several = MultiLock([Lock(client, f"{zk_path}/{name}") for name in "ab"])
        several.acquire()
        delete(zk, f"{zk_path}/b")
        with pytest.raises(LockLostError) as caught:
            several.release()
    assert caught.value.cause is LossCause.NODE_DELETED


@pytest.mark.parametrize("expires", [True, False])
def test_a_claim(expires: bool, zk: KazooClient, zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """A claim ends with its session, or as its node is deleted."""
    queue = Queue(connect(timeout=SESSION), zk_path)
    queue.put(b"item")
    with pytest.raises(LockLostError) as caught, queue.claim():
        if expires:
            zookeeper.expire(queue.client)
        else:
            delete(zk, f"{zk_path}/{next(name for name in zk.get_children(zk_path) if 'claim' in name)}")
    assert caught.value.cause is (LossCause.SESSION_EXPIRED if expires else LossCause.NODE_DELETED)
