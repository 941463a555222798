"""The private parts of kazoo that the library uses: where each is, whether all are as expected, and how to replace one.

Other modules go through `PrivateParts`, except to replace or call a method, or to detect a simulated connection.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import kazoo.version
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler

_OF_CLIENT = (
    *("_child_watchers", "_connection", "_data_watchers", "_pending", "_queue", "_session_id", "_session_timeout"),
    *("_stopped", "chroot", "client_state", "last_zxid"),
)
_OF_CONNECTION = (
    *("_authenticate_with_sasl", "_connect", "_connect_attempt", "_connect_loop", "_connection_routine"),
    *("_expand_client_hosts", "_invoke", "_read", "_read_response", "_read_sock", "_read_socket", "_read_watch_event"),
    *("_ro_mode", "_rw_server", "_send_request", "_socket", "_write_sock", "_xid", "connection_closed"),
    *("connection_stopped", "handler"),
)
_OF_HANDLER = ("_workers", "create_connection", "event_object", "rlock_object", "select", "sleep_func", "spawn")
# The positional arguments of replaced or called methods.
_ARGUMENTS = {
    "_authenticate_with_sasl": ("self", "host", "timeout"),
    "_connect": ("self", "host", "hostip", "port"),
    "_connect_attempt": ("self", "host", "hostip", "port", "retry"),
    "_connect_loop": ("self", "retry"),
    "_expand_client_hosts": ("self",),
    "_invoke": ("self", "timeout", "request", "xid"),
    "_read": ("self", "length", "timeout"),
    "_read_response": ("self", "header", "buffer", "offset"),
    "_read_socket": ("self", "read_timeout"),
    "_read_watch_event": ("self", "buffer", "offset"),
    "_send_request": ("self", "read_timeout", "connect_timeout"),
}


def check_kazoo(client: KazooClient) -> None:
    """Refuse a version of kazoo with unknown private parts, on which a lease may be unsafe.

    Raises:
        RuntimeError: parts are missing; the error names them, and kazoo's version.
    """
    connection = getattr(client, "_connection", None)
    missing = [
        f"{type(owner).__name__}.{name}"
        for owner, names in ((client, _OF_CLIENT), (connection, _OF_CONNECTION), (client.handler, _OF_HANDLER))
        for name in names
        if not hasattr(owner, name)
    ]
    for name, names in _ARGUMENTS.items():
        code = getattr(getattr(ConnectionHandler, name, None), "__code__", None)
        if code is None or code.co_varnames[: code.co_argcount] != names:
            missing.append(f"ConnectionHandler.{name} with {', '.join(names)}")
    if missing:
        raise RuntimeError(
            f"zkconcurrent can't work on kazoo {kazoo.version.__version__}, which has no {'; '.join(missing)}: "
            "install kazoo>=2.11,<2.12"
        )


def _part(path: str) -> property:
    """Return a property that reads and sets a part."""
    above, _, name = path.rpartition(".")
    owner = attrgetter(above)
    return property(attrgetter(path), lambda parts, value: setattr(owner(parts), name, value))


class PrivateParts:
    """The private parts of one kazoo client, and of its present connection and handler, as they are at each access.

    Attributes:
        client: the client.
        connection: its connection, over all reconnects.
        routine: the thread, or greenlet, of the connection.
        socket: the socket of the connection; None or closed while there is none.
        write_sock: the end of the pipe that wakes the connection's thread; None if the client is closed.
        xid: the number of the last request; None before the first connection.
        pending: the requests that were sent and have no reply yet, each with its reply and its number.
        queue: the requests that wait to be sent, each with its reply.
        read_sock: the end of the pipe that the connection's thread reads to be woken.
        read_only: on a connection to a read-only server, the generator whose steps look for another server; else None.
        rw_server: the server that `read_only` has found, for the next connection.
        session_id: the id of the session, also while disconnected; None or 0 if there is none.
        stopped: set once the program stops the client.
        child_watchers: the watchers of children, by path.
        data_watchers: the watchers of data, by path.
        connect: connects to a server, in the client's session.
        walk: goes through the servers once, to connect.
        workers: the threads that run callbacks.
    """

    def __init__(self, client: KazooClient) -> None:
        self.client = client

    # Each attribute is read without a Python frame, as a caller reads several of them for each request.
    connection: Any = _part("client._connection")
    routine: Any = _part("client._connection._connection_routine")
    socket: Any = _part("client._connection._socket")
    write_sock: Any = _part("client._connection._write_sock")
    xid: Any = _part("client._connection._xid")
    pending: Any = _part("client._pending")
    queue: Any = _part("client._queue")
    read_sock: Any = _part("client._connection._read_sock")
    read_only: Any = _part("client._connection._ro_mode")
    rw_server: Any = _part("client._connection._rw_server")
    session_id: Any = _part("client._session_id")
    stopped: Any = _part("client._stopped")
    child_watchers: Any = _part("client._child_watchers")
    data_watchers: Any = _part("client._data_watchers")
    connect: Any = _part("client._connection._connect")
    walk: Any = _part("client._connection._connect_loop")
    workers: Any = _part("client.handler._workers")

    @property
    def requested_timeout(self) -> float:
        """The session timeout that the client asks for, in seconds."""
        return float(self.client._session_timeout) / 1000


class Replaced(SimpleNamespace):
    """kazoo's own methods that were replaced, by name without underscores."""

    def replace(self, owner: object, **ours: Callable[..., object]) -> None:
        """Replace the owner's methods of these names. A second call changes nothing."""
        for name, method in ours.items():
            theirs = getattr(owner, name)
            if theirs != method:
                vars(self).setdefault(name.strip("_"), theirs)
                setattr(owner, name, method)
