"""Our Lock and RLock and Curator's InterProcessMutex on one path are one lock, in one order of arrival."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import children
from tests.helpers.curator import CuratorClient, CuratorPeer
from tests.helpers.curator_threads import CYCLES, LONG, SHORT, Contender, JavaThread, Thread
from tests.helpers.eventually import eventually
from tests.helpers.processes import Spawn, line_from
from tests.interop.conftest import SESSION, ConnectJava
from zkconcurrent import DetachedLock, Lock, LockLostError, RLock
from zkconcurrent.testing import Server

pytestmark = pytest.mark.fault(21)

both = pytest.mark.parametrize("kind", [Lock, RLock])


@both
def test_java_holds(java: CuratorClient, client: KazooClient, zk_path: str, kind: type[Lock | RLock]) -> None:
    """While Java holds, a try and a timed acquire here fail; once it releases, the acquire that waits succeeds."""
    lock = kind(client, zk_path)
    java.call("mutex.acquire", zk_path).result(LONG)
    assert lock.locked()
    assert not lock.acquire(blocking=False)
    assert not lock.acquire(timeout=SHORT)
    eventually(lambda: len(children(client, zk_path)) == 1)
    java.call("mutex.release", zk_path).result(LONG)
    assert lock.acquire(timeout=LONG)
    lock.release()


@both
def test_we_hold(java: CuratorClient, client: KazooClient, zk_path: str, kind: type[Lock | RLock]) -> None:
    """While we hold, Java's timed acquire fails; once we release, the one that waits succeeds."""
    lock = kind(client, zk_path)
    with lock:
        assert java.call("mutex.acquire", zk_path, round(SHORT * 1000)).result(LONG) == "false"
        waiting = java.call("mutex.acquire", zk_path)
        eventually(lambda: len(children(client, zk_path)) == 2)
        assert not waiting.done()
    assert waiting.result(LONG) == "true"
    assert not lock.acquire(blocking=False)


def test_a_detached_lock(java: CuratorClient, client: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Java and a detached lock keep each other out, in the order of arrival; Java waits for the persistent node."""
    lock = DetachedLock(client, zk_path, "job")
    java.call("mutex.acquire", zk_path).result(LONG)
    assert not lock.acquire(timeout=SHORT)
    getting = in_thread(lock.acquire, timeout=LONG)
    eventually(lambda: len(children(client, zk_path)) == 2)
    java.call("mutex.release", zk_path).result(LONG)
    assert getting.result(LONG)
    assert java.call("mutex.acquire", zk_path, round(SHORT * 1000)).result(LONG) == "false"
    waiting = java.call("mutex.acquire", zk_path)
    eventually(lambda: len(children(client, zk_path)) == 2)
    assert not waiting.done()
    lock.release()
    assert waiting.result(LONG) == "true"
    assert not lock.acquire(blocking=False)
    java.call("mutex.release", zk_path).result(LONG)


def test_every_level_of_ours_excludes_java(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """Java gets in when the last of our levels is released, and not before."""
    lock = RLock(client, zk_path)
    with lock:
        with lock:
            assert java.call("mutex.acquire", zk_path, round(SHORT * 1000)).result(LONG) == "false"
        assert java.call("mutex.acquire", zk_path, round(SHORT * 1000)).result(LONG) == "false"
    assert java.call("mutex.acquire", zk_path, round(LONG * 1000)).result(LONG) == "true"


def test_every_level_of_javas_excludes_us(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """We get in when the last of Java's levels is released, and not before."""
    lock = RLock(client, zk_path)
    for _ in range(2):
        java.call("mutex.acquire", zk_path).result(LONG)
    java.call("mutex.release", zk_path).result(LONG)
    assert not lock.acquire(timeout=SHORT)
    java.call("mutex.release", zk_path).result(LONG)
    assert lock.acquire(timeout=LONG)
    lock.release()


@pytest.mark.parametrize("first", ["java", "python"])
@pytest.mark.parametrize("sessions", ["own", "shared"])
def test_order_of_arrival(connect_java: ConnectJava, connect: Connect, zk_path: str, first: str, sessions: str) -> None:
    """Java and Python contenders that queue up in turn are granted in turn, be they of one session each or share it."""
    ours = [RLock(connect(), zk_path)]
    theirs = [connect_java()]
    observer = connect()

    def queued(count: int) -> bool:
        return len(children(observer, zk_path)) == count

    if sessions == "own":
        ours += [RLock(connect(), zk_path) for _ in range(2)]
        theirs += [connect_java() for _ in range(2)]
    contenders: list[Contender] = []
    for n in range(3):
        pair: list[Contender] = [
            JavaThread(theirs[n % len(theirs)], zk_path, f"contender {n}"),
            Thread(ours[n % len(ours)]),
        ]
        contenders += pair if first == "java" else pair[::-1]
    grants = []
    for position, contender in enumerate(contenders, 1):
        grants.append(contender.acquire())
        eventually(partial(queued, position))
    nodes = children(observer, zk_path)
    for position, (contender, grant) in enumerate(zip(contenders, grants, strict=True)):
        assert grant.result(LONG) == "true"
        assert [each.done() for each in grants[position + 1 :]] == [False] * (len(grants) - position - 1)
        assert children(observer, zk_path) == nodes[position:]
        contender.release()


def test_counter_of_java_and_python(
    connect_java: ConnectJava, spawn: Spawn, client: KazooClient, zk_path: str, tmp_path: Path
) -> None:
    """A counter that two Java sessions and two Python processes increment under the lock loses nothing."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    with RLock(client, zk_path):  # until all are in the queue: from then on they take turns
        parties = [spawn("increment", counter, CYCLES) for _ in range(2)]
        loops = [connect_java().call("mutex.increment", zk_path, counter, CYCLES) for _ in range(2)]
        eventually(lambda: len(children(client, zk_path)) == 5)
    assert [loop.result(120) for loop in loops] == [str(CYCLES)] * 2
    assert [party.wait(120) for party in parties] == [0, 0]
    assert counter.read_text() == str(4 * CYCLES)


def test_java_process_is_killed_while_holding(zookeeper: Server, client: KazooClient, zk_path: str) -> None:
    """When a Java holder is killed, the one that waits here gets in as its session times out."""
    lock = RLock(client, zk_path)
    with CuratorPeer() as peer:
        peer.client(zookeeper.hosts, SESSION).call("mutex.acquire", zk_path).result(LONG)
        peer.kill()
        assert not lock.acquire(blocking=False)
        assert lock.acquire(timeout=2 * SESSION)
    lock.release()


def test_our_process_is_killed_while_holding(java: CuratorClient, spawn: Spawn, zk_path: str) -> None:
    """When a Python holder is killed, Java gets in as its session times out."""
    holder = spawn("hold")
    line_from(holder)
    assert java.call("mutex.acquire", zk_path, round(SHORT * 1000)).result(LONG) == "false"
    holder.kill()
    assert java.call("mutex.acquire", zk_path, round(2 * SESSION * 1000)).result(LONG) == "true"


def test_our_process_is_killed_while_waiting(
    java: CuratorClient, client: KazooClient, spawn: Spawn, zk_path: str
) -> None:
    """When a Python waiter between two Java contenders is killed, the one behind it is not granted too early."""
    java.call("mutex.acquire", zk_path, thread="one").result(LONG)
    waiter = spawn("hold")
    eventually(lambda: len(children(client, zk_path)) == 2)
    behind = java.call("mutex.acquire", zk_path, thread="two")
    eventually(lambda: len(children(client, zk_path)) == 3)
    waiter.kill()
    eventually(lambda: len(children(client, zk_path)) == 2)
    assert java.call("mutex.owned", zk_path, thread="one").result(LONG) == "true"
    assert not behind.done()
    java.call("mutex.release", zk_path, thread="one").result(LONG)
    assert behind.result(LONG) == "true"


def test_our_session_ends_while_holding(
    java: CuratorClient, zookeeper: Server, client: KazooClient, zk_path: str
) -> None:
    """When the server ends the session of a holder here, Java gets in, and the holder is told by its release."""
    lock = RLock(client, zk_path)
    lock.acquire()
    lost = lock.lost
    waiting = java.call("mutex.acquire", zk_path)
    eventually(lambda: len(children(client, zk_path)) == 2)
    zookeeper.expire(client)
    assert waiting.result(LONG) == "true"
    assert lost.wait(LONG)
    with pytest.raises(LockLostError):
        lock.release()
    assert java.call("mutex.owned", zk_path).result(LONG) == "true"


def test_java_sees_us_in_the_queue(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """Curator names our node among the participants, in its place."""
    with RLock(client, zk_path):
        waiting = java.call("mutex.acquire", zk_path, thread="one")
        eventually(lambda: len(children(client, zk_path)) == 2)
        told = java.call("mutex.participants", zk_path, thread="two").result(LONG)
        assert told.split("\t") == [f"{zk_path}/{name}" for name in children(client, zk_path)]
    assert waiting.result(LONG) == "true"


def test_we_see_java_in_the_queue(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """The owner and the waiters are told with what can be known of Java's: the session, the node, the address."""
    lock = RLock(client, zk_path)
    java.call("mutex.acquire", zk_path, thread="one").result(LONG)
    waiting = java.call("mutex.acquire", zk_path, thread="two")
    eventually(lambda: len(children(client, zk_path)) == 2)
    contenders = [lock.owner(), *lock.waiters()]
    assert [each and each.node for each in contenders] == [f"{zk_path}/{name}" for name in children(client, zk_path)]
    for place, each in enumerate(contenders):
        assert each is not None
        assert (each.session, each.pid, each.thread, each.position) == (java.session, None, None, place)
        assert each.host == client.get(each.node)[0].decode()
    java.call("mutex.release", zk_path, thread="one").result(LONG)
    assert waiting.result(LONG) == "true"
