"""Python programs that a test starts, and their leftovers, seen from outside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zkconcurrent.testing import Server

ROOT = Path(__file__).parents[2]

Spawn = Callable[..., "subprocess.Popen[str]"]


@contextlib.contextmanager
def parties(module: str, hosts: str, path: str, session: float) -> Iterator[Spawn]:
    """Start processes that do a job at a path: `python -m module HOSTS SESSION_TIMEOUT PATH [ARGUMENTS]`."""
    with contextlib.ExitStack() as running:

        def spawn(*arguments: object, session: float = session) -> subprocess.Popen[str]:
            words = [hosts, session, path, *arguments]
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore::DeprecationWarning", "-m", module, *map(str, words)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            running.enter_context(process)  # closes its pipes and waits for it
            running.callback(process.kill)
            return process

        yield spawn


def spawning(module: str, session: float) -> Any:
    """Return a fixture that starts processes of a module, which do a job at the path of the test."""

    @pytest.fixture
    def spawn(zookeeper: Server, zk_path: str) -> Iterator[Spawn]:
        with parties(module, zookeeper.hosts, zk_path, session) as start:
            yield start

    return spawn


def tell(process: subprocess.Popen[str]) -> None:
    """Let the process go on."""
    process.stdin.write("\n")
    process.stdin.flush()


def run_python(*arguments: object, timeout: float = 60, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with some arguments, in the folder of the checkout unless told otherwise, to an end without error."""
    command, options = [sys.executable, *map(str, arguments)], {"cwd": ROOT, **options}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def in_forked_child(function: Callable[[], object]) -> None:
    """Call a function in a forked child, which must not fail there."""
    child = os.fork()
    if not child:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextlib.contextmanager
def python(*arguments: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run Python with some arguments; its temporary files go to a folder."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_from(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def state_of(pid: int) -> str:
    """Return the state of a process: S sleeps, T is stopped, Z has ended; X if it is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def is_there(pid: int) -> bool:
    """Return whether a process has not ended; one that nobody has waited for has."""
    return state_of(pid) not in "ZX"


def processes_of(folder: Path) -> list[str]:
    """The processes that name a folder among their arguments."""
    found = []
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            found.append(arguments.read_text(errors="replace").replace("\0", " "))
    return [line for line in found if str(folder) in line]


def wait_until_gone(folder: Path, timeout: float = 20) -> None:
    """Wait until neither the folder nor any process of it is left."""
    deadline = time.monotonic() + timeout
    while folder.exists() or processes_of(folder):
        assert time.monotonic() < deadline, f"still there: {folder} {processes_of(folder)}"
        time.sleep(0.02)
