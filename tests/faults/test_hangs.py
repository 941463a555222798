"""Nothing hangs, with any action of the program at any moment, on any thread, and with any behaviour of ZooKeeper.

A test that could hang its whole process runs in a process of its own, which a watchdog ends with all stacks; see
`tests.faults.storm`.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import zkconcurrent
from tests.conftest import FAST, Connect, InThread
from tests.every_primitive.test_waits import Scene
from tests.helpers.eventually import PATIENCE, eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    Dict,
    Election,
    Group,
    Lock,
)
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

pytestmark = pytest.mark.long

BOUND = 500.0  # a job that stands still is ended long before, by its own watchdog


def outcome(server: Server, path: str, job: str, *arguments: str) -> dict[str, Any]:
    """Run a job to its end; return what it counted, if nothing was wrong."""
    options = ["-u", "-X", "faulthandler", "-W", "ignore::DeprecationWarning", "-W", "ignore::ResourceWarning"]
    process = subprocess.Popen(
        [sys.executable, *options, "-m", "tests.faults.storm", server.hosts, path, job, *arguments],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = shortened(process.communicate(timeout=BOUND)[0])
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # its stacks
        said = shortened(process.communicate()[0])
        pytest.fail(f"{job} does not end:\n{said[-8000:]}")
    assert process.returncode == 0, f"{job} ended with {process.returncode}:\n{said[-8000:]}"
    result: dict[str, Any] = json.loads(next(line for line in reversed(said.splitlines()) if line.startswith("{")))
    assert not result["wrong"], "\n".join([*result["wrong"], said[-3000:]])
    return result


def shortened(said: str) -> str:
    """Leave out all but the last word of progress."""
    return re.sub(r"(?:^(?:signal|progress) .*\n)+(?=^(?:signal|progress))", "", said, flags=re.MULTILINE)


@pytest.mark.fault(47)
@pytest.mark.parametrize(
    ("job", "what", "outcomes"),
    [
        ("at_signals", "same", "got refused"),
        ("at_lines", "release", ""),
        ("at_lines", "same", "got refused"),
        ("at_lines", "make", ""),
        ("at_lines_of_a_queue", "", "_put _get _claim refused"),
        ("at_collections", "release", "released"),
        ("at_collections", "try", "got"),
    ],
)
def test_a_call_on_top_of_another(job: str, what: str, outcomes: str, zookeeper: Server, zk_path: str) -> None:
    """A handler or finalizer releases what is held elsewhere, makes objects, uses a queue, or acquires the same lock.

    It strikes at any moment, at any line of any operation, or where garbage is collected. It acquires, or takes, what
    it has interrupted, or is told at once that it would wait for its own frame.
    """
    result = outcome(zookeeper, zk_path, job, *what.split())
    assert result["struck"] >= 100
    assert {*outcomes.split()} <= result["outcomes"].keys()


@pytest.mark.parametrize(
    ("job", "least"),
    [
        pytest.param("stop_at_lines", 12, marks=pytest.mark.fault(47)),
        pytest.param("formatted", 300, marks=pytest.mark.fault(48)),
        pytest.param("add_auth", 40, marks=pytest.mark.fault(49)),
        pytest.param("no_threads", 1000, marks=pytest.mark.fault(54)),
    ],
)
def test_a_storm(job: str, least: int, zookeeper: Server, zk_path: str) -> None:
    """A handler stops the client at any line; a log handler formats all objects; credentials are added; no thread.

    The program goes on, is told, or gets all its replies: see each job.
    """
    assert outcome(zookeeper, zk_path, job)["struck"] >= least


@pytest.mark.fault(7, 8, 48)
@pytest.mark.parametrize("kind", ["Lock", "Event"])
def test_a_watch_callback_that_blocks(
    kind: str, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """What ends the wait of a client that was cut off reaches it, even if kazoo's callbacks are blocked."""
    mine = connect(proxy.hosts, timeout=60, **FAST)
    scene = Scene(zkconcurrent, kind, mine, connect(timeout=60), zk_path, in_thread)
    entered, unblock = threading.Event(), threading.Event()

    def block(_event: object) -> None:
        entered.set()
        unblock.wait(120)

    mine.create(watched := f"{zk_path}-watched")
    mine.get(watched, watch=block)
    mine.set(watched, b"it changes")
    assert entered.wait(20)
    try:
        proxy.refuse()
        proxy.cut()
        eventually(lambda: not mine.connected)
        scene.end()
        proxy.resume()
        assert scene.result.result(PATIENCE) is True
    finally:
        unblock.set()


@pytest.mark.fault(178)
def test_a_handler_waits_for_a_thread_of_the_library(connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The threads of a membership, a candidacy and the copy of a map go on beside the interrupted frame."""
    client = connect()
    election = Election(client, f"{zk_path}/election")

    def handle() -> None:
        with Session.of(client).lock:
            with Group(client, f"{zk_path}/group").join(b""):
                assert not Dict[bytes](client, f"{zk_path}/map")
            election.stand()
            assert election.wait() is not None
            election.withdraw()
            assert election.leader() is None

    in_thread(handle).result(30)


@pytest.mark.fault(265)
@pytest.mark.parametrize("does", ["blocks", "raises"])
def test_a_log_handler_keeps_the_keeper_from_nothing(
    connect: Connect, zk_path: str, in_thread: InThread, does: str
) -> None:
    """The holds of its client are renewed all the same, and what is posted is done."""
    session, log = Session.of(client := connect(timeout=4)), logging.getLogger("zkconcurrent")
    told, posted, go_on = threading.Event(), threading.Event(), threading.Event()

    def harm(record: logging.LogRecord) -> bool:
        if "hold_limit" in record.getMessage():
            told.set()
            if does == "raises":
                raise OSError
            go_on.wait(30)
        return True

    log.addFilter(harm)
    try:
        with Lock(client, f"{zk_path}-limited", hold_limit=0.01), Lock(client, zk_path) as lock:
            assert told.wait(10)
            until = session.registry.lease.end
            with session.lock:
                in_thread(session.post, posted.set).result(10)
            assert posted.wait(10)
            # A lease lasts less.
            eventually(lambda: session.registry.lease.end > until + 2)
            assert lock
    finally:
        go_on.set()
        log.removeFilter(harm)
    eventually(lambda: not session.unlogged)
