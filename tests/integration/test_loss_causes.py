"""Each cause of a loss, brought about in earnest: the error and the log name it."""

from __future__ import annotations

import itertools
import os
import pickle
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect
from tests.helpers.eventually import eventually
from tests.helpers.processes import line_from, python
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    Condition,
    DoubleBarrier,
    Election,
    Group,
    Lock,
    LockLostError,
    LossCause,
    MultiLock,
    Queue,
    ReadWriteLock,
    Semaphore,
)
from zkconcurrent import connect as connected
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
    logged = [record.getMessage() for record in caplog.records if record.getMessage().startswith("lost: ")]
    assert len(logged) == 1
    assert f"(fencing token {token}): its session expired; held for " in logged[0]
    (record,) = (record for record in caplog.records if record.name == "zkconcurrent.losses")
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


def test_slow_replies(held: Lock, proxy: Proxy) -> None:
    """Each reply comes, and a little later than the one before, until none proves the lease in time."""
    event = held.lost
    delays = itertools.count(SESSION / 120, SESSION / 120)
    while not event.wait(SESSION / 20):
        proxy.delay(next(delays))
    error = lost(held)
    assert error.cause is LossCause.LEASE_ENDED
    assert "its lease ran out, as ZooKeeper's replies were slow; held for " in str(error)


PAUSED = """
import sys, zkconcurrent
lock = zkconcurrent.Lock(zkconcurrent.connect(f"zk://{sys.argv[1]}?timeout=4"), sys.argv[2])
lock.acquire()
print("held", flush=True)
lock.lost.wait(60)
try:
    lock.release()
except zkconcurrent.LockLostError as error:
    print(error.cause.value, error, flush=True)
"""


def test_this_process_was_paused(zookeeper: Server, zk_path: str, zk: KazooClient, tmp_path: Any) -> None:
    """The process was stopped for longer than its session lives, and goes on."""
    with python("-c", PAUSED, zookeeper.hosts, zk_path, folder=tmp_path) as process:
        assert line_from(process) == "held"
        os.kill(process.pid, signal.SIGSTOP)
        try:
            with Lock(zk, zk_path):  # its session has expired
                pass
        finally:
            os.kill(process.pid, signal.SIGCONT)
        cause, _, text = line_from(process).partition(" ")
    assert cause == "lease_ended"
    assert "its lease ran out, as this process was paused, or its threads did not run" in text


def delete(zk: KazooClient, path: str) -> None:
    """Have an operator delete the only node below a path."""
    (name,) = zk.get_children(path)
    zk.delete(f"{path}/{name}")


def test_a_permit_and_a_term(zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """The holds of a semaphore and of an election give the same causes."""
    client = connect(timeout=SESSION)
    semaphore, election = Semaphore(client, f"{zk_path}/1", 2), Election(client, f"{zk_path}/2")
    semaphore.acquire()
    with pytest.raises(LockLostError) as caught, election.lead() as term:
        zookeeper.expire(client)
        assert term.lost.wait(20)
    assert caught.value.cause is LossCause.SESSION_EXPIRED
    assert lost(semaphore).cause is LossCause.SESSION_EXPIRED


def test_a_refused_authentication(connect: Connect, zk_path: str) -> None:
    """The servers have refused the client's credentials, which ends it."""
    lock = Lock(connect(timeout=SESSION), zk_path)
    lock.acquire()
    event = lock.lost
    lock.client.add_auth_async("nosuch", "credentials")
    assert event.wait(20)
    assert lost(lock).cause is LossCause.CLIENT_GAVE_UP


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
    else:
        several = MultiLock([Lock(client, f"{zk_path}/{name}") for name in "ab"])
        several.acquire()
        delete(zk, f"{zk_path}/b")
        with pytest.raises(LockLostError) as caught:
            several.release()
    assert caught.value.cause is LossCause.NODE_DELETED


def test_a_loss_just_after_the_release_has_looked(
    zk: KazooClient, connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release raises the error all the same: it looks again as it ends the hold."""
    lock = Lock(connect(timeout=SESSION), zk_path)
    lock.acquire()
    core, event = lock._lock_core, lock.lost
    check = core.check

    def check_then_lose(*args: Any) -> None:
        check(*args)
        delete(zk, zk_path)
        assert event.wait(20)

    with monkeypatch.context() as patched:
        patched.setattr(core, "check", check_then_lose)
        with pytest.raises(LockLostError):
            lock.release()
    with lock:
        pass


def test_a_reconnect_that_shortens_the_timeout() -> None:
    """The server comes back with a lower limit, and grants the same session less than the outage has lasted."""
    with Server(max_session_timeout=60) as server, connected(f"zk://{server.hosts}?timeout=40") as client:
        lock = Lock(client, "/lock")
        lock.acquire()
        event, session = lock.lost, client.client_id[0]
        server.kill()
        server._settings["maxSessionTimeout"] = 2000
        assert not event.wait(3)
        server.start()
        assert event.wait(30)
        error = lost(lock)
        if client.client_id[0] == session:
            assert "as a reconnect has shortened the session timeout" in str(error)
        assert error.cause is LossCause.LEASE_ENDED


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


@pytest.mark.parametrize("expires", [True, False])
def test_inside_a_double_barrier(
    expires: bool, zk: KazooClient, zookeeper: Server, connect: Connect, zk_path: str
) -> None:
    """A party inside is lost with its session, or as its node is deleted."""
    barrier = DoubleBarrier(connect(timeout=SESSION), zk_path, 1)
    barrier.enter()
    if expires:
        before = barrier.client.client_id
        zookeeper.expire(barrier.client)
        eventually(lambda: barrier.client.connected and barrier.client.client_id != before, "the next session")
    else:
        for name in zk.get_children(zk_path):
            if "party" in name:
                zk.delete(f"{zk_path}/{name}")
    with pytest.raises(LockLostError) as caught:
        barrier.leave()
    assert caught.value.cause is (LossCause.SESSION_EXPIRED if expires else LossCause.NODE_DELETED)


@pytest.mark.parametrize("how", ["expires", "deleted", "stopped", "gives up"])
def test_a_membership(
    how: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A membership whose id another took says why its node had gone; one whose client has ended says that."""
    options: dict[str, Any] = {"connection_retry": {"max_tries": 2, "delay": 0.1}} if how == "gives up" else FAST
    client = connect(hosts=proxy.hosts, timeout=SESSION, **options)
    member = Group(client, zk_path).join(b"mine", "id")
    assert member.cause is None
    others = Group(zk, zk_path)
    if how == "expires":
        old = client.client_id
        proxy.refuse()
        proxy.cut()
        eventually(lambda: not client.connected)
        connect(client_id=old).stop()  # closes the session
        others.join(b"theirs", "id")
        proxy.resume()
    elif how == "deleted":
        transaction = zk.transaction()
        transaction.delete(member.path)
        transaction.create(member.path, b"theirs", ephemeral=True)
        transaction.commit()
    elif how == "stopped":
        client.stop()
    else:
        proxy.refuse()
        proxy.cut()
    assert member.lost.wait(20)
    cause = {
        "expires": LossCause.SESSION_EXPIRED,
        "deleted": LossCause.NODE_DELETED,
        "stopped": LossCause.CLIENT_STOPPED,
        "gives up": LossCause.CLIENT_GAVE_UP,
    }[how]
    assert member.cause is cause
    if how in ("expires", "deleted"):
        found = lambda: [record for record in caplog.records if record.name == "zkconcurrent.losses"]  # noqa: E731
        eventually(found)
        (record,) = found()
        assert (vars(record)["zk_path"], vars(record)["zk_cause"]) == (f"{zk_path}/id", cause.value)
        why = {"expires": "its session expired", "deleted": "its node was deleted"}[how]
        assert f"the membership {zk_path}/id is lost: {why}, and then: the group" in record.getMessage()
