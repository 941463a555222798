"""`--once-per`: one start in each period, on all machines together, whatever dies."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import zkconcurrent.aio
from tests.command.conftest import SESSION, Run, end_of
from tests.helpers.contenders import children
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy

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
def test_a_job_that_fails(run: Run, zk: KazooClient, zk_path: str, until_success: bool) -> None:
    """With --until-success it runs again until one run has ended with 0; else it is not made up for."""
    options = ["--once-per", HOUR, *["--until-success"] * until_success, zk_path, "--"]
    assert end_of(run(*options, "sh", "-c", "exit 3"))[0] == 3
    assert mark(zk, zk_path) is not until_success
    for is_next in (True, False) if until_success else (False,):
        assert end_of(run(*options, "echo", "ran")) == (0, "ran\n" if is_next else "", "")
        assert mark(zk, zk_path)


@pytest.mark.parametrize("back", [False, True], ids=["out of reach", "an outage"])
def test_a_success_out_of_reach(run: Run, zk: KazooClient, zk_path: str, proxy: Proxy, back: bool) -> None:
    """The mark of a success waits for ZooKeeper as long as the hold lasts; if that was too short, a line says so."""
    far = f"zk://{proxy.hosts}?timeout={30 if back else SESSION:g}"
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


@pytest.mark.fault(430)
def test_a_mark_that_takes_long(start: Run, zk: KazooClient, zk_path: str, proxy: Proxy, tmp_path: Path) -> None:
    """-w is for the lock: a run that has it in time starts its job, however long it takes to write the mark.

    No other run would: the mark says that the job of this period has started.
    """
    late = tmp_path / "late"
    script = (
        "import os, sys\n"
        "from zkconcurrent._command import main, run\n"
        "clock = run.boot_clock\n"
        "run.boot_clock = lambda: clock() + 1000 * os.path.exists(sys.argv[1])\n"
        "sys.exit(main.main(sys.argv[2:]))\n"
    )
    # So that the lock's node is made by a request of its own.
    with zkconcurrent.Lock(zk, zk_path):
        pass
    words = ["run", "--once-per", str(HOUR), "-w", "900", "--on-lost", "ignore", zk_path, "--", "echo", "ran"]
    with proxy.hold("multi") as mark:
        process = start(sys.executable, "-c", script, str(late), *words, url=f"zk://{proxy.hosts}?timeout=60")
        mark.wait()
        late.touch()
        # Longer than a turn of its loop, which looks at the clock.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
    assert end_of(process) == (0, "ran\n", "")


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
