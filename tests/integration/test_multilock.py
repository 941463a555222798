"""Several locks as one, on a real ZooKeeper: all or none of them, whatever happens."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import at_every_line
from tests.helpers.losses import expire, operate
from tests.helpers.manual_clock import ManualClock
from zkconcurrent import (
    ClientError,
    Lock,
    LockLostError,
    MultiLock,
    ReadWriteLock,
    RLock,
    Semaphore,
)
from zkconcurrent.testing import Server


def names(lock: MultiLock) -> list[str]:
    """Return the last names of the locks' paths, in their order."""
    return [each.path.rpartition("/")[2] for each in lock.locks]


@pytest.mark.fault(59)
def test_what_it_is_made_of(zk: KazooClient, zk_path: str) -> None:
    """Locks of ours, in the order of their paths; MultiLocks stand for their locks; anything else is a TypeError."""
    a, b, pair = Lock(zk, f"{zk_path}/a"), RLock(zk, f"{zk_path}/b"), ReadWriteLock(zk, f"{zk_path}/c")
    nested = MultiLock([pair.write_lock, MultiLock((b, a)), pair.read_lock])
    assert nested.locks == (a, b, pair.write_lock, pair.read_lock)
    with pytest.raises(ValueError, match="at least one"):
        MultiLock([])
    for wrong in (pair, threading.Lock(), "ab", Semaphore(zk, f"{zk_path}/d", 2)):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            MultiLock([a, wrong])  # type: ignore[list-item]
    for twice in ([a, a], [a, MultiLock([a])], [a, Lock(zk, a.path)], [pair.read_lock, pair.read_lock]):
        with pytest.raises(ValueError, match="twice"):
            MultiLock(twice)
    assert zk.exists(zk_path) is None


def test_the_same_lock_by_two_clients(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Two locks of one path and service are one, though by two clients, or by two chroots."""
    zk.ensure_path(zk_path)
    below = connect(hosts=f"{zk.hosts[0][0]}:{zk.hosts[0][1]}{zk_path}")
    for other in (Lock(connect(), f"{zk_path}/a"), Lock(below, "/a")):
        with pytest.raises(ValueError, match="twice"):
            MultiLock([Lock(zk, f"{zk_path}/a"), other])
    lock = MultiLock([Lock(below, "/b"), Lock(zk, f"{zk_path}/a"), Lock(connect(), f"{zk_path}/c")])
    assert names(lock) == ["a", "b", "c"]
    with lock:
        assert lock.locked()
    assert not lock.locked()


def test_one_deadline_for_the_whole(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The time that the first takes is not there for the second."""
    a, b = Lock(connect(), f"{zk_path}/a"), Lock(connect(), f"{zk_path}/b")
    mine = MultiLock([Lock(zk, a.path), Lock(zk, b.path)])
    with b, ManualClock(mine.locks[0]._session) as clock:
        a.acquire()
        waiting = in_thread(mine.acquire, timeout=30)
        eventually(queued(zk, a.path, 2))
        clock.move(20)  # of its time, at the first
        a.release()
        eventually(queued(zk, b.path, 2))
        clock.move(29)
        eventually(lambda: clock.seen.count(29) > 2)  # to wait on takes two looks, and to find that it may one more
        assert not waiting.done()
        clock.move(31)
        assert waiting.result(10) is False
    with mine:
        pass


def test_reentrant_if_all_are(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Of RLocks, of a pair's locks and in each other, it may be acquired again; with a Lock in it, not."""
    pair = ReadWriteLock(zk, f"{zk_path}/c")
    lock = MultiLock([RLock(zk, f"{zk_path}/a"), pair.read_lock, pair.write_lock])
    with lock, lock, MultiLock([lock, Lock(zk, f"{zk_path}/b")]) as got:
        assert got
        assert not in_thread(lock.acquire, blocking=False).result(10)
    assert not lock.locked()
    plain = MultiLock([RLock(zk, f"{zk_path}/a"), Lock(zk, f"{zk_path}/b")])
    with plain:
        assert not plain.acquire(timeout=0.1)
        assert plain.locked()
    assert not plain.locked()


def test_releasing_what_is_not_held(zk: KazooClient, zk_path: str) -> None:
    """It is a RuntimeError; the locks of it that are held are released all the same, and the other errors are noted."""
    a, b, c = (RLock(zk, f"{zk_path}/{name}") for name in "abc")
    lock = MultiLock([a, b, c])
    b.acquire()
    with pytest.raises(RuntimeError, match="un-acquired") as caught:
        lock.release()
    assert not b._is_owned()
    assert len(caught.value.__notes__) == 1
    assert "RuntimeError" in caught.value.__notes__[0]


@pytest.mark.parametrize(("which", "lose"), [(0, expire), (1, operate)])
@pytest.mark.threads_only("compares the identity of `lost`, which is a new object at each query of a task")
def test_a_loss_is_told(
    which: int, lose: Callable[..., None], zookeeper: Server, connect: Connect, zk_path: str
) -> None:
    """`lost` and `on_lost` are of the whole: told once when the first lock is lost, afresh with the next hold.

    An acquire raises the loss, and changes nothing; a release raises it once, and releases the others.
    """
    told: list[MultiLock] = []
    locks = [RLock(connect(timeout=4), f"{zk_path}/{name}") for name in "ab"]
    lock, silent = MultiLock(locks, on_lost=told.append), MultiLock(locks)
    for turn in (1, 2):
        lock.acquire()
        event, others = lock.lost, silent.lost
        assert not event.is_set()
        lose(zookeeper, locks[which])
        assert event.wait(20)
        assert others.wait(20)
        eventually(lambda turn=turn: len(told) == turn)
        with pytest.raises(LockLostError):
            lock.acquire(timeout=5)
        assert locks[1 - which].hold_count() == 1
        with pytest.raises(LockLostError) as caught:
            lock.release()
        assert caught.value.path == locks[which].path
        assert locks[1 - which].hold_count() == 0
    with lock:
        assert not lock.lost.is_set()
    assert told == [lock, lock]
    for name in "ab":
        eventually(queued(locks[0].client, f"{zk_path}/{name}", 0))


@pytest.mark.fault(186)
@pytest.mark.threads_only("release() waits for the reply; that of a task returns before")
def test_a_loss_that_a_release_finds(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Its node is gone as it is to be deleted: `lost` is set, and `on_lost` is called once."""
    told: list[MultiLock] = []
    locks = [RLock(zk, f"{zk_path}/{name}") for name in "ab"]
    lock = MultiLock(locks, on_lost=told.append)
    lock.acquire()
    lost, owner = lock.lost, locks[0].owner()
    assert owner is not None
    connect().delete(owner.node)
    with pytest.raises(LockLostError):
        lock.release()
    assert lost.is_set()
    eventually(lambda: told == [lock])
    with lock:
        pass
    assert told == [lock]


def test_a_loss_of_what_is_not_held(zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """`on_lost` is not called of a lock that is held alone, before or after the MultiLock was."""
    told: list[MultiLock] = []
    a, b = RLock(connect(timeout=4), f"{zk_path}/a"), RLock(connect(), f"{zk_path}/b")
    lock = MultiLock([a, b], on_lost=told.append)
    a.acquire()
    with lock:
        event = lock.lost
    expire(zookeeper, a)
    assert event.wait(20)  # of its locks, one is
    with pytest.raises(LockLostError):
        a.release()
    with lock:
        assert not lock.lost.is_set()
    assert told == []


def test_who_holds_all(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The owner is the holder of every lock; there is none where several hold some each, or some are free."""
    pair, theirs = ReadWriteLock(zk, f"{zk_path}/b"), ReadWriteLock(connect(), f"{zk_path}/b")
    a = Lock(zk, f"{zk_path}/a")
    lock = MultiLock([a, pair.read_lock])
    assert lock.owner() is None
    reads, enough = threading.Event(), threading.Event()

    def read() -> None:
        with theirs.read_lock:
            reads.set()
            enough.wait(20)

    with a:
        assert lock.owner() is None
        reading = in_thread(read)
        assert reads.wait(20)
        assert lock.owner() is None
    with lock:  # another reads too, and came first
        owner = lock.owner()
        assert owner is not None
        assert (owner.pid, owner.thread, owner.node) == (os.getpid(), "MainThread", a.owner().node)  # type: ignore[union-attr]
        assert owner.token == a.fencing_token
    enough.set()
    reading.result(20)


def test_one_is_lost_while_acquiring(
    zookeeper: Server, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """The first is lost while it waits for the second: LockLostError, all is given back and nothing is owed."""
    mine = Lock(connect(timeout=4), f"{zk_path}/a")
    lock = MultiLock([mine, Lock(connect(), f"{zk_path}/b")])

    def acquire() -> str:
        with pytest.raises(LockLostError) as caught:
            lock.acquire()
        with lock:  # nothing is owed by this thread
            return caught.value.path

    with Lock(zk, f"{zk_path}/b"):
        waiting = in_thread(acquire)
        eventually(lambda: zk.exists(f"{zk_path}/b") and len(zk.get_children(f"{zk_path}/b")) == 2)
        operate(zookeeper, mine)
    assert waiting.result(20) == mine.path
    for name in "ab":
        eventually(queued(zk, f"{zk_path}/{name}", 0))


def test_services_and_refusals(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """An error of one of them, of any client, gives the others back."""
    stopped = connect()
    lock = MultiLock([Lock(zk, f"{zk_path}/a"), Lock(stopped, f"{zk_path}/b")])
    with lock:
        pass
    stopped.stop()
    with pytest.raises(ClientError):
        lock.acquire()
    assert not lock.locks[0].locked()
    eventually(queued(zk, f"{zk_path}/a", 0))


@pytest.mark.fault(144)
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_an_error_of_a_handler_within_a_release(zk: KazooClient, zk_path: str) -> None:
    """Wherever it strikes, all locks are released, or none is; a RuntimeError, too, is no error of a lock."""
    lock = MultiLock([Lock(zk, f"{zk_path}/{name}") for name in "ab"])
    for hook in at_every_line("_threads/multilock.py", "base/lock_core.py", error=RuntimeError):
        lock.acquire()
        with suppress(RuntimeError), hook:
            lock.release()
        assert len({each.hold_count() for each in lock.locks}) == 1, hook.where
        if lock.hold_count():
            lock.release()
    assert hook.line > 20
