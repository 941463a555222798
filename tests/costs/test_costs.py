"""The cost table: the requests of each operation, counted on the wire by a proxy; never in time.

Heartbeats and pings are left apart. `flights` are the round trips that somebody waited for; the proxy delays each way
a little, so that pipelined requests are seen to be pipelined.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.contenders import waits as asleep
from tests.helpers.count import Count, answered
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import AnyLock, Kind, against, read_lock, reentrant, unfair, write_lock
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    Barrier,
    Condition,
    CountDownLatch,
    DetachedLock,
    Dict,
    Election,
    Event,
    Lock,
    LockLostError,
    MultiLock,
    Queue,
    ReadWriteLock,
    Semaphore,
)
from zkconcurrent._engine import local_handoff
from zkconcurrent._engine.session import Session
from zkconcurrent._protocol.session_lease import BEATS
from zkconcurrent._runtime.wait_loops import wait
from zkconcurrent._threads.base import lock_base
from zkconcurrent.testing import Server


@pytest.fixture
def proxy(proxy: Proxy) -> Proxy:
    """The shared one, with 50 ms of delay each way: no thread is kept from sending the next request for as long."""
    proxy.delay(0.05)
    return proxy


kinds = pytest.mark.parametrize("kind", [Lock, read_lock, write_lock])


def warm(lock: AnyLock) -> None:
    """Use the path once, so that its parents are there."""
    lock.acquire()
    lock.release()


@kinds
def test_uncontended(kind: Kind, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """Acquire: one write and one read, pipelined in one round trip. Release: one write, one round trip."""
    lock = kind(counted, zk_path)
    warm(lock)
    with proxy.costs(create2=1, getChildren=1, flights=1):
        lock.acquire()
    with proxy.costs(delete=1, flights=1):
        lock.release()


@pytest.mark.long
@pytest.mark.threads_only("is of the session, and takes long")
def test_an_idle_holder(proxy: Proxy, zk_path: str) -> None:
    """A hold costs its idle client four writes for each session timeout, and reads that cost no transaction."""
    timeout, times = 5.0, 2
    with zkconcurrent.connect(f"zk://{proxy.hosts}", timeout=timeout) as zk, Lock(zk, zk_path):
        # Until then the lease may rest on the handshake, which needs an early proof.
        eventually(lambda: Session.of(zk).registry.lease.renewed, patience=3 * timeout)
        began = time.monotonic()
        with proxy.counting() as count:
            eventually(lambda: time.monotonic() > began + times * timeout, patience=2 * times * timeout)
        passed = (time.monotonic() - began) / timeout
        sent = Counter(message.name for message in count.trace if message.kind == "request")
        assert sent.keys() <= {"multi", "sync", "getData", "ping"}, sent
        assert sent["multi"] <= passed / 0.26 + 1, sent
        assert sent["getData"] <= 1, sent
        assert sent["sync"] <= (2 * BEATS + 1 / 0.26) * passed + 1, sent


@pytest.mark.threads_only("is of the session, and takes long")
def test_what_is_sent_besides(connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A read or a write for each heartbeat of what is held."""
    lock = Lock(connect(proxy.hosts, timeout=4), zk_path)
    lock.acquire()
    with proxy.costs(connect=1) as second:
        proxy.cut()
        eventually(lambda: second.heartbeats >= 10)  # longer than the session's timeout
    heartbeats = [each for each in second.trace if each.kind == "request" and each.heartbeat]
    owner = lock.owner()
    assert owner is not None
    assert {(each.name, each.path) for each in heartbeats} == {
        ("sync", "/"),
        ("multi", owner.node),
        # Once for each connection, with a watch.
        ("getData", owner.node),
    }
    assert sum(each.name == "getData" for each in heartbeats) == 1
    assert not second.pings  # kazoo has them left out while ours flow
    lock.release()


def test_a_lock_that_may_be_revoked(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """To acquire it takes one read more, which nobody waits for; to ask, a read and a write for each holder."""
    asked = threading.Event()
    lock, other = Lock(counted, zk_path, on_revoke=lambda _: asked.set()), Lock(zk, zk_path)

    def sent(count: Count) -> Counter[str]:
        # A read of the holder's node may follow a heartbeat, and then counts as one.
        names = Counter(each.name for each in count.trace if each.kind == "request" and "/_c_" in each.path)
        return count.requests - Counter(getData=names["getData"]) + Counter(getData=names["getData"])

    warm(lock)
    with proxy.counting() as acquiring:
        lock.acquire()
        eventually(lambda: any(each.kind == "answer" and each.name == "getData" for each in acquiring.trace))
    assert sent(acquiring) == {"create2": 1, "getChildren": 1, "getData": 1}
    with proxy.counting() as told:
        other.revoke()
        assert asked.wait(20)
    assert sent(told) == {"getData": 1}
    asked.clear()
    with proxy.counting() as asking:
        lock.revoke()
        assert asked.wait(20)
    assert sent(asking) == {"sync": 1, "getChildren": 1, "getData": 2, "setData": 1}
    lock.release()


@reentrant
def test_reentrant(kind: Kind, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """To acquire again, and to release that, sends nothing."""
    lock = kind(counted, zk_path)
    with lock, proxy.costs():
        for _ in range(3):
            lock.acquire()
        for _ in range(3):
            lock.release()


@kinds
def test_a_failing_try(kind: Kind, zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A try of a held lock: two reads, pipelined in one round trip, and no write."""
    lock = kind(counted, zk_path)
    with against(kind)(zk, zk_path), proxy.costs(sync=1, getChildren=1, flights=1):
        assert not lock.acquire(blocking=False)


def test_a_block_that_does_not_begin(
    zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three reads in two round trips tell who holds, behind the try."""
    monkeypatch.setattr(lock_base, "CLEAN_UP_PATIENCE", 30.0)
    lock = Lock(counted, zk_path)
    with (
        Lock(zk, zk_path),
        proxy.costs(sync=2, getChildren=2, getData=1, flights=3),
        pytest.raises(TimeoutError, match="held by"),
    ):
        lock.hold(blocking=False).__enter__()


@kinds
def test_a_try_that_succeeds(kind: Kind, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A try of a free lock: one write, three reads, two round trips."""
    lock = kind(counted, zk_path)
    warm(lock)
    with proxy.costs(sync=1, getChildren=2, create2=1, flights=2):
        assert lock.acquire(blocking=False)
    lock.release()


@kinds
def test_contended(
    kind: Kind, zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Until it waits: one write, three reads, two round trips. Handed over by another process: one event, no request.

    The second event is that of its own node. A writer behind a writer has one read and one event less, and lists.
    """
    mine, theirs = against(kind)(zk, zk_path), kind(counted, zk_path)
    lists = kind is write_lock
    mine.acquire()
    with proxy.costs(create2=1, getChildren=1, getData=2 - lists, flights=2) as until_waiting:
        waiting = in_thread(lambda: theirs.acquire() and theirs.release())
        eventually(answered(until_waiting, "getData", 2 - lists))
    with proxy.costs(delete=1, getChildren=lists, flights=1 + lists) as handed_over:
        mine.release()
        waiting.result(10)
    assert sum(handed_over.events.values()) == 2 - lists


def test_hand_over_between_threads(counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """Between threads of one process, a release is one delete, and the next goes on without any request."""
    lock = Lock(counted, zk_path)
    lock.acquire()
    with proxy.counting() as until_waiting:
        waiting = in_thread(lock.acquire)
        eventually(answered(until_waiting, "getData", 2))
    with proxy.costs(delete=1):
        lock.release()
        assert waiting.result(10)
    lock.release()


@pytest.mark.fault(33)
def test_one_release_wakes_one(
    zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """However many wait, a release of another process wakes exactly one of them, who holds without a request."""
    held, lock = Lock(zk, zk_path), Lock(counted, zk_path)
    held.acquire()
    n = 8
    # The first of them has a single contender ahead, and reads its own node, too.
    with proxy.costs(create2=n, getChildren=n, getData=n + 1) as until_waiting:
        waiting = [in_thread(lock.acquire) for _ in range(n)]
        eventually(answered(until_waiting, "getData", n + 1))
    with proxy.costs() as count:
        held.release()
        eventually(lambda: any(each.done() for each in waiting))
    assert sum(count.events.values()) == 1
    for left in range(n, 0, -1):
        eventually(lambda left=left: sum(each.done() for each in waiting) == n - left + 1)
        lock.release()


def test_a_first_use_makes_the_parents(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """On a path never used, the parents are made together with the node, as containers, two round trips later."""
    lock = Lock(counted, f"{zk_path}/lock")
    with proxy.costs(create2=1, getChildren=2, sync=1, exists=2, multi=1, flights=3):
        lock.acquire()
    lock.release()


def test_readers_do_not_wait_for_each_other(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A reader among readers: one write and one read in one round trip, as if it were alone."""
    lock = ReadWriteLock(counted, zk_path).read_lock
    with ReadWriteLock(zk, zk_path).read_lock, proxy.costs(create2=1, getChildren=1, delete=1, flights=2):
        lock.acquire()
        lock.release()


def test_downgrade(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """To read while writing, and to give up writing: one write each, one round trip each, with any waiters."""
    pair = ReadWriteLock(counted, zk_path)
    pair.write_lock.acquire()
    with proxy.costs(multi=1, flights=1):
        pair.read_lock.acquire()
    with proxy.costs(delete=1, flights=1):
        pair.write_lock.release()
    pair.read_lock.release()


@pytest.mark.threads_only("ends the holds of threads that have ended")
def test_whom_a_writer_wakes(
    zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A writer's release wakes the readers up to the next writer, and none of them lists; not the writer."""
    held, pair, n = ReadWriteLock(zk, zk_path).write_lock, ReadWriteLock(counted, zk_path), 5
    held.acquire()
    with proxy.counting() as until_waiting:
        readers = [in_thread(lambda: pair.read_lock.acquire() and pair.read_lock._lock_core.mine()) for _ in range(n)]
        eventually(answered(until_waiting, "getData", 2 * n))
        writer = in_thread(lambda: pair.write_lock.acquire() and pair.write_lock.release())
        eventually(answered(until_waiting, "getData", 2 * n + 1))
        late = in_thread(lambda: pair.read_lock.acquire() and pair.read_lock.release())
        eventually(answered(until_waiting, "getData", 2 * n + 2))
    with proxy.costs() as count:
        held.release()
        holds = [reader.result(10) for reader in readers]
    assert sum(count.events.values()) == 1
    with proxy.counting() as last:
        for hold in holds:  # by their threads' leave: they are gone
            core = pair.read_lock._lock_core
            call = core.end_hold(hold)
            wait(call, core.released(call, hold))
        writer.result(10)
        late.result(10)
    assert not any(last.requests[name] for name in ("create2", "sync"))


def test_an_event(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """`is_set`, and a change that changes nothing: two reads in one round trip; a change: these, and one write."""
    event = Event(counted, zk_path)
    with proxy.costs(sync=2, getData=2, create=1, setData=1, flights=4):
        event.set()
    for call in (event.is_set, event.set, event.wait, lambda: event.wait(0)):
        with proxy.costs(sync=1, getData=1, flights=1):
            call()
    for call in (event.clear, event.set):
        with proxy.costs(sync=1, getData=1, setData=1, flights=2):
            call()


def test_waiting_for_an_event(
    zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Until it waits: three reads in two round trips. A set wakes each waiter, to one read, by one event per client."""
    mine, theirs, n = Event(zk, zk_path), Event(counted, zk_path), 5
    mine.set()
    mine.clear()
    with proxy.costs(sync=1, getData=2, flights=2) as until_waiting:
        waiting = [in_thread(theirs.wait)]
        eventually(answered(until_waiting, "getData", 2))
    with proxy.counting() as until_all_wait:
        waiting += [in_thread(theirs.wait) for _ in range(n - 1)]
        eventually(answered(until_all_wait, "getData", 2 * (n - 1)))
    with proxy.costs(getData=n) as woken:
        mine.set()
        assert all(each.result(10) for each in waiting)
    assert sum(woken.events.values()) == 1


def test_a_latch(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """The count: three reads in one round trip; to count down: these, and one write; a woken waiter sends two."""
    mine, latch = CountDownLatch(zk, zk_path, 3), CountDownLatch(counted, zk_path, 3)
    mine.count_down()
    looks = {"sync": 1, "getData": 1, "getChildren": 1}
    with proxy.costs(**looks, flights=1):
        assert latch.count == 2
    with proxy.costs(**looks, create=1, flights=2):
        latch.count_down()
    with proxy.costs(sync=1, getData=2, getChildren=2, flights=2) as until_waiting:
        waiting = in_thread(latch.wait)
        eventually(answered(until_waiting, "getChildren", 2))
    with proxy.costs(getData=1, getChildren=1, flights=1):
        mine.count_down()
        assert waiting.result(10)
    for call in (latch.wait, latch.count_down):
        with proxy.costs(**looks):
            call()


def test_the_first_use_of_a_flag_and_a_count(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A primitive with its state in a persistent node makes that node once, and the nodes above it as containers."""
    warm(Lock(counted, f"{zk_path}-other"))  # the client's first request has been answered, and is not counted
    latch = CountDownLatch(counted, f"{zk_path}/latch", 2)
    with proxy.costs(sync=2, getData=1, getChildren=1, create=2, exists=2, multi=1):
        latch.count_down()
    with proxy.costs(sync=1, getData=1, getChildren=1, multi=1, flights=2):
        latch.destroy()


@pytest.mark.parametrize(
    ("make", "use", "folders", "entries"),
    [
        (lambda client, path: Barrier(client, path, 2), lambda it: it.abort(), 0, 0),
        (Queue, lambda it: it.put(b"1"), 7, 0),
        (Dict, lambda it: it.update(a=b"1"), 2, 1),
    ],
    ids=["barrier", "queue", "map"],
)
def test_destroy(
    make: Any, use: Any, folders: int, entries: int, counted: KazooClient, proxy: Proxy, zk_path: str
) -> None:
    """All is read together, and goes in one `multi`. Our own members or writers go before, in a `multi` of their own.

    A client with members or writers also makes sure that they are gone, and reads the entries that it knew.
    """
    primitive = make(counted, zk_path)
    use(primitive)
    # So pipelined requests are seen as such, however long a busy machine keeps this thread between two of them.
    proxy.delay(0.3)
    with proxy.counting() as count:
        primitive.destroy()
    own = isinstance(primitive, Queue | Dict)
    reads = {"sync": 1, "getData": 1 + entries, "getChildren": 1 + folders}
    assert count.requests == reads | ({"multi": 2, "delete": 1} if own else {"multi": 1})
    assert count.flights == (4 if own else 2)


def test_several_locks_as_one(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """An acquire costs the sum of the locks, a release one round trip; a try stops at the first that is held."""
    lock = MultiLock([Lock(counted, f"{zk_path}-{name}") for name in "abc"])
    lock.acquire()
    lock.release()
    with proxy.costs(create2=3, getChildren=3, delete=3, flights=4):
        lock.acquire()
        lock.release()
    with lock, proxy.costs(sync=1, getChildren=1):
        assert not lock.acquire(blocking=False)


def test_a_detached_lock(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """Acquire: a create and a multi; again, by the owner: reads alone; release: a delete."""
    lock, again = (DetachedLock(counted, zk_path, "job") for _ in range(2))
    with lock:
        pass
    with proxy.costs(sync=1, getChildren=2, create2=1, multi=1, flights=3):
        lock.acquire()
    with proxy.costs(sync=1, getChildren=1, getData=1, flights=2):
        lock.acquire()
    with proxy.costs(sync=1, getChildren=1, getData=1, multi=1, flights=3):
        again.acquire()
    with proxy.costs(delete=1):
        again.release()
    with pytest.raises(LockLostError):
        lock.release()
    for end in (again.release, lambda: again.force_release(lock.fencing_token)):
        lock.acquire()
        with proxy.costs(sync=1, getChildren=1, getData=1, delete=1, flights=3):
            end()
        with suppress(LockLostError):
            lock.release()


@pytest.mark.parametrize("permits", [1, 3])
def test_permits(permits: int, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """Acquire, however many permits: two writes in two round trips. Release: one write for each, in one round trip."""
    semaphore = Semaphore(counted, zk_path, 3)
    with semaphore:
        pass
    with proxy.costs(create2=1, getChildren=3, getData=1, multi=1, flights=2):
        semaphore.acquire(permits=permits)
    with proxy.costs(delete=permits, flights=1):
        semaphore.release(permits)


def test_a_try_for_a_permit(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A try where none is free: five reads in one round trip, no write. One that succeeds asks them once more."""
    semaphore, reads = Semaphore(counted, zk_path), {"sync": 1, "getChildren": 3, "getData": 1}
    # A client's first call also looks at the path itself.
    with Semaphore(zk, zk_path), proxy.costs(sync=1, getChildren=4, getData=1, flights=1):
        assert not semaphore.acquire(blocking=False)
    with Semaphore(zk, zk_path), proxy.costs(**reads, flights=1):
        assert not semaphore.acquire(blocking=False)
    with proxy.costs(sync=1, getChildren=6, getData=2, create2=1, multi=1, flights=3):
        assert semaphore.acquire(blocking=False)
    semaphore.release()


def test_a_permit_added(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A release of a hold that is not there: one write, behind two reads, in two round trips."""
    semaphore = Semaphore(counted, zk_path, 0)
    semaphore.release()
    with proxy.costs(getData=1, getChildren=1, create=1, flights=2):
        semaphore.release(2)


def test_a_resize(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """One write, behind three reads and with one, in two round trips; it wakes the first waiter. To ask: five reads."""
    semaphore = Semaphore(zk, zk_path)
    assert semaphore.acquire()
    mine = Semaphore(counted, zk_path, None)
    assert mine.available() == 0
    with proxy.costs(sync=1, getData=2, getChildren=1, setData=1, flights=2):
        mine.resize(1)
    with proxy.costs(sync=1, getChildren=3, getData=1, flights=1):
        assert mine.available() == 0
    with proxy.counting() as until_waiting:
        waiting = [in_thread(mine.acquire) for _ in range(3)]
        eventually(answered(until_waiting, "getData", 6))
        eventually(answered(until_waiting, "getChildren", 11))
    with proxy.costs(getData=2, getChildren=5) as woken:
        semaphore.resize(0)
        eventually(answered(woken, "getData", 2))
        eventually(answered(woken, "getChildren", 5))
    assert sum(woken.events.values()) == 1
    semaphore.resize(4)
    for each in waiting:
        assert each.result(20)
    mine.release(3)
    semaphore.release()


@pytest.mark.threads_only("takes long")
def test_a_permit_released_wakes_one(
    zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """However many wait, a release wakes the first of them; the waiter that takes the permit wakes the next."""
    held, semaphore, n = Semaphore(zk, zk_path), Semaphore(counted, zk_path), 8
    held.acquire()
    assert semaphore.locked()  # a client's first call looks at the path itself
    with proxy.costs(create2=n, getChildren=3 * n + 2, getData=2 * n) as until_waiting:
        waiting = [in_thread(semaphore.acquire) for _ in range(n)]
        # Each joins with three listings and a read; the first leaves three watches, the others one each.
        eventually(answered(until_waiting, "getData", 2 * n))
        eventually(answered(until_waiting, "getChildren", 3 * n + 2))
    # The first looks, and takes it; the next looks, and leaves its watches.
    with proxy.costs(getChildren=8, getData=3, multi=1) as count:
        held.release()
        eventually(lambda: any(each.done() for each in waiting))
        eventually(answered(count, "getChildren", 8))
    assert sum(count.events.values()) == 2
    for left in range(n, 0, -1):
        eventually(lambda left=left: sum(each.done() for each in waiting) == n - left + 1)
        semaphore.release()


def waits(condition: Condition, timeout: float | None = None) -> bool:
    """Wait once."""
    with condition:
        return condition.wait(timeout)


def test_a_wait(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """Until it waits: one write, one read, two round trips. Notified: one more read, and an acquire."""
    mine, theirs = Condition(zk, zk_path), Condition(counted, zk_path)
    waits(theirs, 0)  # makes the parents
    held = threading.Event()

    def wait() -> bool:
        with theirs:
            held.set()
            assert go_on.wait(10)
            return theirs.wait()

    go_on = threading.Event()
    waiting = in_thread(wait)
    assert held.wait(10)
    with proxy.costs(multi=1, getData=1, flights=2) as until_waiting:
        go_on.set()
        eventually(answered(until_waiting, "getData"))
    with proxy.counting() as woken:
        mine.acquire()
        mine.notify()
        mine.release()
        assert waiting.result(10)
    # That of its node; and if the lock was not free yet, of the one ahead and of its own at the release.
    assert sum(woken.events.values()) <= 3
    own = woken.requests["getData"]
    # On a machine that is so slow that the lease must be proved before it is believed, there is a second listing.
    assert woken.requests - Counter(getData=own, getChildren=max(own, 2)) == {"create2": 1, "delete": 1}
    assert own <= 3


def test_a_wait_that_times_out(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """Its time up, it deletes its node, one write in one round trip, and acquires the lock."""
    condition = Condition(counted, zk_path)
    waits(condition, 0)
    with condition, proxy.costs(multi=1, getData=1, delete=1, create2=1, getChildren=1, flights=4):
        assert not condition.wait(1.0)


@unfair
def test_unfair_hand_over(
    kind: Kind, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between threads of one process: no request to release, none to acquire."""
    monkeypatch.setattr(local_handoff, "LONGEST_TURN", 1000.0)
    lock, handoff = kind(counted, zk_path), kind(counted, zk_path)._path_state.handoff
    assert handoff is not None
    go_on = threading.Event()

    def visit() -> None:
        with lock:
            assert go_on.wait(10)

    lock.acquire()
    waiting = in_thread(visit)
    eventually(lambda: handoff._waiting)
    with proxy.costs():
        lock.release()
        eventually(lambda: not handoff._waiting)
    go_on.set()
    waiting.result(10)


@pytest.mark.parametrize("n", [3, None])
def test_notify(
    n: int | None, zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A read, and a write for each woken waiter in one more round trip; those who wait on hear nothing."""
    mine, theirs = Condition(counted, zk_path), Condition(zk, zk_path)
    waiting = [in_thread(waits, theirs) for _ in range(5)]
    eventually(lambda: zk.exists(f"{zk_path}/waiters") and len(zk.get_children(f"{zk_path}/waiters")) == 5)
    with mine, proxy.costs(getChildren=1, delete=n or 5, flights=2):
        mine.notify(n) if n else mine.notify_all()
    eventually(lambda: sum(each.done() for each in waiting) == (n or 5))
    with mine:
        mine.notify_all()
    assert all(each.result(10) for each in waiting)


def test_notify_when_nobody_waits(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """One read."""
    condition = Condition(counted, zk_path)
    with condition, proxy.costs(getChildren=1, flights=1):
        condition.notify()


def test_a_barrier(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """To come: one write, three reads, two round trips; to wait, two reads; to trip, a multi; to go, a delete."""
    here, there = Barrier(counted, zk_path, 3), Barrier(zk, zk_path, 3)

    def meet() -> None:
        waiting = [in_thread(there.wait)]
        eventually(lambda: there.n_waiting == 1)
        with proxy.costs(sync=1, getData=3, multi=1, getChildren=1, flights=3) as until_waiting:
            waiting.append(in_thread(here.wait))
            eventually(answered(until_waiting, "getData", 3))
        with proxy.costs(getData=2, delete=1, flights=2):
            assert there.wait(10) == 2
            for future in waiting:
                future.result(10)
        eventually(lambda: not zk.get_children(f"{zk_path}/{there._view.state.generation - 1:010d}"))  # type: ignore[union-attr]

    meet()
    meet()
    with proxy.costs(sync=1, getData=3, multi=1, getChildren=3, delete=1) as first:
        waiting = in_thread(here.wait)
        eventually(lambda: there.n_waiting == 1)
        eventually(answered(first, "getChildren", 3))
    with proxy.costs(getData=2, getChildren=1) as another:
        others = [in_thread(there.wait)]
        eventually(answered(another, "getChildren"))
    with proxy.counting() as passing:
        others.append(in_thread(there.wait))
        assert sorted(each.result(10) for each in (*others, waiting)) == [0, 1, 2]
    assert passing.requests["multi"] == passing.requests["sync"] == 0
    with proxy.costs(sync=1, getData=1, getChildren=1, multi=2, create=1, delete=1, flights=4):
        others = [in_thread(there.wait) for _ in range(2)]
        eventually(lambda: there.n_waiting == 2)
        here.wait(10)


def test_a_barrier_that_times_out(
    zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A party whose timeout passes: one write and three reads, in two round trips, and the delete of its node."""
    here, there = Barrier(counted, zk_path, 3), Barrier(zk, zk_path, 3)
    waiting = in_thread(here.wait, 1.5)
    eventually(lambda: there.n_waiting == 1)
    eventually(lambda: asleep(here))
    with proxy.costs(sync=1, getData=2, setData=1, delete=1, flights=3), pytest.raises(threading.BrokenBarrierError):
        waiting.result(20)


def test_a_barriers_questions(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """`broken` is two reads in one round trip, `n_waiting` three in two; to abort or reset, a write in one more."""
    barrier = Barrier(counted, zk_path, 2)
    barrier.reset()
    with proxy.costs(sync=1, getData=1, flights=1):
        assert not barrier.broken
    with proxy.costs(sync=1, getData=1, getChildren=1, flights=2):
        assert barrier.n_waiting == 0
    for change in (barrier.abort, barrier.reset):
        with proxy.costs(sync=1, getData=1, setData=1, flights=2):
            change()


def test_to_lead(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A term begins and ends as the hold of a lock; to publish takes one write behind two reads."""
    election = Election(counted, zk_path)
    with election.lead():
        pass
    with proxy.costs(create2=1, getChildren=1, flights=1):
        block = election.lead()
        term = block.__enter__()
    with proxy.costs():
        assert election.is_leader()
        assert term.fencing_token
        assert not term.lost.is_set()
    with proxy.costs(sync=1, getData=1, setData=1, flights=2):
        term.publish(b"address")
    with proxy.costs(sync=1, getChildren=1, getData=1, flights=2):
        assert election.leader() is not None
    with proxy.costs(sync=1, getChildren=1, getData=1, flights=2):
        assert len(election.candidates()) == 1
    with proxy.costs(delete=1, flights=1) as count:
        block.__exit__(None, None, None)
        eventually(lambda: count.requests["delete"] == 1)  # it waits for no reply


def test_to_stand(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """It asks once whether the path is an election's; a leader in the background costs its client heartbeats alone."""
    election = Election(counted, zk_path)
    with election.lead():
        pass
    with proxy.costs(sync=1, getChildren=2, create2=1, flights=2):
        election.stand()
        assert election.wait(20) is not None
    with proxy.costs(sync=1, getChildren=1):
        assert election.wait() is not None
        election.stand()
    with proxy.costs(delete=1, flights=1):
        election.withdraw()


@pytest.mark.fault(88)
def test_a_change_of_the_leader(
    zookeeper: Server, connect: Connect, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """As the leader's session ends, one candidate is woken, and leads at once, without a request."""
    gone = connect()
    leader, n = Election(gone, zk_path), 4
    leader.stand()
    assert leader.wait(20) is not None
    heirs = [Election(counted, zk_path, id=str(i)) for i in range(n)]
    leads, go = threading.Event(), threading.Event()

    def lead() -> bool:
        leads.set()
        return go.wait(20)

    with proxy.costs(create2=n, getChildren=n, getData=n + 1) as until_waiting:
        led = [in_thread(each.run, lead) for each in heirs]
        eventually(answered(until_waiting, "getData", n + 1))
    with proxy.costs() as count:
        zookeeper.expire(gone)  # as the server does when the time of a killed process is up
        assert leads.wait(20)
    assert sum(count.events.values()) == 1
    go.set()
    assert all(each.result(20) for each in led)


def test_to_observe(connect: Connect, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """Candidates that come and go wake no observer; a change of the leader wakes each, by one event for each client."""
    first, second, third = (Election(connect(), zk_path, id=name) for name in "abc")
    first.stand()
    assert first.wait(20) is not None
    leaders = Election(counted, zk_path).observe()
    with proxy.costs(sync=1, getChildren=1, getData=1, flights=2):
        assert next(leaders).id == "a"  # type: ignore[union-attr]
    with proxy.costs(sync=1, getChildren=1, getData=1) as until_waiting:
        coming = in_thread(next, leaders)
        eventually(answered(until_waiting, "getData"))
    with proxy.costs() as quiet:
        second.stand()
        third.stand()
        eventually(lambda: len(second.candidates()) == 3)
        third.withdraw()
    assert not quiet.events
    with proxy.costs(getChildren=1, getData=1, flights=2) as changing:
        first.withdraw()
        assert coming.result(20).id == "b"
    assert sum(changing.events.values()) == 1
    second.withdraw()
