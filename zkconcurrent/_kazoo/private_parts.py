"""The parts of kazoo that the library uses, most of them private: whether they are as known, and how to replace one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import kazoo.version
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler

_OF_CLIENT = (
    *("_call", "_child_watchers", "_connection", "_data_watchers", "_notify_pending", "_pending", "_queue"),
    *("_session_id", "_session_timeout", "_state", "_stopped", "chroot", "last_zxid"),
)
_OF_CONNECTION = (
    *("_authenticate_with_sasl", "_connect_attempt", "_connect_loop", "_connection_routine", "_expand_client_hosts"),
    *("_invoke", "_read", "_read_header", "_read_response", "_read_socket"),
    *("_read_watch_event", "_ro_mode"),
    *("_send_ping", "_send_request", "_socket", "_write", "_write_sock", "_xid", "connection_closed"),
    *("connection_stopped", "handler"),
)
_OF_HANDLER = (
    *("_workers", "create_connection", "dispatch_callback", "event_object", "rlock_object", "select", "sleep_func"),
    "spawn",
)
# The positional arguments of replaced or called methods; and the local variables that `old_connection` reads.
_ARGUMENTS = {
    "_authenticate_with_sasl": ("self", "host", "timeout"),
    "_connect_attempt": ("self", "host", "hostip", "port", "retry"),
    "_connect_loop": ("self", "retry"),
    "_expand_client_hosts": ("self",),
    "_invoke": ("self", "timeout", "request", "xid"),
    "_read": ("self", "length", "timeout"),
    "_read_header": ("self", "timeout"),
    "_read_response": ("self", "header", "buffer", "offset"),
    "_read_socket": ("self", "read_timeout"),
    "_read_watch_event": ("self", "buffer", "offset"),
    "_send_ping": ("self", "connect_timeout"),
    "_send_request": ("self", "read_timeout", "connect_timeout"),
    "_write": ("self", "msg", "timeout"),
}
_VARIABLES = {"_connect": ("negotiated_session_timeout",), "_connect_attempt": ("last_send", "read_timeout")}


def check_kazoo(client: KazooClient) -> None:
    """Refuse a kazoo whose private parts are not the known ones: with another one, a lease may be unsafe.

    Raises:
        RuntimeError: it names kazoo's version and the missing parts.
    """
    connection = getattr(client, "_connection", None)
    missing = [
        f"{type(owner).__name__}.{name}"
        for owner, names in ((client, _OF_CLIENT), (connection, _OF_CONNECTION), (client.handler, _OF_HANDLER))
        for name in names
        if not hasattr(owner, name)
    ]
    for known_names in (_ARGUMENTS, _VARIABLES):
        for name, names in known_names.items():
            code = getattr(getattr(ConnectionHandler, name, None), "__code__", None)
            found = () if code is None else code.co_varnames[: code.co_argcount if known_names is _ARGUMENTS else None]
            if found != names if known_names is _ARGUMENTS else not {*names} <= {*found}:
                missing.append(f"ConnectionHandler.{name} with {', '.join(names)}")
    if missing:
        raise RuntimeError(
            f"zkconcurrent can't work on kazoo {kazoo.version.__version__}, which has no {'; '.join(missing)}: "
            "install kazoo>=2.11,<2.12"
        )


class Replaced(SimpleNamespace):
    """kazoo's own methods that were replaced, by name without underscores."""

    def replace(self, owner: object, **ours: Callable[..., object]) -> None:
        """Replace the owner's methods of these names. A second call changes nothing."""
        for name, method in ours.items():
            theirs = getattr(owner, name)
            if theirs != method:
                vars(self).setdefault(name.strip("_"), theirs)
                setattr(owner, name, method)
