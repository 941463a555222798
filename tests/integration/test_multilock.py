"""Several locks as one, on a real ZooKeeper: all or none of them, whatever happens."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import at_the_handoff, held_elsewhere, queued
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import strike
from tests.helpers.losses import expire, ways
from tests.helpers.manual_clock import ManualClock
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    BoundedSemaphore,
    ClientError,
    Condition,
    Lock,
    LockLostError,
    MultiLock,
    ReadWriteLock,
    RLock,
    Semaphore,
    namespace,
)
from zkconcurrent._engine import local_handoff
from zkconcurrent._engine.calls import Calls
from zkconcurrent._engine.driver import Call
from zkconcurrent._engine.holds import Hold
from zkconcurrent._runtime.waiting import Steps
from zkconcurrent._threads.base.lock_base import core_of
from zkconcurrent._threads.base.lock_core import LockCore
from zkconcurrent._threads.base.reentrant_core import ReentrantCore
from zkconcurrent._threads.multilock import first_error
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
    semaphores = Semaphore(zk, f"{zk_path}/d", 2), BoundedSemaphore(zk, f"{zk_path}/e")
    for wrong in (pair, threading.Lock(), "ab", *semaphores):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            MultiLock([a, wrong])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="on_lost"):
        MultiLock([a], on_lost=1)  # type: ignore[arg-type]
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


def test_all_or_none(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """It is held when all are; a try, and a timed wait, that fail for the last leave nothing of the first."""
    mine = MultiLock(Lock(zk, f"{zk_path}/{name}") for name in "abc")
    other = connect()
    theirs = Lock(other, f"{zk_path}/c")
    with theirs:
        for how in ({"blocking": False}, {"timeout": 0}, {"timeout": 0.2}):
            began = time.monotonic()
            assert mine.acquire(**how) is False
            assert time.monotonic() - began < 10
            for name, n in zip("abc", (0, 0, 1), strict=True):
                eventually(queued(zk, f"{zk_path}/{name}", n))
        assert not mine.locked()
        assert "<unlocked zkconcurrent.MultiLock" in repr(mine)
    assert mine.acquire(timeout=10)
    assert mine.locked()
    assert repr(mine).startswith("<locked zkconcurrent.MultiLock object paths=[")
    for name in "abc":
        assert not Lock(other, f"{zk_path}/{name}").acquire(blocking=False)
    mine.release()
    assert not mine.locked()
    for name in "abc":
        eventually(queued(zk, f"{zk_path}/{name}", 0))


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


def test_bad_timeouts(zk: KazooClient, zk_path: str) -> None:
    """They are refused as by `threading`, before anything is acquired."""
    lock = MultiLock([Lock(zk, zk_path)])
    for arguments in ((False, 1), (True, -2), (True, float("nan"))):
        with pytest.raises(ValueError):  # noqa: PT011
            lock.acquire(*arguments)
    with pytest.raises(OverflowError):
        lock.acquire(timeout=threading.TIMEOUT_MAX * 2)
    assert zk.exists(zk_path) is None


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


@ways
@pytest.mark.parametrize("which", ["a", "b"])
def test_one_is_lost_while_held(
    which: str, lose: Callable[..., None], zookeeper: Server, connect: Connect, zk_path: str
) -> None:
    """Release raises the loss once and releases the others; acquiring before that raises it and changes nothing."""
    a, b = RLock(connect(timeout=4), f"{zk_path}/a"), RLock(connect(timeout=4), f"{zk_path}/b")
    lost, kept = (a, b) if which == "a" else (b, a)
    lock = MultiLock([a, b])
    lock.acquire()
    lose(zookeeper, lost)
    with pytest.raises(LockLostError):
        lock.acquire(timeout=5)
    assert kept._recursion_count() == 1
    with pytest.raises(LockLostError) as caught:
        lock.release()
    assert caught.value.path == lost.path
    assert not kept._is_owned()
    with lock:
        assert a._is_owned()
        assert b._is_owned()
    for name in "ab":
        eventually(queued(a.client, f"{zk_path}/{name}", 0))


@ways
@pytest.mark.parametrize("which", ["a", "b"])
@pytest.mark.threads_only("compares the identity of `lost`, which is a new object at each query of a task")
def test_a_loss_is_told(
    which: str, lose: Callable[..., None], zookeeper: Server, connect: Connect, zk_path: str
) -> None:
    """`lost` and `on_lost` are of the whole: told once when the first lock is lost, afresh with the next hold."""
    told: list[MultiLock] = []
    a, b = RLock(connect(timeout=4), f"{zk_path}/a"), Lock(connect(timeout=4), f"{zk_path}/b")
    lock, silent = MultiLock([a, b], on_lost=told.append), MultiLock([a, b])
    to_come = lock.lost
    for turn in (1, 2):
        lock.acquire()
        event = lock.lost
        assert event is lock.lost
        assert turn == 2 or event is to_come
        assert not event.is_set()
        others = silent.lost
        assert others is not event
        lose(zookeeper, a if which == "a" else b)
        assert event.wait(20)
        assert others.wait(20)
        assert lock.lost is event
        eventually(lambda turn=turn: len(told) == turn)
        lose_the_other = b if which == "a" else a
        lose(zookeeper, lose_the_other)
        with pytest.raises(LockLostError):
            lock.release()
        assert lock.lost is not event
    with lock:
        assert not lock.lost.is_set()
    assert told == [lock, lock]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.threads_only("waits on a condition of threads")
def test_a_loss_after_a_wait_of_a_condition(which: int, zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """A condition's wait replaces the hold of one lock, and `lost` is that of the new set; the release reports it."""
    locks = [RLock(connect(timeout=4), f"{zk_path}/{name}") for name in "ab"]
    condition = Condition(locks[0].client, f"{zk_path}/condition", locks[0])
    lock = MultiLock(locks)
    lock.acquire()
    before = lock.lost
    assert not condition.wait(0.01)
    event = lock.lost
    assert event is not before
    assert not event.is_set()
    expire(zookeeper, locks[which])
    assert event.wait(20)
    with pytest.raises(LockLostError):
        lock.release()
    with lock:
        assert not lock.lost.is_set()


def test_a_namespace_has_it_all(zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """A MultiLock that is made by names has the same extras beyond `threading` as any other."""
    told: list[MultiLock] = []
    lock = namespace(connect(timeout=4), zk_path).MultiLock(["b", "a"], on_lost=told.append)
    with pytest.raises(LockLostError), lock:
        expire(zookeeper, lock.locks[0])  # type: ignore[arg-type]
        eventually(lambda: told == [lock])


@pytest.mark.fault(186)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.threads_only("release() waits for the reply; that of a task returns before")
def test_a_loss_that_a_release_finds(which: int, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Its node is gone as it is to be deleted: `lost` is set, and `on_lost` is called once."""
    told: list[MultiLock] = []
    locks = [RLock(zk, f"{zk_path}/{name}") for name in "ab"]
    lock, other = MultiLock(locks, on_lost=told.append), locks[1 - which]
    with other:
        lock.acquire()
        lost = lock.lost
        connect().delete(locks[which]._lock_core.mine().ticket.node)  # type: ignore[union-attr]
        with pytest.raises(LockLostError):
            lock.release()
        assert lost.is_set()
        eventually(lambda: told == [lock])
        with lock:
            pass
        connect().delete(other._lock_core.mine().ticket.node)  # type: ignore[union-attr]
        with pytest.raises(LockLostError):
            other.release()
        other.acquire()
    assert told == [lock]


@pytest.mark.fault(186)
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.threads_only("keeps the session's lock, which the loop needs")
def test_a_loss_by_the_clock_that_a_release_finds(which: int, connect: Connect, zk_path: str) -> None:
    """The release of one lock finds its lease over, when it may have released the other already."""
    told: list[MultiLock] = []
    locks = [Lock(connect(timeout=20), f"{zk_path}/{name}") for name in "ab"]
    lock, session = MultiLock(locks, on_lost=told.append), locks[which]._session
    lock.acquire()
    lost, real = lock.lost, session.clock
    with session.lock:  # kept, so that the keeper does not find it first
        session.clock = lambda: real() + 1000
        with pytest.raises(LockLostError):
            lock.release()
        session.clock = real
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


@pytest.mark.threads_only("looks at the keepers of a loss, which are the threads' objects")
def test_what_is_told_is_not_kept(zk: KazooClient, zk_path: str) -> None:
    """A MultiLock that is used again and again beside a hold of one of its locks leaves nothing behind."""
    a, b = RLock(zk, f"{zk_path}/a"), RLock(zk, f"{zk_path}/b")
    with a:
        for _ in range(5):
            lock = MultiLock([a, b], on_lost=print)
            with lock:
                assert not lock.lost.is_set()
        assert len(a._lock_core.loss().listeners) <= 2
        again = MultiLock([a, b], on_lost=print)
        with b:
            for _ in range(5):
                with again:
                    pass
            assert sum(joint.holder() is again for joint in a._lock_core.loss().listeners) == 1
        joint = weakref.ref(a._lock_core.loss().listeners[-1])
    assert joint() is None  # by the count of its references


def test_one_that_is_dropped(zk: KazooClient, zk_path: str) -> None:
    """The last object of a held MultiLock warns for its locks when it goes; their nodes are removed."""
    lock = MultiLock([Lock(zk, f"{zk_path}/a"), Lock(zk, f"{zk_path}/b")], on_lost=print)
    lock.acquire()
    assert not lock.lost.is_set()
    with pytest.warns(ResourceWarning, match="garbage collected while held"):
        del lock
    for name in "ab":
        eventually(queued(zk, f"{zk_path}/{name}", 0))


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


@pytest.mark.fault(468)
def test_holders_of_one_name(zk: KazooClient, zk_path: str) -> None:
    """Two threads of one name that hold one lock each are no owner of both."""
    locks = [RLock(zk, f"{zk_path}/{name}") for name in "ab"]
    lock = MultiLock(locks)
    held, enough = threading.Barrier(3), threading.Event()

    def hold(one: RLock) -> None:
        with one:
            held.wait(20)
            enough.wait(20)

    threads = [threading.Thread(target=hold, args=(each,), name="worker") for each in locks]
    for each in threads:
        each.start()
    held.wait(20)
    assert [each.owner().thread for each in locks] == ["worker", "worker"]  # type: ignore[union-attr]
    assert lock.owner() is None
    enough.set()
    for each in threads:
        each.join(20)
    with lock:
        assert lock.owner() is not None


def test_suspect(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """It is suspect when all is held and one of its services is out of reach."""
    lock = MultiLock([Lock(zk, f"{zk_path}/a"), Lock(connect(hosts=proxy.hosts, timeout=20, **FAST), f"{zk_path}/b")])
    with lock:
        assert not lock.suspect
        proxy.refuse()
        proxy.cut()
        eventually(lambda: lock.suspect)
        proxy.resume()
        eventually(lambda: not lock.suspect)
        proxy.refuse()
        proxy.cut()
        eventually(lambda: lock.suspect)
        lock.locks[0].release()
        assert not lock.suspect
        lock.locks[0].acquire()
        proxy.resume()
        eventually(lambda: not lock.suspect)


@ways
def test_one_is_lost_while_acquiring(
    lose: Callable[..., None], zookeeper: Server, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
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
        lose(zookeeper, mine)
    assert waiting.result(20) == mine.path
    for name in "ab":
        eventually(queued(zk, f"{zk_path}/{name}", 0))


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, LockLostError])
def test_leaving_a_with_block(
    error: type[BaseException] | None, zookeeper: Server, connect: Connect, zk_path: str
) -> None:
    """A loss is raised where a `with` of a lock raises it: not over an interrupt, or over a loss that is told."""
    lock = MultiLock([Lock(connect(timeout=4), f"{zk_path}/a"), Lock(connect(timeout=4), f"{zk_path}/b")])
    thrown = None if error is None else error("x", "x")
    expected = error if error in (KeyboardInterrupt, LockLostError) else LockLostError
    with pytest.raises(expected or LockLostError) as caught, lock:
        event = lock.locks[0].lost
        zookeeper.expire(lock.locks[0].client)
        assert event.wait(20)
        if thrown is not None:
            raise thrown
    if error is ValueError:
        assert caught.value.__context__ is thrown
    elif error is not None:
        assert caught.value is thrown
    assert not lock.locks[1].locked()


def test_no_deadlock(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """In any order, and with any overlap, all get in in the end, and no two at once."""
    inside: dict[str, int] = dict.fromkeys("abcd", 0)
    clients = [zk, connect(), connect()]

    def work(n: int) -> int:
        random = Random(n)
        for _ in range(12):
            chosen = random.sample("abcd", random.randint(2, 4))
            with MultiLock([Lock(clients[n % 3], f"{zk_path}/{name}") for name in chosen]):
                for name in chosen:
                    inside[name] += 1
                    assert inside[name] == 1
                for name in chosen:
                    inside[name] -= 1
        return n

    working = [in_thread(work, n) for n in range(6)]
    assert [each.result(60) for each in working] == list(range(6))


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


class Scripted(Exception):
    """An error that a lock of the test raises."""


@settings(max_examples=60)
@given(data=st.data())
@pytest.mark.threads_only("stands halfway in a method of the threads' class")
def test_all_or_none_with_errors(data: st.DataObject) -> None:
    """Whether a lock returns True, returns False or raises: after `acquire` all are held, or none is."""
    client = KazooClient()
    locks = [RLock(client, f"/{name}") for name in "abcd"]
    plan = {lock.path: data.draw(st.sampled_from(["get", "get", "get", "no", "before", "after"])) for lock in locks}
    holds = {lock.path: SimpleNamespace(depth=data.draw(st.integers(0, 2))) for lock in locks}

    def deepen(lock: LockCore) -> bool:
        if plan[lock.path] == "before":
            raise Scripted(lock.path)
        holds[lock.path].depth += 1
        if plan[lock.path] == "after":  # as an interrupt that comes before anybody could note it
            raise KeyboardInterrupt
        return True

    def acquire(lock: LockCore, call: Call, *_: object) -> Steps[bool]:
        yield 0.0
        if plan[lock.path] == "no":
            return False
        call.tickets.append(holds[lock.path])  # type: ignore[arg-type]
        return deepen(lock)

    def abandon(call: Call) -> None:
        for hold in call.tickets:
            hold.depth = 0  # type: ignore[attr-defined]

    before = {path: hold.depth for path, hold in holds.items()}
    expected = all(plan[path] == "get" or (plan[path] == "no" and depth) for path, depth in before.items())
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(ReentrantCore, "reenter_or_check", lambda lock: bool(holds[lock.path].depth) and deepen(lock))
        patches.setattr(ReentrantCore, "acquire_steps", acquire)
        patches.setattr(ReentrantCore, "mine", lambda lock: holds[lock.path] if holds[lock.path].depth else None)
        patches.setattr(ReentrantCore, "check", lambda *_: None)
        patches.setattr(Call, "discard", lambda *_: iter(()))
        patches.setattr(Call, "abandon", abandon)
        try:
            got = MultiLock(locks).acquire()
        except (Scripted, KeyboardInterrupt):
            got = False
    assert got == expected
    assert {path: hold.depth for path, hold in holds.items()} == {path: depth + got for path, depth in before.items()}


def test_it_cannot_be_pickled(zk: KazooClient, zk_path: str) -> None:
    """The error says what to do instead."""
    with pytest.raises(TypeError, match=r"open (a client|clients) in the other process"):
        pickle.dumps(MultiLock([Lock(zk, zk_path)]))


def test_the_notes_of_an_error() -> None:
    """All other errors become notes of the first, on every Python."""
    errors = [ValueError("a"), RuntimeError("b"), KeyError("c")]
    error = first_error(errors)
    assert error is errors[0]
    assert error.__notes__ == ["also: RuntimeError: b", "also: KeyError: 'c'"]


def test_a_release_is_woken_by_the_answers(connect: Connect, zk_path: str) -> None:
    """It returns when the nodes are gone, and does not wait out its patience, a sixth of the session's timeout."""
    zk = connect(timeout=60)
    lock = MultiLock([Lock(zk, f"{zk_path}/a"), Lock(zk, f"{zk_path}/b")])
    lock.acquire()
    began = time.monotonic()
    lock.release()
    assert time.monotonic() - began < 5
    assert zk.get_children(f"{zk_path}/a") == zk.get_children(f"{zk_path}/b") == []


@pytest.mark.fault(144)
@pytest.mark.parametrize("error", [TimeoutError, RuntimeError])  # the latter is PyTorch's, of a lost worker
@pytest.mark.parametrize("where", ["hold_to_release", "begin_release"])
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_an_alarm_strikes_a_release(
    where: str, error: type[Exception], zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of a signal handler is no error of a lock: no lock stays held by itself."""
    parts = [Lock(zk, f"{zk_path}/{name}") for name in "abc"]
    lock = MultiLock(parts)
    lock.acquire()
    real, alarms = getattr(parts[1]._lock_core, where), [error("alarm")]

    def struck(*arguments: object) -> object:
        if alarms:
            raise alarms.pop()
        return real(*arguments)

    monkeypatch.setattr(parts[1]._lock_core, where, struck)
    with pytest.raises(error):
        lock.release()
    held = [bool(zk.get_children(part.path)) for part in parts]
    assert held == [where == "hold_to_release"] * 3
    if any(held):
        lock.release()
    assert not any(zk.get_children(part.path) for part in parts)


@pytest.mark.fault(204)
@pytest.mark.threads_only("stands halfway in a method of the threads' class")
def test_what_was_handed_on_is_the_next_threads(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of an unfair lock's node is its new holder's, and none of the release that handed it on."""
    monkeypatch.setattr(local_handoff, "LONGEST_TURN", 1000.0)
    inner = Lock(zk, f"{zk_path}/b", fair=False)
    lock = MultiLock([Lock(zk, f"{zk_path}/a"), inner])
    released = MultiLock._released_all
    theirs = connect()

    def lose() -> None:
        with inner:
            hold = inner._lock_core.releasable()
            assert hold is not None
            theirs.delete(hold.ticket.node)

    def late(*args: Any) -> Any:
        with pytest.raises(LockLostError):
            losing.result(20)
        return released(*args)

    monkeypatch.setattr(MultiLock, "_released_all", late)
    lock.acquire()
    losing = in_thread(lose)
    eventually(at_the_handoff(inner, 1))
    lock.release()


@pytest.mark.fault(205)
@pytest.mark.parametrize("times", [2, 9])
def test_interrupts_as_its_calls_are_abandoned(
    times: int, zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt of an acquire, and others of its clean-up, leave none of the locks held."""
    lock = MultiLock([Lock(zk, f"{zk_path}/{name}") for name in "abc"])
    strikes = strike(monkeypatch, lock._session, Calls, times)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    assert not strikes
    monkeypatch.undo()
    for each in lock.locks:
        eventually(queued(zk, each.path, 0))
    with lock:
        assert lock.hold_count() == 1


@pytest.mark.fault(144)
@pytest.mark.parametrize(("kind", "levels"), [(Lock, 1), (RLock, 2)])
@pytest.mark.threads_only("stands halfway in a method of the threads' class")
def test_interrupts_in_a_row_within_a_release(
    kind: type[Lock | RLock], levels: int, zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many strike, each lock loses the one level, so none stays held by itself."""
    lock = MultiLock([kind(zk, f"{zk_path}/{name}") for name in "abc"])
    core = type(core_of(lock.locks[0]))
    begin, strikes = core.begin_release, 6

    def struck(self: LockCore, hold: Hold) -> Call | None:
        nonlocal strikes
        strikes -= 1
        if strikes % 2:  # before the delete, or after it
            raise TimeoutError
        call = begin(self, hold)
        if strikes > 0:
            raise KeyboardInterrupt
        return call

    for _ in range(levels):
        lock.acquire()
    monkeypatch.setattr(core, "begin_release", struck)
    with pytest.raises(TimeoutError):
        lock.release()
    assert strikes == 0
    assert [each.hold_count() for each in lock.locks] == [levels - 1] * 3
    monkeypatch.undo()
    for _ in range(levels - 1):
        lock.release()
    assert lock.hold_count() == 0


@pytest.mark.threads_only("stands halfway in a method of the threads' class")
def test_a_loss_that_two_sessions_tell_at_once(zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported once."""
    lock = MultiLock([Lock(zk, f"{zk_path}/{name}") for name in "ab"], on_lost=print)
    calls: list[int] = []
    monkeypatch.setattr(lock, "_start_on_lost", lambda: calls.append(1))
    with lock:
        for _ in range(2):
            lock._joint_loss()._report(lock)
    assert calls == [1]


@pytest.mark.threads_only("stands halfway in a method of the threads' class")
def test_an_error_that_does_not_end(zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that can't come to its end raises, as in too deep a recursion; another one releases all."""
    lock = MultiLock([Lock(zk, f"{zk_path}/{name}") for name in "ab"])

    def fail(_self: LockCore, _hold: Hold) -> None:
        raise RecursionError("again")

    lock.acquire()
    with monkeypatch.context() as patch, pytest.raises(RecursionError):
        patch.setattr(LockCore, "begin_release", fail)
        lock.release()
    assert lock.hold_count() == 1
    lock.release()
    assert lock.hold_count() == 0


@pytest.mark.fault(123)
@pytest.mark.parametrize("on_top", [lambda locks: locks[1], lambda locks: MultiLock(locks[1:])], ids=["one", "several"])
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_in_a_handler_on_top_of_another_acquire(
    on_top: Any, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """A handler that would wait for the acquire below it gets an error."""
    locks = [Lock(zk, f"{zk_path}/{name}") for name in "abc"]
    results: list[str] = []

    def handle(*_: object) -> None:
        with pytest.raises(ClientError, match="signal handler") as error, on_top(locks):
            pass
        results.append(str(error.value))
        raise KeyboardInterrupt

    def interrupt() -> None:
        eventually(queued(zk, locks[1].path, 2))
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with held_elsewhere(Lock(connect(), locks[1].path)):
            interrupting = in_thread(interrupt)
            with pytest.raises(KeyboardInterrupt):
                MultiLock(locks).acquire()
            interrupting.result(20)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(results) == 1
    for each in locks:
        eventually(queued(zk, each.path, 0))
