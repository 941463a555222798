"""The services of this process: each has a server on a thread of its own, which starts at the service's first use.

Only this process reaches the service of `namespace("local")`, through pairs of sockets; a forked child has its own
service. The other services are on loopback, where clients use them like any server. A forked child reaches its
parent's services this way, as the parent goes on serving them. The child closes its copies of all sockets, so that its
clients notice when the parent ends.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings

from .._runtime.clock import monotonic
from .._runtime.serving import serving
from .service import Limits, Service
from .tcp import TcpServer, monotonic_ms, wall_ms
from .tree import Tree

TICK = 0.2  # seconds
# No name in a URL has parentheses.
_LOCAL = "(local)"
_LIMITS = Limits(tick=int(TICK * 1000), longest=2**31 - 1)

_servers: dict[str, tuple[TcpServer, threading.Thread]] = {}


def address(name: str) -> str:
    """Return the host and port of the service with that name; start the service if there is none."""
    if name not in _servers:
        _warn_of_workers()
    return f"127.0.0.1:{_serve(name, 0).port}"


def local() -> TcpServer:
    """Return the server of `namespace("local")`; start it if there is none."""
    return _serve(_LOCAL, None)


def _serve(name: str, port: int | None) -> TcpServer:
    found = _servers.get(name)
    if found is None:
        server = TcpServer(Service(Tree(), _LIMITS, monotonic_ms, wall_ms), port, {})
        # A daemon: it serves until the process ends, even clients that close their sessions at exit.
        thread = threading.Thread(target=_run, args=(server,), name=f"zkconcurrent memory:{name}", daemon=True)
        # R4: another thread, or a signal handler, may be faster. A lock would not do: a signal handler could wait for
        # the code that it has interrupted. The thread starts first, so an interrupt never leaves in the table a
        # server that does not run.
        thread.start()
        found = _servers.setdefault(name, (server, thread))
        if found[0] is not server:
            server.stop()
    return found[0]


def _run(server: TcpServer) -> None:
    with serving():
        server.run()


def _warn_of_workers() -> None:
    # Do not import the module, which is slow: a process that multiprocessing started has loaded it already.
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
    """Stop all services, at the exit of the process; wait for their threads until a time of the monotonic clock."""
    for server, thread in list(_servers.values()):
        server.stop()
        thread.join(max(0.0, until - monotonic()))


def _leave_to_parent() -> None:
    for server, _ in _servers.values():
        server.close_copies()
    _servers.pop(_LOCAL, None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
