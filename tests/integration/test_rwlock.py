"""A read-write lock's own behaviour, on a real ZooKeeper; test_locks has what it shares with other locks."""

from __future__ import annotations

import threading

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.losses import expire
from zkconcurrent import LockLostError, ReadWriteLock
from zkconcurrent.testing import Server


def queue(client: KazooClient, path: str) -> list[str]:
    """Return the roles and numbers at the path, in their order: "R0000000001"."""
    names = [name.rpartition("__")[0][-4] + name[-10:] for name in client.get_children(path)]
    return sorted(names, key=lambda name: (name[1:], name))


@pytest.mark.parametrize("how", [{}, {"timeout": 0}], ids=str)
def test_a_downgrade_leaves_no_gap(
    how: dict[str, float], zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """A writer gets to read at once, however it asks, and goes on when it stops writing: no other writer gets in."""
    mine, theirs = ReadWriteLock(zk, zk_path), ReadWriteLock(connect(), zk_path)
    mine.write_lock.acquire()
    token = mine.write_lock.fencing_token
    (writer,) = queue(zk, zk_path)
    waiting = in_thread(lambda: (theirs.write_lock.acquire(), theirs.write_lock.release()))
    eventually(queued(zk, zk_path, 2))
    assert mine.read_lock.acquire(**how)
    assert queue(zk, zk_path)[:2] == ["R" + writer[1:], writer]
    reader = next(name for name in zk.get_children(zk_path) if "__READ__" in name)
    assert zk.get(f"{zk_path}/{reader}")[1].ephemeralOwner == zk.client_id[0]
    assert mine.read_lock.fencing_token == token
    assert mine.read_lock.locked()
    assert mine.write_lock.locked()
    mine.write_lock.release()
    assert queue(zk, zk_path)[0] == "R" + writer[1:]
    assert mine.read_lock.fencing_token == token
    assert mine.read_lock.acquire(blocking=False)
    assert not theirs.write_lock.acquire(blocking=False)
    mine.read_lock.release()
    assert not waiting.done()
    mine.read_lock.release()
    waiting.result(10)


def test_an_upgrade_is_refused(zk: KazooClient, zk_path: str) -> None:
    """A mere reader can't begin to write: an error at once that says why, and nothing is changed."""
    pair = ReadWriteLock(zk, zk_path)
    with pair.read_lock:
        before = zk.get_children(zk_path)
        for how in ({}, {"blocking": False}, {"timeout": 5}):
            with pytest.raises(RuntimeError, match=f"{zk_path}.*holds the read lock|holds the read lock.*{zk_path}"):
                pair.write_lock.acquire(**how)  # type: ignore[arg-type]
        assert zk.get_children(zk_path) == before
        assert pair.read_lock._is_owned()
    with pair.write_lock, pair.read_lock, pair.write_lock:  # not an upgrade: it writes already
        assert pair.write_lock._recursion_count() == 2


def test_a_condition_is_not_waited_for_while_reading(zk: KazooClient, zk_path: str) -> None:
    """To wait would give up writing and ask for it again: an upgrade. It is refused while nothing is given up yet."""
    pair = ReadWriteLock(zk, zk_path)
    condition = threading.Condition(pair.write_lock)  # type: ignore[arg-type]
    with condition, pair.read_lock:
        with pytest.raises(RuntimeError, match="holds the read lock"):
            condition.wait(0.1)
        assert pair.write_lock._is_owned()
        assert len(zk.get_children(zk_path)) == 2


@pytest.mark.threads_only("on_lost of objects that never acquired is called, too; of tasks it is not")
def test_both_holds_are_lost_and_settled(zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """A session's end takes both holds of a thread; each is told to its own lock, and settled by its own releases."""
    told: list[object] = []
    pair = ReadWriteLock(connect(timeout=4), zk_path, on_lost=told.append)
    read, write = pair.read_lock, pair.write_lock
    write.acquire()
    read.acquire()
    read.acquire()
    events = read.lost, write.lost
    assert events[0] is not events[1]
    expire(zookeeper, write)
    assert events[0].wait(10)
    eventually(lambda: len(told) == 2)
    assert {id(each) for each in told} == {id(read), id(write)}
    for lock in (read, write):
        with pytest.raises(LockLostError):
            lock.acquire()
    for _ in range(2):
        with pytest.raises(LockLostError):
            read.release()
    with pytest.raises(LockLostError):  # to read under a lost write lock
        read.acquire()
    with pytest.raises(LockLostError):
        write.release()
    with write, read:
        assert not read.lost.is_set()
    eventually(queued(pair.client, zk_path, 0))
    assert len(told) == 2
