"""The driver of tooz on a real ZooKeeper: what it tells that tooz's own tests do not ask.

Those are in `tests/conformance/test_tooz.py`.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import InterruptAt
from tests.helpers.processes import in_forked_child
from tests.helpers.proxy import Proxy
from tests.helpers.tooz import ToozError, coordination, driver
from zkconcurrent.testing import Server

Member = Callable[..., driver.Driver]


@pytest.fixture
def member(zookeeper: Server, zk_path: str) -> Iterator[Member]:
    """Start coordinators, which are stopped after the test."""
    started: list[driver.Driver] = []

    def start(name: bytes = b"me", hosts: str = zookeeper.hosts) -> driver.Driver:
        found = coordination.get_coordinator(f"zkconcurrent://{hosts}{zk_path}?timeout=6", name)
        assert isinstance(found, driver.Driver)
        started.append(found)
        found.start()
        return found

    yield start
    for each in started:
        if each.is_started:
            each.stop()


def lose(zookeeper: Server, lock: driver.DriverLock) -> None:
    """Expire the session of a lock's client, and wait until the lock tells the loss."""
    assert lock.acquired
    zookeeper.expire(lock._client)
    eventually(lambda: not lock.acquired)


def test_a_lost_lock(member: Member, zookeeper: Server, caplog: pytest.LogCaptureFixture) -> None:
    """A loss is seen at once, is logged, and makes the release return False; then the lock can be acquired again."""
    me, other = member(), member(b"other")
    lock = me.get_lock(b"cart")
    assert lock.acquire()
    assert 0 < me.heartbeat() <= 6
    assert 0 < lock.remaining() <= 6
    lose(zookeeper, lock)
    assert not lock.is_still_owner()
    assert lock.remaining() == 0
    with other.get_lock(b"cart"):
        with caplog.at_level(logging.WARNING, "zkconcurrent.losses"):
            assert not lock.release()
        assert any("was lost" in record.message or "is lost" in record.message for record in caplog.records)
        assert not lock.release()
        assert not lock.acquire(blocking=False)
    assert lock.acquire()
    assert lock.release()


def test_a_block_that_lost_its_lock(member: Member, zookeeper: Server) -> None:
    """A block whose lock was lost ends with an error that says so, or with its own."""
    lock = member().get_lock(b"cart")
    with pytest.raises(ToozError, match="lost"), lock:
        lose(zookeeper, lock)
    with pytest.raises(KeyError), lock:
        lose(zookeeper, lock)
        raise KeyError
    with lock:
        assert lock.acquired


def test_a_loss_that_another_object_has_not_settled(member: Member, zookeeper: Server) -> None:
    """The thread may acquire the lock by another object; the first one still tells its loss, and ends no newer hold."""
    me = member()
    lost, lock = me.get_lock(b"cart"), me.get_lock(b"cart")
    assert lost.acquire()
    lose(zookeeper, lost)
    assert lock.acquire(timeout=20)
    assert not lost.release()
    assert lock.acquired
    assert lock.release()


def test_a_lock_belongs_to_its_object(member: Member, in_thread: InThread) -> None:
    """Any thread may release it; a thread that waits for the same object then holds it, and nobody else's hold ends."""
    me = member()
    lock, same = me.get_lock(b"cart"), me.get_lock(b"cart")
    assert lock.acquire()
    waiting = in_thread(lock.acquire)
    eventually(lambda: lock._lock.waiters())
    assert not same.release()
    assert in_thread(lock.release).result(20)
    assert waiting.result(20)
    assert lock.acquired
    assert not same.acquire(blocking=False)
    assert lock.release()


def test_who_shares_a_lock(member: Member, in_thread: InThread) -> None:
    """A writer waits for all who share it, of whichever member, and who comes later waits for the writer.

    A thread that shares it already waits for nobody: neither would go on.
    """
    me, other, third = member(), member(b"other"), member(b"third")
    shared, again, theirs, writer, late = (each.get_lock(b"cart") for each in (me, me, other, other, third))
    assert shared.acquire(shared=True)
    assert theirs.acquire(shared=True)
    writing = in_thread(writer.acquire)
    eventually(lambda: writer._lock.waiters())
    assert not late.acquire(shared=True, blocking=False)
    assert not again.acquire(blocking=False)
    with again(shared=True):
        assert in_thread(shared.release).result(20)
        assert theirs.release()
        assert again.acquired
        assert not shared.acquired
        assert not writing.done()
    assert writing.result(20)
    assert not shared.acquire(shared=True, blocking=False)
    assert not late.acquire(shared=True, blocking=False)
    assert writer.release()
    assert me.held == other.held == third.held == {}


def test_a_broken_lock(member: Member) -> None:
    """All who hold it lose it; whoever waits gets it."""
    members = member(), member(b"other"), member(b"third")
    first, second, third = (each.get_lock(b"cart") for each in members)
    assert not third.break_()
    assert first.acquire(shared=True)
    assert second.acquire(shared=True)
    assert third.break_()
    with third:
        eventually(lambda: not (first.acquired or second.acquired))
    assert not first.release()
    assert not second.release()


@pytest.mark.parametrize("what", ["two shares", "a leadership"])
def test_interrupts(member: Member, what: str) -> None:
    """Wherever one strikes, nothing is held afterwards, and the object can be used again."""
    me, other = member(), member(b"other")
    lock, again, theirs = me.get_lock(b"cart"), me.get_lock(b"cart"), other.get_lock(b"cart")
    led: list[bytes] = []
    for each in (me, other):
        each.watch_elected_as_leader(b"workers", lambda event: led.append(event.member_id))

    def use() -> None:
        if what == "two shares":
            lock.acquire(shared=True)
            again.acquire(shared=True)
            lock.release()
            assert again.release()
        else:
            me.run_elect_coordinator()
            me.stand_down_group_leader(b"workers")

    def is_free() -> bool:
        if what != "a leadership":
            return theirs.acquire(blocking=False) and theirs.release()
        other.run_elect_coordinator()
        return other.stand_down_group_leader(b"workers")

    line, struck = 1, True
    while struck:
        struck = False
        try:
            with InterruptAt(line, "zkconcurrent/tooz.py", "zkconcurrent/_threads/object_lock.py"):
                use()
        except KeyboardInterrupt:
            struck = True
        # It may have struck between the two calls, or before the second had begun.
        lock.release()
        again.release()
        me.stand_down_group_leader(b"workers")
        eventually(is_free, f"at line {line}")
        line += 1
    assert line > 10
    use()
    assert led[-1:] == ([b"me"] if what == "a leadership" else [])


@pytest.mark.fault(329)
def test_a_forked_child(member: Member) -> None:
    """It holds and leads nothing, ends nothing of its parent's, and its calls are errors, at once; `stop` passes."""
    me = member()
    lock, shared, theirs = me.get_lock(b"cart"), me.get_lock(b"shelf"), member(b"other").get_lock(b"cart")
    assert lock.acquire()
    assert lock.acquired
    assert shared.acquire(shared=True)
    me.join_group_create(b"workers")
    me.watch_elected_as_leader(b"workers", lambda _: None)
    me.run_watchers()
    refused: list[Callable[[], object]] = [
        me.heartbeat,
        lambda: me.stand_down_group_leader(b"workers"),
        lambda: shared.acquire(shared=True),
        lambda: me.leave_group(b"workers").get(timeout=5),
    ]

    def use() -> None:
        assert not lock.acquired
        assert not lock.release()
        for call in refused:
            with pytest.raises(ToozError, match="fork"):
                call()
        # It must not wait for threads that only the parent has.
        signal.alarm(20)
        me.stop()

    in_forked_child(use)
    assert lock.acquired
    assert me.get_leader(b"workers").get() == b"me"
    assert me.get_members(b"workers").get() == {b"me"}
    assert not theirs.acquire(blocking=False)
    assert lock.release()


def test_an_outage(member: Member, proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    """While ZooKeeper is out of reach, the heartbeat fails, which tooz logs; calls time out, and `stop` ends."""
    me = member(hosts=proxy.hosts)
    me.join_group_create(b"workers")
    lock = me.get_lock(b"cart")
    assert lock.acquire()
    me.heart.start()
    proxy.refuse()
    proxy.cut()

    def failing() -> str:
        try:
            me.heartbeat()
        except coordination.ToozConnectionError as error:
            return str(error)
        return ""

    assert "out of reach" in eventually(failing)
    eventually(lambda: any(record.name == "tooz.coordination" for record in caplog.records))
    with pytest.raises(coordination.OperationTimedOut):
        me.get_members(b"workers").get(timeout=0.1)
    eventually(lambda: not lock.acquired)
    assert "nothing is held" in failing()
    me.stop()
    with pytest.raises(ToozError, match="not started"):
        me.get_groups()


def test_a_member_whose_session_expires(member: Member, zookeeper: Server) -> None:
    """It comes back, with the capabilities that it had last; it may leave as before."""
    me, other = member(), member(b"other")
    me.join_group_create(b"workers", {"weight": 1})
    me.update_capabilities(b"workers", {"weight": 2}).get()
    assert other.get_member_capabilities(b"workers", b"me").get() == {"weight": 2}
    before = me.client.client_id
    zookeeper.expire(me.client)
    eventually(lambda: me.client.connected and me.client.client_id != before)
    eventually(lambda: other.get_members_with_capabilities(b"workers").get() == {b"me": {"weight": 2}})
    me.run_watchers()
    me.leave_group(b"workers").get()
    assert other.get_members(b"workers").get() == set()


def test_a_member_that_another_process_takes_out(member: Member, caplog: pytest.LogCaptureFixture) -> None:
    """It does not join again once it has looked, which is logged."""
    me, twin = member(), member()
    me.join_group_create(b"workers")
    with pytest.raises(coordination.MemberAlreadyExist):
        twin.join_group(b"workers").get()
    twin.leave_group(b"workers").get()

    def taken_out() -> bool:
        me.run_watchers()
        return not me._memberships

    eventually(taken_out)
    assert any("has ended the membership" in record.message for record in caplog.records)
    assert me.get_members(b"workers").get() == set()
    with pytest.raises(coordination.MemberNotJoined):
        me.leave_group(b"workers").get()


def test_a_lost_leadership(member: Member, zookeeper: Server) -> None:
    """The next candidate leads; a leader that lost it, and leads anew, hears of it again."""
    me, other = member(), member(b"other")
    told: list[bytes] = []
    for each in (me, other):
        each.watch_elected_as_leader(b"workers", lambda event: told.append(event.member_id))
        each.run_watchers()
    assert told == [b"me"]
    assert 0 < me.heartbeat() <= 6
    zookeeper.expire(me.client)

    def next_leads() -> bool:
        other.run_watchers()
        return len(told) > 1

    eventually(next_leads)
    eventually(lambda: not me._terms[b"workers"][0].remaining())
    me.run_watchers()
    assert told == [b"me", b"other"]
    assert not me.stand_down_group_leader(b"workers")
    assert me.get_leader(b"workers").get() == b"other"
    assert other.stand_down_group_leader(b"workers")
    me.run_watchers()
    assert told == [b"me", b"other", b"me"]
    assert me.get_leader(b"workers").get() == b"me"


@pytest.mark.parametrize(("name", "node"), [("a/b ü%".encode(), "a%2Fb%20%C3%BC%25"), (b"..", "%2E%2E")])
def test_names(name: bytes, node: str, member: Member, zk: KazooClient, zk_path: str) -> None:
    """Names may have slashes, and any letters, or be dots alone; the nodes have them percent-encoded."""
    me = member(name)
    me.join_group_create(name)
    assert me.get_groups().get() == [name]
    assert me.get_members(name).get() == {name}
    me.watch_elected_as_leader(name, lambda _: None)
    me.run_watchers()
    assert me.get_leader(name).get() == name
    with me.get_lock(name):
        assert zk.get_children(f"{zk_path}/locks") == [node]


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("zkconcurrent://h1,h2:2182/app?timeout=30", "zk://h1,h2:2182/app?timeout=30"),
        ("zkconcurrents://u:p%40@h1?ca=/etc/ca.pem", "zks://u:p%40@h1/tooz?ca=%2Fetc%2Fca.pem"),
    ],
)
def test_the_url(url: str, meant: str) -> None:
    """It is that of `connect`, but for the scheme; without a path it is /tooz."""
    found = coordination.get_coordinator(url, b"me")
    assert isinstance(found, driver.Driver)
    assert found._url == meant
