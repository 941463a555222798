"""A connection older than the library: since when it surely is there, and if it may be replaced.

The connect request was sent after kazoo's connection thread had started.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

from kazoo.protocol.states import KeeperState

from .._protocol.lease import NEVER
from .._runtime.clock import boot_clock
from .private_parts import PrivateParts

# A thread that was not alive at the import started after the import.
_imported = boot_clock()
_alive_at_import: weakref.WeakSet[threading.Thread] = weakref.WeakSet(threading.enumerate())


def connected_since(routine: object) -> float:
    """Return the latest moment, by the boot-time clock, that surely was before the connect request; `NEVER` if unknown.

    Args:
        routine: kazoo's connection thread, or greenlet.
    """
    if not isinstance(routine, threading.Thread):
        return NEVER
    return max(_started(routine), NEVER if routine in _alive_at_import else _imported)


def _started(thread: threading.Thread) -> float:
    """Return when a thread started, by the boot-time clock, or shortly before; `NEVER` if unknown."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        started = ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return NEVER
    return started if 0 < started <= boot_clock() else NEVER


def may_be_replaced(parts: PrivateParts, quiet_listeners: set[Callable[[str], object]]) -> bool:
    """Return whether a new connection of the session disturbs nobody, and surely is as good as this one.

    No listener or watch of the program would notice it. There is no TLS or SASL, whose credentials may no longer be
    valid, and kazoo tries to connect for as long as it takes.
    """
    client, connection = parts.client, parts.connection
    retry = connection.retry_sleeper
    return bool(
        client.client_state == KeeperState.CONNECTED
        and not (parts.stopped.is_set() or client.use_ssl or connection.sasl_options or client.read_only)
        and client.state_listeners <= quiet_listeners
        and not any(parts.data_watchers.values())
        and not any(parts.child_watchers.values())
        and retry.max_tries in (None, -1)
        and retry.deadline is None
    )
