"""Our ReadWriteLock and Curator's InterProcessReadWriteLock on one path are one, in one order of arrival."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers.contenders import children
from tests.helpers.curator import CuratorClient
from tests.helpers.curator_threads import CYCLES, LONG, SHORT, Contender, JavaThread, Thread
from tests.helpers.eventually import eventually
from tests.helpers.processes import Spawn
from tests.interop.conftest import ConnectJava
from zkconcurrent import ReadWriteLock, RLock

pytestmark = pytest.mark.fault(21)

BRIEF = round(SHORT * 1000)
PATIENT = round(LONG * 1000)
roles = pytest.mark.parametrize(
    ("held", "wanted"), [("read", "read"), ("read", "write"), ("write", "read"), ("write", "write")]
)


def lock_of(pair: ReadWriteLock, role: str) -> RLock:
    """Return one of the two locks by its name."""
    return pair.write_lock if role == "write" else pair.read_lock


@roles
def test_java_holds(java: CuratorClient, client: KazooClient, zk_path: str, held: str, wanted: str) -> None:
    """While Java reads we may read, and nothing else; when it gives up, we get in."""
    pair = ReadWriteLock(client, zk_path)
    lock, free = lock_of(pair, wanted), held == wanted == "read"
    java.call(f"{held}.acquire", zk_path).result(LONG)
    assert lock_of(pair, held).locked()
    for how in ({"blocking": False}, {"timeout": LONG if free else SHORT}):
        assert lock.acquire(**how) is free
        if free:
            lock.release()
    eventually(lambda: len(children(client, zk_path)) == 1)
    java.call(f"{held}.release", zk_path).result(LONG)
    assert lock.acquire(timeout=LONG)
    lock.release()


@roles
def test_we_hold(java: CuratorClient, client: KazooClient, zk_path: str, held: str, wanted: str) -> None:
    """While we read Java may read, and nothing else; when we give up, it gets in."""
    lock, free = lock_of(ReadWriteLock(client, zk_path), held), held == wanted == "read"
    with lock:
        if free:
            assert java.call(f"{wanted}.acquire", zk_path, PATIENT).result(LONG) == "true"
            return
        assert java.call(f"{wanted}.acquire", zk_path, BRIEF).result(LONG) == "false"
        waiting = java.call(f"{wanted}.acquire", zk_path)
        eventually(lambda: len(children(client, zk_path)) == 2)
        assert not waiting.done()
    assert waiting.result(LONG) == "true"


@pytest.mark.parametrize("first", ["java", "python"])
@pytest.mark.parametrize("order", ["rrwwrrrrww", "wrwrwr", "rwrwrrww"])
def test_order_of_arrival(connect_java: ConnectJava, connect: Connect, zk_path: str, first: str, order: str) -> None:
    """Readers and writers of Java and Python get in as they came, neighbouring readers together and nobody else."""
    pairs, theirs, observer = [ReadWriteLock(connect(), zk_path) for _ in range(2)], connect_java(), connect()

    def queued(count: int) -> bool:
        return len(children(observer, zk_path)) == count

    contenders: list[Contender] = []
    grants = []
    for n, letter in enumerate(order):
        role = "read" if letter == "r" else "write"
        if (n % 2 == 0) == (first == "java"):
            contenders.append(JavaThread(theirs, zk_path, f"contender {n}", role))
        else:
            contenders.append(Thread(lock_of(pairs[n // 2 % 2], role)))
        grants.append(contenders[-1].acquire())
        eventually(partial(queued, n + 1))
    at = 0
    while at < len(order):
        end = at + 1
        while order[at] == "r" and order[end : end + 1] == "r":
            end += 1
        assert [grant.result(LONG) for grant in grants[at:end]] == ["true"] * (end - at)
        assert [grant.done() for grant in grants[end:]] == [False] * (len(order) - end)
        for contender in contenders[at:end]:
            contender.release()
        at = end


def test_counter_of_java_and_python(
    connect_java: ConnectJava, spawn: Spawn, client: KazooClient, zk_path: str, tmp_path: Path
) -> None:
    """A counter that two Java sessions and two Python processes write to loses nothing, and readers see it still."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    pair = ReadWriteLock(client, zk_path)
    with pair.read_lock:  # until all are in the queue: from then on they take turns
        parties = [spawn("write.increment", counter, CYCLES) for _ in range(2)]
        loops = [connect_java().call("write.increment", zk_path, counter, CYCLES) for _ in range(2)]
        eventually(lambda: len(children(client, zk_path)) == 5)
    while not all(loop.done() for loop in loops):
        with pair.read_lock:
            before = counter.read_text()
            assert len(children(client, zk_path)) > 0
            assert counter.read_text() == before != ""
    assert [loop.result(120) for loop in loops] == [str(CYCLES)] * 2
    assert [party.wait(120) for party in parties] == [0, 0]
    assert counter.read_text() == str(4 * CYCLES)


def test_java_stays_out_of_our_downgrade(connect_java: ConnectJava, client: KazooClient, zk_path: str) -> None:
    """Java's writer, waiting since before, does not get in between; its reader behind that keeps its turn."""
    java, pair = connect_java(), ReadWriteLock(client, zk_path)
    pair.write_lock.acquire()
    writer = java.call("write.acquire", zk_path, thread="writer")
    eventually(lambda: len(children(client, zk_path)) == 2)
    reader = java.call("read.acquire", zk_path, thread="reader")
    eventually(lambda: len(children(client, zk_path)) == 3)
    pair.read_lock.acquire()
    pair.write_lock.release()
    assert java.call("write.acquire", zk_path, BRIEF, thread="other").result(LONG) == "false"
    assert not writer.done()
    assert not reader.done()
    pair.read_lock.release()
    assert writer.result(LONG) == "true"
    assert not reader.done()
    java.call("write.release", zk_path, thread="writer").result(LONG)
    assert reader.result(LONG) == "true"


def test_java_reads_beside_our_downgrade(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """Java's reader, waiting for our writer, joins when that goes and our reader stays."""
    pair = ReadWriteLock(client, zk_path)
    pair.write_lock.acquire()
    reader = java.call("read.acquire", zk_path)
    eventually(lambda: len(children(client, zk_path)) == 2)
    pair.read_lock.acquire()
    assert not reader.done()
    pair.write_lock.release()
    assert reader.result(LONG) == "true"
    pair.read_lock.release()


def test_we_stay_out_of_javas_downgrade(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """While Java's reader is left of its writer, we may read with it, and not write."""
    pair = ReadWriteLock(client, zk_path)
    for command in ("write.acquire", "read.acquire", "write.release"):
        java.call(command, zk_path).result(LONG)
    assert not pair.write_lock.acquire(timeout=SHORT)
    assert pair.read_lock.acquire(timeout=LONG)
    pair.read_lock.release()
    java.call("read.release", zk_path).result(LONG)
    assert pair.write_lock.acquire(timeout=LONG)
    pair.write_lock.release()


def test_our_writer_is_killed_while_waiting(
    java: CuratorClient, client: KazooClient, spawn: Spawn, zk_path: str
) -> None:
    """When a Python writer that waits for Java's reader is killed, Java's next reader joins, its writer does not."""
    java.call("read.acquire", zk_path, thread="one").result(LONG)
    waiter = spawn("write.hold")
    eventually(lambda: len(children(client, zk_path)) == 2)
    reader = java.call("read.acquire", zk_path, thread="two")
    eventually(lambda: len(children(client, zk_path)) == 3)
    writer = java.call("write.acquire", zk_path, thread="three")
    eventually(lambda: len(children(client, zk_path)) == 4)
    assert not reader.done()
    waiter.kill()
    assert reader.result(LONG) == "true"
    assert not writer.done()
    for name in ("one", "two"):
        java.call("read.release", zk_path, thread=name).result(LONG)
    assert writer.result(LONG) == "true"


def test_each_sees_the_other(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """Owner and waiters of each side list the nodes of the other, as far as they can be known."""
    pair = ReadWriteLock(client, zk_path)
    java.call("read.acquire", zk_path, thread="one").result(LONG)
    with pair.read_lock:
        waiting = java.call("write.acquire", zk_path, thread="two")
        eventually(lambda: len(children(client, zk_path)) == 3)
        owner, waiters = pair.read_lock.owner(), pair.read_lock.waiters()
        assert owner is not None
        assert (owner.session, owner.pid) == (java.session, None)
        assert [(each.session, "__WRIT__" in each.node) for each in waiters] == [(java.session, True)]
        nodes = children(client, zk_path)
        told = java.call("write.participants", zk_path, thread="three").result(LONG)
        assert f"{zk_path}/{nodes[2]}" in told.split("\t")
    java.call("read.release", zk_path, thread="one").result(LONG)
    assert waiting.result(LONG) == "true"
