"""`cancel_waits()` on a real ZooKeeper: the waits that it ends, their leftovers, and the calls that it leaves alone."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import held_elsewhere, queued, wait_in, waiters
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from tests.integration.test_hold import AGAINST, MAKE, ephemerals, every
from zkconcurrent import Condition, Lock, MultiLock, ReadWriteLock, RLock, WaitCancelledError
from zkconcurrent._threads.base.cancel import waits


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


@pytest.mark.fault(96)
def test_a_condition_keeps_its_lock(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A condition's wait has the lock again when it returns: neither it nor its acquire is ended."""
    client = connect()
    condition = Condition(client, f"{zk_path}/condition", RLock(client, f"{zk_path}/lock"))
    elsewhere = Condition(zk, f"{zk_path}/condition", RLock(zk, f"{zk_path}/lock"))
    waiting = in_thread(wait_in, condition, 60)
    eventually(waiters(zk, condition.path, 1))
    assert condition._lock.cancel_waits() == 0
    with elsewhere:
        elsewhere.notify()
        eventually(queued(zk, f"{zk_path}/lock", 2))
        assert condition._lock.cancel_waits() == 0
    assert waiting.result(20)[0] is True


@pytest.mark.fault(230)
@pytest.mark.usefixtures("uncollected")
@pytest.mark.threads_only("interrupts the thread that calls; a task is cancelled instead")
def test_a_handler_that_raises_too(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A handler ends the wait that it has interrupted, and raises an error: that one leaves the call."""
    mine = Lock(connect(), zk_path)

    def leave(*_: object) -> None:
        mine.cancel_waits()
        raise SystemExit(3)

    before = signal.signal(signal.SIGUSR1, leave)

    def interrupt() -> None:
        eventually(queued(zk, zk_path, 2))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)  # type: ignore[arg-type]

    try:
        with held_elsewhere(Lock(zk, zk_path)):
            interrupting = in_thread(interrupt)
            with pytest.raises(SystemExit):
                mine.acquire()
            interrupting.result(20)
            eventually(queued(zk, zk_path, 1))
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.fault(95)
def test_out_of_reach(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """A wait ends although ZooKeeper is out of reach; its node goes after the reconnect."""
    lock = Lock(connect(hosts=proxy.hosts, timeout=20, **FAST), zk_path)
    with Lock(zk, zk_path):
        waiting = in_thread(lock.acquire)
        eventually(queued(zk, zk_path, 2))
        proxy.refuse()
        proxy.cut()
        eventually(lambda: ended(lock) == 1)
        assert lock.cancel_waits() == 1
        assert isinstance(waiting.exception(20), WaitCancelledError)
        proxy.resume()
        eventually(queued(zk, zk_path, 1))
