"""Servers do not outlive the process that started them, however it ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.testing.processes import line_from, processes_of, python, wait_until_gone

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


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_killed(how: signal.Signals, tmp_path: Path) -> None:
    """A killed process leaves no server and no folder."""
    with python("-c", START + "print(server.hosts, flush=True); signal.pause()", folder=tmp_path) as process:
        assert line_from(process).startswith("127.0.0.1:")
        process.send_signal(how)
        process.wait(60)
        for folder in tmp_path.iterdir():
            wait_until_gone(folder)


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


def test_killed_while_it_starts(tmp_path: Path) -> None:
    """A process killed in the very moment it has made the server's process leaves none."""
    with python("-c", KILLED_AT_ONCE, folder=tmp_path) as process:
        assert process.wait(60) == -signal.SIGKILL
        for folder in tmp_path.iterdir():
            wait_until_gone(folder)


def test_killed_after_the_server(tmp_path: Path) -> None:
    """The folder of a server that was killed before goes as well."""
    with python("-c", START + "server.kill(); print(flush=True); signal.pause()", folder=tmp_path) as process:
        line_from(process)
        process.kill()
        process.wait(60)
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
        assert line_from(process) == "0 imok\n"
        line_from(process)
        process.kill()
        process.wait(60)
        for folder in tmp_path.iterdir():
            wait_until_gone(folder)
