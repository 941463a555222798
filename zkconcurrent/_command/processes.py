"""Find, signal and end the processes below this one, whatever they have done to get away.

On Linux a *subreaper* is the parent of all orphans below it. So daemons that have left the process group and the
session of the command are still found, and once this process has no child, no process below it is left. Other systems
have no subreaper: there, only the process group of the command is seen. If /proc is missing, or shows another
namespace, as after `unshare --pid --fork` alone, this process waits for orphans, but can't find them.
"""

from __future__ import annotations

import ctypes
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial

LINUX = sys.platform == "linux"


def _sees_itself() -> bool:
    """Return whether /proc shows this process under its own number."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


SEES_ALL = LINUX and _sees_itself()
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL = 0.002  # seconds
_SLOWEST_POLL = 0.05  # seconds
# This clock goes on while the machine sleeps, as the server's does.
boot_clock = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def adopt_orphans() -> None:
    """Become a subreaper, on Linux."""
    if LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, on Linux."""
    if LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def wait_for_any(descriptors: Iterable[int], seconds: float) -> set[int]:
    """Wait at most `seconds` until some descriptors can be read, or their other ends are closed; return those."""
    # Not `select`, which accepts no descriptor above 1023: this process may have inherited that many.
    poll = select.poll()
    for each in descriptors:
        poll.register(each, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(math.ceil(1000 * seconds))}


def can_write(descriptor: int) -> bool:
    """Return whether a short write would end at once; into a full pipe, it would wait for the reader."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


def wakeup_pipe() -> tuple[int, int]:
    """Return the ends of a pipe into which each signal that has a handler writes its number."""
    woken, wake = os.pipe()
    for each in (woken, wake):
        os.set_blocking(each, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    return woken, wake


def changed_children() -> Iterator[tuple[int, int]]:
    """Return the children that have ended or stopped, each with its wait status."""
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG | os.WUNTRACED))[0]:
            yield found


def living() -> Iterator[tuple[int, int, int]]:
    """Return the id, parent and group of each process that is not a zombie, on Linux."""
    for folder in os.listdir("/proc") if SEES_ALL else ():
        if folder.isdecimal():
            # The process may end meanwhile.
            with suppress(OSError):
                # The name, in parentheses, may contain anything.
                fields = _read(folder, "stat").rpartition(b")")[2].split()
                # If only the first thread has ended, the process looks like a zombie, but its other threads still run.
                if fields[0] not in (b"Z", b"X") or int(fields[17]) > 1:
                    yield int(folder), int(fields[1]), int(fields[2])


def _read(pid: int | str, name: str) -> bytes:
    # Without `pathlib`, whose import takes longer than everything else here.
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


def first_environment() -> dict[str, str]:
    """Return the environment this process began with, on Linux: Python adds LC_CTYPE if no locale is set (PEP 538)."""
    try:
        entries = [os.fsdecode(entry).partition("=") for entry in reversed(_read("self", "environ").split(b"\0"))]
    except OSError:
        entries = [(name, "=", value) for name, value in os.environ.items()]
    # Python refuses to pass on an entry that begins with "="; if a name occurs twice, `getenv` finds the first.
    return {name: value for name, equals, value in entries if name and equals}


def descendants(pid: int = 0) -> list[int]:
    """Return the descendants of a process (by default, this one) on Linux, parents first."""
    children: dict[int, list[int]] = {}
    for child, parent, _ in living():
        children.setdefault(parent, []).append(child)
    found = children.get(pid or os.getpid(), [])
    # The list grows during the loop.
    for each in found:
        found += children.get(each, ())
    return found


def name_of(pid: int) -> str:
    """Return a process's id and name, for a message."""
    with suppress(OSError):
        return f"{pid} ({_read(pid, 'comm').decode(errors='replace').strip()})"
    return str(pid)


def group_lives(group: int) -> bool:
    """Return whether a process group has a process that has not ended."""
    if SEES_ALL:
        return any(each == group for _, _, each in living())
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def is_orphaned(group: int) -> bool:
    """Return whether no shell could resume the process group after a stop, on Linux.

    The kernel does not stop such a group when it reads from the terminal; the read fails. Process 1 of a namespace does
    not stop either.
    """
    groups = {pid: each for pid, _, each in living()}
    parents = {parent for _, parent, each in living() if each == group}
    for parent in parents:
        # The parent of the first process in a namespace can't be seen, and is 0.
        with suppress(ProcessLookupError):
            if groups.get(parent) != group and os.getsid(parent) == os.getsid(0):
                return os.getpid() == 1
    return SEES_ALL


def signal_all(group: int, number: int) -> bool:
    """Send a signal to a process group (0: none), and to all other processes below this one.

    Returns:
        Whether one of these processes is another user's, and so got no signal.
    """
    refused = False
    # To the system, group 0 is the caller's own.
    if group:
        refused = _is_refused(os.killpg, group, number)
    for pid in descendants():
        # A process may have ended.
        with suppress(OSError):
            # Members of the group have the signal already; 0 only checks whether they may be signalled.
            refused = _is_refused(os.kill, pid, 0 if os.getpgid(pid) == group else number) or refused
    return refused


def _is_refused(send: Callable[[int, int], None], target: int, number: int) -> bool:
    try:
        send(target, number)
    except PermissionError:
        return True
    except OSError:
        # The target has ended.
        pass
    return False


def kill_all(group: int) -> dict[int, int]:
    """Kill a process group, and all processes below this one until none is left; return each child's wait status."""
    ended: dict[int, int] = {}
    pause = _POLL
    signal_all(group, signal.SIGKILL)
    while True:
        for pid in descendants():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(2 * pause, _SLOWEST_POLL)
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                ended[found[0]] = found[1]
        except ChildProcessError:
            return ended
