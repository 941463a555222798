"""The clocks, each bound once, at import; and dates for people to read.

A test that replaces a clock of `time` must not end a lease or a timeout. So the library reads these clocks instead;
only the modules of the command read those of `time`. And each clock here is a wrapper, not a function of `time` itself:
freezegun replaces the functions of `time` in every module that has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial

monotonic: Callable[[], float] = partial(time.monotonic)
wall_clock: Callable[[], float] = partial(time.time)
# The clock of leases goes on while the machine sleeps, as the server's does. On Linux, this is the boot-time clock;
# on macOS, the system's monotonic clock.
boot_clock = monotonic
if hasattr(time, "clock_gettime"):
    boot_clock = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def ago(seconds: float) -> datetime:
    """Return the date and time `seconds` ago, in UTC.

    If the thread is suspended after it has measured `seconds`, the result is too late, never too early.
    """
    return datetime.fromtimestamp(wall_clock() - seconds, timezone.utc)


def in_words(date: datetime) -> str:
    """Return a date as text, to the second."""
    # Not `strftime`, which imports a module at its first call.
    return f"{date.isoformat(' ', 'seconds').partition('+')[0]} UTC"
