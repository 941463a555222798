"""Our locks and Curator's on one path exclude each other, in one order of arrival, and lose no increment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers.contenders import children, permits_awaited, queued
from tests.helpers.curator import CuratorClient
from tests.helpers.curator_threads import CYCLES, LONG, SHORT, Contender, JavaThread, Thread
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import read_lock, write_lock
from tests.helpers.processes import Spawn
from tests.interop.conftest import ConnectJava
from zkconcurrent import DetachedLock, Lock, ReadWriteLock, RLock, Semaphore

pytestmark = pytest.mark.fault(21)

BRIEF, PATIENT = (round(each * 1000) for each in (SHORT, LONG))
KINDS: dict[str, Any] = {
    "Lock": Lock,
    "RLock": RLock,
    "DetachedLock": lambda client, path: DetachedLock(client, path, "job"),
    "read": read_lock,
    "write": write_lock,
}
pairs = pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        *(("Lock", "mutex"), ("RLock", "mutex"), ("DetachedLock", "mutex")),
        *(("read", "write"), ("write", "read"), ("write", "write")),
    ],
)


@pairs
def test_java_holds(java: CuratorClient, client: KazooClient, zk_path: str, ours: str, theirs: str) -> None:
    """While Java holds, a try and a timed acquire here fail; once it releases, we get in."""
    lock = KINDS[ours](client, zk_path)
    java.call(f"{theirs}.acquire", zk_path).result(LONG)
    assert KINDS.get(theirs, KINDS[ours])(client, zk_path).locked()
    assert not lock.acquire(blocking=False)
    assert not lock.acquire(timeout=SHORT)
    eventually(queued(client, zk_path, 1))
    java.call(f"{theirs}.release", zk_path).result(LONG)
    assert lock.acquire(timeout=LONG)
    lock.release()


@pairs
def test_we_hold(java: CuratorClient, client: KazooClient, zk_path: str, ours: str, theirs: str) -> None:
    """While we hold, Java's timed acquire fails; once we release, the one that waits succeeds."""
    lock = KINDS[ours](client, zk_path)
    with lock:
        assert java.call(f"{theirs}.acquire", zk_path, BRIEF).result(LONG) == "false"
        waiting = java.call(f"{theirs}.acquire", zk_path)
        eventually(queued(client, zk_path, 2))
        assert not waiting.done()
    assert waiting.result(LONG) == "true"
    assert not lock.acquire(blocking=False)
    java.call(f"{theirs}.release", zk_path).result(LONG)


def test_both_read(java: CuratorClient, client: KazooClient, zk_path: str) -> None:
    """While Java reads, we may read, and the other way round."""
    lock = read_lock(client, zk_path)
    java.call("read.acquire", zk_path).result(LONG)
    assert lock.locked()
    assert lock.acquire(blocking=False)
    java.call("read.release", zk_path).result(LONG)
    assert java.call("read.acquire", zk_path, PATIENT).result(LONG) == "true"
    lock.release()


@pytest.mark.parametrize("first", ["java", "python"])
@pytest.mark.parametrize(("order", "sessions"), [("mmmmmm", 2), ("rrwwrrrrww", 2), ("wrwrwr", 1)])
def test_order_of_arrival(
    connect_java: ConnectJava, connect: Connect, zk_path: str, first: str, order: str, sessions: int
) -> None:
    """Contenders of both sides get in as they came, neighbouring readers together, of one session each or shared."""
    clients, theirs = ([each() for _ in range(sessions)] for each in (connect, connect_java))
    mutex = "m" in order
    ours = [(RLock if mutex else ReadWriteLock)(each, zk_path) for each in clients]
    contenders: list[Contender] = []
    grants = []
    for n, letter in enumerate(order):
        role, of_session = {"m": "mutex", "r": "read", "w": "write"}[letter], n // 2 % sessions
        if (n % 2 == 0) == (first == "java"):
            contenders.append(JavaThread(theirs[of_session], zk_path, f"contender {n}", role))
        else:
            lock = ours[of_session]
            contenders.append(Thread(lock if mutex else getattr(lock, f"{role}_lock")))
        grants.append(contenders[-1].acquire())
        eventually(queued(clients[0], zk_path, n + 1))
    nodes = children(clients[0], zk_path)
    at = 0
    while at < len(order):
        end = at + 1
        while order[at] == "r" and order[end : end + 1] == "r":
            end += 1
        assert [grant.result(LONG) for grant in grants[at:end]] == ["true"] * (end - at)
        assert [grant.done() for grant in grants[end:]] == [False] * (len(order) - end)
        assert children(clients[0], zk_path) == nodes[at:]
        for contender in contenders[at:end]:
            contender.release()
        at = end


@pytest.mark.parametrize(
    ("job", "theirs", "permits", "kind"),
    [
        ("increment", "mutex", (), RLock),
        ("write.increment", "write", (), read_lock),
        ("semaphore.increment", "semaphore", (1,), Semaphore),
    ],
    ids=["mutex", "write", "semaphore"],
)
def test_a_counter(
    job: str,
    theirs: str,
    permits: tuple[int, ...],
    kind: Any,
    connect_java: ConnectJava,
    spawn: Spawn,
    client: KazooClient,
    zk_path: str,
    tmp_path: Path,
) -> None:
    """A counter that two Java sessions and two Python processes increment loses nothing, and a reader sees it still."""
    counter, lock = tmp_path / "counter", kind(client, zk_path)
    counter.write_text("0")
    with lock:  # until all are in the queue: from then on they take turns
        parties = [spawn(job, counter, CYCLES) for _ in range(2)]
        loops = [connect_java().call(f"{theirs}.increment", zk_path, *permits, counter, CYCLES) for _ in range(2)]
        eventually(permits_awaited(client, zk_path, 4) if kind is Semaphore else queued(client, zk_path, 5))
    while not all(loop.done() for loop in loops):
        with lock:
            before = counter.read_text()
            os.sched_yield()
            assert counter.read_text() == before != ""
    assert [loop.result(120) for loop in loops] == [str(CYCLES)] * 2
    assert [party.wait(120) for party in parties] == [0, 0]
    assert counter.read_text() == str(4 * CYCLES)
