"""`zkconcurrent run` as a process: started by a test, looked at from outside, ended with all that it has started."""

from __future__ import annotations

import json
import logging
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from zkconcurrent._command.arguments import parse, server_url
from zkconcurrent._command.holder import Holder
from zkconcurrent._command.main import main
from zkconcurrent._command.processes import descendants
from zkconcurrent.testing import Server

ROOT = Path(__file__).parents[2]
SESSION = 6.0
READS = {"getChildren", "getChildren2", "getData", "exists", "ping", "connect", "closeSession"}
Run = Callable[..., "subprocess.Popen[str]"]
End = tuple[int, str, str]  # the exit code, standard output and standard error
Call = Callable[..., End]
Acquire = Callable[..., tuple[int, str]]


def environment(url: str, **more: str) -> dict[str, str]:
    """Return the environment in which the command finds the server, and this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ZKCONCURRENT")}
    return {**kept, "ZKCONCURRENT_URL": url, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "", **more}


def words(*arguments: object) -> list[str]:
    """Return the command line of a `run`."""
    return [sys.executable, "-m", "zkconcurrent", "run", *map(str, arguments)]


@pytest.fixture
def url(zookeeper: Server) -> str:
    """The URL of the server."""
    return f"zk://{zookeeper.hosts}?timeout={SESSION:g}"


@pytest.fixture(autouse=True)
def _hang_ups() -> Iterator[None]:
    """Let what a test starts hear a hang-up, also where nohup runs the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def start(url: str) -> Iterator[Run]:
    """Start a program; options are those of `Popen`, and `url`. At its end, all that it has started is ended, too."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str, url: str = url, env: dict[str, str] | None = None, **options: Any) -> Any:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        process = subprocess.Popen(command, env=environment(url, **(env or {})), **options)
        started.append(process)
        return process

    yield start
    for process in started:
        there = [process.pid, *below(process.pid)]
        for number in (signal.SIGCONT, signal.SIGKILL):
            for pid in there:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        process.communicate()


@pytest.fixture
def run(start: Run) -> Run:
    """Start `zkconcurrent run` with some arguments."""

    def start_run(*arguments: object, **options: Any) -> Any:
        return start(*words(*arguments), **options)

    return start_run


@pytest.fixture
def shell(start: Run) -> Run:
    """Start a script of sh, in which `$RUN` is `zkconcurrent run`."""

    def start_shell(script: str, *arguments: object, **options: Any) -> Any:
        return start("sh", "-c", script, "sh", *map(str, arguments), env={"RUN": " ".join(words())}, **options)

    return start_shell


@pytest.fixture
def look(start: Run) -> Run:
    """Start `zkconcurrent` with some arguments."""

    def start_look(*arguments: object, **options: Any) -> Any:
        return start(sys.executable, "-m", "zkconcurrent", *map(str, arguments), **options)

    return start_look


@pytest.fixture
def call(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """Do a command line in this process, for a test of what a command says, to its end."""
    # What a command changes for good, as its process ends with it.
    handlers = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    loggers = [(each, each.propagate, each.handlers[:]) for each in map(logging.getLogger, ("kazoo", "zkconcurrent"))]

    def call(*arguments: object, url: str = url) -> End:
        monkeypatch.setenv("ZKCONCURRENT_URL", url)
        capsys.readouterr()
        try:
            code = main(list(map(str, arguments)))
        except SystemExit as error:  # as of argparse
            code = int(error.code or 0)
        return (code, *capsys.readouterr())

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)
    for logger, propagate, before in loggers:
        logger.propagate, logger.handlers[:] = propagate, before


@pytest.fixture
def acquire(url: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> Acquire:  # noqa: ARG001
    """Acquire and release in this process what a `run` holds; return the exit code, 0 if that was got, and why."""
    monkeypatch.setenv("ZKCONCURRENT_URL", url)

    def acquire(*arguments: object) -> tuple[int, str]:
        found = parse(["run", *map(str, arguments), "--", "true"])
        posts: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        holder = Holder(found, server_url(found), math.inf, lambda *post: posts.put(post))
        holder.start()
        while (post := posts.get(timeout=60))[0] not in ("failed", "finished"):
            holder.finish(success=True)
        return (post[1].code, str(post[1])) if post[0] == "failed" else (0, "")

    return acquire


def document(end: End, code: int = 0) -> dict[str, Any]:
    """Return the JSON that a command has written, and nothing else."""
    ended, out, err = end
    assert (ended, err) == (code, "")
    found: dict[str, Any] = json.loads(out)
    return found


def end_of(process: subprocess.Popen[str], timeout: float = 60) -> End:
    """Wait for the end of a process; return its exit code, and what it has written."""
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def status_of(text: str) -> dict[str, Any]:
    """Return the line of JSON of `--status-fd`, which a test has sent to a file or pipe."""
    (line,) = [line for line in text.splitlines() if line.startswith('{"schema"')]
    found: dict[str, Any] = json.loads(line)
    return found


def below(pid: int) -> list[int]:
    """Return the processes below one, from its child on: of a `run`, first the guard, then the command."""
    return descendants(pid)
