"""Servers do not outlive the process that started them, however it ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.helpers.processes import line_from, processes_of, python, wait_until_gone

START = """
import os, signal, subprocess, sys
from zkconcurrent.testing import Server
server = Server()
server.start()
"""


def test_exit_without_stop(tmp_path: Path) -> None:
    """A server that nobody stopped ends with the interpreter."""
    with python("-c", START, folder=tmp_path) as process:
        assert process.wait(60) == 0
    assert not any(tmp_path.iterdir())
    assert not processes_of(tmp_path)


KILLED_AT_ONCE = """
import os, signal, subprocess
from zkconcurrent.testing import Server
class Popen(subprocess.Popen):
    def __init__(self, command, **options):
        super().__init__(command, **options)
        if any("java" in word for word in command):
            os.kill(os.getpid(), signal.SIGKILL)
subprocess.Popen = Popen
Server().start()
"""
RUNS, KILLED_BEFORE = (f"{START}{more}print(flush=True); signal.pause()" for more in ("", "server.kill(); "))


@pytest.mark.parametrize(
    ("program", "how"),
    [(RUNS, signal.SIGKILL), (RUNS, signal.SIGTERM), (KILLED_BEFORE, signal.SIGKILL), (KILLED_AT_ONCE, None)],
    ids=["SIGKILL", "SIGTERM", "after the server", "while it starts"],
)
def test_killed(program: str, how: signal.Signals | None, tmp_path: Path) -> None:
    """A killed process leaves no server and no folder, also if it is killed as it makes the server's process."""
    with python("-c", program, folder=tmp_path) as process:
        if how is not None:
            line_from(process)
            process.send_signal(how)
        assert process.wait(60) == -(how or signal.SIGKILL)
        for folder in tmp_path.iterdir():
            wait_until_gone(folder)


FORK = """
child = os.fork()
if child == 0:
    sys.exit()
_, status = os.waitpid(child, 0)
print(status, server.command("ruok"), flush=True)
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print(flush=True)
signal.pause()
"""


def test_forked_child(tmp_path: Path) -> None:
    """A forked child neither stops its parent's server when it ends, nor keeps it running when it lives on."""
    with python("-c", START + FORK, folder=tmp_path) as process:
        assert line_from(process) == "0 imok"
        line_from(process)
        process.kill()
        process.wait(60)
        for folder in tmp_path.iterdir():
            wait_until_gone(folder)
