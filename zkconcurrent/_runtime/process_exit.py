"""The end of the process, and a forked child.

At the interpreter's exit the library deletes its nodes, even in a child of multiprocessing. A forked child inherits
nothing of its parent's sessions.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from .._errors import ClientError
from . import this_process
from .clock import monotonic

PATIENCE = 1.0  # seconds
# The names of all threads of the library begin with this.
_OURS = "zkconcurrent "


class Watched(Protocol):
    """A session that must end with its process.

    Attributes:
        forked: this object is a forked child's copy, which is unusable.
    """

    forked: bool

    def abandon_all(self) -> Callable[[float], None]:
        """Delete all nodes of this client; return a function that waits for the deletes until a given time."""

    def forget_after_fork(self) -> None:
        """Forget everything, in a forked child."""


def end_with_process(client: int, session: Watched) -> None:
    """Have a session end with the process.

    Args:
        client: the id of the session's client. The client lives as long as the session, so no other client has this id.
        session: the session, kept weakly.
    """
    _exit_with_multiprocessing()
    _sessions[client] = session


def living_sessions() -> list[Watched]:
    """Return the sessions, in the order of their clients' first use. In a forked child, these are the parent's."""
    # R4: this copies the references in one step, as another thread or a signal handler may add a session.
    return [session for ref in _sessions.valuerefs() if (session := ref()) is not None]


def waits_for_library() -> bool:
    """Return whether the main thread has ended, and the interpreter waits only for threads of the library."""
    left = _threads_left()
    return not (threading.main_thread().is_alive() or any(not each.name.startswith(_OURS) for each in left))


def _threads_left() -> list[threading.Thread]:
    """Return the threads for which the interpreter waits before it exits, except the caller and the main thread."""
    others = threading.current_thread(), threading.main_thread()
    return [each for each in threading.enumerate() if not each.daemon and each not in others]


def _at_exit() -> None:
    _silence_daemon_threads()
    _log_to_open_streams()
    until = monotonic() + PATIENCE
    sessions = [session for session in living_sessions() if not session.forked]
    for wait in [session.abandon_all() for session in sessions]:
        wait(until)
    for close in closers:
        close(until)


def _silence_daemon_threads() -> None:
    """From here on, print no traceback if a ClientError ends a daemon thread: the exit ends the thread anyway."""
    show = threading.excepthook

    def show_others(args: threading.ExceptHookArgs) -> None:
        if not (args.exc_type is ClientError and args.thread is not None and args.thread.daemon):
            show(args)

    threading.excepthook = show_others


class _OpenStreams(logging.Filter):
    """Hands a record to the handlers whose streams are open or, if no stream is open, to standard error.

    A program may have closed a stream before the exit, as pytest does after each test.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True to let logging hand the record to all handlers; otherwise hand it out here."""
        handlers: list[logging.Handler] = []
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            handlers += logger.handlers
            logger = logger.parent if logger.propagate else None
        usable = [each for each in handlers if not getattr(getattr(each, "stream", None), "closed", False)]
        if len(usable) == len(handlers):
            return True
        for each in usable or filter(None, [logging.lastResort]):
            if record.levelno >= each.level:
                each.handle(record)
        return False


def _log_to_open_streams() -> None:
    """From here on, send what the library logs, such as a delete that fails, only to streams that are open."""
    for name in [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "zkconcurrent"]:
        logging.getLogger(name).addFilter(_OpenStreams())


def _exit_with_multiprocessing() -> None:
    """Have the nodes deleted at the end of a multiprocessing child, too: it ends by os._exit, which skips atexit."""
    global _forks
    if _forks != this_process.forks and (util := sys.modules.get("multiprocessing.util")):
        util.Finalize(None, _at_exit_of_child, exitpriority=0)
        _forks = this_process.forks


def _at_exit_of_child() -> None:
    """Delete the nodes once the child's threads have ended: until then the threads may hold locks."""
    if _threads_left():
        # Do not wait here: the threads of executors end only when the child itself waits for them, after this function.
        # The child waits for the new thread, too.
        threading.Thread(target=_at_end_of_threads, name=f"{_OURS}exit").start()
    else:
        _at_exit()


def _at_end_of_threads() -> None:
    while left := _threads_left():
        for thread in left:
            # A thread that has not begun can't be joined.
            with suppress(RuntimeError):
                thread.join()
    _at_exit()


def _after_fork_in_child() -> None:
    for session in living_sessions():
        session.forget_after_fork()


_sessions: weakref.WeakValueDictionary[int, Watched] = weakref.WeakValueDictionary()
# The value of `this_process.forks` in the process that has registered its end with multiprocessing.
_forks: int | None = None
# Called at the interpreter's exit, after the nodes are deleted, with the deadline by the monotonic clock.
closers: list[Callable[[float], None]] = []
atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
