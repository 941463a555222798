"""The end of the process, and a forked child.

At the interpreter's exit the library deletes its nodes, also in a child of multiprocessing. A forked child inherits
nothing of its parent's sessions.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from .._errors import ClientError

PATIENCE = 1.0  # seconds


class Watched(Protocol):
    """A session that must end with its process.

    Attributes:
        forked: this is the unusable copy in a forked child.
    """

    forked: bool

    def abandon_all(self) -> Callable[[float], None]:
        """Delete all nodes of this client; return a function that waits for the deletes, until the given time."""

    def forget_after_fork(self) -> None:
        """Forget everything, in a forked child."""


def end_with_process(client: int, session: Watched) -> None:
    """Have a session end with the process.

    Args:
        client: the id of the session's client. The client lives as long as the session, so no other has its id.
        session: the session, kept weakly.
    """
    _exit_with_multiprocessing()
    _sessions[client] = session


def living_sessions() -> list[Watched]:
    """Return the sessions of this process, in the order of their clients' first use; a fork's are its parent's."""
    # R4: this copies the references in one step, as another thread or a signal handler may add one.
    return [session for ref in _sessions.valuerefs() if (session := ref()) is not None]


def _at_exit() -> None:
    _silence_daemon_threads()
    until = time.monotonic() + PATIENCE
    sessions = [session for session in living_sessions() if not session.forked]
    for wait in [session.abandon_all() for session in sessions]:
        wait(until)
    for close in closers:
        close(until)


def _silence_daemon_threads() -> None:
    """Print no error of ours that ends a daemon thread from here on: the exit ends it anyway."""
    show = threading.excepthook

    def show_others(args: threading.ExceptHookArgs) -> None:
        if not (args.exc_type is ClientError and args.thread is not None and args.thread.daemon):
            show(args)

    threading.excepthook = show_others


def _exit_with_multiprocessing() -> None:
    """Delete the nodes at the end of a multiprocessing child too: it ends by os._exit, which skips atexit."""
    global _multiprocessing_pid
    if _multiprocessing_pid != os.getpid() and (util := sys.modules.get("multiprocessing.util")):
        util.Finalize(None, _at_exit, exitpriority=0)
        _multiprocessing_pid = os.getpid()


def _after_fork_in_child() -> None:
    for session in living_sessions():
        session.forget_after_fork()


_sessions: weakref.WeakValueDictionary[int, Watched] = weakref.WeakValueDictionary()
_multiprocessing_pid = 0
# Called at the interpreter's exit after the nodes are deleted, with the time to end by on the monotonic clock.
closers: list[Callable[[float], None]] = []
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
