"""`ls --watch` and `show --watch`: what changes is told, an outage is outlived, and the end is quiet."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.command.conftest import READS, Run, end_of
from tests.conftest import Connect, InThread
from tests.helpers.contenders import children, queued
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent.testing import Server

WATCH = ("--watch", "--interval", 0.1)


class Told:
    """What a process tells on a pipe, line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.lines: list[str] = []
        stream = process.stdout
        assert stream is not None
        threading.Thread(target=lambda: self.lines.extend(stream), daemon=True).start()

    def states(self) -> list[list[str]]:
        """Return the states of all contenders, of each document of JSON."""
        return [[each["state"] for each in json.loads(line)["contenders"]] for line in self.lines]


class Screen:
    """A terminal that a command has as its standard output, and what it has written there."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.text = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                self.text += os.read(self.master, 65536).decode().replace("\r\n", "\n")
            except OSError:
                return

    def frames(self) -> list[list[str]]:
        """Return the lines of each whole frame."""
        end = "\x1b[J\x1b[?7h"
        return [
            frame.removesuffix(end).replace("\x1b[K", "").replace("\x1b[?7l", "").splitlines()
            for frame in self.text.split("\x1b[H")[1:]
            if frame.endswith(end)
        ]

    def close(self) -> None:
        """Close the terminal."""
        os.close(self.slave)
        os.close(self.master)


@pytest.fixture
def screen() -> Iterator[Screen]:
    """A terminal."""
    with closing(Screen()) as screen:
        yield screen


def interrupt(process: subprocess.Popen[str]) -> None:
    """Interrupt a process, which ends quietly."""
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == -signal.SIGINT
    assert process.stderr.read() == ""


@pytest.mark.fault(310)
@pytest.mark.parametrize("command", ["ls", "show"])
def test_each_change(look: Run, zk: KazooClient, zk_path: str, proxy: Proxy, command: str) -> None:
    """With --json there is a line for each change and none without, also where the path goes; by reads alone."""
    zk.ensure_path(zk_path)
    lock = zkconcurrent.Lock(zk, zk_path)
    with proxy.counting() as count:
        process = look(command, zk_path, "--json", *WATCH, url=f"zk://{proxy.hosts}")
        told = Told(process)
        eventually(lambda: told.states() == [[]])
        lock.acquire()
        eventually(lambda: told.states() == [[], ["held"]])
        looks = sum(message.kind == "request" for message in count.trace)
        eventually(lambda: sum(message.kind == "request" for message in count.trace) > looks + 10)
        lock.release()
        eventually(lambda: told.states() == [[], ["held"], []])
        zk.delete(zk_path, recursive=True)
        lock.acquire()
        eventually(lambda: told.states() == [[], ["held"], [], ["held"]])
        lock.release()
        interrupt(process)
    assert {json.loads(line)["schema"] for line in told.lines} == {f"zkconcurrent.{command}/1"}
    requests = [message for message in count.trace if message.kind == "request"]
    assert {message.name for message in requests} <= READS


@pytest.mark.fault(310)
def test_a_reader_that_goes(look: Run, zk: KazooClient, zk_path: str) -> None:
    """A closed pipe ends the command at once, though nothing changes that it could write."""
    zk.ensure_path(zk_path)
    process = look("ls", zk_path, "--watch", "--interval", 1000, "--json")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == -signal.SIGPIPE
    assert process.stderr.read() == ""


def test_since_when_it_holds(look: Run, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A watch tells when it first saw a holder hold, also of one that was there before; this stays while it holds."""
    first, second = (zkconcurrent.Lock(client, zk_path) for client in (zk, connect()))
    first.acquire()
    waiting = in_thread(second.acquire)
    eventually(queued(zk, zk_path, 2))
    process = look("ls", zk_path, "--json", *WATCH)
    told = Told(process)
    eventually(lambda: told.states() == [["held", "waits"]])
    later = in_thread(lambda: second.acquire() and second.release())
    eventually(lambda: told.states()[1:] == [["held", "waits", "waits"]])
    first.release()
    assert waiting.result()
    # A look in between may have found that the first one was gone, before it saw that the second one holds.
    eventually(lambda: told.states()[-1] == ["held", "waits"])
    before, still, new = (json.loads(told.lines[n])["contenders"][0]["first_seen_holding"] for n in (0, 1, -1))
    assert before == still < new
    second.release()
    later.result()
    interrupt(process)


def test_a_terminal(look: Run, zk: KazooClient, zk_path: str, screen: Screen) -> None:
    """A terminal shows the newest look over the one before."""
    zk.ensure_path(zk_path)
    process = look("show", zk_path, *WATCH, stdout=screen.slave, env={"TERM": "xterm", "NO_COLOR": ""})
    title = f"\x1b[1mzkconcurrent show {zk_path}, every 0.1 s\x1b[m"
    eventually(lambda: [title, f"{zk_path} has no lock that anybody holds or waits for"] in screen.frames())
    with zkconcurrent.Lock(zk, zk_path):
        eventually(lambda: screen.frames()[-1][1:2] == [f"{zk_path}: Lock"])
    assert ", first seen to hold 0s ago, queued " in screen.text
    # Behind a line as wide as the terminal, this would erase the last character.
    assert "\x1b[K\n" not in screen.text
    interrupt(process)


@pytest.mark.parametrize("lines", [1, 3, 24])
def test_what_fits_a_terminal(look: Run, zk: KazooClient, zk_path: str, screen: Screen, lines: int) -> None:
    """It does not scroll: what is written has no more lines than it has, with that of the cursor."""
    for n in range(50):
        zk.create(f"{zk_path}/{n:02}/_c_9e1d9d52-b8a8-4b62-bc3b-{n:012}-lock-", b"", sequence=True, makepath=True)
    fcntl.ioctl(screen.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 80, 0, 0))
    process = look("ls", zk_path, *WATCH, stdout=screen.slave, env={"TERM": "xterm", "NO_COLOR": "1"})
    frame = eventually(lambda: screen.frames() and screen.frames()[-1])
    assert frame[0] == f"zkconcurrent ls {zk_path}, every 0.1 s"
    assert len(frame) == max(lines - 1, 1)
    assert screen.text.partition("\x1b[?7h")[0].count("\n") == lines - 1
    assert lines < 3 or frame[-1] == f"... {51 - (lines - 3)} more lines"
    interrupt(process)


# Later than now, by the command's clock.
LATER = """\
import sys, time
now = time.time
time.time = lambda: now() + 100_000
from zkconcurrent._command.main import main
sys.exit(main())
"""


@pytest.mark.fault(309)
def test_an_outage(look: Run, zk: KazooClient, zk_path: str, zookeeper: Server, proxy: Proxy) -> None:
    """An outage that ends the session is told once; then the command goes on."""
    zk.ensure_path(zk_path)
    sessions = zookeeper.mntr()["zk_global_sessions"]
    process = look("show", zk_path, "--json", *WATCH, url=f"zk://{proxy.hosts}?timeout=1")
    told = Told(process)
    eventually(lambda: told.states() == [[]])
    proxy.refuse()
    proxy.cut()
    assert process.stderr.readline().endswith("; it is asked again and again\n")
    eventually(lambda: zookeeper.mntr()["zk_global_sessions"] == sessions)
    with zkconcurrent.Lock(zk, zk_path):
        proxy.resume()
        eventually(lambda: told.states() == [[], ["held"]])
    eventually(lambda: told.states() == [[], ["held"], []])
    interrupt(process)


@pytest.mark.parametrize(("options", "red"), [((), [False, True, False]), (("--sort", "waiters"), [True, False])])
def test_eighty_columns(
    start: Run,
    zk: KazooClient,
    connect: Connect,
    zk_path: str,
    screen: Screen,
    in_thread: InThread,
    options: tuple[str, ...],
    red: list[bool],
) -> None:
    """On a terminal, each line fits; who waits for a lock for more than a minute is red, or his path."""
    fcntl.ioctl(screen.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    lock = zkconcurrent.Lock(zk, f"{zk_path}/a/{'deep/' * 20}lock", label="a label of some length")
    idle = zkconcurrent.Queue(zk, f"{zk_path}/idle")
    lock.acquire()
    other = zkconcurrent.Lock(connect(), lock.path)
    waits = [in_thread(other.acquire), in_thread(idle.get)]
    eventually(lambda: lock.waiters() != [] and children(zk, f"{idle.path}/consumers") != [])
    environment = {"TERM": "xterm", "NO_COLOR": "", "COLUMNS": "200"}
    command = (sys.executable, "-c", LATER, "ls", "-r", zk_path, *options)
    assert end_of(start(*command, stdout=screen.slave, env=environment)) == (0, None, "")
    eventually(lambda: screen.text.count("\n") == 1 + len(red))
    heads, *lines = screen.text.splitlines()
    assert [line.startswith("\x1b[31m") for line in lines] == red
    plain = [line.removeprefix("\x1b[31m").removesuffix("\x1b[m") for line in lines]
    assert all(len(line) <= 80 and "\x1b" not in line for line in [heads, *plain])
    assert all("  1d 3h  " in line for line in plain)
    lock.release()
    idle.put(b"item")
    for each in waits:
        each.result()
    other.release()
