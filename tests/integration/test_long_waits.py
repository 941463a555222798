"""The log tells of waits for locks and permits that last long: who waits, for whom, and when it is over."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import threading
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from zkconcurrent import (
    Condition,
    DetachedLock,
    Election,
    Lock,
    MultiLock,
    ReadWriteLock,
    RLock,
    Semaphore,
    WaitCancelledError,
    aio,
)
from zkconcurrent._engine import local_handoff, long_waits
from zkconcurrent.testing import Server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have waits count as long after half a second."""
    monkeypatch.setattr(long_waits, "LONG", 0.5)


Reports = Callable[[], "list[logging.LogRecord]"]


@pytest.fixture
def reports(caplog: pytest.LogCaptureFixture) -> Reports:
    """Return what returns the records of the long waits."""
    return lambda: [record for record in caplog.records if record.name == "zkconcurrent.waits"]


KINDS = {
    "Lock": Lock,
    "Lock(fair=False)": lambda client, path: Lock(client, path, fair=False),
    "read lock": lambda client, path: ReadWriteLock(client, path).read_lock,
    "Semaphore": Semaphore,
    "DetachedLock": lambda client, path: DetachedLock(client, path, owner=str(uuid.uuid4())),
    "MultiLock": lambda client, path: MultiLock([Lock(client, path)]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_wait(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, reports: Reports, kind: str
) -> None:
    """Two threads that wait for one path make one report, which names the holder; the end of each is told, too."""
    make = KINDS[kind]
    holder = ReadWriteLock(connect(), zk_path).write_lock if kind == "read lock" else make(connect(), zk_path)
    holder.acquire()
    # Each has its own object: the two would share a hold if they were one owner of a `DetachedLock`.
    locks = [make(zk, zk_path) for _ in range(2)]
    waiting = [in_thread(lambda lock=lock: lock.acquire() and lock.release()) for lock in locks]
    eventually(lambda: any("acquire" not in record.msg for record in reports()))
    (first, *_) = reports()
    text = first.getMessage()
    assert "2 threads or tasks wait for" in text
    assert zk_path in text
    if kind != "DetachedLock":
        assert f"held by thread {threading.current_thread().name!r} of process {os.getpid()}" in text
    if kind != "DetachedLock":
        # Threads of one process queue behind one node of an unfair lock.
        assert text.endswith("; 1 node waits there" if kind == "Lock(fair=False)" else "; 2 nodes wait there")
    assert first.levelno == logging.WARNING
    assert vars(first)["zk_path"] == zk_path
    assert vars(first)["zk_waited"] >= 0.5
    holder.release()
    for each in waiting:
        each.result(10)
    eventually(lambda: sum("after a wait of" in record.getMessage() for record in reports()) == 2)


def test_as_long_as_connect_was_told(
    zookeeper: Server, zk: KazooClient, zk_path: str, in_thread: InThread, reports: Reports
) -> None:
    """`log_waits_after` says how long a wait lasts before the log tells of it; with None, it never does."""
    first, never = f"{zk_path}/first", f"{zk_path}/never"
    hosts = f"zk://{zookeeper.hosts}"
    with (
        zkconcurrent.connect(hosts, log_waits_after=1) as patient,
        zkconcurrent.connect(hosts, log_waits_after=None) as silent,
    ):
        with Lock(zk, first), Lock(zk, never):
            waiting = [
                in_thread(lambda lock=lock: lock.acquire() and lock.release())
                for lock in (Lock(silent, never), Lock(patient, first))
            ]
            eventually(reports)
        for each in waiting:
            each.result(10)
        eventually(lambda: len(reports()) >= 2)
    assert {vars(record)["zk_path"] for record in reports()} == {first}
    assert vars(reports()[0])["zk_waited"] >= 1


def test_reports_become_rare(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, reports: Reports
) -> None:
    """Each report waits for twice the time."""
    lock = Lock(zk, zk_path)
    with Lock(connect(), zk_path):
        waiting = in_thread(lambda: lock.acquire() and lock.release())
        eventually(lambda: len(reports()) == 3)
        waited = [vars(record)["zk_waited"] for record in reports()]
    waiting.result(10)
    assert waited[1] >= 2 * 0.5
    assert waited[2] >= 4 * 0.5


def test_since_when_the_holder_holds(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, reports: Reports
) -> None:
    """A holder of this client has held since its grant, not since it queued; one of another client has queued since."""
    lock = Lock(zk, zk_path)
    with Lock(connect(), zk_path):
        first = in_thread(lock.acquire)
        # The second report comes after a second: so the grant is in a later second than the place in the queue.
        eventually(lambda: len(reports()) >= 2)
        texts = [report.getMessage() for report in reports()]
        released = datetime.now(timezone.utc)
    first.result(10)
    second = in_thread(lambda: lock.acquire() and lock.release())
    eventually(lambda: any("held since" in report.getMessage() for report in reports()))
    found = re.search(r", held since (.*) UTC; ", "".join(report.getMessage() for report in reports()))
    looked = datetime.now(timezone.utc)
    owner = lock.owner()
    lock.release()
    second.result(10)
    # The keeper logs that both waits are over; the next test is not to find that.
    eventually(lambda: sum(" after a wait of " in report.getMessage() for report in reports()) == 2)
    assert all(", queued since " in text for text in texts)
    assert not any("held since" in text for text in texts)
    assert found is not None
    assert datetime.fromisoformat(f"{found[1]}+00:00") > released - timedelta(seconds=1)
    assert owner is not None
    assert owner.first_seen_holding is not None
    assert released - timedelta(seconds=1) < owner.first_seen_holding < looked


def test_a_thread_that_waits_for_itself(zk: KazooClient, zk_path: str, in_thread: InThread, reports: Reports) -> None:
    """A `Lock` acquired twice may be released by another thread, so it waits; the log says what happens."""
    lock = Lock(zk, zk_path)
    waiting = in_thread(lambda: lock.acquire() and lock.acquire() and lock.release())
    eventually(reports)
    assert "waits for itself" in reports()[0].getMessage()
    lock.release()
    waiting.result(10)


@pytest.mark.fault(276)
@pytest.mark.parametrize("kind", [Lock, RLock])
def test_a_node_that_was_handed_on(
    zk: KazooClient,
    connect: Connect,
    zk_path: str,
    in_thread: InThread,
    reports: Reports,
    kind: type[RLock],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log, and `owner()` of the client that holds, name the thread that holds now, not that which gave it away."""
    # On a busy machine the turn would end before the other thread waits.
    monkeypatch.setattr(local_handoff, "LONGEST_TURN", 30.0)
    lock, other = kind(zk, zk_path, fair=False), RLock(connect(), zk_path)
    acquired, handed_on, reported = threading.Event(), threading.Event(), threading.Event()

    def gives() -> None:
        with RLock(zk, f"{zk_path}-outer"):
            lock.acquire()
            acquired.set()
            while not lock._path_state.handoff._next_waiter():
                pass
            lock.release()
        handed_on.wait()
        lock.acquire()
        lock.release()

    def takes() -> str:
        acquired.wait()
        with lock:
            handed_on.set()
            reported.wait(20)
            return threading.current_thread().name

    giving, taking = in_thread(gives), in_thread(takes)
    handed_on.wait()
    present, former = lock.owner(), other.owner()
    while not reports():
        threading.Event().wait(0.05)
    reported.set()
    giving.result(10)
    assert present is not None
    assert former is not None
    assert present.thread == taking.result(10)
    assert present[3:8] == former[3:8]
    assert (former.by != present.by, present.holds) == (True, ())
    text = reports()[0].getMessage()
    assert f"held by thread {present.thread!r}" in text
    assert "waits for itself" not in text


def test_a_task(zk: KazooClient, connect: Connect, zk_path: str, reports: Reports) -> None:
    """A task's wait is told of under the task's name."""
    with Lock(connect(), zk_path):

        async def main() -> None:
            waiting = asyncio.create_task(aio.Lock(zk, zk_path).acquire())
            while not reports():
                await asyncio.sleep(0.05)
            waiting.cancel()

        asyncio.run(main())
    assert {vars(record)["zk_path"] for record in reports()} == {zk_path}


def test_what_is_not_told(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, reports: Reports
) -> None:
    """Candidates, and waits for a notification, last as long as they last."""
    with Election(connect(), f"{zk_path}/e").lead():
        candidate = Election(zk, f"{zk_path}/e")
        candidate.stand()
        condition = Condition(zk, f"{zk_path}/c")
        lock = Lock(zk, f"{zk_path}/l")
        with condition:
            waiting = in_thread(lock.acquire, timeout=30) if lock.acquire() else None
            condition.wait(2.5)
        eventually(reports)
        assert {vars(record)["zk_path"] for record in reports()} == {lock.path}
        candidate.withdraw()
    lock.release()
    assert waiting is not None
    waiting.result(10)


@pytest.mark.fault(265)
@pytest.mark.parametrize("does", ["blocks", "raises"])
def test_a_log_handler_that_does_harm(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, does: str
) -> None:
    """A handler of the program that blocks or raises costs no waiter and no holder anything, and one thread at most."""
    told, go_on = list[logging.LogRecord](), threading.Event()

    class Harmful(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            told.append(record)
            if does == "raises":
                raise ValueError(does)
            return go_on.wait(60)

    handler = Harmful()
    long_waits.log.addHandler(handler)
    lock, holder = RLock(zk, zk_path), RLock(connect(), zk_path)
    others = [Lock(zk, f"{zk_path}/../{n}".replace("/../", "-")) for n in range(5)]
    try:
        holder.acquire()
        for other in others:
            other.acquire()
        waiting = in_thread(lambda: lock.acquire() and lock.release())
        eventually(lambda: told)
        more = [in_thread(lambda other=other: other.acquire(timeout=20) and other.release()) for other in others]
        eventually(lambda: len(told) + len(lock._session.long_waits._reports) > len(others))
        tellers = [each for each in threading.enumerate() if each.name.endswith(" waits")]
        assert len(tellers) <= 1
        holder.release()
        waiting.result(10)
        for other in others:
            other.release()
        for each in more:
            each.result(10)
    finally:
        go_on.set()
        long_waits.log.removeHandler(handler)
    eventually(lambda: not lock._session.long_waits._helper.works)


def test_out_of_reach_and_cancelled(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, reports: Reports
) -> None:
    """A wait that is cancelled ends in silence, and the next long one at that path is told of again."""
    lock = Lock(zk, zk_path)
    with Lock(connect(), zk_path):
        for n in (1, 2):
            waiting = in_thread(lock.acquire)
            eventually(lambda n=n: len(reports()) >= n)
            eventually(lock.cancel_waits)
            assert isinstance(waiting.exception(10), WaitCancelledError)
            eventually(lambda: not zk.retry(lambda: lock._session.long_waits._due))


def test_a_logger_that_is_off(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the logger is off, nothing is read."""
    monkeypatch.setattr(long_waits.log, "level", logging.ERROR)
    long_waits.log.manager._clear_cache()  # type: ignore[attr-defined]
    reads: list[object] = []
    lock = Lock(zk, zk_path)
    monkeypatch.setattr(type(lock._lock_core), "report_wait", lambda *args: reads.append(args))
    with Lock(connect(), zk_path):
        waiting = in_thread(lambda: lock.acquire() and lock.release())
        # The keeper has found the long wait.
        eventually(lambda: lock._session.long_waits._due)
    waiting.result(20)
    assert not reads
