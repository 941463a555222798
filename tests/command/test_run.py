"""`zkconcurrent run`: what it locks, for how long, what the command is given, and the exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

import zkconcurrent
from tests.command.conftest import Acquire, Run, below, end_of, status_of, words
from tests.helpers.contenders import children
from tests.helpers.eventually import eventually
from tests.helpers.processes import is_there
from zkconcurrent.testing import Server


@pytest.fixture
def url(zookeeper: Server) -> str:
    """The URL of the server, with sessions that outlive a test: a node that goes was deleted."""
    return f"zk://{zookeeper.hosts}?timeout=60"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "exit 255"], 255),
        (["sh", "-c", "kill -TERM $$"], 128 + signal.SIGTERM),
        # So that a shell ends its loop.
        (["sh", "-c", "kill -INT $$"], -signal.SIGINT),
        (["no-such-command"], 127),
        ([""], 127),
        (["/etc/passwd"], 126),
    ],
    ids=str,
)
def test_the_code_is_that_of_the_command(
    run: Run, zk: KazooClient, zk_path: str, command: list[str], code: int
) -> None:
    """A command's exit code is passed on, nothing else is written, and the lock is free again."""
    ended, out, err = end_of(run(zk_path, "--", *command))
    assert (ended, out) == (code, "")
    assert (err == "") == (code not in (126, 127))
    eventually(lambda: not children(zk, zk_path))


def test_without_a_server(run: Run, zk_path: str) -> None:
    """Without a URL it is a wrong use; with -w and no server it ends in time, with 69."""
    assert end_of(run(zk_path, "--", "true", url=""))[0] == 64
    # Longer than a busy machine takes to start it: the message tells what the first attempt came to.
    code, _, err = end_of(run("-w", 5, zk_path, "--", "true", url="zk://127.0.0.1:1"))
    assert code == 69
    assert err.startswith("zkconcurrent: ZooKeeper did not answer in time: 127.0.0.1:1: Connection refused")


def test_the_command_s_own(run: Run, zk_path: str) -> None:
    """Standard input and output are the command's, and so are other descriptors; the environment tells of the hold."""
    read, write = os.pipe()
    command = "cat; echo more >/dev/fd/$0; echo oops >&2; echo $ZKCONCURRENT_PATH $ZKCONCURRENT_TOKEN"
    process = run(zk_path, "--", "sh", "-c", command, str(write), stdin=subprocess.PIPE, pass_fds=[write])
    os.close(write)
    out, err = process.communicate("some text\n", timeout=60)
    first, _, last = out.partition("\n")
    assert (first, err) == ("some text", "oops\n")
    assert last.split()[0] == zk_path
    assert int(last.split()[1]) > 0
    with os.fdopen(read) as rest:
        assert rest.read() == "more\n"


@pytest.mark.parametrize(
    "given",
    [
        # As cron has it.
        {"SHELL": "/bin/sh", "HOME": "/", "LOGNAME": "root"},
        {"LC_ALL": "C"},
        # No UTF-8, and other odd values.
        {"LANG": "C.UTF-8", "E": "", "X": "a\nb=c", "Y": "\udcff"},
    ],
)
def test_the_caller_s_environment(url: str, zk_path: str, given: dict[str, str]) -> None:
    """The command has the environment that `run` got, and its own three variables, in any locale.

    Python sets LC_CTYPE for itself.
    """
    command = [sys.executable, "-m", "zkconcurrent", "run", "--url", url, zk_path, "--", "/usr/bin/env", "-0"]
    out = subprocess.run(command, env=given, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    found = dict(os.fsdecode(entry).split("=", 1) for entry in out.split(b"\0") if entry)
    assert {found.pop(f"ZKCONCURRENT_{name}") for name in ("PATH", "TOKEN", "HELD")} >= {zk_path}
    assert found == given


def test_it_excludes_a_lock(run: Run, zk: KazooClient, zk_path: str) -> None:
    """`run` and `Lock` exclude each other, in order; the node names the host, the process, and the command."""
    with zkconcurrent.Lock(zk, zk_path) as _:
        waiting = run(zk_path, "--", "echo", "ran")
        (waiter,) = eventually(lambda: zkconcurrent.Lock(zk, zk_path).waiters())
        assert waiter.pid == waiting.pid
        assert waiter.thread == "zkconcurrent run echo"
        assert waiting.poll() is None
    assert end_of(waiting) == (0, "ran\n", "")


def test_not_in_time(run: Run, zk: KazooClient, zk_path: str) -> None:
    """With -n, or after -w, the code is 75, or what -E says, silently; the command does not run; no node is left."""
    lock = zkconcurrent.Lock(zk, zk_path)
    with lock:
        tries = [
            run("-n", zk_path, "--", "echo"),
            run("-w", 0.2, zk_path, "--", "echo"),
            run("-n", "-E", 1, zk_path, "--", "echo"),
        ]
        # A busy machine may not even be connected in time.
        for each, codes in zip(tries, ([75, 69], [75, 69], [1, 69]), strict=True):
            code, out, _ = end_of(each)
            assert (code in codes, out) == (True, "")
        eventually(lambda: len(children(zk, zk_path)) == 1)


@pytest.mark.fault(430)
def test_a_wait_during_which_the_machine_slept(start: Run, zk: KazooClient, zk_path: str, tmp_path: Path) -> None:
    """The time that the machine has slept counts for -w: a job of long ago does not start."""
    slept = tmp_path / "slept"
    script = (
        "import os, sys\n"
        "from zkconcurrent._command import processes\n"
        "awake = processes.boot_clock\n"
        "processes.boot_clock = lambda: awake() + 1000 * os.path.exists(sys.argv[1])\n"
        "from zkconcurrent._command import main\n"
        "sys.exit(main.main(sys.argv[2:]))\n"
    )
    with zkconcurrent.Lock(zk, zk_path):
        process = start(sys.executable, "-c", script, str(slept), "run", "-w", "900", zk_path, "--", "echo", "ran")
        eventually(lambda: len(children(zk, zk_path)) == 2)
        slept.touch()
    assert end_of(process) == (75, "", "")
    eventually(lambda: children(zk, zk_path) == [])


def test_what_is_taken(acquire: Acquire, zk: KazooClient, zk_path: str) -> None:
    """-s are the readers and -x the writers of a ReadWriteLock; --permits takes one of as many; 75 if it is taken.

    A path of another kind, or a semaphore of another number, is 78, both ways; what ZooKeeper refuses is 77.
    """
    pair, semaphore = zkconcurrent.ReadWriteLock(zk, f"{zk_path}/p"), zkconcurrent.Semaphore(zk, f"{zk_path}/s", 2)
    with pair.read_lock:
        assert [acquire("-n", kind, pair.path)[0] for kind in ("-s", "-x")] == [0, 75]
    with pair.write_lock:
        assert acquire("-n", "-s", pair.path)[0] == 75
    assert acquire("-n", "-x", pair.path)[0] == 0
    with semaphore:
        assert acquire("-n", "--permits", 2, semaphore.path)[0] == 0
        with semaphore:
            assert acquire("-n", "--permits", 2, semaphore.path)[0] == 75
        code, says = acquire("--permits", 3, semaphore.path)
        assert (code, "value=2" in says) == (78, True)
        assert acquire(semaphore.path)[0] == 78
    with zkconcurrent.Lock(zk, f"{zk_path}/l"):
        for kind in ("-s", "-x"):
            code, says = acquire(kind, f"{zk_path}/l")
            assert (code, "another path" in says) == (78, True)
        assert acquire("-n", f"{zk_path}/l", f"{zk_path}/more")[0] == 75
    zk.create(f"{zk_path}/other", acl=[make_acl("digest", "other:xyz", all=True)])
    assert acquire(f"{zk_path}/other/a")[0] == 77
    # Paths below one another, and more permits than there can be.
    assert [acquire(*words)[0] for words in ((zk_path, f"{zk_path}/below"), ("--permits", 10**20, zk_path))] == [64, 64]


def test_several_paths(run: Run, zk: KazooClient, zk_path: str) -> None:
    """Several paths are held together, or none."""
    paths = [f"{zk_path}/{name}" for name in "ab"]
    process = run(*paths, "--", "sh", "-c", "echo $ZKCONCURRENT_PATH; echo $ZKCONCURRENT_TOKEN; cat", stdin=-1)
    assert process.stdout.readline().split() == paths
    assert len(process.stdout.readline().split()) == 2
    assert [len(children(zk, path)) for path in paths] == [1, 1]
    process.communicate(timeout=60)
    eventually(lambda: not any(children(zk, path) for path in paths))


# -- nested runs -----------------------------------------------------------------------------------------------------


def test_a_path_that_is_held_further_out(run: Run, zookeeper: Server, zk_path: str) -> None:
    """A run inside a run may not take the same path, at any depth, in any mode, by any name of the server."""
    other = f"zk://localhost:{zookeeper.hosts.rpartition(':')[2]}"
    inner = words(f"{zk_path}/b", "--", *words("--url", other, "-s", f"{zk_path}/a", "--", "echo"))
    code, out, err = end_of(run(f"{zk_path}/a", "--", *inner))
    assert (code, out) == (64, "")
    assert "is held by a `run` around this one" in err


def test_a_wait_inside_tells_what_is_held_outside(run: Run, zk: KazooClient, zk_path: str) -> None:
    """The node of a nested run that waits names the nodes of the runs around it, so that a deadlock can be seen."""
    outer, inner = f"{zk_path}/outer", f"{zk_path}/inner"
    with zkconcurrent.Lock(zk, inner):
        process = run(outer, "--", *words(inner, "--", "true"))
        (waiter,) = eventually(lambda: zkconcurrent.Lock(zk, inner).waiters())
        (held,) = children(zk, outer)
        assert waiter.holds == ((outer, held[3:39].replace("-", "")),)
        # The name is marked, so that a listing alone shows whose data tell something.
        assert waiter.node.rpartition("/")[2][27] == "8"
    assert end_of(process)[0] == 0


def test_the_variable_of_a_run_that_is_over(
    run: Run, acquire: Acquire, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run with -o has left behind may take the path again: nothing holds it; an odd value is ignored."""
    script = "echo $ZKCONCURRENT_HELD; sleep 1000 >/dev/null 2>&1 & echo $!"
    code, out, err = end_of(run("-o", zk_path, "--", "sh", "-c", script))
    held, left = out.splitlines()
    assert (code, err) == (0, "")
    assert is_there(int(left))
    os.kill(int(left), signal.SIGKILL)
    for value in (held, "odd"):
        monkeypatch.setenv("ZKCONCURRENT_HELD", value)
        assert acquire(zk_path) == (0, "")


# -- what the command leaves behind ------------------------------------------------------------------------------------


def test_the_lock_is_held_for_what_is_left(run: Run, zk: KazooClient, zk_path: str) -> None:
    """A daemon that left the session and the group of the command holds the lock on; a message says for whom."""
    process = run(zk_path, "--", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & exit 3")
    told = process.stderr.readline()
    assert "(sleep)" in told
    pid = int(told.rpartition(": ")[2].split()[0])
    assert len(children(zk, zk_path)) == 1
    os.kill(pid, signal.SIGKILL)
    assert end_of(process) == (3, "", "")
    assert children(zk, zk_path) == []


def test_a_signal_reaches_what_is_left(run: Run, zk_path: str) -> None:
    """Once the command has ended, a signal goes to what it has left behind, so that the run can be ended."""
    process = run(zk_path, "--", "sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &")
    assert "(sleep)" in process.stderr.readline()
    process.terminate()
    assert end_of(process) == (0, "", "")


def full_pipe() -> tuple[int, int]:
    """Return the ends of a pipe that takes no more."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with suppress(BlockingIOError):
        while True:
            os.write(write, b"line\n")
    os.set_blocking(write, True)
    return read, write


@pytest.mark.fault(434)
def test_nobody_reads_what_it_says(run: Run, zk_path: str) -> None:
    """While standard error is full, as behind a pager that waits, `run` goes on: it hears signals."""
    read, write = full_pipe()
    script = "exec >/dev/null 2>&1; sleep 1000 & echo $! >&3; trap '' TERM; sleep 1001 & echo $! >&3"
    process = run(zk_path, "--", "sh", "-c", f"exec 3>&1; {script}", stderr=write)
    os.close(write)
    left, stays = (int(process.stdout.readline()) for _ in range(2))
    tasks = len(os.listdir(f"/proc/{process.pid}/task"))
    # A second after the end of the command, a thread is to write what it has left behind.
    eventually(lambda: len(os.listdir(f"/proc/{process.pid}/task")) > tasks)
    process.terminate()
    eventually(lambda: not is_there(left))
    with os.fdopen(read) as text:
        assert any("(sleep)" in line for line in text)
    os.kill(stays, signal.SIGKILL)
    assert end_of(process) == (0, "", None)


# -- signals -----------------------------------------------------------------------------------------------------------


@pytest.mark.fault(362)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGALRM])
def test_a_signal_while_it_waits(run: Run, zk: KazooClient, zk_path: str, number: signal.Signals) -> None:
    """The signal ends the wait: the node is gone, no command starts, and the program dies of the signal.

    Signals that end no program, such as that of a terminal which changes its size, end no wait.
    """
    with zkconcurrent.Lock(zk, zk_path):
        process = run(zk_path, "--", "echo", "ran")
        eventually(lambda: len(children(zk, zk_path)) == 2)
        for each in (signal.SIGWINCH, signal.SIGURG, signal.SIGCONT, number):
            process.send_signal(each)
        assert end_of(process) == (-number, "", "")
        eventually(lambda: len(children(zk, zk_path)) == 1)


def test_no_command_starts_after_a_signal(run: Run, zk: KazooClient, zk_path: str) -> None:
    """If the signal and the grant come together, the signal counts: no command starts."""
    with zkconcurrent.Lock(zk, zk_path):
        process = run(zk_path, "--", "echo", "ran")
        eventually(lambda: len(children(zk, zk_path)) == 2)
        process.send_signal(signal.SIGSTOP)
        process.terminate()
    process.send_signal(signal.SIGCONT)
    assert end_of(process) == (-signal.SIGTERM, "", "")
    eventually(lambda: not children(zk, zk_path))


def test_a_signal_before_zookeeper_answers(run: Run, zk_path: str) -> None:
    """While there is no connection, a signal ends the run."""
    process = run(zk_path, "--", "echo", url="zk://127.0.0.1:1")
    eventually(lambda: below(process.pid), "the guard")
    process.terminate()
    code, out, _ = end_of(process)
    assert (code, out) == (-signal.SIGTERM, "")


def test_a_signal_while_the_command_runs(run: Run, zk_path: str) -> None:
    """Each signal goes to the command once, and never ends the run before the command ends."""
    numbers = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGWINCH, signal.SIGRTMIN]
    program = (
        "import os, signal, sys\n"
        "def note(number, frame):\n"
        "    os.write(1, b'%d\\n' % number)\n"
        "for each in sys.argv[1:]: signal.signal(int(each), note)\n"
        "print('ready', flush=True)\n"
        "while sys.stdin.readline(): pass\n"
        "sys.exit(5)\n"
    )
    process = run(zk_path, "--", sys.executable, "-c", program, *map(int, numbers), stdin=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    for number in numbers:
        process.send_signal(number)
        assert int(process.stdout.readline()) == number
    assert end_of(process)[:2] == (5, "")


def test_a_hangup_under_nohup(shell: Run, zk_path: str) -> None:
    """A signal that is ignored ends neither the run nor the command."""
    process = shell("trap '' HUP; exec $RUN $1 -- sh -c 'echo $$; read line; echo $line'", zk_path, stdin=-1)
    for pid in (int(process.stdout.readline()), process.pid):
        os.kill(pid, signal.SIGHUP)
    assert process.communicate("done\n", timeout=60)[0] == "done\n"
    assert process.returncode == 0


def test_no_signal_goes_to_the_caller(shell: Run, zk_path: str) -> None:
    """Neither a signal to the run nor the end of the command reaches another process of the caller's group."""
    process = shell(
        "trap 'echo caught' HUP INT QUIT TERM USR1\n"
        "$RUN $1 -- sh -c 'trap \"exit 9\" TERM; echo $PPID; while :; do sleep 0.05; done' &\n"
        "wait $!; echo $?",
        zk_path,
        start_new_session=True,
    )
    guard = int(process.stdout.readline())
    runner = int(Path(f"/proc/{guard}/stat").read_text().rpartition(")")[2].split()[1])
    assert os.getpgid(runner) == process.pid
    os.kill(runner, signal.SIGTERM)
    assert end_of(process)[:2] == (0, "9\n")


def test_the_status(run: Run, zk: KazooClient, zk_path: str) -> None:
    """--status-fd gets a line of JSON, which tells our codes from the command's; the command has no such descriptor."""

    def status(*arguments: object) -> dict[str, object]:
        read, write = os.pipe()
        process = run("--status-fd", write, *arguments, pass_fds=[write])
        os.close(write)
        with os.fdopen(read) as text:
            found = status_of(text.read())
        assert found["code"] == end_of(process)[0] % 256 or process.returncode < 0
        return found

    ended = status(zk_path, "--", "sh", "-c", "exit 75")
    assert (ended["outcome"], ended["code"], ended["signal"], ended["cause"]) == ("exited", 75, None, None)
    assert isinstance(ended["waited"], float)
    assert isinstance(ended["held"], float)
    assert int(ended["tokens"][zk_path]) > 0  # type: ignore[index]
    killed = status(zk_path, "--", "sh", "-c", "kill -KILL $$")
    assert (killed["outcome"], killed["code"], killed["signal"]) == ("signalled", 137, 9)
    with zkconcurrent.Lock(zk, zk_path):
        missed = status("-n", zk_path, "--", "true")
    assert (missed["outcome"], missed["code"], missed["held"], missed["tokens"]) == ("not_acquired", 75, None, {})


def test_a_script_without_an_interpreter_line(run: Run, zk_path: str, tmp_path: Path) -> None:
    """As env(1) and flock do, /bin/sh runs it, here found by PATH."""
    script = tmp_path / "job"
    script.write_text('echo "$0" "$@"; exit 3\n')
    script.chmod(0o755)
    process = run(zk_path, "--", "job", "a b", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert end_of(process) == (3, f"{script} a b\n", "")


@pytest.mark.fault(305)
def test_signals_that_are_blocked(run: Run, zk_path: str) -> None:
    """Signals blocked at the start stay so for the command, real-time ones too; its end is seen all the same."""
    blocked = {signal.SIGCHLD, signal.SIGUSR1, signal.SIGRTMIN + 3}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        process = run(zk_path, "--", "grep", "SigBlk", "/proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code, out, err = end_of(process)
    assert (code, err) == (0, "")
    assert int(out.split()[1], 16) == sum(1 << number - 1 for number in blocked)
