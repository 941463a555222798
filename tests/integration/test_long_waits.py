"""The log tells of waits for locks and permits that last long: who waits, for whom, and when it is over."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from zkconcurrent import (
    Lock,
    ReadWriteLock,
    Semaphore,
)
from zkconcurrent._observe import long_waits
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
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_wait(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, reports: Reports, kind: str
) -> None:
    """Two threads that wait for one path make one report, which names the holder; the end of each is told, too."""
    make = KINDS[kind]
    holder = ReadWriteLock(connect(), zk_path).write_lock if kind == "read lock" else make(connect(), zk_path)
    holder.acquire()
    lock = make(zk, zk_path)
    waiting = [in_thread(lambda: lock.acquire() and lock.release()) for _ in range(2)]
    eventually(lambda: any("acquire" not in record.msg for record in reports()))
    (first, *_) = reports()
    text = first.getMessage()
    assert "2 threads or tasks wait for" in text
    assert zk_path in text
    assert f"held by thread {threading.current_thread().name!r} of process {os.getpid()}" in text
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


def test_a_thread_that_waits_for_itself(zk: KazooClient, zk_path: str, in_thread: InThread, reports: Reports) -> None:
    """A `Lock` acquired twice may be released by another thread, so it waits; the log says what happens."""
    lock = Lock(zk, zk_path)
    waiting = in_thread(lambda: lock.acquire() and lock.acquire() and lock.release())
    eventually(reports)
    assert "waits for itself" in reports()[0].getMessage()
    lock.release()
    waiting.result(10)
