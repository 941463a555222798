"""Processes that are killed, stopped, forked or end: the fate of their locks, and of everybody else's."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from kazoo.client import KazooClient

from tests.aio.loops import nodes
from tests.faults.conftest import SESSION, SLACK
from tests.faults.party import write
from tests.helpers.contenders import queued
from tests.helpers.eventually import PATIENCE, eventually
from tests.helpers.processes import Spawn, line_from, parties, tell
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock
from zkconcurrent.testing import Server

LONG = 60.0  # a session that is not over before the test is: a node that goes earlier has not waited for its end


@pytest.mark.fault(32)
def test_a_holder_is_killed(party: Spawn, zk: KazooClient, zk_path: str) -> None:
    """After SIGKILL of the holder the next gets in, within the session timeout."""
    holder = party("hold")
    token = int(line_from(holder))
    holder.kill()
    lock = Lock(zk, zk_path)
    assert lock.acquire(timeout=SESSION + SLACK)
    assert lock.fencing_token > token
    lock.release()


@pytest.mark.fault(14)
def test_a_stopped_holder(party: Spawn, zk: KazooClient, zk_path: str) -> None:
    """A holder stopped past its session is refused by the resource, and learns of the loss by its release."""
    holder = party("hold")
    stale = int(line_from(holder))
    holder.send_signal(signal.SIGSTOP)
    lock = Lock(zk, zk_path)
    assert lock.acquire(timeout=SESSION + SLACK)
    assert stale < lock.fencing_token
    assert write(zk, f"{zk_path}-resource", lock.fencing_token)
    tell(holder)
    holder.send_signal(signal.SIGCONT)
    assert line_from(holder) == "refused"
    assert line_from(holder) == "lost"
    assert zk.exists(lock.owner().node)  # type: ignore[union-attr]
    lock.release()
    tell(holder)
    assert holder.wait(20) == 0


@pytest.mark.fault(15)
def test_a_stopped_waiter(party: Spawn, zk: KazooClient, zk_path: str) -> None:
    """A waiter stopped past its session queues again when it goes on; nobody waits for it meanwhile."""
    lock = Lock(zk, zk_path)
    lock.acquire()
    waiter = party("wait")
    assert line_from(waiter) == "waiting"
    eventually(queued(zk, zk_path, 2))
    waiter.send_signal(signal.SIGSTOP)
    eventually(queued(zk, zk_path, 1))
    lock.release()
    assert lock.acquire(timeout=SLACK)
    waiter.send_signal(signal.SIGCONT)
    eventually(queued(zk, zk_path, 2))
    lock.release()
    assert line_from(waiter) == "held"
    tell(waiter)
    assert waiter.wait(20) == 0


@pytest.mark.fault(29)
def test_a_starved_interpreter(party: Spawn, zk: KazooClient, zk_path: str) -> None:
    """A process that could not send a heartbeat knows of the loss before anything else, by its own clock."""
    process = party("starve", 2 * SESSION)
    assert line_from(process) == "held"
    lock = Lock(zk, zk_path)
    tell(process)
    assert lock.acquire(timeout=SESSION + SLACK)
    assert line_from(process) == "lost"
    eventually(queued(zk, zk_path, 2))
    lock.release()
    assert line_from(process) == "held again"
    assert process.wait(20) == 0


@pytest.mark.fault(23)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, party: Spawn) -> None:
    """A child opens a client of its own; a lock is not sent to it."""
    process = party("spawn", method)
    assert line_from(process) == "0"
    assert line_from(process) == "refused"
    assert process.wait(20) == 0


@pytest.mark.fault(23, 24)
def test_a_child_of_multiprocessing_that_forgets(party: Spawn) -> None:
    """The holds of the child at its end go at once, although it ends by os._exit."""
    process = party("forget", "fork")
    assert line_from(process) == "0"
    assert float(line_from(process)) < LONG / 2
    assert process.wait(20) == 0


@pytest.mark.fault(390)
def test_a_child_of_multiprocessing_that_leaves_threads(party: Spawn) -> None:
    """What they hold stays until they end, and what tasks have begun in the background is done."""
    process = party("leave_threads", "fork")
    assert [line_from(process) for _ in range(4)] == ["1", "0", "0", "0"]
    assert process.wait(20) == 0


@pytest.mark.fault(391)
def test_an_exit_in_an_outage(proxy: Proxy, zk_path: str) -> None:
    """Calls of tasks that are in the background keep the interpreter from its exit for no longer than T."""
    with parties("tests.faults.party", proxy.hosts, zk_path, 1.0) as spawn:
        process = spawn("leave_in_an_outage")
        assert line_from(process) == "in reach"
        proxy.refuse()
        proxy.cut()
        tell(process)
        assert [line_from(process) for _ in range(2)] == ["True", "over"]
        assert process.wait(PATIENCE) == 0


@pytest.mark.fault(24)
@pytest.mark.parametrize(("waiters", "stop"), [(3, ""), (0, "stop")])
def test_an_interpreter_that_exits(waiters: int, stop: str, party: Spawn, zk: KazooClient, zk_path: str) -> None:
    """At exit the nodes go at once, with and without stop(), also those of daemon threads that wait."""
    process = party("leave", waiters, stop, session=LONG)
    assert line_from(process) == "held"
    lock = Lock(zk, zk_path)
    tell(process)
    assert lock.acquire(timeout=LONG / 2)
    lock.release()
    assert process.wait(20) == 0
    assert queued(zk, zk_path, 0)()


def at_exit(zookeeper: Server, zk_path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that leaves its holds to the end of the interpreter."""
    command = [sys.executable, "-m", "tests.faults.at_exit", zookeeper.hosts, zk_path, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE, check=False)


@pytest.mark.fault(247)
def test_what_is_finalized_at_exit(zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """Blocks of generators, and objects, that end after the exit handlers print nothing; no node stays."""
    ended = at_exit(zookeeper, zk_path)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("held\n", "", 0)
    assert not nodes(zk, zk_path)


def test_daemon_threads_at_exit(zookeeper: Server, zk_path: str) -> None:
    """Daemon threads that acquire as the interpreter exits print nothing."""
    ended = at_exit(zookeeper, zk_path, "acquires")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("held\n", "", 0)
