"""`zkconcurrent run` at a terminal: the command has the terminal as if it were alone, and the shell its jobs."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.command.conftest import SESSION, below, environment, words
from tests.helpers.contenders import children
from tests.helpers.eventually import eventually
from tests.helpers.processes import is_there, state_of
from zkconcurrent.testing import Server

PROMPT = "PROMPT> "


class Terminal:
    """A bash with job control in a pseudo-terminal, and what it shows."""

    def __init__(self, url: str) -> None:
        self.pid, self.descriptor = pty.fork()
        if not self.pid:
            # Without readline, what is typed is shown once, as the terminal echoes it.
            variables = environment(url, PS1=PROMPT, RUN=" ".join(words()), LESS="", TERM="dumb")
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], variables)
        self.text = ""
        self.expect(re.escape(PROMPT))

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self.descriptor, text.encode())

    def expect(self, pattern: str, patience: float = 30) -> re.Match[str]:
        """Wait until the terminal shows something; what was shown before it is over."""
        # Other programs may have written the beginning of the line.
        pattern = re.sub(r"^\^", r"(?:^|> |\\^C)", pattern)
        until = time.monotonic() + patience
        while not (found := re.search(pattern, self.text, re.MULTILINE)):
            left = until - time.monotonic()
            ready, _, _ = select.select([self.descriptor], [], [], max(0, left))
            assert ready, f"no {pattern!r} in {self.text!r}"
            self.text += os.read(self.descriptor, 65536).decode(errors="replace").replace("\r", "")
        self.text = self.text[found.end() :]
        return found

    def resume(self) -> None:
        """Have the stopped job go on; wait until it has the terminal, as bash drops what was typed before."""
        self.run("fg")
        eventually(lambda: os.tcgetpgrp(self.descriptor) != os.getpgid(self.pid))

    def run(self, line: str) -> None:
        """Type a line that runs something."""
        self.type(f"{line}\n")
        # What the terminal echoes is no output.
        self.expect(re.escape(line[-40:]) + "\n")

    def code(self) -> int:
        """Return the exit code of the last command, after its end."""
        self.type("echo code=$?\n")
        self.expect(r"echo code=\$\?\n")
        return int(self.expect(r"^code=(\d+)$")[1])

    def close(self) -> None:
        """End the shell and all that it has started."""
        there = [self.pid, *below(self.pid)]
        for number in (signal.SIGCONT, signal.SIGKILL):
            for pid in there:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
        os.close(self.descriptor)
        os.waitpid(self.pid, 0)


@pytest.fixture
def url(zookeeper: Server) -> str:
    """The URL of the server, with sessions that outlive a test: a node that goes was deleted."""
    return f"zk://{zookeeper.hosts}?timeout=60"


@pytest.fixture
def terminal(url: str) -> Iterator[Terminal]:
    """A shell at a terminal."""
    terminal = Terminal(url)
    yield terminal
    terminal.close()


def test_an_interrupt(terminal: Terminal, zk_path: str) -> None:
    """Ctrl-C ends the command, and a shell's loop with it; one that the command handles ends nothing."""
    terminal.run(f"for n in 1 2 3; do $RUN {zk_path} -- sh -c 'echo ready $0; exec sleep 1000' $n; done")
    terminal.expect("^ready 1$")
    terminal.type("\x03")
    terminal.expect(re.escape(PROMPT))
    assert terminal.code() == 130
    script = 'trap "echo caught; exit 4" INT; echo ready; while :; do sleep 0.1; done'
    terminal.run(f"$RUN {zk_path} -- bash -c '{script}'")
    terminal.expect("^ready$")
    terminal.type("\x03")
    # Once: not by us, too.
    assert "caught" not in terminal.expect("^caught\n((?:.|\n)*)" + re.escape(PROMPT))[1]
    assert terminal.code() == 4


def test_a_stop(terminal: Terminal, zk: KazooClient, zk_path: str) -> None:
    """Ctrl-Z stops the job; `fg` lets it go on, with the terminal, while the lock is held."""
    terminal.run(f"$RUN {zk_path} -- bash -c 'echo ready $PPID; while read line; do echo got $line; done; exit 5'")
    guard = int(terminal.expect(r"^ready (\d+)$")[1])
    for word in ("one", "two"):
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.expect(re.escape(PROMPT))
        assert all(state_of(pid) == "T" for pid in below(guard))
        assert len(children(zk, zk_path)) == 1
        terminal.resume()
        terminal.type(f"{word}\n")
        terminal.expect(f"^got {word}$")
    terminal.type("\x04")
    terminal.expect(re.escape(PROMPT))
    assert terminal.code() == 5


def test_a_stop_in_a_script(terminal: Terminal, zk_path: str, tmp_path: os.PathLike[str]) -> None:
    """Ctrl-Z in a script stops the script as well, as if the command were in its group."""
    script = os.path.join(tmp_path, "script")
    with open(script, "w") as file:
        file.write(f"$RUN {zk_path} -- bash -c 'echo ready; while read line; do echo got $line; done'\necho after $?\n")
    terminal.run(f"sh {script}")
    terminal.expect("^ready$")
    for word in ("one", "two"):
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.expect(re.escape(PROMPT))
        terminal.resume()
        terminal.type(f"{word}\n")
        terminal.expect(f"^got {word}$")
    terminal.type("\x04")
    terminal.expect("^after 0$")


@pytest.mark.fault(297)
def test_a_stop_that_outlasts_the_lease(terminal: Terminal, zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """A job that is stopped for too long loses the lock, and the command never goes on: 76 after `fg`."""
    short = f"--url zk://{zookeeper.hosts}?timeout={SESSION}"
    terminal.run(f"$RUN {short} {zk_path} -- bash -c 'echo ready; read line; echo got $line'")
    terminal.expect("^ready$")
    terminal.type("\x1a")
    terminal.expect(re.escape(PROMPT))
    with zkconcurrent.Lock(zk, zk_path):
        terminal.run("fg")
        terminal.expect("lost|lease")
        terminal.expect(re.escape(PROMPT))
    assert terminal.code() == 76


def test_a_stop_while_it_waits(terminal: Terminal, zk: KazooClient, zk_path: str) -> None:
    """Ctrl-Z stops a run that waits; `fg` lets it wait on."""
    with zkconcurrent.Lock(zk, zk_path):
        terminal.run(f"$RUN {zk_path} -- echo ran")
        eventually(lambda: len(children(zk, zk_path)) == 2)
        terminal.type("\x1a")
        terminal.expect("Stopped")
        terminal.expect(re.escape(PROMPT))
        terminal.run("fg")
    terminal.expect("^ran$")
    assert terminal.code() == 0


def test_in_the_background(terminal: Terminal, zk_path: str) -> None:
    """In the background the command runs; if it reads the terminal, the job is stopped, and `fg` lends it that."""
    terminal.run(f"$RUN {zk_path} -- bash -c 'echo ready; read line; echo got $line' &")
    terminal.expect("^ready$")
    deadline = time.monotonic() + 30
    while True:
        terminal.run("jobs")
        if "Stopped" in terminal.expect(r"(.*)\n" + re.escape(PROMPT))[1]:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    terminal.resume()
    terminal.type("word\n")
    terminal.expect("^got word$")
    assert terminal.code() == 0


@pytest.mark.fault(433)
def test_left_in_the_background(terminal: Terminal, zk: KazooClient, zk_path: str) -> None:
    """Where no shell lets it go on, a read of the terminal ends the command: it stops no more."""
    terminal.run(f"(set -m; $RUN {zk_path} -- sh -c 'echo ready; read line </dev/tty; sleep 1000' &)")
    terminal.expect("^ready$")
    eventually(lambda: not children(zk, zk_path))


def test_in_a_pipeline(terminal: Terminal, zk: KazooClient, zk_path: str) -> None:
    """A pager keeps the terminal; when it ends, the command ends by SIGPIPE, and the lock is free."""
    terminal.run(f"$RUN {zk_path} -- yes line of text | less")
    terminal.expect("RETURN")
    terminal.type("\n")
    terminal.expect("line of text$")
    assert len(children(zk, zk_path)) == 1
    terminal.type("q")
    terminal.expect(re.escape(PROMPT))
    eventually(lambda: not children(zk, zk_path))


@pytest.mark.parametrize("killed", ["run", "guard", "command"])
def test_a_kill_leaves_the_terminal_to_the_shell(terminal: Terminal, zk_path: str, killed: str) -> None:
    """Whichever process is killed: the job is over, nothing is left, and the shell reads the terminal again."""
    terminal.run(f"set -m; $RUN {zk_path} -- bash -c 'echo ready $$ $PPID; read line'")
    command, guard = map(int, terminal.expect(r"^ready (\d+) (\d+)$").groups())
    (runner,) = [pid for pid in below(terminal.pid) if guard in below(pid)]
    os.kill({"run": runner, "guard": guard, "command": command}[killed], signal.SIGKILL)
    terminal.expect(re.escape(PROMPT))
    # Until it is killed, its read that has begun would take what is typed.
    eventually(lambda: not is_there(command))
    assert terminal.code() == 137
