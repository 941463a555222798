"""What happens at the end of the process, and in a forked child.

The interpreter's exit deletes our nodes, also that of a child of multiprocessing. A forked child gets nothing of its
parent's sessions.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Protocol

PATIENCE = 1.0


class Watched(Protocol):
    """A session.

    Attributes:
        forked: this is a child's copy, of no use.
    """

    forked: bool

    def abandon_all(self) -> Callable[[float], None]:
        """Delete every node of ours; return how to wait until then for that to be done."""

    def forget_after_fork(self) -> None:
        """Forget everything, in a forked child."""


def end_with_process(client: int, session: Watched) -> None:
    """Have a session end with the process.

    Args:
        client: the id of the session's client: that lives as long, so an id is not found again for another one.
        session: the session, kept weakly.
    """
    _exit_with_multiprocessing()
    _sessions[client] = session


def _at_exit() -> None:
    until = time.monotonic() + PATIENCE
    sessions = [session for session in list(_sessions.values()) if not session.forked]
    for wait in [session.abandon_all() for session in sessions]:
        wait(until)
    for close in at_exit:
        close(until)


def _exit_with_multiprocessing() -> None:
    """Have our nodes deleted also when a child of multiprocessing ends: by os._exit, which atexit never hears of."""
    global _multiprocessing_pid
    if _multiprocessing_pid != os.getpid() and (util := sys.modules.get("multiprocessing.util")):
        util.Finalize(None, _at_exit, exitpriority=0)
        _multiprocessing_pid = os.getpid()


def _after_fork_in_child() -> None:
    for session in list(_sessions.values()):
        session.forget_after_fork()


_sessions: weakref.WeakValueDictionary[int, Watched] = weakref.WeakValueDictionary()
_multiprocessing_pid = 0
# What is done at the interpreter's exit when our nodes are deleted, each told until when, by the monotonic clock.
at_exit: list[Callable[[float], None]] = []
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
