"""`cancel_waits()` on a real ZooKeeper: the waits that it ends, their leftovers, and the calls that it leaves alone."""

from __future__ import annotations

import pickle
import signal
import threading
import time
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import at_the_handoff, held_elsewhere, queued, wait_in, waiters
from tests.helpers.eventually import eventually
from tests.helpers.processes import in_forked_child
from tests.helpers.proxy import Proxy
from tests.integration.test_hold import AGAINST, MAKE, every
from tests.integration.test_locklikes import ephemerals
from zkconcurrent import (
    ClientError,
    Condition,
    Lock,
    MultiLock,
    ReadWriteLock,
    RLock,
    WaitCancelledError,
    synchronized,
)
from zkconcurrent._engine.session import Session
from zkconcurrent._threads.base.cancel import waits

some = pytest.mark.parametrize("which", ["Lock", "MultiLock", "Semaphore"])


@every
def test_the_waits_of_a_client_end(
    which: str, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """All waits for it end at once, with a deadline or without, and leave no node; another client's goes on."""
    make, client, other = MAKE[which], connect(), connect()
    holder = AGAINST.get(which, make)(zk, zk_path)
    mine, theirs = make(client, zk_path), make(other, zk_path)
    assert mine.cancel_waits() == 0
    with holder:
        held = len(ephemerals(zk, zk_path))
        waiting = [in_thread(mine.acquire), in_thread(mine.acquire, timeout=60), in_thread(lambda: enter(mine))]
        elsewhere = in_thread(lambda: (theirs.acquire(), theirs.release()))
        eventually(lambda: ended(mine) == 3 and ended(theirs) == 1)
        assert [mine.cancel_waits(), mine.cancel_waits()] == [3, 0]
        for each in waiting:
            with pytest.raises(WaitCancelledError, match=r"cancel_waits\(\)") as told:
                each.result(20)
            assert told.value.path.startswith(zk_path)
        eventually(lambda: len(ephemerals(zk, zk_path)) == held + 1)
        assert mine.cancel_waits() == 0
        assert not elsewhere.done()
        assert holder.cancel_waits() == 0
        assert holder.hold_count() == 1
    elsewhere.result(20)
    with mine.hold(timeout=20):  # a wait that begins later is not concerned
        pass
    eventually(lambda: not ephemerals(zk, zk_path))


@pytest.mark.fault(423)
def test_no_memory_for_the_end(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All memory is used up for a moment as a wait ends: its node goes all the same, and others get in."""
    holder, mine, other = Lock(zk, zk_path), Lock(connect(), zk_path), Lock(connect(), zk_path)
    session, used_up_until = Session.of(mine.client), 0.0
    discard, drop = session.discard, session.drop

    def with_memory(act: Any) -> Any:
        def tried(*args: Any) -> Any:
            if time.monotonic() < used_up_until:
                raise MemoryError
            return act(*args)

        return tried

    monkeypatch.setattr(session, "discard", with_memory(discard))
    monkeypatch.setattr(session, "drop", with_memory(drop))
    with holder:
        waiting = in_thread(mine.acquire)
        eventually(lambda: ended(mine) == 1)
        used_up_until = time.monotonic() + 0.2
        assert mine.cancel_waits() == 1
        with pytest.raises((MemoryError, WaitCancelledError)):
            waiting.result(20)
    assert other.acquire(timeout=20)
    other.release()


def ended(lock: Any) -> int:
    """Return how many waits would be ended."""
    sessions = {each._session for each in getattr(lock, "locks", (lock,))}
    core = getattr(lock, "_lock_core", None)
    target = lock if core is None else core.queue_key
    return len(waits((call for session in sessions for call in session.calls), target))


def enter(lock: Any) -> None:
    """Enter a block."""
    with lock.hold(timeout=60):
        pytest.fail("the body ran")


@every
def test_a_hold_and_an_attempt_are_left_alone(which: str, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Without a wait nothing is ended: not the hold, nor the next acquire, whether it waits or tries."""
    lock, other = MAKE[which](zk, zk_path), MAKE[which](connect(), zk_path)
    with lock:
        assert lock.cancel_waits() == 0
        assert lock.hold_count() == 1
        if which != "read lock":
            assert other.acquire(blocking=False) is False
    for arguments in ((), (False,), (True, 20)):
        assert lock.acquire(*arguments)
        lock.release()


def test_readers_and_writers_are_apart(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Of a pair, each lock ends its own waits; readers behind a writer that was ended get in."""
    pair, holder = ReadWriteLock(connect(), zk_path), ReadWriteLock(zk, zk_path)
    with holder.read_lock:
        writing = in_thread(pair.write_lock.acquire)
        eventually(queued(zk, zk_path, 2))
        reading = in_thread(lambda: pair.read_lock.acquire() and pair.read_lock.release())
        eventually(queued(zk, zk_path, 3))
        assert pair.write_lock.cancel_waits() == 1
        with pytest.raises(WaitCancelledError):
            writing.result(20)
        reading.result(20)
        eventually(queued(zk, zk_path, 1))


def test_a_multilock(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """It ends its own waits, which give back what they have; one of its locks ends those for that lock, too."""
    client = connect()
    a, b = Lock(client, f"{zk_path}/a"), Lock(client, f"{zk_path}/b")
    both, same = MultiLock([a, b]), MultiLock([b, a])
    with Lock(zk, b.path):
        for end, n in ((both.cancel_waits, 1), (b.cancel_waits, 1), (same.cancel_waits, 0), (a.cancel_waits, 0)):
            waiting = in_thread(both.acquire)
            eventually(lambda: queued(zk, a.path, 1)() and queued(zk, b.path, 2)())
            assert eventually(lambda: ended(b)) == 1
            assert end() == n
            if not n:
                assert not waiting.done()
                assert both.cancel_waits() == 1
            with pytest.raises(WaitCancelledError) as told:
                waiting.result(20)
            assert told.value.path == b.path
            eventually(lambda: queued(zk, a.path, 0)() and queued(zk, b.path, 1)())
        alone = in_thread(b.acquire)
        eventually(queued(zk, b.path, 2))
        assert both.cancel_waits() == 0
        assert b.cancel_waits() == 1
        assert isinstance(alone.exception(20), WaitCancelledError)
    with both:
        assert both.cancel_waits() == 0


@pytest.mark.fault(96)
@pytest.mark.parametrize("kind", [Lock, RLock])
def test_a_condition_keeps_its_lock(
    kind: Any, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """A condition's wait has the lock again when it returns: neither it nor its acquire is ended."""
    client = connect()
    condition = Condition(client, f"{zk_path}/condition", kind(client, f"{zk_path}/lock"))
    elsewhere = Condition(zk, f"{zk_path}/condition", kind(zk, f"{zk_path}/lock"))
    waiting = in_thread(wait_in, condition, 60)
    eventually(waiters(zk, condition.path, 1))
    assert condition._lock.cancel_waits() == 0
    with elsewhere:
        elsewhere.notify()
        eventually(queued(zk, f"{zk_path}/lock", 2))
        assert condition._lock.cancel_waits() == 0
    assert waiting.result(20)[0] is True


@pytest.mark.fault(96)
@pytest.mark.threads_only("threading's condition takes no lock of tasks")
def test_threadings_condition_keeps_its_lock(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """So does the standard library's, on an RLock of ours."""
    lock = RLock(connect(), zk_path)
    condition = threading.Condition(lock)  # type: ignore[arg-type]
    waits = threading.Event()

    def wait() -> bool:
        with condition:
            waits.set()
            return condition.wait(60) and lock.hold_count() == 1

    waiting = in_thread(wait)
    assert waits.wait(20)
    with condition:
        condition.notify()
    holder = RLock(zk, zk_path)
    lock.cancel_waits()
    with holder:
        pass
    assert waiting.result(20)


def test_unfair(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Of an unfair lock, those that wait for their turn within the process end, too; the next acquire gets in."""
    client = connect()
    lock = Lock(client, zk_path, fair=False)
    with Lock(zk, zk_path):
        waiting = [in_thread(lock.acquire) for _ in range(3)]
        eventually(at_the_handoff(lock, 2))
        assert lock.cancel_waits() == 3
        for each in waiting:
            assert isinstance(each.exception(20), WaitCancelledError)
        eventually(queued(zk, zk_path, 1))
    with lock.hold(timeout=20):
        again = in_thread(lock.acquire)
        eventually(lambda: ended(lock) == 1)
        assert lock.cancel_waits() == 1
        assert isinstance(again.exception(20), WaitCancelledError)
        assert lock.hold_count() == 1


@pytest.mark.threads_only("is of the decorator, of which aio has its own")
def test_synchronized(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A decorated function whose lock was waited for does not run; the error leaves its call."""
    lock = RLock(connect(), zk_path)

    @synchronized(lock)
    def run() -> None:
        pytest.fail("it ran")

    with RLock(zk, zk_path):
        calling = in_thread(run)
        eventually(queued(zk, zk_path, 2))
        lock.cancel_waits()
        assert isinstance(calling.exception(20), WaitCancelledError)


@pytest.mark.fault(95)
@pytest.mark.usefixtures("uncollected")
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_in_a_signal_handler(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A handler ends the wait that it has interrupted, and all others."""
    mine = Lock(connect(), zk_path)
    before = signal.signal(signal.SIGUSR1, lambda *_: mine.cancel_waits() and None)

    def interrupt() -> None:
        eventually(queued(zk, zk_path, 3))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)  # type: ignore[arg-type]

    try:
        with held_elsewhere(Lock(zk, zk_path)):
            waiting, interrupting = in_thread(mine.acquire), in_thread(interrupt)
            with pytest.raises(WaitCancelledError):
                mine.acquire()
            assert isinstance(waiting.exception(20), WaitCancelledError)
            interrupting.result(20)
            eventually(queued(zk, zk_path, 1))
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.fault(230)
@some
@pytest.mark.usefixtures("uncollected")
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_a_handler_that_raises_too(
    which: str, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """An error that a handler raises leaves the call that it has ended and interrupted: it is not lost."""
    mine = MAKE[which](connect(), zk_path)

    def leave(*_: object) -> None:
        mine.cancel_waits()
        raise SystemExit(3)

    before = signal.signal(signal.SIGUSR1, leave)

    def interrupt() -> None:
        eventually(lambda: len(ephemerals(zk, zk_path)) == held + 1)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)  # type: ignore[arg-type]

    try:
        with held_elsewhere(AGAINST.get(which, MAKE[which])(zk, zk_path)):
            held = len(ephemerals(zk, zk_path))
            interrupting = in_thread(interrupt)
            with pytest.raises(SystemExit):
                mine.acquire()
            interrupting.result(20)
            eventually(lambda: len(ephemerals(zk, zk_path)) == held)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.fault(230)
@pytest.mark.usefixtures("uncollected")
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_during_the_clean_up_of_an_interrupt(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """An interrupted wait is over, even while it cleans up: it does not count; the interrupt leaves it."""
    lock = Lock(connect(proxy.hosts), zk_path)

    def interrupt() -> int:
        eventually(queued(zk, zk_path, 2))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]
        cleans_up.wait()
        return lock.cancel_waits()

    with held_elsewhere(Lock(zk, zk_path)):
        with proxy.hold("delete") as cleans_up:
            interrupting = in_thread(interrupt)
            with pytest.raises(KeyboardInterrupt):
                lock.acquire()
            assert interrupting.result(20) == 0
        eventually(queued(zk, zk_path, 1))


@pytest.mark.fault(230)
@some
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_a_handler_that_raises_between_two_sleeps(
    which: str, zk: KazooClient, connect: Connect, zk_path: str, monkeypatch: Any
) -> None:
    """So it is where the handler has interrupted no sleep, but a step whose clean-up sleeps."""
    make: Any = MAKE[which]
    mine = make(connect(), zk_path)
    counts: list[int] = []

    def strike(*arguments: object, **options: object) -> None:
        if counts or threading.current_thread() is not threading.main_thread():
            send(*arguments, **options)
            return
        counts.append(mine.cancel_waits())
        raise KeyboardInterrupt

    with held_elsewhere(make(zk, zk_path)):
        held = len(ephemerals(zk, zk_path))
        request = "children" if which == "Semaphore" else "get"
        send = getattr(mine._session.link, request)
        monkeypatch.setattr(mine._session.link, request, strike)
        with pytest.raises(KeyboardInterrupt):
            mine.acquire()
        assert counts == [1]
        eventually(lambda: len(ephemerals(zk, zk_path)) == held)


@pytest.mark.fault(95)
@some
def test_out_of_reach(
    which: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A wait ends although ZooKeeper is out of reach; its node goes after the reconnect."""
    lock = MAKE[which](connect(hosts=proxy.hosts, timeout=20, **FAST), zk_path)
    with AGAINST.get(which, MAKE[which])(zk, zk_path):
        held = len(ephemerals(zk, zk_path))
        waiting = in_thread(lock.acquire)
        eventually(lambda: len(ephemerals(zk, zk_path)) == held + 1)
        proxy.refuse()
        proxy.cut()
        eventually(lambda: ended(lock) == 1)
        assert lock.cancel_waits() == 1
        assert isinstance(waiting.exception(20), WaitCancelledError)
        proxy.resume()
        eventually(lambda: len(ephemerals(zk, zk_path)) == held)


def test_a_stopped_client(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """There is nothing to end, and that is no error; nor is it with a client that never starts."""
    client = connect()
    lock = Lock(client, zk_path)
    client.stop()
    assert lock.cancel_waits() == 0
    assert Lock(KazooClient(), zk_path).cancel_waits() == 0
    assert zk.exists(zk_path) is None


@pytest.mark.threads_only("forks where the thread of the loop is not")
def test_a_forked_child(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """In a child it is an error, and the parent's wait goes on."""
    lock = Lock(connect(), zk_path)
    with Lock(zk, zk_path):
        waiting = in_thread(lambda: lock.acquire() and lock.release())
        eventually(queued(zk, zk_path, 2))

        def child() -> None:
            with pytest.raises(ClientError):
                lock.cancel_waits()

        in_forked_child(child)
        assert not waiting.done()
    waiting.result(20)


def test_the_error(zk_path: str) -> None:
    """It can be pickled, and is one of the library's, and no other's."""
    error = WaitCancelledError(zk_path, "ended")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.path, str(again)) == (WaitCancelledError, zk_path, f"ended [{zk_path}]")
    assert not isinstance(error, TimeoutError | RuntimeError)
