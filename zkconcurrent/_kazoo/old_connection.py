"""A connection older than the library: since when it is sure to exist.

The connect request was sent after kazoo's connection thread had started.
"""

from __future__ import annotations

import os
import threading
import weakref

from .._protocol.session_lease import NEVER
from .._runtime.clock import boot_clock

# A thread that was not alive at the import started after the import.
_imported = boot_clock()
_alive_at_import: weakref.WeakSet[threading.Thread] = weakref.WeakSet(threading.enumerate())


def connected_since(routine: object) -> float:
    """Return the latest moment that is sure to precede the connect request, by the boot-time clock, or `NEVER`.

    Args:
        routine: kazoo's connection thread, or greenlet.
    """
    if not isinstance(routine, threading.Thread):
        return NEVER
    return max(_started(routine), NEVER if routine in _alive_at_import else _imported)


def _started(thread: threading.Thread) -> float:
    """Return when a thread started, or slightly earlier, by the boot-time clock; `NEVER` if unknown."""
    try:
        with open(f"/proc/self/task/{thread.native_id}/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        started = ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return NEVER
    return started if 0 < started <= boot_clock() else NEVER
