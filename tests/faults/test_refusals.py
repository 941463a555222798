"""A refusal by the service is an error that says what to do, and leaves nothing.

A read-only server is none that could refuse: kazoo (2.11) cannot read what one (ZooKeeper 3.8) answers to a connection,
and goes on as if no server were there.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    Barrier,
    Event,
    Group,
    Lock,
    Queue,
    RefusedError,
)
from zkconcurrent._engine import heartbeat
from zkconcurrent._engine.session import Session
from zkconcurrent._memory import wire
from zkconcurrent.testing import Ensemble, Server

pytestmark = pytest.mark.fault(31)


@pytest.mark.fault(223)
def test_credentials_that_are_demanded(zk_path: str) -> None:
    """The servers demand a user and a password (`enforce.auth`): the error says that, and not SASL alone."""
    demands = {"zookeeper.enforce.auth.enabled": "true", "zookeeper.enforce.auth.schemes": "digest"}
    with Server(properties=demands) as server:
        with pytest.raises(RefusedError, match="auth_data"):
            zkconcurrent.connect(f"zk://{server.hosts}?timeout=6")
        with zkconcurrent.connect(f"zk://user:password@{server.hosts}?timeout=6") as client, Lock(client, zk_path):
            pass


def test_a_quota_that_is_used_up(zk_path: str) -> None:
    """A caller that would exceed it is told so, and leaves no node; there is room again once the holder has left."""
    with Server(settings={"enforceQuota": "true"}) as server, server.client() as one, server.client() as other:
        one.ensure_path(zk_path)
        quota = f"/zookeeper/quota{zk_path}"
        one.ensure_path(quota)
        # The path itself counts: there is room for one node below it.
        one.create(f"{quota}/zookeeper_stats", b"count=1,bytes=0")
        one.create(f"{quota}/zookeeper_limits", b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2")
        mine, theirs = Lock(one, zk_path), Lock(other, zk_path)
        with mine:
            with pytest.raises(RefusedError, match="quota"):
                theirs.acquire()
            assert len(one.get_children(zk_path)) == 1
        eventually(queued(one, zk_path, 0))
        with theirs:
            pass


@pytest.mark.fault(189)
def test_local_sessions_that_stay_local(zk_path: str) -> None:
    """A call that needs an ephemeral node is refused, with the remedy, at a follower as at the leader."""
    with Ensemble(settings={"localSessionsEnabled": "true"}) as ensemble:
        for server in (ensemble.leader(), ensemble.followers()[0]):
            with server.client() as client:
                # The barrier makes its node in a `multi`.
                for call in (Lock(client, f"{zk_path}-lock").acquire, Barrier(client, f"{zk_path}-barrier", 1).wait):
                    refused = outcome_of(call)
                    assert isinstance(refused, RefusedError), (call, refused)
                    assert "localSessionsUpgradingEnabled" in str(refused)


@pytest.mark.fault(258)
def test_a_chroot_that_was_made_later(connect: Connect, zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """Once the chroot is there, the same client and object find that at their next call."""
    with pytest.warns(UserWarning, match="chroot"):
        group = Group(connect(f"{zookeeper.hosts}{zk_path}-missing"), "/group")
    with pytest.raises(RefusedError, match=r"chroot.*does not exist"):
        group.members()
    zk.ensure_path(f"{zk_path}-missing")
    assert group.members() == {}
    with group.join(id="me"):
        assert list(group.members()) == ["me"]


@pytest.mark.fault(193)
def test_a_trip_that_is_refused(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """One that may not trip it is told so, and leaves; so the others are told that it is broken, or why."""
    first, last = Barrier(zk, zk_path, 2), Barrier(connect(), zk_path, 2)
    waiting = in_thread(first.wait, 20)
    eventually(lambda: first.n_waiting == 1)
    zk.set_acls(zk_path, [make_acl("world", "anyone", read=True, create=True, delete=True, admin=True)])
    for wait in (lambda: last.wait(20), lambda: waiting.result(20)):
        with pytest.raises(RefusedError, match="NoAuth"):
            wait()


@pytest.mark.fault(388)
@pytest.mark.parametrize("back", [False, True], ids=["for good", "for a moment"])
def test_a_right_that_is_lost_during_a_wait(
    back: bool, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server tells the waiter of no change, and forgets its watch; it learns of that all the same."""
    monkeypatch.setattr(heartbeat, "LOOK_AGAIN", 0.1)
    client = connect(timeout=4)
    zk.add_auth("digest", "operator:secret")
    waiting = in_thread(Event(client, zk_path).wait)
    eventually(lambda: client._data_watchers.get(zk_path))
    before, _ = zk.get_acls(zk_path)
    zk.set_acls(zk_path, [make_digest_acl("operator", "secret", all=True)])
    zk.set(zk_path, b"1 set")
    if back:
        zk.set_acls(zk_path, before)
        assert waiting.result(20)
    else:
        with pytest.raises(RefusedError, match="NoAuth"):
            waiting.result(20)


@contextmanager
def without_delete(zk: KazooClient, path: str) -> Iterator[None]:
    """Have nobody the right to delete what is below a node, within the block."""
    before, _ = zk.get_acls(path)
    zk.set_acls(path, [make_acl("world", "anyone", read=True, write=True, create=True, admin=True)])
    yield
    zk.set_acls(path, before)


@pytest.mark.fault(53)
def test_a_release_without_the_right_to_delete(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused at once, with a warning that names the right; the node goes once there is the right."""
    lock = Lock(connect(proxy.hosts, timeout=6), zk_path)
    lock.acquire()
    with without_delete(zk, zk_path), caplog.at_level(logging.WARNING, "zkconcurrent"):
        with proxy.counting() as count, pytest.raises(RefusedError, match=f"{zk_path}.*DELETE"):
            lock.__exit__(None, None, None)
        assert count.requests["delete"] == 1  # it has not waited for another try
        # The keeper logs it, which is soon, and not with the session's lock held.
        eventually(lambda: [each for each in caplog.messages if "DELETE" in each and zk_path in each])
        assert queued(zk, zk_path, 1)()
    eventually(queued(zk, zk_path, 0), patience=30)
    assert lock.acquire(timeout=20)
    lock.release()


@pytest.mark.fault(365)
def test_the_end_of_a_claim_that_is_refused(
    zk: KazooClient, connect: Connect, zk_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again: else the item would stay claimed while the client lives, and a full queue full."""
    queue = Queue[bytes](connect(timeout=6), zk_path)
    queue.put(b"x")
    with ExitStack() as refused, caplog.at_level(logging.WARNING, "zkconcurrent"):
        with pytest.raises(RefusedError), queue.claim():
            refused.enter_context(without_delete(zk, f"{zk_path}/claims"))
        eventually(lambda: [each for each in caplog.messages if "tried again" in each and zk_path in each])
        assert zk.get_children(f"{zk_path}/claims")
    eventually(lambda: not zk.get_children(f"{zk_path}/claims"))
    assert queue.qsize() == 0


@pytest.mark.fault(53)
def test_a_create_that_is_refused(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It made no node, so none is looked for, which may be refused too, again and again."""
    client = connect(proxy.hosts, timeout=6)
    lock = Lock(client, zk_path)
    with lock:
        pass
    before, _ = zk.get_acls(zk_path)
    zk.set_acls(zk_path, [make_acl("world", "anyone", write=True, delete=True, admin=True)])
    with proxy.counting() as count, pytest.raises(RefusedError, match="NoAuth"):
        lock.acquire()
    assert not Session.of(client).registry.deletes
    assert count.requests["create2"] == 1
    assert "not deleted" not in caplog.text
    zk.set_acls(zk_path, before)
    with lock:
        pass


def outcome_of(function: Callable[[], object]) -> object:
    """Run a function in a thread of its own; return its result, or its error."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert outcome, "it hangs"
    return outcome[0]


def largest_request(client: KazooClient) -> int:
    """Return how many bytes a request of the client may have."""
    return Session.of(client).link.transport.max_request


@pytest.mark.fault(50)
@pytest.mark.parametrize("size", [None, 1500])
def test_a_request_larger_than_the_server_takes(size: int | None, connect: Connect, zk_path: str) -> None:
    """It is refused before it is sent, and costs the client neither its connection nor other holds."""
    client = connect(timeout=30)
    states: list[str] = []
    client.add_listener(states.append)
    if size is not None:
        client.max_request = size
    with Lock(client, f"{zk_path}/held"):
        assert largest_request(client) == size or (size is None and 1_000_000 <= largest_request(client) <= 0xFFFFF)
        lock = Lock(client, f"{zk_path}/large")
        rights = make_acl("digest", "somebody:" + "x" * 20, all=True)
        client.default_acl = [rights] * (largest_request(client) // 40)  # each has more bytes than that
        with pytest.raises(RefusedError, match=f"{largest_request(client):,}") as refused:
            lock.acquire(timeout=15)
        assert f"{zk_path}/large" in str(refused.value)
        client.default_acl = None
        assert lock.acquire(timeout=15)
        lock.release()
    assert not states


@pytest.mark.fault(192)
def test_many_holds_and_small_requests(connect: Connect, zk_path: str) -> None:
    """The heartbeat of a client with small requests takes several of them, and all that it holds stays."""
    client = connect(timeout=4)
    client.max_request = 1500
    locks = [Lock(client, f"{zk_path}/{n}") for n in range(30)]
    for lock in locks:
        lock.acquire()
    lease = Session.of(client).registry.lease
    end = lease.end
    eventually(lambda: lease.end > end + lease.timeout or locks[0].lost.is_set())  # all others have proved it by then
    assert not any(lock.lost.is_set() for lock in locks)
    for lock in locks:
        lock.release()


@pytest.mark.fault(400)
def test_a_request_larger_than_the_servers_say(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, in_thread: InThread
) -> None:
    """Servers that take smaller requests than the client sends end each connection; the log says why."""
    monkeypatch.setattr(wire, "_LONGEST", 100_000)
    with zkconcurrent.connect("memory:narrow", timeout=30) as client:
        queue = Queue(client, "/queue")
        queue.put(bytes(50_000))
        putting = in_thread(lambda: outcome_of(lambda: queue.put(bytes(200_000))))
        (warning,) = eventually(lambda: [each for each in caplog.messages if "jute.maxbuffer" in each][:1])
        assert re.search(r"with a request of 200,\d\d\d bytes .* smaller max_request", warning)
        client.stop()
        assert isinstance(putting.result(), Exception)
