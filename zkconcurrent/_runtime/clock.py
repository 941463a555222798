"""The clock of leases, which goes on while the machine sleeps, as the server's does; and dates, for people to read."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial

# `time.monotonic` stops while the machine sleeps, and the server's clock does not. On Linux the boot-time clock goes
# on; on macOS the system's monotonic clock does.
boot_clock: Callable[[], float] = time.monotonic
if hasattr(time, "clock_gettime"):
    boot_clock = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def ago(seconds: float) -> datetime:
    """Return when something was that has lasted so long since; called just after the length was measured.

    A thread that is suspended in between puts a beginning too late, never before the true one.
    """
    return datetime.fromtimestamp(time.time() - seconds, timezone.utc)


def in_words(date: datetime) -> str:
    """Return a date to the second."""
    # Not `strftime`, which imports a module at its first call.
    return f"{date.isoformat(' ', 'seconds').partition('+')[0]} UTC"
