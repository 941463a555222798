"""Conditions, on a real ZooKeeper: wake-ups, the fate of the lock, and the leftovers when things go wrong."""

from __future__ import annotations

import gc
import math
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import nothing_left, queued, wait_in, waiter_nodes, waiters
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import read_lock, write_lock
from tests.helpers.losses import expire
from tests.helpers.proxy import Proxy
from zkconcurrent import Condition, Lock, LockLostError, ReadWriteLock, RLock
from zkconcurrent._runtime.waiting import Steps
from zkconcurrent._threads.base.lock_core import LockCore
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
    assert "unlocked" in repr(mine)
    assert ", 1)" in repr(mine)
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


def test_exactly_n_are_woken_in_the_order_in_which_they_came(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """notify(n) deletes the nodes of the n longest waiters, of any process, and of nobody else."""
    conditions = [Condition(zk, zk_path), Condition(connect(), zk_path)]
    futures = []
    for n in range(5):
        futures.append(in_thread(wait_in, conditions[n % 2]))
        eventually(waiters(zk, zk_path, n + 1))
    line = waiter_nodes(zk, zk_path)
    with conditions[0]:
        conditions[0].notify(0)
        assert waiter_nodes(zk, zk_path) == line
        conditions[0].notify()
        assert waiter_nodes(zk, zk_path) == line[1:]
        conditions[0].notify(2)
        assert waiter_nodes(zk, zk_path) == line[3:]
    assert [future.result(10)[0] for future in futures[:3]] == [True] * 3
    assert waiter_nodes(zk, zk_path) == line[3:]
    assert not any(future.done() for future in futures[3:])
    with conditions[1]:
        conditions[1].notify(10)
    assert [future.result(10)[0] for future in futures[3:]] == [True] * 2


@pytest.mark.fault(73)
def test_a_condition_has_one_lock(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """All conditions of one path and client have one lock: with two, a notifier would not exclude a waiter."""
    lock, other = Lock(zk, f"{zk_path}-a"), Lock(zk, f"{zk_path}-b")
    condition = Condition(zk, zk_path, lock)
    Condition(zk, zk_path, Lock(zk, lock.path))
    for wrong in (other, None):
        with pytest.raises(ValueError, match=rf"{zk_path}.*{lock.path}.*not"):
            Condition(zk, zk_path, wrong)
    with condition:
        condition.notify()
    Condition(connect(), zk_path)  # another process's is not seen
    del condition
    gc.collect()
    assert Condition(zk, zk_path, other)
    gc.collect()
    default = Condition(zk, zk_path)
    with pytest.raises(ValueError, match=f"{zk_path}/lock"):
        Condition(zk, zk_path, other)
    with default:
        default.notify_all()


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


@pytest.mark.threads_only("calls notifyAll(), too, which asyncio's condition has not")
def test_all_are_woken(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """notify_all wakes everybody; so does its old name, which warns. Nobody waiting, nothing happens."""
    mine, theirs = Condition(zk, zk_path), Condition(connect(), zk_path)
    with mine:
        mine.notify_all()
        mine.notify()
    for wake in (mine.notify_all, mine.notifyAll):
        futures = [in_thread(wait_in, each) for each in (mine, theirs, mine)]
        eventually(waiters(zk, zk_path, 3))
        with mine:
            if wake == mine.notifyAll:
                with pytest.warns(DeprecationWarning, match="notify_all"):
                    wake()
            else:
                wake()
        assert [future.result(10)[0] for future in futures] == [True] * 3


@pytest.mark.parametrize("timeout", [0, 0.3])
def test_a_wait_that_times_out(timeout: float, zk: KazooClient, zk_path: str) -> None:
    """It returns False, not before its time, with the lock held and no node left."""
    condition = Condition(zk, zk_path)
    with condition, condition:
        began = time.monotonic()
        assert condition.wait(timeout) is False
        assert time.monotonic() - began >= timeout
        assert condition._lock._recursion_count() == 2
        assert waiter_nodes(zk, zk_path) == []
        assert condition.wait_for(lambda: 0, timeout=0.05) == 0
        assert condition.wait_for(lambda: "yes", timeout=0) == "yes"
    eventually(nothing_left(zk, condition))


@pytest.mark.fault(382)
@pytest.mark.parametrize("timeout", [0, -1])
def test_a_poll_lets_others_in(
    timeout: float, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """As in threading, `wait_for` without time releases the lock once: who makes it true gets in."""
    condition, other = Condition(zk, zk_path), Condition(connect(), zk_path)
    done: list[bool] = []

    def make_true() -> None:
        with other:
            done.append(True)

    with condition:
        making = in_thread(make_true)
        eventually(queued(zk, f"{zk_path}/lock", 2))
        assert condition.wait_for(lambda: done, timeout) == [True]
        assert condition._lock._recursion_count() == 1
    making.result(10)
    with pytest.raises(RuntimeError, match="cannot wait on un-acquired lock"):
        condition.wait_for(lambda: False, timeout)


@every
def test_who_does_not_hold_is_told_so(kind: Kind, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """To wait or notify takes the lock; the words are threading's. With a Lock, that of any thread of the process."""
    condition = condition_of(kind, zk, zk_path)
    for call, words in ((condition.wait, "wait on"), (condition.notify, "notify on"), (condition.notify_all, "notify")):
        with pytest.raises(RuntimeError, match=f"cannot {words}.* un-acquired lock"):
            call()
    with condition:
        other = in_thread(condition.wait, 0.01)
        if kind is Lock:
            assert other.result(10) is False
            assert zk.get_children(condition._lock.path) != []
        else:
            with pytest.raises(RuntimeError, match="un-acquired"):
                other.result(10)


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
    for again in (False, True):  # the parents missing, and there
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
        assert waiter_nodes(zk, zk_path) == [], again
        with condition:
            assert condition.wait(0) is False


def test_a_hold_is_given_up_once(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Once one thread releases a Lock, another thread's release is refused, and so is a wait, though no reply came."""
    client = connect(proxy.hosts)
    lock = Lock(client, zk_path)
    condition = Condition(client, f"{zk_path}-condition", lock)
    lock.acquire()
    with proxy.hold("delete") as releases:
        first = in_thread(lock.release)
        releases.wait()
        for call in (lock.release, condition.wait):
            with pytest.raises(RuntimeError, match=r"unlocked lock|un-acquired lock"):
                call()
    assert first.result(10) is None
    assert queued(zk, zk_path, 0)()


@pytest.fixture
def struck() -> Iterator[threading.Event]:
    """Have SIGUSR1 set this event, and raise KeyboardInterrupt."""
    struck = threading.Event()

    def strike(*_: object) -> None:
        struck.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, strike)
    yield struck
    signal.signal(signal.SIGUSR1, before)


def strike() -> None:
    """Send SIGUSR1 to the main thread."""
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGUSR1)


@pytest.mark.usefixtures("uncollected", "struck")
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_an_interrupted_waiter_is_notified_no_more(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Its node is gone before it goes on, however slow the link is: it would take another's turn."""
    condition = Condition(connect(proxy.hosts), zk_path)

    def interrupt() -> None:
        eventually(waiters(zk, zk_path, 1))
        proxy.delay(0.05)
        strike()

    with condition:
        interrupting = in_thread(interrupt)
        with pytest.raises(KeyboardInterrupt):
            condition.wait()
        assert waiter_nodes(zk, zk_path) == []
        interrupting.result(20)


@pytest.mark.fault(225)
@pytest.mark.usefixtures("uncollected")
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_an_interrupt_as_a_wait_acquires_leaves_no_cycle(
    struck: threading.Event, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """The condition and its lock are freed at once."""
    condition, other = Condition(zk, zk_path), Condition(connect(), zk_path)
    there = queued(zk, f"{zk_path}/lock", 2)

    def interrupt() -> None:
        with other:
            eventually(there)
            strike()
            assert struck.wait(20)

    with condition:
        interrupting = in_thread(interrupt)
        eventually(there)
        with pytest.raises(KeyboardInterrupt):
            condition.wait(0.01)
        assert condition._lock.hold_count() == 1
    interrupting.result(20)
    freed = weakref.ref(condition)
    del condition
    assert freed() is None


@pytest.mark.fault(165)
@pytest.mark.parametrize("timeout", ["5", Decimal("0.5"), math.nan])
def test_a_timeout_that_threading_does_not_take(timeout: Any, zk: KazooClient, zk_path: str) -> None:
    """It is refused as `threading` does, by a wait of a lock that is held; the lock stays held."""
    condition = Condition(zk, zk_path)
    with condition:
        for wait in (lambda: condition.wait(timeout), lambda: condition.wait_for(bool, timeout)):
            with pytest.raises((TypeError, ValueError), match=r"number of seconds|NaN"):
                wait()


@pytest.mark.threads_only("the error of a task names aio")
def test_which_locks_a_condition_takes(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A Lock, an RLock or a write lock of the same client; no read lock, and nothing else."""
    for wrong in (threading.Lock(), zk, zk_path):
        with pytest.raises(TypeError, match="must be a zkconcurrent"):
            Condition(zk, zk_path, wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="read lock"):
        Condition(zk, zk_path, read_lock(zk, f"{zk_path}-rw"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the same client"):
        Condition(zk, zk_path, Lock(connect(), f"{zk_path}-lock"))


def test_the_condition_itself(zk: KazooClient, zk_path: str) -> None:
    """It has its path and client; its lock is an RLock below it."""
    condition = Condition(zk, zk_path)
    assert (condition.path, condition.client) == (zk_path, zk)
    assert zk_path in repr(condition)
    assert "unlocked zkconcurrent.RLock" in repr(condition)
    own = RLock(zk, f"{zk_path}/lock")
    with condition:
        assert own._is_owned()
    with pytest.raises(ValueError, match="for Condition already"):
        Lock(zk, zk_path)
    with pytest.raises(ValueError, match="must not nest"):
        Lock(zk, f"{zk_path}/waiters")


def test_no_wait_for_the_write_lock_while_reading(zk: KazooClient, zk_path: str) -> None:
    """To wait would give up writing and ask for it again, which the read lock would keep it from: refused at once."""
    pair = ReadWriteLock(zk, f"{zk_path}-rw")
    condition = Condition(zk, zk_path, pair.write_lock)
    with condition, pair.read_lock:
        with pytest.raises(RuntimeError, match="release the read lock before you wait"):
            condition.wait(0.1)
        assert pair.write_lock._is_owned()


@pytest.mark.fault(484)
def test_an_error_each_time_a_wait_acquires(zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that strikes at each try, and so is no interrupt, ends the wait; nothing is left."""
    condition, steps = Condition(zk, zk_path), LockCore.acquire_steps

    def struck(self: LockCore, *args: Any) -> Steps[bool]:
        if args[-1] == 2:  # levels: the wait's own acquire
            raise ZeroDivisionError
        return (yield from steps(self, *args))

    monkeypatch.setattr(LockCore, "acquire_steps", struck)
    with pytest.raises(RuntimeError, match="un-acquired") as caught, condition, condition:
        condition.wait(0.01)
    error: BaseException | None = caught.value
    while error is not None and not isinstance(error, ZeroDivisionError):
        error = error.__context__
    assert error is not None
    eventually(queued(zk, condition._lock.path, 0))
    eventually(queued(zk, condition._waiters, 0))
