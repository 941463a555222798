"""`lock.revoke()` and `on_revoke=`: a holder is asked to let go, once for each request; nobody's exclusion suffers."""

from __future__ import annotations

import threading

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import at_the_handoff, children, queued
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import AnyLock, Kind, against, every, read_lock, unfair, write_lock
from tests.helpers.proxy import Proxy
from zkconcurrent import DetachedLock, Lock
from zkconcurrent._engine import local_handoff
from zkconcurrent._engine.session import Session
from zkconcurrent._protocol.ticket import REVOKED

CURATORS = b"__REVOKE__"


class Told:
    """What `on_revoke` was told."""

    def __init__(self) -> None:
        self.by: list[object] = []
        self.on: list[threading.Thread] = []

    def __call__(self, lock: object) -> None:
        """Take a call."""
        self.on.append(threading.current_thread())
        self.by.append(lock)

    def times(self, n: int) -> bool:
        """Return whether it was told so often."""
        return len(self.by) == n


def asked_by_curator(client: KazooClient, node: str) -> None:
    """Ask as Curator's `Revoker` does: write whatever version the node has."""
    client.set(node, CURATORS)


def use(lock: AnyLock) -> bool:
    """Wait for a lock, and release it."""
    acquired = lock.acquire(timeout=20)
    lock.release()
    return acquired


@every
@pytest.mark.threads_only("on_revoke of objects that never acquired is called, too; of tasks it is not")
def test_a_holder_is_asked(kind: Kind, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """`revoke()` calls `on_revoke` of each object of the holder's client, once for each request; then others get in."""
    told, also = Told(), Told()
    client = connect()
    lock, twin = kind(client, zk_path, on_revoke=told), kind(client, zk_path, on_revoke=also)
    other = against(kind)(connect(), zk_path)
    assert REVOKED == CURATORS
    assert other.revoke() == 0
    lock.acquire()
    assert other.revoke() == 1
    eventually(lambda: told.times(1) and also.times(1))
    assert told.by == [lock]
    assert also.by == [twin]
    assert other.revoke() == 1
    eventually(lambda: told.times(2) and also.times(2))
    assert not {Session.of(client).keeper.thread} & {thread.ident for thread in told.on}
    used = in_thread(use, other)
    eventually(queued(client, zk_path, 2))
    lock.release()
    assert used.result(20)
    with lock:
        # A new hold has a new node, which nobody has asked.
        owner = lock.owner()
        assert owner is not None
        assert not owner.revoked
    assert told.times(2)


def test_what_others_see(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """The request takes the place of the node's data: host, process and thread are unknown, all else is as before."""
    told = Told()
    lock, other = Lock(zk, zk_path, on_revoke=told), Lock(connect(), zk_path)
    lock.acquire()
    before, token = other.owner(), lock.fencing_token
    assert before is not None
    assert not before.revoked
    other.revoke()
    after = other.owner()
    assert after == before._replace(host=None, pid=None, thread=None, by=None, revoked=True)
    assert after is not None
    assert after.whole_name() == repr(after.node)
    assert after.token == lock.fencing_token == token
    assert lock.locked()
    assert other.locked()
    eventually(lambda: told.times(1))
    assert lock.guard(zk.transaction()).commit() == [True]
    lock.release()
    assert not other.locked()


def test_readers_and_writer(connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A writer asks all readers; a reader asks the writer alone, and no other reader."""
    told = [Told() for _ in range(3)]
    readers = [read_lock(connect(), zk_path, on_revoke=each) for each in told]
    wanted_to_write, wants_to_read = write_lock(connect(), zk_path), read_lock(connect(), zk_path)
    for each in readers:
        each.acquire()
    assert wants_to_read.revoke() == 0
    assert wanted_to_write.revoke() == 3
    eventually(lambda: all(each.times(1) for each in told))
    used = in_thread(use, wanted_to_write)
    eventually(queued(readers[0].client, zk_path, 4))
    for each in readers[1:]:
        each.release()
    # A writer that waits is not asked.
    assert wants_to_read.revoke() == 0
    readers[0].release()
    assert used.result(20)
    with wanted_to_write:
        assert wants_to_read.revoke() == 1


@pytest.mark.fault(291)
def test_a_waiter_is_asked(connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A waiter whose node is overwritten keeps its place, and is told once it holds."""
    told = Told()
    first, second, third = Lock(connect(), zk_path), Lock(connect(), zk_path, on_revoke=told), Lock(connect(), zk_path)
    first.acquire()
    getting = []
    for n, each in enumerate((second, third), 2):
        getting.append(in_thread(each.acquire, timeout=20))
        eventually(queued(first.client, zk_path, n))
    node = f"{zk_path}/{children(first.client, zk_path)[1]}"
    # The one behind it watches that node, too.
    asked_by_curator(first.client, node)
    assert [each.revoked for each in first.waiters()] == [True, False]
    assert [each.position for each in first.waiters()] == [1, 2]
    assert not any(each.done() for each in getting)
    first.release()
    assert getting[0].result(20)
    owner = second.owner()
    assert owner is not None
    assert owner.node == node
    eventually(lambda: told.times(1))
    assert not getting[1].done()
    second.release()
    assert getting[1].result(20)
    third.release()
    assert told.times(1)


@pytest.mark.fault(289)
def test_a_reply_that_is_lost(connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """One call asks once, whether or not the write whose reply is lost was applied."""
    told = Told()
    lock, other = Lock(connect(), zk_path, on_revoke=told), Lock(connect(proxy.hosts, **FAST), zk_path)
    lock.acquire()
    for n, lose in enumerate((proxy.lose_answer, proxy.lose_request), 1):
        with lose("setData") as fault:
            assert other.revoke() == 1
            fault.wait()
        node = lock.client.get(f"{zk_path}/{children(lock.client, zk_path)[0]}")
        assert node[0] == REVOKED
        assert node[1].version == n
        eventually(lambda n=n: told.times(n))
    lock.release()


@pytest.mark.fault(289)
def test_a_holder_that_is_cut_off(connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A request that comes meanwhile is told after the reconnect; one that was told is not told again."""
    told = Told()
    client = connect(proxy.hosts, timeout=20, **FAST)
    lock, other = Lock(client, zk_path, on_revoke=told), Lock(connect(), zk_path)
    lock.acquire()
    other.revoke()
    eventually(lambda: told.times(1))
    for n in (1, 2):
        proxy.refuse()
        proxy.cut()
        if n == 2:
            assert other.revoke() == 1
        with proxy.expect("getData") as read:
            proxy.resume()
            read.wait()
        eventually(lambda n=n: told.times(n))
    lock.release()
    assert told.times(2)


@pytest.mark.fault(300)
@unfair
def test_a_node_that_would_go_on(
    kind: Kind, connect: Connect, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that was asked lets others in: its node does not pass to a thread of its process, which nobody asked."""
    monkeypatch.setattr(local_handoff, "LONGEST_TURN", 1000.0)
    told, client = Told(), connect()
    lock, other = kind(client, zk_path, on_revoke=told), kind(connect(), zk_path)
    lock.acquire()
    order: list[str] = []

    def hold(lock: AnyLock, who: str) -> None:
        with lock:
            order.append(who)

    mine, others = in_thread(hold, lock, "mine"), in_thread(hold, other, "other")
    eventually(lambda: at_the_handoff(lock, 1)() and queued(client, zk_path, 2)())
    assert other.revoke() == 1
    eventually(lambda: told.times(1))
    lock.release()
    mine.result(20)
    others.result(20)
    assert order == ["other", "mine"]
    assert told.times(1)


def test_an_on_revoke_that_releases(connect: Connect, zk_path: str) -> None:
    """It may release a lock that any thread may release."""
    lock = Lock(connect(), zk_path, on_revoke=lambda lock: lock.release())
    other = Lock(connect(), zk_path)
    lock.acquire()
    assert other.revoke() == 1
    assert other.acquire(timeout=20)
    other.release()


@pytest.mark.fault(292)
def test_a_detached_lock(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """It is not asked, as that would overwrite its owner's name; it waits for a holder who was."""
    held, lock = DetachedLock(connect(), zk_path, "job"), Lock(zk, zk_path)
    held.acquire()
    with pytest.raises(ValueError, match="force_release"):
        lock.revoke()
    owner = lock.owner()
    assert owner is not None
    assert owner.owner == "job"
    held.release()
    with lock:
        getting = in_thread(held.acquire, timeout=20)
        eventually(queued(zk, zk_path, 2))
        assert lock.revoke() == 1
        assert not getting.done()
    assert getting.result(20)
    held.release()


@pytest.mark.fault(292)
def test_a_detached_lock_that_curator_asks(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Curator overwrites it; others still wait, and the object that acquired it, or an operator, ends it."""
    lock = Lock(zk, zk_path)
    for forced in (False, True):
        held = DetachedLock(connect(), zk_path, "job")
        held.acquire()
        asked_by_curator(zk, f"{zk_path}/{children(zk, zk_path)[0]}")
        assert not lock.acquire(timeout=0.2)
        owner = lock.owner()
        assert owner is not None
        assert owner.revoked
        assert owner.owner is None
        if forced:
            assert DetachedLock(connect(), zk_path, "operator").force_release(owner.token)
        else:
            held.release()
        with lock:
            pass
