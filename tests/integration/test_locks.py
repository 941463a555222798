"""The common behaviour of all locks, on a real ZooKeeper: arguments, results, extras, and their znodes."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import threading
from datetime import datetime, timezone

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadArgumentsError, NoNodeError
from kazoo.security import make_digest_acl

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.contenders import NODE, queued
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import Kind, against, every, read_lock, write_lock
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock, RLock
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server


@every
def test_the_znodes_are_curators(kind: Kind, zk: KazooClient, zk_path: str) -> None:
    """A hold is one EPHEMERAL_SEQUENTIAL node with Curator's name under an empty parent; nothing else is there."""
    lock = kind(zk, zk_path)
    with lock:
        (name,) = zk.get_children(zk_path)
        match = NODE.match(name)
        assert match is not None
        assert match[1] == {read_lock: "__READ__", write_lock: "__WRIT__"}.get(kind, "lock-")
        data, stat = zk.get(f"{zk_path}/{name}")
        assert stat.ephemeralOwner == zk.client_id[0]
        said = json.loads(data)
        assert (said["pid"], said["thread"]) == (os.getpid(), threading.current_thread().name)
        assert lock.fencing_token == stat.czxid
    assert queued(zk, zk_path, 0)()
    assert zk.get(zk_path)[0] == b""


@every
def test_extras_of_what_is_not_held(kind: Kind, zk: KazooClient, zk_path: str) -> None:
    """Without a hold there is no token and no guard, nothing is lost or suspect, and nobody owns it."""
    lock = kind(zk, zk_path)
    with pytest.raises(RuntimeError, match=zk_path):
        _ = lock.fencing_token
    with pytest.raises(RuntimeError, match=zk_path):
        lock.guard(zk.transaction())
    assert not lock.lost.is_set()
    assert not lock.suspect
    assert lock.owner() is None
    assert lock.waiters() == []
    assert not lock.locked()


@every
def test_who_holds_and_who_waits(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """`owner()` and `waiters()` tell of every process, by arrival; when a waiter goes, those behind it move up."""
    before = datetime.now(timezone.utc).replace(microsecond=0)
    mine, clients = against(kind)(zk, zk_path), [connect() for _ in range(3)]
    waiting = []
    with mine:
        looking = kind(clients[0], zk_path)
        owner = looking.owner()
        assert owner is not None
        assert owner.first_seen_holding is not None
        assert (owner.pid, owner.thread, owner.session) == (os.getpid(), "MainThread", zk.client_id[0])
        assert (owner.token, owner.position) == (mine.fencing_token, 0)
        assert owner.queued >= before
        assert zk.exists(owner.node)
        for n, client in enumerate(clients):
            theirs = kind(client, zk_path)
            waiting.append(in_thread(lambda lock=theirs: lock.acquire() and lock.release()))
            eventually(queued(zk, zk_path, n + 2))
        assert [(each.session, each.position) for each in mine.waiters()] == [
            (client.client_id[0], n) for n, client in enumerate(clients, 1)
        ]
        assert looking.owner() == owner  # which was first seen to hold at the first look
        first = mine.waiters()[0]
        assert first.first_seen_holding is None
        zk.delete(first.node)  # it queues again, at the tail
        eventually(lambda: [each.session for each in mine.waiters()][-1] == first.session)
        assert [each.position for each in mine.waiters()] == [1, 2, 3]
    for each in waiting:
        each.result(20)


@every
def test_guard(kind: Kind, zk: KazooClient, zk_path: str) -> None:
    """A guarded transaction commits while the hold lives, and fails once it is over."""
    lock = kind(zk, zk_path)
    target = zk_path + "-target"
    with lock:
        kept = lock.guard(zk.transaction())
        kept.create(target, b"")
        assert kept.commit()[-1] == target
        late = lock.guard(zk.transaction())
        late.delete(target)
    assert isinstance(late.commit()[0], NoNodeError)
    assert zk.exists(target)


def test_guard_needs_the_same_chroot(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A transaction of a client with another chroot could not see the lock's node."""
    zk.ensure_path(zk_path + "-root")
    other = connect(hosts=f"127.0.0.1:{zk.hosts[0][1]}{zk_path}-root")
    with Lock(zk, zk_path) as _, pytest.raises(ValueError, match="chroot"):
        Lock(zk, zk_path).guard(other.transaction())


@pytest.mark.fault(41)
@every
def test_a_path_with_kazoos_lock_is_refused(kind: Kind, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Kazoo's Lock on the same path, first or later, is an error that names its node and leaves none."""
    lock = kind(zk, zk_path)
    theirs = connect().Lock(zk_path)
    lock.acquire()
    theirs.acquire()
    lock.release()
    for call in (lock.acquire, lambda: lock.acquire(blocking=False)):
        with pytest.raises(zkconcurrent.ForeignNodeError, match="__lock__"):
            call()
    eventually(queued(zk, zk_path, 1))
    theirs.release()
    with lock:
        pass


@pytest.mark.fault(31, 71)
def test_characters_of_a_path(zk: KazooClient, zk_path: str) -> None:
    """A path is taken if, and only if, ZooKeeper takes it; so a bad one is told before anything is sent."""
    edges = (0, 0x20, 0x7F, 0xA0, 0xD800, 0xE000, 0xF900, 0xFFF0, 0x10000, 0x1F600, 0xF0000, 0x10FFFF)
    points = {point for edge in edges for point in (edge - 1, edge, edge + 1) if 0 <= point <= 0x10FFFF}
    zk.ensure_path(zk_path)
    for point in sorted(points | set(range(0, 0x11000, 499))):
        name = f"x{chr(point)}" if chr(point) in "./" else chr(point)
        try:
            Lock(zk, f"{zk_path}/{name}")
            taken = True
        except ValueError:
            taken = False
        try:
            there = not 0xD800 <= point < 0xE000 and zk.create(f"{zk_path}/{name}") is not None  # those can't be sent
        except BadArgumentsError:
            there = False
        assert taken == there or name == "x/", hex(point)  # kazoo takes that one off


@pytest.mark.fault(21, 66)
@every
def test_paths_that_nest_between_processes(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """A child that is no contender, as where another process locks below, is an error, also for a waiter."""
    lock, holder, below = kind(zk, zk_path), against(kind)(connect(), zk_path), kind(connect(), f"{zk_path}/orders/3")
    following = against(kind)(connect(), zk_path)
    with holder:
        # It holds without another look, or is told.
        next_one = in_thread(lambda: following.acquire() is following.release())
        eventually(queued(zk, zk_path, 2))
        waiting = in_thread(lock.acquire)
        eventually(queued(zk, zk_path, 3))
        with below:
            pass
    with contextlib.suppress(zkconcurrent.ForeignNodeError):
        next_one.result(20)
    for call in (lambda: waiting.result(20), lock.acquire, lambda: lock.acquire(blocking=False), lock.owner):
        with pytest.raises(zkconcurrent.ForeignNodeError, match=r"'orders'.*nest"):
            call()
    eventually(queued(zk, zk_path, 1))
    with below:  # it has no part in this
        pass
    zk.delete(f"{zk_path}/orders", recursive=True)
    with lock:
        pass


@pytest.mark.fault(42)
@every
def test_garbage_collected_while_held(
    kind: Kind, zk: KazooClient, zk_path: str, recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    """The last object of a path warns when it goes while held, and its node is removed; any but the last does not.

    Python hides that warning, so the log has it, too.
    """
    one, other = kind(zk, zk_path), kind(zk, zk_path)
    one.acquire()
    del one
    gc.collect()
    assert len(zk.get_children(zk_path)) == 1
    with pytest.warns(ResourceWarning, match=zk_path):
        del other
        gc.collect()
    eventually(queued(zk, zk_path, 0))
    eventually(lambda: f"released {zk_path}/_c_" in caplog.text)
    assert "keep the object until its release" in caplog.text
    assert not [each for each in recwarn if zk_path in str(each.message)]


def test_garbage_collected_before_a_stop(zookeeper: Server, zk_path: str, caplog: pytest.LogCaptureFixture) -> None:
    """The log of a short program says so, too, and not that the client was stopped."""
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}") as client, pytest.warns(ResourceWarning, match=zk_path):
        Lock(client, zk_path).acquire()
        gc.collect()
    assert "keep the object until its release" in caplog.text


@pytest.mark.parametrize("kind", [RLock, write_lock])
@pytest.mark.threads_only("threading's condition takes no lock of tasks")
def test_threadings_condition_takes_an_rlock(kind: Kind, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """`threading.Condition(rlock)` gives up all levels while it waits, and takes them again."""
    lock = kind(zk, zk_path)
    assert isinstance(lock, RLock)
    condition = threading.Condition(lock)  # type: ignore[arg-type]
    waiting = threading.Event()

    def wait() -> int:
        with condition, condition:
            waiting.set()
            assert condition.wait(10)
            return lock._recursion_count()

    future = in_thread(wait)
    assert waiting.wait(10)
    with condition:
        condition.notify()
    assert future.result(10) == 2
    assert queued(zk, zk_path, 0)()


@pytest.mark.fault(19)
def test_parents_are_made_again(zk: KazooClient, zk_path: str) -> None:
    """A path that was reaped, or deleted, between two uses is made anew."""
    lock = Lock(zk, f"{zk_path}/deep/lock")
    for _ in range(2):
        with lock:
            assert len(zk.get_children(lock.path)) == 1
        zk.delete(zk_path, recursive=True)


def test_chroot_and_acl(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Below a client's chroot, and with its default ACL, a lock is the same lock."""
    zk.ensure_path(zk_path)
    zk.add_auth("digest", "me:secret")
    acl = [make_digest_acl("me", "secret", all=True)]
    inside = connect(hosts=f"127.0.0.1:{zk.hosts[0][1]}{zk_path}", default_acl=acl, auth_data=[("digest", "me:secret")])
    lock = Lock(inside, "/app/lock")
    with lock:
        (name,) = zk.get_children(f"{zk_path}/app/lock")
        assert zk.get_acls(f"{zk_path}/app/lock/{name}")[0][0].id.scheme == "digest"
        assert Lock(zk, f"{zk_path}/app/lock").locked()
    eventually(queued(zk, f"{zk_path}/app/lock", 0))


def test_the_exit_waits_for_the_deletes(connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """As an end of the process would cut off those that are still to be sent."""
    session, proxied = Session.of(client := connect(proxy.hosts)), Lock(client, zk_path)
    proxied.acquire()
    proxy.stall()
    wait_until = session.abandon_all()
    threading.Timer(0.1, proxy.resume).start()
    wait_until(session.now() + 20)
    assert not session.registry.deletes
