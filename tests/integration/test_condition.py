"""Conditions, on a real ZooKeeper: wake-ups, the fate of the lock, and the leftovers when things go wrong."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import nothing_left, queued, wait_in, waiter_nodes, waiters
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import read_lock, write_lock
from tests.helpers.losses import expire
from zkconcurrent import Condition, Lock, LockLostError, ReadWriteLock, RLock
from zkconcurrent.testing import Server

every = pytest.mark.parametrize("kind", [Lock, RLock, write_lock])
reentrant = pytest.mark.parametrize("kind", [RLock, write_lock])
Kind = Callable[..., Any]


def condition_of(kind: Kind, client: KazooClient, path: str) -> Condition:
    """Return the condition at a path, with a lock beside it."""
    return Condition(client, path, kind(client, f"{path}-lock"))


@every
def test_all_levels_are_given_up_and_taken_again(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """While one waits, another process has the lock; afterwards it is held as before, by a newer hold."""
    mine, theirs = condition_of(kind, zk, zk_path), condition_of(kind, connect(), zk_path)
    levels = 1 if kind is Lock else 3
    go_on = threading.Event()

    def wait() -> tuple[bool, bool]:
        for _ in range(levels):
            mine.acquire()
        token = mine._lock.fencing_token
        woken = mine.wait()
        newer = mine._lock.fencing_token > token
        assert go_on.wait(20)
        for _ in range(levels):
            mine.release()
        return woken, newer

    future = in_thread(wait)
    eventually(waiters(zk, zk_path, 1))
    with theirs:
        theirs.notify()
        assert waiter_nodes(zk, zk_path) == []
    eventually(lambda: "<locked" in repr(mine._lock))
    assert not theirs.acquire(blocking=False)
    go_on.set()
    assert future.result(20) == (True, True)
    assert theirs.acquire(timeout=10)
    theirs.release()
    eventually(nothing_left(zk, mine))


@pytest.mark.fault(73)
def test_a_condition_has_one_lock(zk: KazooClient, zk_path: str) -> None:
    """All conditions of one path and client have one lock: with two, a notifier would not exclude a waiter."""
    lock, other = Lock(zk, f"{zk_path}-a"), Lock(zk, f"{zk_path}-b")
    condition = Condition(zk, zk_path, lock)
    Condition(zk, zk_path, Lock(zk, lock.path))
    for wrong in (other, None):
        with pytest.raises(ValueError, match=rf"{zk_path}.*{lock.path}.*not"):
            Condition(zk, zk_path, wrong)
    with condition:
        condition.notify()
    del condition
    gc.collect()
    assert Condition(zk, zk_path, other)


@pytest.mark.fault(21)
def test_a_foreign_child_is_no_waiter(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """A node that is no waiter's is neither deleted nor counted, and takes no notification from anybody."""
    condition = Condition(zk, zk_path)
    zk.create(f"{zk_path}/waiters/0", makepath=True)
    future = in_thread(wait_in, condition)
    eventually(lambda: len(zk.get_children(f"{zk_path}/waiters")) == 2)
    with condition:
        condition.notify()
    assert future.result(10)[0] is True
    assert zk.get_children(f"{zk_path}/waiters") == ["0"]


@pytest.mark.fault(382)
def test_a_poll_lets_others_in(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """As in threading, `wait_for` without time releases the lock once: who makes it true gets in."""
    condition, other = Condition(zk, zk_path), Condition(connect(), zk_path)
    done: list[bool] = []

    def make_true() -> None:
        with other:
            done.append(True)

    with condition:
        making = in_thread(make_true)
        eventually(queued(zk, f"{zk_path}/lock", 2))
        assert condition.wait_for(lambda: done, 0) == [True]
    making.result(10)


@pytest.mark.fault(6)
@every
def test_a_hold_that_is_lost(kind: Kind, zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """A thread that has lost the lock can neither wait nor notify, and settles the loss as ever."""
    condition = condition_of(kind, connect(timeout=4), zk_path)
    condition.acquire()
    expire(zookeeper, condition._lock)
    for call in (condition.wait, condition.notify, condition.notify_all):
        with pytest.raises(LockLostError):
            call()
    with pytest.raises(LockLostError):
        condition.release()
    with condition:
        assert condition.wait(0.01) is False
    eventually(nothing_left(condition.client, condition))


@pytest.mark.fault(20)
@reentrant
def test_the_locks_node_is_deleted_before_the_wait(kind: Kind, zk: KazooClient, zk_path: str) -> None:
    """An operator's delete that nobody has noticed yet is found by the wait, and is a loss of all levels."""
    condition = condition_of(kind, zk, zk_path)
    condition.acquire()
    condition.acquire()
    lost, owner = condition._lock.lost, condition._lock.owner()
    assert owner is not None
    zk.delete(owner.node)
    with pytest.raises(LockLostError):
        condition.wait(20)
    assert lost.wait(20)
    for _ in range(2):
        with pytest.raises(LockLostError):
            condition.release()
    assert waiter_nodes(zk, zk_path) == []


@pytest.mark.threads_only("the error of a task names aio")
def test_which_locks_a_condition_takes(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """None of threading's, no read lock, and none of another client."""
    with pytest.raises(TypeError, match="must be a zkconcurrent"):
        Condition(zk, zk_path, threading.Lock())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="read lock"):
        Condition(zk, zk_path, read_lock(zk, f"{zk_path}-rw"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the same client"):
        Condition(zk, zk_path, Lock(connect(), f"{zk_path}-lock"))


def test_no_wait_for_the_write_lock_while_reading(zk: KazooClient, zk_path: str) -> None:
    """To wait would give up writing and ask for it again, which the read lock would keep it from: refused at once."""
    pair = ReadWriteLock(zk, f"{zk_path}-rw")
    condition = Condition(zk, zk_path, pair.write_lock)
    with condition, pair.read_lock:
        with pytest.raises(RuntimeError, match="release the read lock before you wait"):
            condition.wait(0.1)
        assert pair.write_lock._is_owned()
