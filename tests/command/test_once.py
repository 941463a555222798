"""`--once-per`: one start in each period, on all machines together, whatever dies."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from contextlib import suppress

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.security import make_digest_acl

import zkconcurrent.aio
from tests.command.conftest import SESSION, Run, end_of
from tests.helpers.contenders import children
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import LockLostError
from zkconcurrent._command.holder import _as_command_error
from zkconcurrent._runtime.waiting import wait
from zkconcurrent._threads.base.lock_base import core_of
from zkconcurrent._threads.once_per import Job

HOUR = 3300


def mark(zk: KazooClient, path: str) -> bool:
    """Return whether the mark is there."""
    return zk.exists(f"{path}.once") is not None


def test_of_three_machines_one_runs(run: Run, zk: KazooClient, zk_path: str) -> None:
    """Three machines start the job in the same minute, also while the first one's job takes longer than the period."""
    with zkconcurrent.Lock(zk, zk_path):
        three = [run("--once-per", 1, zk_path, "--", "sh", "-c", "echo ran; sleep 1.5") for _ in range(3)]
        eventually(lambda: len(children(zk, zk_path)) == 4)
    found = sorted(end_of(each) for each in three)
    assert found == [(0, "", ""), (0, "", ""), (0, "ran\n", "")]


def test_the_next_period(run: Run, zk: KazooClient, zk_path: str) -> None:
    """Once the mark is as old as the period, the job runs again; until then a skip has the code that was asked for.

    Also if that is the code of a lock that was not got, for which `-E` asked for another one.
    """
    assert end_of(run("--once-per", HOUR, zk_path, "--", "echo", "ran"))[1] == "ran\n"
    assert end_of(run("--once-per", HOUR, "--skip-code", 9, zk_path, "--", "echo", "ran")) == (9, "", "")
    assert end_of(run("--once-per", HOUR, "--skip-code", 75, "-E", 3, zk_path, "--", "true")) == (75, "", "")
    assert end_of(run("--once-per", 0, zk_path, "--", "echo", "ran"))[1] == "ran\n"
    assert children(zk, zk_path) == []


@pytest.mark.parametrize("until_success", [False, True], ids=["at most once", "until success"])
@pytest.mark.parametrize("killed", [False, True], ids=["fails", "killed"])
def test_a_job_that_fails(run: Run, zk: KazooClient, zk_path: str, killed: bool, until_success: bool) -> None:
    """With --until-success it runs again until one run has ended with 0; else it is not made up for."""
    options = ["--once-per", HOUR, *["--until-success"] * until_success, zk_path, "--"]
    process = run(*options, "sh", "-c", "echo ready; read line; exit 3", stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    if killed:
        process.kill()
    assert end_of(process)[0] == (-signal.SIGKILL if killed else 3)
    assert mark(zk, zk_path) is not until_success
    for is_next in (True, False) if until_success else (False,):
        assert end_of(run(*options, "echo", "ran")) == (0, "ran\n" if is_next else "", "")
        assert mark(zk, zk_path)


@pytest.mark.parametrize("back", [False, True], ids=["out of reach", "an outage"])
def test_a_success_out_of_reach(run: Run, zk: KazooClient, zk_path: str, proxy: Proxy, back: bool) -> None:
    """The mark of a success waits for ZooKeeper as long as the hold lasts; if that was too short, a line says so."""
    far = f"zk://{proxy.hosts}?timeout={SESSION:g}"
    options = ["--on-lost", "ignore", "--once-per", HOUR, "--until-success", zk_path, "--"]
    process = run(*options, "sh", "-c", "echo ready; read line", stdin=subprocess.PIPE, url=far)
    assert process.stdout.readline() == "ready\n"
    proxy.refuse()
    proxy.cut()
    process.stdin.write("\n")
    process.stdin.flush()
    if back:
        # Longer than a release is waited for.
        time.sleep(1.3)
        proxy.resume()
    code, _, err = end_of(process)
    if back:
        assert (code, err) == (0, "")
    else:
        assert (code, "another run may not learn that the command has succeeded" in err) == (0, True)
    assert bool(mark(zk, zk_path)) == back


@pytest.mark.parametrize("lost", ["lose_answer", "lose_request"])
def test_the_reply_to_the_mark_is_lost(run: Run, zk: KazooClient, zk_path: str, proxy: Proxy, lost: str) -> None:
    """If the connection drops as the mark is written, it is written once, and the job runs once."""
    far = f"zk://{proxy.hosts}?timeout={SESSION:g}"
    # So that the lock's node is made by a request of its own.
    with zkconcurrent.Lock(zk, zk_path):
        pass
    fault = getattr(proxy, lost)("multi")
    process = run("--once-per", HOUR, zk_path, "--", "echo", "ran", url=far)
    fault.wait()
    assert end_of(process) == (0, "ran\n", "")
    _, stat = zk.get(f"{zk_path}.once")
    assert stat.version == 0
    assert end_of(run("--once-per", HOUR, zk_path, "--", "echo", "ran")) == (0, "", "")


@pytest.mark.fault(430)
def test_a_mark_that_takes_long(run: Run, zk: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """-w is for the lock: a run that has it in time starts its job, however long it takes to write the mark.

    No other run would: the mark says that the job of this period has started.
    """
    with zkconcurrent.Lock(zk, zk_path):
        pass
    written = proxy.hold("multi")
    process = run("--once-per", HOUR, "-w", 5, zk_path, "--", "echo", "ran", url=f"zk://{proxy.hosts}?timeout=20")
    written.wait()
    assert process.poll() is None
    # What waits for this test alone ends within the hold.
    with suppress(subprocess.TimeoutExpired):
        process.wait(6.2)
    written.release()
    assert end_of(process) == (0, "ran\n", "")


def test_a_lost_lock_marks_nothing(run: Run, zk: KazooClient, zk_path: str) -> None:
    """A success after the lock was lost does not count: 76, and no mark."""
    options = ["--once-per", HOUR, "--until-success", zk_path, "--"]
    process = run(*options, "sh", "-c", "echo ready; read line", stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    zk.delete(f"{zk_path}/{children(zk, zk_path)[0]}")
    assert process.communicate("\n")[1] != ""
    assert process.returncode == 76
    with pytest.raises(NoNodeError):
        zk.get(f"{zk_path}.once")


def test_a_loss_noticed_at_the_mark(zk: KazooClient, zk_path: str) -> None:
    """If the thread that writes the mark is the first to notice the loss, the end is 76, as for any other loss."""
    lock = zkconcurrent.RLock(zk, zk_path)
    lock.acquire()
    zk.delete(f"{zk_path}/{children(zk, zk_path)[0]}")
    with pytest.raises(LockLostError) as noticed:
        wait(*Job(HOUR, until_success=True).succeeded(core_of(lock)))
    assert _as_command_error(noticed.value).code == 76
    with pytest.raises(LockLostError):
        lock.release()


def test_the_same_job(run: Run, zk: KazooClient, zk_path: str) -> None:
    """The command, threads and tasks go by one mark, which tells each of them who ran last."""
    ran: list[str] = []

    async def of_tasks() -> zkconcurrent.Turn:
        async with zkconcurrent.aio.once_per(zk, zk_path, HOUR) as turn:
            return turn

    job = zkconcurrent.once_per(zk, zk_path, HOUR)(lambda: ran.append("thread"))
    command = run("--once-per", HOUR, zk_path, "--", "echo", "ran")
    assert end_of(command)[1] == "ran\n"
    with zkconcurrent.once_per(zk, zk_path, HOUR) as turn:
        assert not turn
    assert turn == asyncio.run(of_tasks())
    assert turn.last is not None
    assert f"'zkconcurrent run echo' of process {command.pid} on host" in turn.last.by
    zk.delete(f"{zk_path}.once")
    job()
    assert end_of(run("--once-per", HOUR, "--skip-code", 9, zk_path, "--", "echo", "ran"))[0] == 9
    assert ran == ["thread"]


@pytest.mark.parametrize("why", ["foreign", "refused"])
def test_what_is_no_mark(run: Run, zk: KazooClient, zk_path: str, why: str) -> None:
    """Where another program's node, or one that is hidden from this client, is in its place, the end names the mark."""
    acl = None if why == "foreign" else [make_digest_acl("me", "secret", all=True)]
    zk.create(f"{zk_path}.once", b"7 set", makepath=True, acl=acl)
    code, out, err = end_of(run("--once-per", HOUR, zk_path, "--", "echo", "ran"))
    assert (code, out) == (78 if why == "foreign" else 77, "")
    assert f"{zk_path}.once" in err
