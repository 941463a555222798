"""The services of this process: each is a server on loopback, on a thread of its own, begun at its first use.

Over TCP a client of such a service is a client like any other. A forked child reaches its parent's services, which the
parent goes on serving. The child closes its copies of their sockets, so that its clients notice the parent's end.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings

from .service import Limits, Service
from .tcp import TcpServer, monotonic_ms
from .tree import Tree

TICK = 0.2  # seconds
_LIMITS = Limits(tick=int(TICK * 1000), longest=2**31 - 1)

_servers: dict[str, TcpServer] = {}
_threads: dict[str, threading.Thread] = {}
_beginning = threading.Lock()


def address(name: str) -> str:
    """Return host and port of the service with that name; begin it if there is none."""
    with _beginning:
        server = _servers.get(name)
        if server is None:
            _warn_of_workers()
            service = Service(Tree(), _LIMITS, monotonic_ms, lambda: time.time_ns() // 1_000_000)
            server = _servers[name] = TcpServer(service, 0, {})
            # A daemon: it serves until the process ends, also those who close their sessions at its exit.
            _threads[name] = threading.Thread(target=server.run, name=f"zkconcurrent memory:{name}", daemon=True)
            _threads[name].start()
    return f"127.0.0.1:{server.port}"


def _warn_of_workers() -> None:
    # Of the module that has been loaded in such a process; it is slow to import.
    multiprocessing = sys.modules.get("multiprocessing.process")
    # A spawned process has this attribute, and no parent yet, while it imports the main module.
    if multiprocessing is not None and (
        multiprocessing.parent_process() is not None or hasattr(multiprocessing.current_process(), "_inheriting")
    ):
        warnings.warn(
            "memory: is a service of this process alone, and this process is one of several: they do not exclude each "
            "other. Run python -m zkconcurrent.testing --memory, and connect to that",
            RuntimeWarning,
            stacklevel=5,
        )


def stop(until: float) -> None:
    """Stop all services, at the exit of the process; wait for it until the given time, by the monotonic clock."""
    for name, thread in _threads.items():
        _servers[name].stop()
        thread.join(max(0.0, until - time.monotonic()))


def _leave_to_parent() -> None:
    # A thread of the parent may have held the old one.
    global _beginning
    _beginning = threading.Lock()
    _threads.clear()
    for server in _servers.values():
        server.close_copies()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
