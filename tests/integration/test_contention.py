"""`lock.contended`: whether somebody waits behind a hold, seen by watches that nobody pays for who does not ask."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

import zkconcurrent
from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import at_the_handoff, children, queued
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import at_every_line
from tests.helpers.lock_types import AnyLock, Kind, against, every, read_lock, unfair, write_lock
from tests.helpers.losses import ways
from tests.helpers.proxy import Proxy
from zkconcurrent import Condition, Contended, DetachedLock, Lock, LockLostError, RLock
from zkconcurrent._engine.session import Session
from zkconcurrent._runtime.identity import label
from zkconcurrent.testing import Server


def watched_by(client: KazooClient) -> set[str]:
    """Return the paths on which kazoo has a watcher of the client's waits; the heartbeat watches its own nodes."""
    ours, own = Session.of(client).listener.on_event, Session.of(client).registry._ticket_of
    return {
        path
        for watchers in (client._data_watchers, client._child_watchers)
        for path, users in list(watchers.items())
        if ours in users and own(path) is None
    }


@contextmanager
def waiting(lock: AnyLock, there: Callable[[], bool], in_thread: InThread) -> Iterator[None]:
    """Have a thread wait for a lock within the block, until its wait is cancelled."""

    def wait() -> None:
        with pytest.raises(zkconcurrent.WaitCancelledError):
            lock.acquire()

    waits: Future[None] = in_thread(wait)
    eventually(there)
    yield
    eventually(lock.cancel_waits)
    waits.result(20)


@every
@pytest.mark.parametrize("same", [False, True], ids=["other client", "same client"])
def test_while_somebody_waits(kind: Kind, same: bool, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """It is set while somebody waits behind the hold, in any process, and it is over with the hold."""
    client = connect()
    lock = kind(client, zk_path)
    # Of an unfair lock, a thread of this process waits without a node.
    other = against(kind)(client if same else connect(), zk_path)
    seen = at_the_handoff(lock, 1) if same and lock._path_state.handoff else queued(client, zk_path, 2)
    lock.acquire()
    contended = lock.contended
    assert not contended.wait(0.1)
    for _ in range(2):
        with waiting(other, seen, in_thread):
            assert contended.wait(20)
            assert contended.is_set()
            assert lock.contended.is_set()
        eventually(lambda: not contended.is_set())
    assert not contended.over
    lock.release()
    assert contended.over
    assert not contended.wait()
    with lock:
        assert not lock.contended.over


@every
def test_a_waiter_that_hides_its_node(kind: Kind, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Fault 386. It is set while a waiter is there whose node this client may not read, and not when it has left."""
    lock = kind(connect(), zk_path)
    rights = {"default_acl": [make_digest_acl("me", "secret", all=True)], "auth_data": [("digest", "me:secret")]}
    other = against(kind)(connect(**rights), zk_path)
    lock.acquire()
    contended = lock.contended
    for _ in range(2):
        with waiting(other, queued(lock.client, zk_path, 2), in_thread):
            assert contended.wait(20)
        eventually(lambda: not contended.is_set())
    lock.release()


def test_a_wait_that_is_under_way(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """It ends with False as the hold ends, and with True as somebody begins to wait."""
    lock, other = Lock(zk, zk_path), Lock(connect(), zk_path)
    with lock:
        waits = in_thread(lock.contended.wait)
    assert not waits.result(20)
    with lock:
        waits = in_thread(lock.contended.wait)
        acquires = in_thread(other.acquire, timeout=20)
        assert waits.result(20)
    assert acquires.result(20)
    other.release()


def test_readers(connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A reader is not waited for by the readers behind it, unless a writer stands between; by a writer it is."""
    reader, other, writer = read_lock(connect(), zk_path), read_lock(connect(), zk_path), write_lock(connect(), zk_path)
    reader.acquire()
    with other:
        assert not reader.contended.wait(0.2)
        assert not other.contended.wait(0.2)
        with waiting(writer, queued(writer.client, zk_path, 3), in_thread):
            assert reader.contended.wait(20)
            assert other.contended.wait(20)
    eventually(lambda: not reader.contended.is_set())
    reader.release()


def test_a_downgrade(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A writer that has become a reader does not wait for itself; a reader behind it waits for its write lock alone."""
    writes, reads, other = write_lock(zk, zk_path), read_lock(zk, zk_path), read_lock(connect(), zk_path)
    with reads:
        assert not reads.contended.wait(0.1)
    with writes:
        reads.acquire()
        assert not writes.contended.wait(0.1)
        assert not reads.contended.wait(0.1)
        with waiting(other, queued(zk, zk_path, 3), in_thread):
            assert writes.contended.wait(20)
            assert not reads.contended.wait(0.1)
    reads.release()


@unfair
def test_a_hold_whose_node_goes_on(kind: Kind, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """If the next thread of this process takes the node over, the contention is over all the same."""
    lock, taken, go = kind(zk, zk_path), threading.Event(), threading.Event()

    def take() -> bool:
        with lock:
            taken.set()
            return go.wait(20)

    lock.acquire()
    contended = lock.contended
    next_one = in_thread(take)
    assert contended.wait(20)
    eventually(at_the_handoff(lock, 1))
    lock.release()
    assert contended.over
    assert taken.wait(20)
    assert not contended.is_set()
    go.set()
    assert next_one.result(20)


def test_others_that_wait(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Whatever shares the queue counts, such as a detached lock."""
    other = DetachedLock(connect(), zk_path, "job")
    with Lock(zk, zk_path):
        assert not Lock(zk, zk_path).contended.is_set()
        waits = in_thread(other.acquire, timeout=20)
        assert Lock(zk, zk_path).contended.wait(20)
    assert waits.result(20)
    other.release()


@every
@ways
def test_a_loss(kind: Kind, lose: Callable[..., None], zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """Contention is over with a hold that is lost, also for a thread that waits for it."""
    lock = kind(connect(timeout=4), zk_path)
    lock.acquire()
    contended, ended = lock.contended, []
    thread = threading.Thread(target=lambda: ended.append(contended.wait()))
    thread.start()
    lose(zookeeper, lock)
    thread.join(20)
    assert ended == [False]
    assert contended.over
    with pytest.raises(LockLostError):
        _ = lock.contended
    with pytest.raises(LockLostError):
        lock.release()


@every
def test_an_operator_deletes_the_queue(
    kind: Kind, connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str
) -> None:
    """A queue that is gone is not listed again and again, and the loss is known long before the next beat."""
    lock = kind(connect(proxy.hosts, timeout=30), zk_path)
    lock.acquire()
    with proxy.expect("getChildren") as listed:
        lost, contended = lock.lost, lock.contended
        listed.wait()
    with proxy.counting() as count:
        zk.delete(zk_path, recursive=True)
        assert lost.wait(20)
    assert count.requests["getChildren"] <= 2
    assert contended.over
    with pytest.raises(LockLostError):
        lock.release()


def test_nothing_is_held(zk: KazooClient, zk_path: str) -> None:
    """There is no contention to ask for."""
    with pytest.raises(RuntimeError, match="not held"):
        _ = Lock(zk, zk_path).contended


def test_a_conditions_wait(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The wait ends the hold, and so the contention for it; the hold that it comes back with has its own."""
    condition = Condition(zk, zk_path)
    lock: Any = condition._lock
    other = Lock(connect(), lock.path)
    with condition:
        before = lock.contended
        assert not condition.wait(0.1)
        assert before.over
        behind = in_thread(other.acquire, timeout=20)
        assert lock.contended.wait(20)
    assert behind.result(20)
    other.release()


def test_a_hold_that_is_put_back(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A hold that a condition's wait could not give up is contended anew."""
    lock, other = RLock(zk, zk_path), Lock(connect(), zk_path)
    with lock:
        before, hold = lock.contended, lock._lock_core.newest()
        assert hold is not None
        lock._path_state.claim(hold, hold.owner)
        lock._path_state.drop(hold)
        assert before.over
        lock._path_state.put_back(hold)
        assert not lock.contended.over
        behind = in_thread(other.acquire, timeout=20)
        assert lock.contended.wait(20)
        assert not before.is_set()
    assert behind.result(20)
    other.release()


@every
def test_a_connection_that_is_lost(
    kind: Kind, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Fault 290: who comes or leaves while the holder is cut off is seen after the reconnect."""
    client, observer = connect(proxy.hosts, timeout=20, **FAST), connect()
    lock, other = kind(client, zk_path), against(kind)(connect(), zk_path)
    lock.acquire()
    contended = lock.contended
    assert not contended.wait(0.1)
    proxy.refuse()
    proxy.cut()
    with waiting(other, queued(observer, zk_path, 2), in_thread):
        assert not contended.is_set()
        proxy.resume()
        assert contended.wait(20)
        proxy.refuse()
        proxy.cut()
    assert contended.is_set()
    proxy.resume()
    eventually(lambda: not contended.is_set())
    # The first listing may be lost, too.
    with waiting(other, queued(observer, zk_path, 2), in_thread):
        assert contended.wait(20)
    lock.release()


def test_the_first_listing_is_lost(connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """Fault 290: a request of the contention whose reply is lost is sent again on the next connection."""
    client, observer = connect(proxy.hosts, timeout=20, **FAST), connect()
    lock, other = Lock(client, zk_path), Lock(observer, zk_path)
    lock.acquire()
    with proxy.lose_answer("getChildren") as fault:
        contended = lock.contended
        fault.wait()
    with (
        proxy.lose_answer("getData", where=lambda request: request.path != zk_path) as fault,
        waiting(other, queued(observer, zk_path, 2), in_thread),
    ):
        assert contended.wait(20)
        fault.wait()
    eventually(lambda: not contended.is_set())
    lock.release()


def test_no_watch_is_left(zookeeper: Server, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """When the hold has ended, neither a watch on the server nor a watcher or a thread here is left of it."""
    before = int(zookeeper.mntr()["zk_watch_count"])
    client = connect()
    lock, other = Lock(client, zk_path), Lock(connect(), zk_path)
    threads = threading.active_count()
    for waits in (False, True):
        lock.acquire()
        contended = lock.contended
        assert not contended.wait(0.1)
        assert threading.active_count() <= threads
        if waits:
            acquires = in_thread(other.acquire, timeout=20)
            assert contended.wait(20)
        lock.release()
        if waits:
            assert acquires.result(20)
        session = Session.of(client)
        assert not session.registry._awaiting
        eventually(lambda: not watched_by(client))
        assert not getattr(contended, "_of_hold", contended)._wakes
    other.release()
    eventually(queued(client, zk_path, 0))
    eventually(lambda: int(zookeeper.mntr()["zk_watch_count"]) <= before)


def test_a_crowd(connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """A hundred waiters that come behind the first one cost the holder no listing."""
    client, other = connect(proxy.hosts), connect()
    lock = Lock(client, zk_path)
    lock.acquire()
    crowd = [in_thread(Lock(other, zk_path).acquire)]
    assert lock.contended.wait(20)
    with proxy.counting() as count:
        for _ in range(100):
            crowd.append(in_thread(Lock(other, zk_path).acquire))
        eventually(queued(other, zk_path, 102))
    assert count.requests["getChildren"] == 0
    Lock(other, zk_path).cancel_waits()
    for each in crowd:
        with pytest.raises(zkconcurrent.WaitCancelledError):
            each.result(20)
    eventually(lambda: not lock.contended.is_set())
    lock.release()


def test_who_does_not_ask(connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """A hold whose contention nobody asks for lists nothing, and watches no queue."""
    client = connect(proxy.hosts)
    lock, other = Lock(client, zk_path), Lock(connect(), zk_path)
    lock.acquire()
    mine = children(client, zk_path)
    with proxy.counting() as count:
        waits = in_thread(other.acquire, timeout=0.5)
        assert not waits.result(20)
    assert not count.requests["getChildren"]
    # The first beat watches the node of the hold itself.
    assert watched_by(client) <= {f"{zk_path}/{name}" for name in mine}
    lock.release()


def test_listeners(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """`Contended` is told once a hold, where it was asked for."""
    events: list[Any] = []
    remove = zkconcurrent.add_listener(lambda event: events.append(event) if event.by == mine else None)
    lock, other = Lock(zk, zk_path), Lock(connect(), zk_path)
    mine = label(lock._identity())
    try:
        for asks in (True, False):
            events.clear()
            lock.acquire()
            for _ in range(2):
                if asks:
                    assert not lock.contended.wait(0.1)
                with waiting(other, queued(zk, zk_path, 2), in_thread):
                    if asks:
                        assert lock.contended.wait(20)
                        eventually(lambda: Contended in map(type, events))
                eventually(queued(zk, zk_path, 1))
                if asks:
                    eventually(lambda: not lock.contended.is_set())
            lock.release()
            kinds = ["Acquired", *["Contended"] * asks, "Released"]
            assert [type(event).__name__ for event in events] == kinds
            assert {event.token for event in events} == {events[0].token}
    finally:
        remove()


def test_a_fork(zk: KazooClient, zk_path: str) -> None:
    """In a forked child the contention is over, and a wait for it ends at once: the hold is the parent's."""
    with Lock(zk, zk_path):
        contended = Lock(zk, zk_path).contended
        child = os.fork()
        if not child:
            os._exit(0 if contended.over and not contended.wait() and not contended.is_set() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not contended.over


def test_a_stopped_client(connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A wait ends as the client is stopped, for then the hold is lost."""
    client = connect()
    lock = Lock(client, zk_path)
    lock.acquire()
    waits = in_thread(lock.contended.wait)
    client.stop()
    assert not waits.result(20)
    with pytest.raises(LockLostError):
        lock.release()


def test_interrupts(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """An interrupt at any line of the question, or of the wait, leaves an answer that is right, and no waker."""
    lock, other = Lock(zk, zk_path), Lock(connect(), zk_path)
    for asks in (True, False):
        for hook in at_every_line("contention.py", "revocable.py", "holds.py", "registry.py"):
            lock.acquire()
            if not asks:
                assert not lock.contended.wait(0.05)
            with suppress(KeyboardInterrupt), hook:
                _ = lock.contended if asks else lock.contended.wait(0.01)
            assert not lock.contended.is_set()
            with waiting(other, queued(zk, zk_path, 2), in_thread):
                assert lock.contended.wait(20), hook.where
            contended = lock.contended
            lock.release()
            assert contended.over, hook.where
            assert not contended._wakes, hook.where
            assert not Session.of(zk).registry._awaiting, hook.where
