"""Whatever becomes of the three processes, or of the server: the command ends before the lock can be another's."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.command.conftest import SESSION, Run, below, end_of, status_of, words
from tests.helpers.contenders import children
from tests.helpers.eventually import eventually
from tests.helpers.processes import is_there, state_of
from tests.helpers.proxy import Proxy
from zkconcurrent._command.arguments import parse
from zkconcurrent._command.holder import Holder
from zkconcurrent.testing import Server

# A command that leaves a daemon in another session, and another process in its own group, and ignores what it can.
STUBBORN = "trap '' TERM INT HUP; setsid sleep 1000 & sleep 1000 & echo ready; while :; do sleep 0.1; done"


def began(process: subprocess.Popen[str]) -> list[int]:
    """Wait until the command has begun; return all processes: the guard, the command, and what it has started."""
    assert process.stdout.readline() == "ready\n"
    return below(process.pid)


@pytest.fixture
def long(zookeeper: Server) -> str:
    """The URL of the server, with sessions that outlive a test: what ends does so before its lease."""
    return f"zk://{zookeeper.hosts}?timeout=60"


@pytest.mark.fault(296)
@pytest.mark.parametrize("killed", ["run", "guard", "command"])
def test_one_is_killed(run: Run, zk: KazooClient, zk_path: str, long: str, killed: str) -> None:
    """Kill `run` or the guard: all processes end at once. Kill the command: the lock waits for what it left behind."""
    process = run(zk_path, "--", "sh", "-c", STUBBORN, url=long)
    guard, command, *rest = began(process)
    assert len(rest) >= 2
    os.kill({"run": process.pid, "guard": guard, "command": command}[killed], signal.SIGKILL)
    if killed == "command":
        assert "has left behind" in process.stderr.readline()  # type: ignore[union-attr]
        assert len(children(zk, zk_path)) == 1
        for pid in below(process.pid)[1:]:
            # A `sleep 0.1` ends by itself.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert end_of(process)[0] == 128 + signal.SIGKILL
    eventually(lambda: not any(map(is_there, [guard, command, *rest])), "all have ended")
    if killed == "guard":
        code, _, err = end_of(process)
        assert (code, "the guard was killed" in err) == (128 + signal.SIGKILL, True)
    if killed != "run":
        eventually(lambda: not children(zk, zk_path))


LEFT = "setsid sleep 1000 >/dev/null 2>&1 & echo ready"


def what_is_left(process: subprocess.Popen[str]) -> int:
    """Wait until only what the command has left behind is there; return its process id."""
    return int(process.stderr.readline().rpartition(": ")[2].split()[0])


@pytest.mark.fault(296)
@pytest.mark.parametrize(("ended", "code"), [("run", -signal.SIGKILL), ("guard", 0), ("lock", 76)])
def test_an_end_after_the_command(run: Run, zk: KazooClient, zk_path: str, long: str, ended: str, code: int) -> None:
    """What the command has left behind ends, too, if `run` or the guard is killed, or the lock is lost."""
    process = run(zk_path, "--", "sh", "-c", LEFT, url=long)
    left = what_is_left(process)
    if ended == "lock":
        zk.delete(f"{zk_path}/{children(zk, zk_path)[0]}")
    else:
        os.kill(process.pid if ended == "run" else below(process.pid)[0], signal.SIGKILL)
    eventually(lambda: not is_there(left))
    assert end_of(process)[0] == code


@pytest.mark.fault(298)
def test_it_is_lost_before_the_command_begins(start: Run, zk: KazooClient, zk_path: str) -> None:
    """A lock that is lost between the grant and the start starts nothing: 76."""
    script = (
        "import sys; from zkconcurrent._command import holder, main\n"
        "holder.Holder.lease = lambda self: (0.0, 6.0)\n"
        "sys.exit(main.main())"
    )
    process = start(sys.executable, "-c", script, "run", zk_path, "--", "echo", "ran")
    code, out, err = end_of(process)
    assert (code, out, "before the command began" in err, children(zk, zk_path)) == (76, "", True, [])


@pytest.mark.fault(297)
def test_run_is_stopped(run: Run, zk: KazooClient, zk_path: str) -> None:
    """While `run` is stopped, the guard ends the command before the session's end lets another in; then 76."""
    process = run(zk_path, "--", "sh", "-c", STUBBORN)
    guard, *others = began(process)
    lock = zkconcurrent.Lock(zk, zk_path)
    process.send_signal(signal.SIGSTOP)
    with lock:
        assert not any(map(is_there, others))
    process.send_signal(signal.SIGCONT)
    code, _, err = end_of(process)
    assert (code, "lease" in err) == (76, True)
    assert not is_there(guard)


def test_the_guard_is_stopped(run: Run, zk_path: str, long: str) -> None:
    """`run` lets a stopped guard go on at once."""
    process = run(zk_path, "--", "sh", "-c", "echo ready; cat", stdin=subprocess.PIPE, url=long)
    guard, *_ = began(process)
    os.kill(guard, signal.SIGSTOP)
    eventually(lambda: state_of(guard) != "T")
    assert end_of(process) == (0, "", "")


def test_the_command_is_stopped(run: Run, zk: KazooClient, zk_path: str, long: str) -> None:
    """A command that an operator has stopped keeps the lock: `run`, which renews it, does not stop as well."""
    process = run(zk_path, "--", "sh", "-c", "echo ready; sleep 0.1; exit 4", url=long)
    _, command, *_ = began(process)
    os.kill(command, signal.SIGSTOP)
    eventually(lambda: state_of(command) == "T")
    time.sleep(1)
    assert state_of(process.pid) != "T"
    assert zkconcurrent.Lock(zk, zk_path).locked()
    os.kill(command, signal.SIGCONT)
    assert end_of(process)[0] == 4


@pytest.fixture
def far(proxy: Proxy) -> str:
    """The URL of the server, over a network that fails on command."""
    return f"zk://{proxy.hosts}?timeout={SESSION:g}"


@pytest.mark.fault(297)
@pytest.mark.parametrize("on_lost", ["term", "kill"])
def test_cut_off(run: Run, zk: KazooClient, zk_path: str, proxy: Proxy, far: str, on_lost: str) -> None:
    """Cut off from ZooKeeper, the command gets TERM (or not), then KILL, before another client can hold the lock."""
    script = "trap 'echo caught' TERM; echo ready; while :; do sleep 0.1; done"
    process = run("--on-lost", on_lost, zk_path, "--", "sh", "-c", script, url=far)
    _, command, *_ = began(process)
    proxy.stall()
    with zkconcurrent.Lock(zk, zk_path):
        assert not is_there(command)
    code, out, err = end_of(process)
    assert (code, "caught" in out, "ended before the lease" in err) == (76, on_lost == "term", True)


@pytest.mark.fault(302)
@pytest.mark.usefixtures("call")
def test_a_server_that_grants_a_longer_timeout(zk_path: str) -> None:
    """With a timeout below the server's shortest, the guard's times are parts of that: it sees no lease about to end.

    A hold is to survive an outage of half of what was asked for, and a quarter of the server's may be as long.
    """
    found, posts = parse(["run", zk_path, "--", "true"]), SimpleQueue[tuple[Any, ...]]()
    with Server(tick_time=2.0) as server:
        holder = Holder(found, f"zk://{server.hosts}?timeout=2", math.inf, lambda *post: posts.put(post))
        holder.start()
        for word in ("acquired", "finished"):
            while posts.get(timeout=60)[0] != word:
                pass
            assert holder.lease()[1] == 2.0
            holder.finish(success=True)


def test_on_lost_ignore(run: Run, zk: KazooClient, zk_path: str) -> None:
    """With `--on-lost ignore` the command goes on without the lock; a line says so, and its own code is passed on."""
    process = run("--on-lost", "ignore", zk_path, "--", "sh", "-c", "echo ready; cat; exit 3", stdin=subprocess.PIPE)
    began(process)
    zk.delete(f"{zk_path}/{children(zk, zk_path)[0]}")
    with zkconcurrent.Lock(zk, zk_path):
        pass
    time.sleep(SESSION / 2)
    code, out, err = end_of(process)
    # It was not started a second time.
    assert (code, out, "node_deleted" in err) == (3, "", True)


def test_the_node_is_deleted(run: Run, zk: KazooClient, zk_path: str) -> None:
    """If an operator deletes the node, the next heartbeat finds that, and the command is ended: 76, with the cause."""
    read, write = os.pipe()
    process = run("--status-fd", write, zk_path, "--", "sh", "-c", "echo ready; exec cat", stdin=-1, pass_fds=[write])
    os.close(write)
    began(process)
    zk.delete(f"{zk_path}/{children(zk, zk_path)[0]}")
    assert process.wait(timeout=60) == 76
    with os.fdopen(read) as text:
        found = status_of(text.read())
    assert (found["outcome"], found["code"], found["cause"]) == ("lost", 76, "node_deleted")


def test_a_term_of_the_user_is_not_followed_by_kill(run: Run, zk_path: str) -> None:
    """A command may take its time after a user's TERM, however short `--kill-after` is."""
    script = "trap 'sleep 0.5; echo done; exit 8' TERM; echo ready; while :; do sleep 0.05; done"
    process = run("--kill-after", 0.1, zk_path, "--", "sh", "-c", script)
    began(process)
    process.terminate()
    assert end_of(process)[:2] == (8, "done\n")


def test_out_of_reach_at_the_end(run: Run, zk_path: str, proxy: Proxy) -> None:
    """If ZooKeeper is out of reach when the command ends, `run` waits for its release for a second, no longer."""
    far = f"zk://{proxy.hosts}?timeout=60"
    process = run(zk_path, "--", "sh", "-c", "echo ready; read line; exit 6", url=far, stdin=subprocess.PIPE)
    began(process)
    proxy.stall()
    # Long before its lease ends.
    assert end_of(process, timeout=25)[0] == 6


def test_as_process_1(start: Run, zk_path: str, zk: KazooClient) -> None:
    """As number 1 of a container it forwards signals, reaps all orphans, and passes the code on."""
    script = "trap 'exit 5' TERM; (sleep 0.1 &); echo ready $PPID; while :; do sleep 0.05; done"
    process = start("unshare", "-pf", "--mount-proc", *words(zk_path, "--", "sh", "-c", script))
    assert process.stdout.readline().startswith("ready ")
    runner = below(process.pid)[0]
    os.kill(runner, signal.SIGTERM)
    assert end_of(process)[:2] == (5, "")
    assert children(zk, zk_path) == []


@pytest.mark.fault(431)
def test_a_command_of_another_user(start: Run, zk: KazooClient, zk_path: str) -> None:
    """If the command can't be signalled, as by sudo, a message says so, and who may hold the lock once that is lost."""
    script = (
        "import os, sys\n"
        "def refuse(*_): raise PermissionError(1, 'Operation not permitted')\n"
        "os.killpg = refuse\n"
        "from zkconcurrent._command.main import main\n"
        "sys.exit(main())\n"
    )
    command = ["run", zk_path, "--", "sh", "-c", "echo ready; read line; exit 3"]
    process = start(sys.executable, "-c", script, *command, stdin=subprocess.PIPE)
    began(process)
    zk.delete(f"{zk_path}/{children(zk, zk_path)[0]}")
    told = process.stderr.readline()
    assert "is another user's" in told
    assert "others may hold the lock meanwhile" in told
    process.communicate("\n")
    assert process.returncode == 76


@pytest.mark.fault(435)
def test_where_proc_shows_others(start: Run, zk_path: str, zk: KazooClient) -> None:
    """What the command has left behind keeps the lock; no process of another namespace is named."""
    process = start("unshare", "-pf", *words(zk_path, "--", "sh", "-c", "setsid sleep 1.5 >/dev/null 2>&1 &"))
    assert process.stderr.readline().endswith("until what it has left behind has\n")
    assert len(children(zk, zk_path)) == 1
    assert end_of(process) == (0, "", "")
    assert children(zk, zk_path) == []
