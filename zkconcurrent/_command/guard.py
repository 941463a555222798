"""The guard: a process between `run` and its command, which ends the command in time, whatever becomes of `run`.

It is forked before there is any thread or connection, has a process group of its own, and blocks all signals but
SIGCHLD. It knows three things: the end of the lease, what `run` sends over a socket, and which of its children have
ended. So

* if `run` is stopped, hangs or is cut off, the guard ends the command before the lease ends, by its own clock;
* if `run` is killed, the socket closes, and the guard kills the command and all that it has started;
* if the guard is killed, the kernel kills the command, and `run`, which is a subreaper too, kills the rest.

The command runs in a third process group. The guard lends it the terminal, and takes the terminal back.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
from argparse import Namespace
from contextlib import suppress
from typing import Any, NoReturn

from . import processes
from .processes import boot_clock

# The longest pause, even while no lease runs: only a check shows that a process group has ended.
_POLL = 0.5  # seconds
_GROUP_POLL = 0.05  # seconds
_LEFT_AFTER = 1.0  # seconds
_MOST_NAMES = 5
# Python ignores these signals from its start; the command must not inherit that.
_OF_PYTHON = {signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)}


class Line:
    """One end of the socket between `run` and the guard: messages as lines of JSON."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._read = b""
        self.closed = False

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._end.fileno()

    def send(self, kind: str, *values: object) -> None:
        """Send a message; the other end may be gone."""
        with suppress(OSError):
            self._end.sendall(json.dumps([kind, *values]).encode() + b"\n")

    def receive(self) -> list[list[Any]]:
        """Return the messages that have arrived, without waiting; note whether the other end is gone."""
        while not self.closed:
            try:
                data = self._end.recv(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            self.closed = not data
            self._read += data
        *lines, self._read = self._read.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close this end."""
        self._end.close()


def fork_guard(found: Namespace) -> tuple[int, Line]:
    """Fork the guard, which has the command line; return its process id and the line to it."""
    # Signals that were ignored or blocked when this program began, as under nohup, stay so for the command.
    ours, its = socket.socketpair()
    caller = os.getpgrp()
    pid = os.fork()
    if pid:
        its.close()
        with suppress(OSError):
            os.setpgid(pid, pid)
        return pid, Line(ours)
    status = 70
    try:
        ours.close()
        if found.status_fd is not None:
            os.close(found.status_fd)
        os.setpgid(0, 0)
        _Guard(found, Line(its), caller).serve()
        status = 0
    finally:
        # Here no exit handler or `finally` clause of the parent may run, and none of its buffers may be flushed.
        os._exit(status)


class _Guard:
    """The guard's state.

    Attributes:
        group: the pid of the command, which is also its process group; 0 before it starts.
        status: the wait status of the command, once it has ended.
    """

    def __init__(self, found: Namespace, line: Line, caller: int) -> None:
        self._found = found
        self._line = line
        self._caller = caller
        self._lent = self._stopped = False
        self._stops = 0
        self.group = 0
        self.status: int | None = None
        # When the lease ends; the time from TERM to KILL; how long before the lease's end the command must be gone.
        self._end, self._patience, self._spare = float("inf"), 0.0, 0.0
        self._kill_at = float("inf")
        self._doomed = self._refused = False
        # When to report the processes that the command has left behind.
        self._tell_left_at = float("inf")
        self._mask: set[int] = set()

    def serve(self) -> None:
        """Handle what `run` sends, until nothing is left to guard."""
        processes.adopt_orphans()
        woken, _ = processes.wakeup_pipe()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # A stop from the terminal must not stop the guard, and a service manager may signal all processes at once.
        # A set of ints: not every real-time signal is in `Signals`.
        self._mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - {signal.SIGCHLD})
        line = self._line.fileno()
        while not self._is_over():
            ready = processes.wait_for_any([line, woken], self._pause())
            if woken in ready:
                os.read(woken, 4096)
            for kind, *values in self._line.receive() if line in ready else ():
                getattr(self, f"_on_{kind}")(*values)
            if self._line.closed:
                self._kill()
                return
            self._reap()
            self._check_clock()
        self._line.send("done")

    # -- what `run` sends -----------------------------------------------------------------------------------------

    def _on_lease(self, end: float, patience: float, spare: float) -> None:
        self._end, self._patience, self._spare = end, patience, spare

    def _on_start(self, environment: dict[str, str], lend: bool) -> None:
        self._lent = lend
        environment = {**processes.first_environment(), **environment}
        try:
            failed, fail = os.pipe()
            child = os.fork()
        except OSError as error:
            self.status = 0
            self._line.send("no_process", error.errno)
            return
        if not child:
            _execute(self._found.command, environment, lend, fail, self._mask)
        self.group = child
        with suppress(OSError):
            os.setpgid(child, child)
        os.close(fail)
        why = os.read(failed, 64)
        os.close(failed)
        if why:
            os.waitpid(child, 0)
            self._take_terminal_back()
            self.group, self.status = 0, 0
            self._line.send("failed", int(why))
        else:
            self._line.send("started", child)

    def _on_signal(self, number: int) -> None:
        if self.status is not None:
            self._signal_all(number)
            return
        try:
            os.killpg(self.group, number)
        except PermissionError:
            self._tell_refused()
        except OSError:
            # The command has ended, but the guard has not noticed yet.
            pass

    def _on_go_on(self, lend: bool, stops: int) -> None:
        """Resume the command, unless it has stopped again since `run` last saw it: `stops` counts its stops."""
        # `run` sends this twice for each stop: when it goes on itself, and when it handles its own SIGCONT. A second
        # SIGCONT to the command could undo a new stop before the system reports that stop; and the second message
        # finds the terminal lent already.
        self._reap()
        if self.status is None and stops == self._stops:
            if lend:
                self._lent = True
                _lend_terminal(self.group)
            if self._stopped:
                self._stopped = False
                with suppress(OSError):
                    os.killpg(self.group, signal.SIGCONT)

    def _on_lost(self) -> None:
        self._doom()

    # -- what is due ----------------------------------------------------------------------------------------------

    def _pause(self) -> float:
        if self._is_over():
            return 0.0
        if not processes.LINUX and self.status is not None:
            return _GROUP_POLL
        now = boot_clock()
        # The clock of `poll` stands still while the machine sleeps.
        due = self._kill_at if self._doomed else self._end - self._patience - self._spare
        return max(0.0, min(_POLL, min(due, self._tell_left_at) - now))

    def _check_clock(self) -> None:
        now = boot_clock()
        if now >= self._tell_left_at and not self._is_over():
            self._tell_left_at = float("inf")
            self._line.send("left", [processes.name_of(pid) for pid in processes.descendants()[:_MOST_NAMES]])
        if not self.group or self._is_over():
            return
        if not self._doomed and now >= self._end - self._patience - self._spare:
            self._line.send("late")
            self._doom()
        if now >= self._kill_at:
            self._kill()

    def _doom(self) -> None:
        """End the command: the lock is lost, or its lease is about to end."""
        if self._doomed or not self.group or self._found.on_lost == "ignore":
            return
        self._doomed = True
        now = boot_clock()
        self._kill_at = now
        if self._found.on_lost == "term":
            self._kill_at = min(now + self._patience, self._end - self._spare)
            self._signal_all(signal.SIGTERM)
            self._signal_all(signal.SIGCONT)

    def _kill(self) -> None:
        if not self.group:
            return
        self._signal_all(signal.SIGKILL)
        ended = processes.kill_all(self._group_left())
        if self.status is None and self.group in ended:
            self._ended(ended[self.group])
        self._take_terminal_back()

    def _signal_all(self, number: int) -> None:
        if processes.signal_all(self._group_left(), number):
            self._tell_refused()

    def _tell_refused(self) -> None:
        """Report, once, that a process can't be ended."""
        if not self._refused:
            self._refused = True
            self._line.send("refused")

    def _group_left(self) -> int:
        """Return the process group to signal, or 0 for none.

        Once the command has ended, its number may soon be reused. So then the group is signalled only where this
        process can't find the processes themselves.
        """
        return self.group if self.status is None or not processes.SEES_ALL else 0

    def _reap(self) -> None:
        for pid, status in processes.changed_children():
            if pid != self.group:
                continue
            if os.WIFSTOPPED(status):
                self._take_terminal_back()
                self._stops += 1
                self._line.send("stopped", os.WSTOPSIG(status), self._lent)
                self._stopped, self._lent = True, False
            else:
                self._ended(status)

    def _ended(self, status: int) -> None:
        self.status = status
        self._tell_left_at = boot_clock() + _LEFT_AFTER
        self._take_terminal_back()
        self._line.send("ended", status)

    def _is_over(self) -> bool:
        """Return whether the command has ended and, unless `-o` was given, all processes that it left behind, too."""
        if self.status is None:
            return False
        if self._found.close or not self.group:
            return True
        if not processes.LINUX:
            return not processes.group_lives(self.group)
        try:
            # This only checks whether there is a child; `_reap` reaps it.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def _take_terminal_back(self) -> None:
        if not self._lent or (self._line.closed and not processes.group_lives(self._caller)):
            # `run` was killed and was alone in its group: the shell takes the terminal, perhaps at this very moment.
            return
        # Meanwhile the shell's `bg` may have put the caller's group into the background.
        with suppress(OSError):
            if os.tcgetpgrp(0) == self.group:
                _lend_terminal(self._caller)


def _lend_terminal(group: int) -> None:
    """Make a process group the foreground one; the caller has blocked SIGTTOU."""
    with suppress(OSError):
        os.tcsetpgrp(0, group)


def _execute(command: list[str], environment: dict[str, str], lend: bool, fail: int, mask: set[int]) -> NoReturn:
    """Turn the forked child into the command."""
    try:
        os.setpgid(0, 0)
        if lend:
            _lend_terminal(os.getpid())
        processes.end_with_parent()
        signal.set_wakeup_fd(-1)
        # `exec` resets handlers, but a signal may come just before it.
        caught = {number for number in signal.valid_signals() if callable(signal.getsignal(number))}
        for number in caught | _OF_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _exec(command, environment)
    except OSError as error:
        os.write(fail, str(error.errno or 0).encode())
    finally:
        os._exit(126)


def _exec(command: list[str], environment: dict[str, str]) -> NoReturn:
    """Execute a command, as execvp(3) does.

    Raises:
        OSError: the command can't be executed.
    """
    if not command[0]:
        # For an empty name, Python would raise a ValueError.
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # Imported here, as most commands do not need it.
    import shutil

    # The command is a script whose first line names no interpreter.
    script = shutil.which(command[0], path=environment.get("PATH")) or command[0]
    os.execve("/bin/sh", ["sh", script, *command[1:]], environment)
