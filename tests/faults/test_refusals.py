"""A refusal by the service is an error that says what to do, and leaves nothing.

A read-only server is none that could refuse: kazoo (2.11) cannot read what one (ZooKeeper 3.8) answers to a connection,
and goes on as if no server were there.
"""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError
from kazoo.security import make_acl, make_digest_acl

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import Kind, read_lock, write_lock
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    Barrier,
    ClientError,
    CountDownLatch,
    DetachedLock,
    DoubleBarrier,
    Event,
    Group,
    Lock,
    Queue,
    RefusedError,
    RLock,
    Semaphore,
    SharedValue,
)
from zkconcurrent._engine import heartbeat
from zkconcurrent._engine.session import Session
from zkconcurrent._memory import wire
from zkconcurrent.testing import Ensemble, Server

pytestmark = pytest.mark.fault(31)


def test_credentials_that_are_not_accepted(zk_path: str, zookeeper: Server) -> None:
    """A client that ZooKeeper has turned away raises at once, and hangs nobody."""
    client = KazooClient(zookeeper.hosts, timeout=6)
    client.start()
    try:
        lock = Lock(client, zk_path)
        lock.acquire()
        with pytest.raises(AuthFailedError):
            client.add_auth("none-such", "me")
        with pytest.raises((RefusedError, ClientError)) as caught:
            Lock(client, f"{zk_path}-other").acquire()
        assert f"{zk_path}-other" in str(caught.value)
    finally:
        client.stop()
        client.close()


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
                for call in (
                    Lock(client, f"{zk_path}-lock").acquire,
                    Barrier(client, f"{zk_path}-barrier", 1).wait,  # these two make their nodes in a `multi`
                    Group(client, f"{zk_path}-group").join,
                    DoubleBarrier(client, f"{zk_path}-double", 1).enter,
                ):
                    refused = outcome_of(call)
                    assert isinstance(refused, RefusedError), (call, refused)
                    assert "localSessionsUpgradingEnabled" in str(refused)


@pytest.fixture
def astray(connect: Connect, zookeeper: Server, zk_path: str) -> KazooClient:
    """A client whose chroot does not exist."""
    with pytest.warns(UserWarning, match="chroot"):
        return connect(f"{zookeeper.hosts}{zk_path}-missing")


def refused(outcome: object) -> bool:
    """Return whether it is the error that names the missing chroot."""
    return isinstance(outcome, RefusedError) and "chroot" in str(outcome) and "does not exist" in str(outcome)


@pytest.mark.fault(258)
def test_a_chroot_that_was_made_later(astray: KazooClient, zk: KazooClient, zk_path: str) -> None:
    """Once the chroot is there, the same client and object find that at their next call."""
    group = Group(astray, "/group")
    assert refused(outcome_of(group.members))
    zk.ensure_path(f"{zk_path}-missing")
    assert group.members() == {}
    with group.join(id="me"):
        assert list(group.members()) == ["me"]


@pytest.mark.fault(193)
@pytest.mark.parametrize("acts", [False, True])
def test_the_next_generation_is_refused(
    acts: bool, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """The party that trips a barrier passes as the others do, though it may not make the next node."""
    acted: list[str] = []
    first = Barrier(zk, zk_path, 2)
    last = Barrier(connect(), zk_path, 2, (lambda: acted.append("once")) if acts else None)
    waiting = in_thread(first.wait, 20)
    eventually(lambda: first.n_waiting == 1)
    rights, _ = zk.get_acls(zk_path)
    zk.set_acls(zk_path, [make_acl("world", "anyone", read=True, write=True, delete=True, admin=True)])
    assert last.wait(20) == 1
    assert waiting.result(20) == 0
    assert acted == ["once"] * acts
    with pytest.raises(RefusedError, match="NoAuth"):
        last.wait(20)
    zk.set_acls(zk_path, rights)
    waiting = in_thread(first.wait, 20)
    assert sorted((last.wait(20), waiting.result(20))) == [0, 1]


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


def second_look(client: KazooClient, path: str) -> dict[str, bytes]:
    """Wait until the members of a group have changed once."""
    members = Group(client, path).observe()
    next(members)
    return next(members)


# What waits for a change at a path, and how anybody makes that.
CHANGES: dict[str, tuple[Callable[[KazooClient, str], Callable[[], object]], Callable[[KazooClient, str], object]]] = {
    "event": (lambda client, path: Event(client, path).wait, lambda zk, path: zk.set(path, b"1 set")),
    "latch": (
        lambda client, path: CountDownLatch(client, path, 1).wait,
        lambda zk, path: zk.create(f"{path}/_c_{uuid.uuid4()}-count-1"),
    ),
    "value": (
        lambda client, path: partial(SharedValue(client, path, b"").wait_for, bool),
        lambda zk, path: zk.set(path, b"x"),
    ),
    "group": (
        lambda client, path: partial(second_look, client, path),
        lambda zk, path: zk.create(f"{path}/one", ephemeral=True),
    ),
}


@pytest.mark.fault(388)
@pytest.mark.parametrize("back", [False, True], ids=["for good", "for a moment"])
@pytest.mark.parametrize("what", CHANGES)
def test_a_right_that_is_lost_during_a_wait(
    what: str,
    back: bool,
    zk: KazooClient,
    connect: Connect,
    zk_path: str,
    in_thread: InThread,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server tells the waiter of no change, and forgets its watch; it learns of that all the same."""
    monkeypatch.setattr(heartbeat, "LOOK_AGAIN", 0.1)
    client = connect(timeout=4)
    wait, change = CHANGES[what]
    if what == "group":
        zk.ensure_path(zk_path)
    zk.add_auth("digest", "operator:secret")
    waiting = in_thread(wait(client, zk_path))
    eventually(lambda: client._child_watchers.get(zk_path) or client._data_watchers.get(zk_path))
    before, _ = zk.get_acls(zk_path)
    zk.set_acls(zk_path, [make_digest_acl("operator", "secret", all=True)])
    change(zk, zk_path)
    if back:
        zk.set_acls(zk_path, before)
        assert waiting.result(20)
    else:
        with pytest.raises(RefusedError, match="NoAuth"):
            waiting.result(20)


def semaphore(client: KazooClient, path: str) -> Semaphore:
    """Make a semaphore of one permit."""
    return Semaphore(client, path, 1)


@pytest.fixture
def without_delete(zk: KazooClient) -> Callable[[str], AbstractContextManager[None]]:
    """Have nobody the right to delete what is below a node, within the block."""

    @contextmanager
    def block(path: str) -> Iterator[None]:
        before, _ = zk.get_acls(path)
        zk.set_acls(path, [make_acl("world", "anyone", read=True, write=True, create=True, admin=True)])
        yield
        zk.set_acls(path, before)

    return block


@pytest.mark.fault(53)
@pytest.mark.parametrize(
    ("kind", "leave"),
    [(Lock, "with"), (write_lock, "release"), (semaphore, "release")],
)
def test_a_release_without_the_right_to_delete(
    kind: Kind,
    leave: str,
    without_delete: Callable[[str], AbstractContextManager[None]],
    zk: KazooClient,
    connect: Connect,
    proxy: Proxy,
    zk_path: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Refused at once, with a warning that names the right; the node goes once there is the right."""
    lock = kind(connect(proxy.hosts, timeout=6), zk_path)
    queue = f"{zk_path}/leases" if kind is semaphore else zk_path
    lock.acquire()
    with without_delete(queue), caplog.at_level(logging.WARNING, "zkconcurrent"):
        with proxy.counting() as count, pytest.raises(RefusedError, match="DELETE") as caught:
            if leave == "with":
                lock.__exit__(None, None, None)
            else:
                lock.release()
        assert count.requests["delete"] == 1  # it has not waited for another try
        assert zk_path in str(caught.value)
        # The keeper logs it, which is soon, and not with the session's lock held.
        eventually(lambda: [each for each in caplog.messages if "DELETE" in each and zk_path in each])
        assert queued(zk, queue, 1)()
    eventually(queued(zk, queue, 0), patience=30)
    assert lock.acquire(timeout=20)
    lock.release()


@pytest.mark.fault(365)
@pytest.mark.parametrize("fails", [False, True])
def test_the_end_of_a_claim_that_is_refused(
    fails: bool,
    without_delete: Callable[[str], AbstractContextManager[None]],
    zk: KazooClient,
    connect: Connect,
    zk_path: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is tried again: else the item would stay claimed while the client lives, and a full queue full."""
    queue = Queue[bytes](connect(timeout=6), zk_path)
    queue.put(b"x")
    with ExitStack() as refused, caplog.at_level(logging.WARNING, "zkconcurrent"):
        with pytest.raises(KeyError if fails else RefusedError), queue.claim():
            refused.enter_context(without_delete(f"{zk_path}/claims"))
            if fails:
                raise KeyError
        eventually(lambda: [each for each in caplog.messages if "tried again" in each and zk_path in each])
        assert zk.get_children(f"{zk_path}/claims")
    eventually(lambda: not zk.get_children(f"{zk_path}/claims"))
    assert queue.qsize() == fails
    assert len([each for each in caplog.messages if "tried again" in each]) == 1


@pytest.mark.fault(53)
@pytest.mark.parametrize("kind", [Lock, read_lock, semaphore])
def test_a_create_that_is_refused(
    kind: Kind, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It made no node, so none is looked for, which may be refused too, again and again."""
    client = connect(proxy.hosts, timeout=6)
    lock = kind(client, zk_path)
    with lock:
        pass
    queue = f"{zk_path}/locks" if kind is semaphore else zk_path
    before, _ = zk.get_acls(queue)
    zk.set_acls(queue, [make_acl("world", "anyone", write=True, delete=True, admin=True)])
    try:
        with proxy.counting() as count, pytest.raises(RefusedError, match="NoAuth"):
            lock.acquire()
        assert not Session.of(client).registry.deletes
        assert count.requests["create2"] == 1
        assert not count.requests["sync"]
        assert "not deleted" not in caplog.text
    finally:
        zk.set_acls(queue, before)
    with lock:
        pass


@pytest.mark.fault(194)
def test_a_detached_lock_that_is_refused(
    without_delete: Callable[[str], AbstractContextManager[None]], zk: KazooClient, connect: Connect, zk_path: str
) -> None:
    """The node that queued is all that there is to delete, not the one that was to hold the lock."""
    client = connect(timeout=6)
    lock = DetachedLock(client, zk_path, "job")
    lock.acquire()
    lock.release()
    with without_delete(zk_path):
        with pytest.raises(RefusedError, match="NoAuth"):
            lock.acquire()
        (name,) = zk.get_children(zk_path)
        assert [ticket.node for ticket in Session.of(client).registry.deletes.values()] == [f"{zk_path}/{name}"]
    eventually(queued(zk, zk_path, 0))


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
@pytest.mark.parametrize(("kind", "size"), [(Lock, None), (RLock, 1500), (semaphore, 1500)])
def test_a_request_larger_than_the_server_takes(kind: Kind, size: int | None, connect: Connect, zk_path: str) -> None:
    """It is refused before it is sent, and costs the client neither its connection nor other holds."""
    client = connect(timeout=6)
    states: list[str] = []
    client.add_listener(states.append)
    if size is not None:
        client.max_request = size
    with Lock(client, f"{zk_path}/held") as held:
        assert held
        assert largest_request(client) == size or (size is None and largest_request(client) >= 1_000_000)
        lock = kind(client, f"{zk_path}/large")
        rights = make_acl("digest", "somebody:" + "x" * 20, all=True)
        client.default_acl = [rights] * (largest_request(client) // 40)  # each has more bytes than that
        refused = outcome_of(lambda: lock.acquire(timeout=15))
        assert isinstance(refused, RefusedError), refused
        assert f"{largest_request(client):,}" in str(refused)
        assert f"{zk_path}/large" in str(refused)
        assert not states
        client.default_acl = None
        assert outcome_of(lambda: lock.acquire(timeout=15) and (lock.release() or True)) is True
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


@pytest.mark.fault(50)
def test_the_largest_request() -> None:
    """By default it is what every server takes that was not told otherwise, and not much less."""
    assert 1_000_000 <= largest_request(KazooClient()) <= 0xFFFFF


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
        assert re.search(r"4 times in a row with a request of 200,\d\d\d bytes .* smaller max_request", warning)
        client.stop()
        assert isinstance(putting.result(), Exception)


@pytest.mark.fault(50)
def test_a_thread_s_name_is_cut_off(connect: Connect, zk: KazooClient, zk_path: str) -> None:
    """The thread names of a program do not make its requests larger."""
    lock, outcome = Lock(connect(), zk_path), list[object]()

    def run() -> None:
        with lock:
            outcome.extend(zk.get(f"{zk_path}/{name}")[0] for name in zk.get_children(zk_path))

    thread = threading.Thread(target=run, name="x" * 1_100_000)
    thread.start()
    thread.join(60)
    (data,) = outcome
    assert b'"thread": "xxx' in data  # type: ignore[operator]
    assert len(data) < 1000  # type: ignore[arg-type]
