"""What listeners are told of acquires and holds: in order, each part once, on the right thread, whatever they do."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import FAST, Connect, InThread, await_heartbeat
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.grammar import Grammar
from tests.helpers.losses import interrupted_out_of_reach
from tests.helpers.manual_clock import jump
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    Acquired,
    BoundedSemaphore,
    Cancelled,
    ClientError,
    Condition,
    DeadlockError,
    DetachedLock,
    Election,
    Failed,
    Lock,
    LockEvent,
    LockLostError,
    LossCause,
    Lost,
    MultiLock,
    QueueListener,
    ReadWriteLock,
    RLock,
    Semaphore,
    Suspect,
    WaitCancelledError,
    aio,
)
from zkconcurrent._engine.session import Session
from zkconcurrent._observe import event_listeners
from zkconcurrent._protocol.ticket import State
from zkconcurrent._runtime.serving import in_listener

Listen = Callable[..., Grammar]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Return what adds a `Grammar`; all that was told must be in order, and nothing is left behind."""
    added: list[tuple[Grammar, Callable[[], None]]] = []

    def add(client: KazooClient | None = None, also: Callable[[LockEvent], object] = id) -> Grammar:
        grammar = Grammar(also)
        added.append((grammar, zkconcurrent.add_listener(grammar, client)))
        return grammar

    yield add
    for grammar, remove in added:
        remove()
        assert grammar.wrong == []
    assert not event_listeners.registered
    assert not in_listener()


LOCKS: dict[str, Callable[[KazooClient, str], Any]] = {
    "Lock": Lock,
    "Lock(fair=False)": partial(Lock, fair=False),
    "RLock": RLock,
    "read lock": lambda client, path: ReadWriteLock(client, path).read_lock,
    "write lock": lambda client, path: ReadWriteLock(client, path).write_lock,
    "Semaphore": Semaphore,
    "BoundedSemaphore": BoundedSemaphore,
    "DetachedLock": lambda client, path: DetachedLock(client, path, owner=str(id(client))),
}
locks = pytest.mark.parametrize("kind", LOCKS)


@locks
def test_an_acquire_and_its_hold(
    zk: KazooClient, connect: Connect, zk_path: str, listen: Listen, in_thread: InThread, kind: str
) -> None:
    """A free lock tells of no wait; each way to end an attempt tells its own event; a hold tells its end."""
    make = LOCKS[kind]
    near, far = listen(zk), listen(far_client := connect())
    lock, other = make(zk, zk_path), make(far_client, zk_path)
    if kind == "read lock":
        other = ReadWriteLock(far_client, zk_path).write_lock
    with other:
        assert not lock.acquire(False)
        timed = in_thread(lock.acquire, timeout=60)
        eventually(lambda: near.kinds()[-1] == "Waiting")
        jump(Session.of(zk), 60)
        assert not timed.result(10)
        waiting = in_thread(lambda: lock.acquire() and lock.release())
        # Told at the wait, and not only with its outcome.
        eventually(lambda: near.kinds()[-1] == "Waiting" and len(near.kinds()) >= 4)
    waiting.result(10)
    assert near.kinds() == ["WouldBlock", "Waiting", "TimedOut", "Waiting", "Acquired", "Released"]
    assert far.kinds() == ["Acquired", "Released"]
    began, ended = (event.date for event in far.events)
    assert began <= ended <= datetime.now(timezone.utc) < began + timedelta(minutes=1)
    acquired = near.events[4]
    assert isinstance(acquired, Acquired)
    assert acquired.contended
    assert acquired.waited > 0
    assert acquired.path == zk_path
    pairs = {"read lock": "ReadWriteLock", "write lock": "ReadWriteLock", "Lock(fair=False)": "Lock"}
    assert acquired.primitive == pairs.get(kind, kind)
    assert acquired.mode == ("shared" if "read" in kind or "emaphore" in kind else "exclusive")
    assert near.events[5].token == acquired.token > 0


def test_reentrant_levels_tell_nothing(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """Only the outermost level tells; a read lock within a write lock is a hold of its own."""
    told = listen()
    lock = RLock(zk, zk_path)
    with lock, lock, lock:
        assert lock.acquire()
        lock.release()
    assert told.kinds() == ["Acquired", "Released"]
    pair = ReadWriteLock(zk, f"{zk_path}-pair")
    with pair.write_lock, pair.read_lock:
        pass
    assert [event.mode for event in told.events[2:]] == ["exclusive", "shared", "shared", "exclusive"]


def test_permits_of_one_acquire_are_one_hold(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """The last of them ends it."""
    told = listen()
    semaphore = Semaphore(zk, zk_path, 5)
    semaphore.acquire(permits=3)
    semaphore.acquire()
    semaphore.release(3)
    assert told.kinds() == ["Acquired", "Acquired", "Released"]
    semaphore.release()
    assert told.kinds()[3:] == ["Released"]


def test_joint_locks_tell_what_their_locks_do(
    zk: KazooClient, connect: Connect, zk_path: str, listen: Listen, in_thread: InThread
) -> None:
    """A MultiLock that fails midway has acquired and released."""
    told = listen(zk)
    with Lock(connect(), f"{zk_path}/b"):
        both = MultiLock([Lock(zk, f"{zk_path}/a"), Lock(zk, f"{zk_path}/b")])
        timed = in_thread(both.acquire, timeout=60)
        eventually(lambda: told.kinds()[-1:] == ["Waiting"])
        jump(Session.of(zk), 60)
        assert not timed.result(10)
    assert [(event.path[-1], type(event).__name__) for event in told.events] == [
        ("a", "Acquired"),
        ("b", "Waiting"),
        ("b", "TimedOut"),
        ("a", "Released"),
    ]


def test_a_condition_releases_and_acquires_again(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """Its wait ends a hold, and begins another."""
    told = listen()
    with (condition := Condition(zk, zk_path)):
        condition.wait(0.1)
    assert told.kinds() == ["Acquired", "Released"] * 2


def test_terms(zk: KazooClient, connect: Connect, zk_path: str, listen: Listen) -> None:
    """A term is a hold, of a thread or of the client's candidacy; a withdrawn one was cancelled."""
    told = listen()
    election, other = Election(zk, zk_path), Election(connect(), zk_path)
    with election.lead():
        other.stand()
        eventually(lambda: told.kinds() == ["Acquired", "Waiting"])
        other.withdraw()
    assert told.kinds() == ["Acquired", "Waiting", "Cancelled", "Released"]
    assert {event.primitive for event in told.events} == {"Election"}


def test_a_detached_lock(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """The owner's hold is one, whichever object acquires and releases; a hold that was forced away is lost."""
    told = listen()
    one, same = DetachedLock(zk, zk_path, owner="job"), DetachedLock(zk, zk_path, owner="job")
    one.acquire()
    same.acquire()
    one.acquire()
    assert told.kinds() == ["Acquired"]
    same.release()
    assert told.kinds() == ["Acquired", "Released"]
    with pytest.raises(LockLostError):
        one.release()
    one.acquire()
    assert DetachedLock(zk, zk_path, owner="operator").force_release(one.fencing_token)
    with pytest.raises(LockLostError):
        one.release()
    assert told.kinds()[2:] == ["Acquired", "Lost"]
    assert isinstance(lost := told.events[-1], Lost)
    assert lost.cause is LossCause.FORCED


def held_nodes(client: KazooClient) -> list[str]:
    """Return the nodes of a client's holds."""
    return [each.node for each in Session.of(client).registry.tickets.values() if each.state is State.HELD]


@pytest.mark.fault(52)
def test_a_release_that_finds_its_node_gone(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """It raises `LockLostError`, and is told as lost."""
    told = listen(zk)
    await_heartbeat(zk)  # the release follows at once, so that no other heartbeat finds the loss
    makes = {kind: make for kind, make in LOCKS.items() if kind != "DetachedLock"}
    makes["MultiLock"] = lambda client, path: MultiLock([Lock(client, f"{path}/a"), Lock(client, f"{path}/b")])
    makes["permits"] = lambda client, path: Semaphore(client, path, 3)
    for kind, make in makes.items():
        lock, before = make(zk, f"{zk_path}/{kind}"), len(told.events)
        more = {"permits": 3} if kind == "permits" else {}
        lock.acquire(**more)
        nodes = held_nodes(zk)
        holds = 1 if more else len(nodes)
        for node in nodes:
            zk.delete_async(node)
        with pytest.raises(LockLostError):
            lock.release(*more.values())
        eventually(lambda: told.kinds()[before:] == ["Acquired"] * holds + ["Lost"] * holds)  # noqa: B023
    assert {lost.cause for lost in told.events if isinstance(lost, Lost)} == {LossCause.NODE_DELETED}


def test_a_condition_that_can_not_acquire_again(connect: Connect, proxy: Proxy, zk_path: str, listen: Listen) -> None:
    """Its wait has released the lock; the second acquire fails with the error that its owner's release raises."""
    client = connect(hosts=proxy.hosts, timeout=6.0, **FAST)
    condition = Condition(client, zk_path)
    told, lost = listen(client), condition._lock.lost
    interrupted_out_of_reach(condition, proxy)
    assert lost.wait(20)
    with pytest.raises(LockLostError, match="a condition's wait could not acquire it again"):
        condition.release()
    assert told.kinds() == ["Acquired", "Released", "Failed"]
    assert isinstance(failed := told.events[-1], Failed)
    assert isinstance(failed.error, LockLostError)
    assert failed.error.cause is LossCause.NOT_REACQUIRED


def test_cancelled_and_failed(
    zk: KazooClient, connect: Connect, zk_path: str, listen: Listen, in_thread: InThread
) -> None:
    """`cancel_waits()` is no failure; an error is, and is told; one that waits for itself is a victim."""
    told = listen(zk)
    lock = RLock(zk, zk_path)
    with RLock(connect(), zk_path):
        waiting = in_thread(lock.acquire)
        eventually(lambda: told.kinds() == ["Waiting"])
        lock.cancel_waits()
        assert isinstance(waiting.exception(10), WaitCancelledError)
    assert isinstance(told.events[-1], Cancelled)
    again = connect()
    everything = listen()
    with pytest.raises(DeadlockError), lock:
        RLock(again, zk_path).acquire()
    assert everything.kinds() == ["Acquired", "DeadlockVictim", "Released"]
    with Semaphore(zk, f"{zk_path}-s", 2), pytest.raises(ValueError, match="value=2"):
        Semaphore(again, f"{zk_path}-s", 3).acquire()
    assert isinstance(failed := everything.events[4], Failed)
    assert isinstance(failed.error, ValueError)


def test_a_loss(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """It is told on a thread of the library, with its cause, and its owner's release tells nothing more."""
    threads: list[str] = []
    told = listen(also=lambda _: threads.append(threading.current_thread().name))
    lock = Lock(zk, zk_path)
    lock.acquire()
    holder = lock.owner()
    assert holder is not None
    zk.delete(holder.node)
    eventually(lambda: told.kinds() == ["Acquired", "Lost"])
    assert threads[1].startswith("zkconcurrent events")
    assert isinstance(lost := told.events[1], Lost)
    assert lost.cause is LossCause.NODE_DELETED
    with pytest.raises(LockLostError):
        lock.release()
    with lock:
        pass
    assert told.kinds()[2:] == ["Acquired", "Released"]


def test_an_outage(zk_path: str, connect: Connect, proxy: Proxy, listen: Listen) -> None:
    """A hold is suspect while ZooKeeper is out of reach; the client's new holds are not."""
    client = connect(hosts=proxy.hosts, timeout=30, **FAST)
    told = listen(client)
    lock, free = Lock(client, zk_path), Lock(client, f"{zk_path}-free")
    with lock:
        proxy.refuse()
        proxy.cut()
        eventually(lambda: told.kinds() == ["Acquired", "Suspect"])
        proxy.resume()
        eventually(lambda: told.kinds() == ["Acquired", "Suspect", "Recovered"])
        with free:
            pass
    assert isinstance(suspect := told.events[1], Suspect)
    assert 0 < suspect.remaining < 30
    assert told.kinds()[3:] == ["Acquired", "Released", "Released"]


def test_whose_it_is(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """An event names its client; one that was pickled names none."""
    told = listen()
    with Lock(zk, zk_path):
        pass
    for event in told.events:
        assert event.client is zk
        again = pickle.loads(pickle.dumps(event))
        assert again == event
        assert again.client is None


def test_what_nobody_releases(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """A hold that is garbage collected, or whose task ends, is told as released."""
    told = listen()
    with pytest.warns(ResourceWarning):
        Lock(zk, zk_path).acquire()
        gc.collect()
    eventually(lambda: told.kinds() == ["Acquired", "Released"])

    async def main() -> None:
        await aio.RLock(zk, zk_path).acquire()

    with pytest.warns(ResourceWarning):
        asyncio.run(main())
    eventually(lambda: told.kinds() == ["Acquired", "Released"] * 2)


def test_tasks(zk: KazooClient, connect: Connect, zk_path: str, listen: Listen) -> None:
    """A task's calls tell what a thread's do; a cancelled one tells that."""
    told = listen(zk)

    async def main() -> None:
        lock = aio.Lock(zk, zk_path)
        other = aio.Lock(connect(), zk_path)
        async with other:
            timed = asyncio.create_task(lock.acquire(timeout=60))
            while told.kinds() != ["Waiting"]:
                await asyncio.sleep(0.01)
            jump(Session.of(zk), 60)
            assert not await timed
            waiting = asyncio.create_task(lock.acquire())
            while told.kinds()[-1] != "Waiting":
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        # The end of a task's block does not wait until the lock is free.
        while await lock.fetch_locked():
            await asyncio.sleep(0.01)
        async with lock:
            pass

    asyncio.run(main())
    # No task has awaited the release.
    eventually(lambda: told.kinds()[4:] == ["Acquired", "Released"])
    assert told.kinds()[:4] == ["Waiting", "TimedOut", "Waiting", "Cancelled"]
    assert len({event.by for event in told.events}) == 3


def test_a_closed_loop(zk: KazooClient, connect: Connect, zk_path: str, listen: Listen) -> None:
    """A task that no loop resumes has given up its acquire, and its hold."""
    told, threads = listen(zk), list[str]()
    listen(zk, lambda _: threads.append(threading.current_thread().name))
    loop = asyncio.new_event_loop()
    tasks = set()

    async def main() -> None:
        tasks.add(asyncio.ensure_future(aio.Lock(zk, zk_path).acquire()))
        while told.kinds()[-1:] != ["Waiting"]:
            await asyncio.sleep(0.01)

    with Lock(connect(), zk_path):
        loop.run_until_complete(main())
        loop.close()
        eventually(lambda: told.kinds() == ["Waiting", "Cancelled"])
    assert threads[1].startswith("zkconcurrent events")
    # Otherwise asyncio complains of the task that was not awaited.
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]


# -- listeners -------------------------------------------------------------------------------------------------------


def test_whom_it_hears(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A listener hears all clients, one client, or the names of a namespace, and nothing once it is removed."""
    heard: dict[str, list[LockEvent]] = {"all": [], "one": [], "names": []}
    other = connect()
    removes = [
        zkconcurrent.add_listener(heard["all"].append),
        zkconcurrent.add_listener(heard["one"].append, other),
        zkconcurrent.namespace(zk, f"{zk_path}/a").add_listener(heard["names"].append),
    ]
    for client, path in ((zk, "/a/lock"), (zk, "/ab"), (other, "/a/lock")):
        with Lock(client, zk_path + path):
            pass
    assert [len(events) for events in heard.values()] == [6, 2, 2]
    for remove in removes * 2:
        remove()
    with Lock(zk, f"{zk_path}/a/lock"):
        pass
    assert [len(events) for events in heard.values()] == [6, 2, 2]
    assert not event_listeners.registered


def test_what_is_no_listener() -> None:
    """It must be callable, and not a coroutine function."""

    async def later(_: LockEvent) -> None: ...

    for each in (None, later):
        for add in (zkconcurrent.add_listener, QueueListener):
            with pytest.raises(TypeError):
                add(each)
    assert not event_listeners.registered


@pytest.mark.fault(366)
def test_a_listener_that_fails(zk: KazooClient, zk_path: str, listen: Listen, caplog: pytest.LogCaptureFixture) -> None:
    """Its first error, of any class, is logged, the others are ignored, and the next listeners are told."""

    def fail(_: LockEvent) -> None:
        raise StopIteration

    remove = zkconcurrent.add_listener(fail)
    told = listen()
    for _ in range(3):
        with Lock(zk, zk_path):
            pass
    remove()
    assert told.kinds() == ["Acquired", "Released"] * 3
    (failure,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "fail at" in failure.getMessage()


@pytest.mark.fault(371)
def test_a_log_handler_that_raises(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """As the error of a listener is logged, no call raises what the handler raises, and all are told."""

    def fail(_: LockEvent) -> None:
        raise ValueError

    def raise_too(_: logging.LogRecord) -> bool:
        raise OSError

    remove, log = zkconcurrent.add_listener(fail), logging.getLogger("zkconcurrent")
    told = listen()
    log.addFilter(raise_too)
    try:
        with Lock(zk, zk_path):
            pass
    finally:
        log.removeFilter(raise_too)
        remove()
    assert told.kinds() == ["Acquired", "Released"]


def test_a_listener_that_acquires(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """A call that would wait is refused; one that sends nothing, and a release, work; none of it is told as it runs."""
    errors: list[str] = []
    held, inner = RLock(zk, f"{zk_path}/held"), Lock(zk, f"{zk_path}/inner")
    event = zkconcurrent.Event(zk, f"{zk_path}/e")
    calls = (inner.acquire, inner.owner, event.set)

    def use(event: LockEvent) -> None:
        if not event.path.endswith("outer") or not isinstance(event, Acquired):
            return
        for call in calls:
            try:
                call()
            except ClientError as error:
                errors.append(str(error))
        assert held.acquire()
        held.release()
        assert held.hold_count() == 1
        held.release()

    told = listen(also=use)
    held.acquire()
    with Lock(zk, f"{zk_path}/outer"):
        assert held.hold_count() == 0
    # The owner tells what the listener's release has left, before its own next event there.
    with held:
        pass
    assert len(errors) == len(calls)
    assert all("called from a listener" in error for error in errors)
    assert [type(event).__name__ for event in told.events if event.path == held.path] == ["Acquired", "Released"] * 2
    assert not any(event.path == inner.path for event in told.events)
    assert queued(zk, held.path, 0)()


@pytest.mark.parametrize("kind", [Lock, Semaphore])
@pytest.mark.parametrize("at", ["Acquired", "Released"])
def test_an_interrupt_in_a_listener(
    zk: KazooClient, connect: Connect, zk_path: str, listen: Listen, kind: Any, at: str
) -> None:
    """It leaves the call, gives the hold back, and every listener is told each part once."""
    strikes = [at]

    def strike(event: LockEvent) -> None:
        if strikes == [type(event).__name__]:
            strikes.clear()
            raise KeyboardInterrupt

    before = listen()
    remove = zkconcurrent.add_listener(strike)
    told = listen()
    lock, other = kind(zk, zk_path), kind(connect(), zk_path)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire() and lock.release()
    assert told.kinds() == before.kinds() == ["Acquired", "Released"]
    assert other.acquire(timeout=10)
    other.release()
    remove()


@pytest.mark.fault(418)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_listener_that_exits(zk: KazooClient, zk_path: str) -> None:
    """`sys.exit()` in a listener ends the queue's thread, and another one goes on with what is left."""
    events, threads, go_on = list[LockEvent](), list[threading.Thread](), threading.Event()

    def leave(event: LockEvent) -> None:
        events.append(event)
        threads.append(threading.current_thread())
        assert go_on.wait(30)
        if len(events) == 1:
            sys.exit()

    queue = QueueListener(leave)
    remove = zkconcurrent.add_listener(queue)
    with Lock(zk, zk_path):
        pass
    remove()
    go_on.set()
    assert queue.flush(timeout=10)
    assert len(events) == 2
    # pytest hears of its end here, where that is expected.
    threads[0].join(10)


def test_a_queue(zk: KazooClient, zk_path: str, caplog: pytest.LogCaptureFixture) -> None:
    """It tells on a thread of its own, where a listener may wait; it drops what does not fit, and logs one error."""
    inner, lock, threads = Lock(zk, f"{zk_path}/inner"), Lock(zk, f"{zk_path}/lock"), list[str]()
    go_on = threading.Event()
    events: list[LockEvent] = []

    def slow(event: LockEvent) -> None:
        threads.append(threading.current_thread().name)
        events.append(event)
        assert go_on.wait(30)
        if event.path == lock.path:
            with inner:
                raise ValueError

    queue = QueueListener(slow, maxsize=3)
    remove = zkconcurrent.add_listener(queue)
    for _ in range(5):
        with lock:
            pass
    remove()
    assert not queue.flush(timeout=0.1)
    go_on.set()
    assert queue.flush(timeout=10)
    assert {*threads} == {"zkconcurrent listener"}
    assert len(events) + queue.dropped == 10
    assert 3 <= sum(event.path == lock.path for event in events) <= 4
    assert sum("a listener failed" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.fault(336)
def test_a_queue_in_a_forked_child() -> None:
    """`flush()` in a child, such as at its exit, waits for nothing that the parent has yet to tell."""
    go_on, told = threading.Event(), list[object]()

    def slow(event: object) -> None:
        told.append(event)
        go_on.wait(30)

    queue = QueueListener(slow)
    for _ in range(3):
        queue(zkconcurrent.Waiting("Lock", "/a", "exclusive", 0, "1-1", 0.0, 1, None))
    pid = os.fork()
    if not pid:
        status = 1
        try:
            told.clear()
            go_on.set()
            status = int(not queue.flush(timeout=10) or bool(told))
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    go_on.set()
    assert queue.flush(timeout=10)
    assert len(told) == 3
