"""What listeners are told of acquires and holds: in order, each part once, on the right thread, whatever they do."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import gc
import logging
import os
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import FAST, Connect, InThread, await_heartbeat
from tests.helpers.all_objects import of_all_objects
from tests.helpers.contenders import queued
from tests.helpers.eventually import eventually
from tests.helpers.grammar import Grammar
from tests.helpers.interrupts import at_every_line
from tests.helpers.losses import interrupted_out_of_reach
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
    Waiting,
    aio,
)
from zkconcurrent._engine import telling
from zkconcurrent._engine.session import Session
from zkconcurrent._protocol.ticket import State
from zkconcurrent.testing import Server

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
    assert not telling.registered
    assert not telling.in_listener()


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
        assert not lock.acquire(timeout=0.5)
        waiting = in_thread(lambda: lock.acquire() and lock.release())
        # Told at the wait, and not only with its outcome.
        eventually(lambda: near.kinds()[-1] == "Waiting" and len(near.kinds()) >= 4)
    waiting.result(10)
    assert near.kinds() == ["WouldBlock", "Waiting", "TimedOut", "Waiting", "Acquired", "Released"]
    assert far.kinds() == ["Acquired", "Released"]
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


def test_joint_locks_tell_what_their_locks_do(zk: KazooClient, connect: Connect, zk_path: str, listen: Listen) -> None:
    """A MultiLock that fails midway has acquired and released."""
    told = listen(zk)
    with Lock(connect(), f"{zk_path}/b"):
        assert not MultiLock([Lock(zk, f"{zk_path}/a"), Lock(zk, f"{zk_path}/b")]).acquire(timeout=0.1)
    assert [(event.path[-1], type(event).__name__) for event in told.events] == [
        ("a", "Acquired"),
        ("b", "Waiting"),
        ("b", "TimedOut"),
        ("a", "Released"),
    ]
    with MultiLock([Lock(zk, f"{zk_path}/{name}") for name in "cde"]):
        pass
    assert told.kinds()[4:] == ["Acquired"] * 3 + ["Released"] * 3


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


def test_a_detached_lock_that_is_acquired_again(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """An acquire that finds the owner's hold gone tells its loss, and the new hold; each attempt has an outcome."""
    told = listen()
    lock, rival = DetachedLock(zk, zk_path, owner="job"), DetachedLock(zk, zk_path, owner="rival")
    lock.acquire()
    assert rival.force_release(lock.fencing_token)
    lock.acquire()
    assert told.kinds() == ["Acquired", "Lost", "Acquired"]
    assert rival.force_release(lock.fencing_token)
    rival.acquire()
    assert not lock.acquire(timeout=0.1)
    rival.release()
    lock.acquire()
    lock.release()
    assert told.kinds()[3:] == ["Acquired", "Waiting", "TimedOut", "Released", "Lost", "Acquired", "Released"]
    assert not lock._path_state.stories


def test_threads_of_one_owner_that_wait(zk: KazooClient, zk_path: str, listen: Listen, in_thread: InThread) -> None:
    """Each that has told of its wait has an outcome; the hold of the owner ends for each of them."""
    told = listen()
    rival = DetachedLock(zk, zk_path, owner="rival")
    rival.acquire()
    locks = [DetachedLock(zk, zk_path, owner="job") for _ in range(3)]
    waiting = [in_thread(lock.acquire) for lock in locks]
    eventually(lambda: told.kinds().count("Waiting") == 3)
    rival.release()
    assert all(each.result(10) for each in waiting)
    locks[0].release()
    assert told.open() == []
    assert Counter(told.kinds()) == {"Acquired": 4, "Released": 4, "Waiting": 3}


def held_nodes(client: KazooClient) -> list[str]:
    """Return the nodes of a client's holds."""
    return [each.node for each in Session.of(client).registry.tickets.values() if each.state is State.HELD]


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


@pytest.mark.parametrize("awaits", [False, True])
def test_a_task_whose_release_finds_its_node_gone(zk: KazooClient, zk_path: str, listen: Listen, awaits: bool) -> None:
    """So is a task's, also if the task does not await it."""
    told = listen(zk)
    await_heartbeat(zk)

    async def main() -> None:
        for lock in (aio.Lock(zk, zk_path), aio.Semaphore(zk, f"{zk_path}-permits")):
            await lock.acquire()
            zk.delete_async(*held_nodes(zk))
            released = lock.release()
            if awaits:
                await released
                assert told.kinds()[-1] == "Lost"

    asyncio.run(main())
    eventually(lambda: Counter(told.kinds()) == {"Acquired": 2, "Lost": 2})
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
    with lock, pytest.raises(DeadlockError):
        RLock(again, zk_path).acquire()
    semaphore = Semaphore(zk, f"{zk_path}-s", 2)
    with semaphore, pytest.raises(ValueError, match="value=2") as raised:
        Semaphore(again, f"{zk_path}-s", 3).acquire()
    del raised
    everything = listen()
    with pytest.raises(DeadlockError), lock:
        RLock(again, zk_path).acquire()
    assert everything.kinds() == ["Acquired", "DeadlockVictim", "Released"]
    with semaphore, pytest.raises(ValueError, match="value=2"):
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


def test_the_owner_tells_what_is_late(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """If a listener blocks the thread that tells losses, the owner's next acquire still comes behind its own loss."""
    blocked, go_on = threading.Event(), threading.Event()

    def block(event: LockEvent) -> None:
        if isinstance(event, Lost) and event.path.endswith("other"):
            blocked.set()
            go_on.wait(30)

    remove = zkconcurrent.add_listener(block)
    told = listen()
    try:
        other, lock = Lock(zk, f"{zk_path}/other"), Lock(zk, f"{zk_path}/lock")
        for each in (other, lock):
            each.acquire()
        for each in (other, lock):
            holder = each.owner()
            assert holder is not None
            zk.delete(holder.node)
            assert each.lost.wait(20)
        assert blocked.wait(20)
        for _ in range(2):
            with pytest.raises(LockLostError):
                lock.release()
            lock.acquire()
            holder = lock.owner()
            assert holder is not None
            zk.delete(holder.node)
            assert lock.lost.wait(20)
        mine = [type(event).__name__ for event in told.events if event.path == lock.path]
        assert mine[:5] == ["Acquired", "Lost", "Acquired", "Lost", "Acquired"]
    finally:
        go_on.set()
        remove()
    eventually(lambda: not lock._session.teller.untold)


def test_an_outage(zk_path: str, connect: Connect, proxy: Proxy, listen: Listen) -> None:
    """A hold is suspect while ZooKeeper is out of reach; the client's new holds are not."""
    client = connect(hosts=proxy.hosts)
    told = listen(client)
    lock, free = Lock(client, zk_path), Lock(client, f"{zk_path}-free")
    with lock:
        proxy.stall()
        eventually(lambda: told.kinds() == ["Acquired", "Suspect"])
        proxy.resume()
        eventually(lambda: told.kinds() == ["Acquired", "Suspect", "Recovered"])
        with free:
            pass
    assert isinstance(suspect := told.events[1], Suspect)
    assert 0 < suspect.remaining < 6
    assert told.kinds()[3:] == ["Acquired", "Released", "Released"]


@pytest.mark.fault(376)
def test_outages_again_and_again(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """A hold of months keeps nothing of the outages that it was told of."""
    told, lock = listen(zk), Lock(zk, zk_path)
    session = lock._session
    with lock:
        (story,) = [ticket.story for ticket in session.registry.tickets.values() if ticket.path == zk_path]
        for _ in range(50):
            with session.lock:
                story.doubt(suspect=True)
                story.doubt(suspect=False)
            story.flush()
        parts = of_all_objects(lambda there: [each for each in there if isinstance(each, telling.Part)])
        assert sum(any(one.listener is told for one in part.listeners) for part in parts) <= 3
    assert told.kinds() == ["Acquired", *["Suspect", "Recovered"] * 50, "Released"]


def test_whose_it_is(zk: KazooClient, connect: Connect, zk_path: str, listen: Listen) -> None:
    """An event names its client, and keeps it not alive; one that was pickled or copied names none."""
    told, other = listen(), connect()
    for client in (zk, other):
        with Lock(client, zk_path):
            pass
    events = [event for event in told.events if event.path == zk_path]
    assert [event.client for event in events] == [zk, zk, other, other]
    for event in events:
        for again in (pickle.loads(pickle.dumps(event)), copy.copy(event)):
            assert again == event
            assert again.client is None
            assert repr(again) == repr(event)
        assert b"zkconcurrent._" not in pickle.dumps(event)
        assert set(dataclasses.asdict(event)) == {each.name for each in dataclasses.fields(event)}


def test_the_client_of_an_old_event(zookeeper: Server, zk_path: str, listen: Listen) -> None:
    """An event in a queue keeps no client alive."""
    told = listen()
    with zkconcurrent.connect(f"zk://{zookeeper.hosts}") as client, Lock(client, zk_path):
        pass
    event = next(event for event in told.events if event.path == zk_path)
    assert event.client is client
    del client

    def is_gone() -> bool:
        gc.collect()
        return event.client is None

    eventually(is_gone)


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
            assert not await lock.acquire(timeout=0.1)
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
    assert len({event.by for event in told.events}) == 2


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
    assert not telling.registered


def test_a_local_namespace(listen: Listen) -> None:
    """So does one of this process alone, for tasks too."""
    del listen
    heard: list[LockEvent] = []
    local = zkconcurrent.namespace("local")
    local.add_listener(heard.append)
    with local.Lock("cart"), zkconcurrent.namespace("local").Lock("cart"):
        pass
    assert len(heard) == 2
    telling.registered.clear()


def test_a_client_that_is_gone_keeps_no_listener() -> None:
    """Its listeners go with it, so that acquires elsewhere do not pay for them."""
    client = KazooClient()
    zkconcurrent.add_listener(print, client)
    assert telling.registered
    client.handler.stop()
    del client
    eventually(lambda: gc.collect() >= 0 and not telling.registered)


@pytest.mark.parametrize("wrong", [None, 5, "listener"])
def test_what_is_no_listener(wrong: Any) -> None:
    """It must be callable, and not a coroutine function."""

    async def later(_: LockEvent) -> None: ...

    class Later:
        async def __call__(self, _: LockEvent) -> None: ...

    for each in (wrong, later, Later()):
        for add in (zkconcurrent.add_listener, QueueListener):
            with pytest.raises(TypeError):
                add(each)
    with pytest.raises(TypeError, match="client must be"):
        zkconcurrent.add_listener(print, "/path")  # type: ignore[arg-type]
    assert not telling.registered


@pytest.mark.fault(366)
@pytest.mark.parametrize("error", [ValueError, StopIteration])
def test_a_listener_that_fails(
    error: type[Exception], zk: KazooClient, zk_path: str, listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    """Its first error, of any class, is logged, the others are ignored, and the next listeners are told."""

    def fail(_: LockEvent) -> None:
        raise error

    def fail_too(_: LockEvent) -> None:
        raise error

    first = zkconcurrent.add_listener(fail)
    told = listen()
    last = zkconcurrent.add_listener(fail_too)
    for _ in range(3):
        with Lock(zk, zk_path):
            pass
    first()
    last()
    assert told.kinds() == ["Acquired", "Released"] * 3
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert ["fail at" in record.getMessage() for record in failures] == [True, False]
    assert all(error.__name__ in repr(record.exc_info) for record in failures)


@pytest.mark.fault(371)
@pytest.mark.parametrize("queued", [False, True])
def test_a_log_handler_that_raises(zk: KazooClient, zk_path: str, listen: Listen, queued: bool) -> None:
    """As the error of a listener is logged, no call raises what the handler raises, and all are told."""
    told, logged = listen(), list[str]()

    def fail(_: LockEvent) -> None:
        raise ValueError

    def raise_too(record: logging.LogRecord) -> bool:
        logged.append(record.getMessage())
        raise OSError

    failing = QueueListener(fail) if queued else fail
    remove, log = zkconcurrent.add_listener(failing), logging.getLogger("zkconcurrent")
    log.addFilter(raise_too)
    try:
        for _ in range(2):
            with Lock(zk, zk_path):
                pass
        assert not isinstance(failing, QueueListener) or failing.flush(timeout=10)
    finally:
        log.removeFilter(raise_too)
        remove()
    assert told.kinds() == ["Acquired", "Released"] * 2
    assert sum("a listener failed" in each for each in logged) == 1


def test_a_listener_that_acquires(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """A call that would wait is refused; one that sends nothing, and a release, work; none of it is told as it runs."""
    errors: list[str] = []
    held, inner, event = (
        RLock(zk, f"{zk_path}/held"),
        Lock(zk, f"{zk_path}/inner"),
        zkconcurrent.Event(zk, f"{zk_path}/e"),
    )
    calls = (inner.acquire, partial(inner.acquire, False), inner.owner, event.set, event.wait)

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
    kinds = {
        path: [type(event).__name__ for event in told.events if event.path == path] for path in (held.path, inner.path)
    }
    assert kinds == {held.path: ["Acquired", "Released"] * 2, inner.path: []}
    assert queued(zk, held.path, 0)()


def test_listeners_that_come_and_go(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """One that removes itself, or adds others, while it is called: each hears whole stories."""
    later: list[Grammar] = []
    removes: list[Callable[[], None]] = []

    def add_and_go(_: LockEvent) -> None:
        removes.pop(0)()
        later.append(grammar := Grammar())
        removes.append(zkconcurrent.add_listener(grammar))

    removes.append(zkconcurrent.add_listener(add_and_go))
    told = listen()
    for _ in range(2):
        with Lock(zk, zk_path):
            pass
    removes.pop()()
    assert told.kinds() == ["Acquired", "Released"] * 2
    (grammar,) = later
    assert grammar.wrong == []
    assert grammar.kinds() == ["Acquired", "Released"]


@pytest.mark.parametrize("kind", ["Lock", "read lock", "Semaphore", "DetachedLock"])
def test_an_interrupt_in_a_listener(zk: KazooClient, connect: Connect, zk_path: str, listen: Listen, kind: str) -> None:
    """It leaves the call, gives the hold back, and every listener is told each part once."""
    strikes = 0

    def strike(event: LockEvent) -> None:
        nonlocal strikes
        if strikes and type(event).__name__ == at:
            strikes -= 1
            raise KeyboardInterrupt

    before = listen()
    remove = zkconcurrent.add_listener(strike)
    told = listen()
    lock, other = LOCKS[kind](zk, zk_path), LOCKS[kind](connect(), zk_path)
    for at in ("Acquired", "Released"):
        strikes = 1
        with pytest.raises(KeyboardInterrupt):
            lock.acquire() and lock.release()
        assert told.kinds()[-2:] == before.kinds()[-2:] == ["Acquired", "Released"] or kind == "DetachedLock"
        if kind == "DetachedLock" and at == "Acquired":
            lock.release()
        assert other.acquire(timeout=10)
        other.release()
    remove()


TELL = ("telling.py", "lock_core.py", "driver.py", "session.py", "semaphore.py")


@pytest.mark.parametrize(
    ("kind", "contended", "files"),
    [
        ("Lock", False, TELL),
        ("Lock(fair=False)", False, TELL),
        ("read lock", False, TELL),
        ("Semaphore", False, TELL),
        ("Lock", True, TELL),
        ("Semaphore", True, ("semaphore.py",)),  # its other lines are those of a lock
    ],
)
def test_an_interrupt_at_every_line(
    zk: KazooClient,
    connect: Connect,
    zk_path: str,
    listen: Listen,
    in_thread: InThread,
    kind: str,
    contended: bool,
    files: tuple[str, ...],
) -> None:
    """Of the modules that tell, and of those that note what is to be told: nothing is left out or told twice."""
    make, waits = LOCKS[kind], threading.Event()
    told, second = listen(zk, lambda event: waits.set() if isinstance(event, Waiting) else None), listen(zk)
    lock, rival = make(zk, zk_path), make(connect(), zk_path)

    def hold(held: threading.Event) -> None:
        with rival:
            held.set()
            assert waits.wait(30)

    for hook in at_every_line(*files):
        if contended:
            waits.clear()
            rivals = in_thread(hold, held := threading.Event())
            assert held.wait(10)
        with suppress(KeyboardInterrupt), hook:
            lock.acquire()
            lock.release()
        if contended:
            waits.set()
            rivals.result(10)
        # The hold may be left if the interrupt came between the two calls, or in the release.
        while lock.hold_count():
            lock.release()
        lock.acquire()
        lock.release()
        assert told.open() == second.open() == [], hook.where
        assert told.wrong == [], hook.where
        assert told.events == second.events, hook.where
    assert len(told.events) > 100


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


@pytest.mark.fault(454)
def test_a_flush_by_the_listener_itself(zk: KazooClient, zk_path: str) -> None:
    """A listener that flushes its own queue gets an error, as a thread that joins itself does."""
    errors = list[str]()

    def flush(_event: LockEvent) -> None:
        try:
            queue.flush()
        except RuntimeError as error:
            errors.append(str(error))

    queue = QueueListener(flush)
    remove = zkconcurrent.add_listener(queue)
    with Lock(zk, zk_path):
        pass
    remove()
    assert queue.flush(timeout=10)
    assert errors == ["the listener of a QueueListener can't flush it: it would wait for itself"] * 2


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
    with pytest.raises(ValueError, match="at least 1"):
        QueueListener(print, maxsize=0)


def use(lock: Any) -> None:
    """Acquire a lock, and release it."""
    with lock:
        pass


def test_nothing_is_kept(in_thread: InThread) -> None:
    """Of many acquires, at many paths, that succeed, are refused, time out, or wait."""
    remove = zkconcurrent.add_listener(lambda _: None)

    def use_both(here: KazooClient, there: KazooClient, kind: str, path: str) -> None:
        lock, other = LOCKS[kind](here, path), LOCKS["write lock" if kind == "read lock" else kind](there, path)
        with lock:
            assert not other.acquire(False)
            assert not other.acquire(timeout=0.001)
            waiting = in_thread(use, other)
        waiting.result(10)

    def kept() -> list[object]:
        kinds = telling.Story | telling.Part
        return of_all_objects(lambda there: [each for each in there if isinstance(each, kinds)])

    with zkconcurrent.connect("memory:kept") as here, zkconcurrent.connect("memory:kept") as there:
        for n in range(5):
            for kind in LOCKS:
                use_both(here, there, kind, f"/kept/{n}-{kind}")
        remove()
        eventually(lambda: not kept())
        sessions = Session.of(here), Session.of(there)
        eventually(lambda: not any(session.directory or session.teller.untold for session in sessions))


# -- processes -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork(zk: KazooClient, zk_path: str, listen: Listen) -> None:
    """A child's listeners stay, and it hears no more of its parent's holds; the parent hears of them as before."""
    told = listen()
    lock = Lock(zk, zk_path)
    lock.acquire()
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            try:
                lock.release()
            except ClientError:
                status = 0 if told.kinds() == ["Acquired"] and telling.registered else 2
            local = zkconcurrent.namespace("local").Lock("mine")
            with local:
                pass
            status = status or 3 * (told.kinds() != ["Acquired"] * 2 + ["Released"])
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    lock.release()
    assert told.kinds() == ["Acquired", "Released"]


@pytest.mark.fault(336)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
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
