"""The clock of leases: it goes on while the machine sleeps, as the server's does."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

# `time.monotonic` stops while the machine sleeps, and the server's clock does not. On Linux the boot-time clock goes
# on; on macOS the system's monotonic clock does.
boot_clock: Callable[[], float] = time.monotonic
if hasattr(time, "clock_gettime"):
    boot_clock = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
