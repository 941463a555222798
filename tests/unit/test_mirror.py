"""The copy of a `Dict` or `Set`: a signal handler that writes on top of another write takes nothing back."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from types import FrameType

from zkconcurrent._recipes.mirror import Layout, Mirror

INTERVAL = 0.0007  # seconds; longer than a handler takes, or they pile up


class Call:
    """A call under way."""


def test_a_signal_handler_that_writes() -> None:
    """Whatever line of a change it interrupts, its newer state stays, and the change goes on."""
    mirror, zxids = Mirror(Layout("/a", "Dict"), threading.RLock()), itertools.count(1)
    newest, calls, times = 0, [Call() for _ in range(50)], 0

    def write(_number: int = 0, _frame: FrameType | None = None) -> None:
        nonlocal newest, times
        call = Call()
        mirror.begin(call)
        mirror.drop(f"other {times % 20}", next(zxids))
        newest, times = next(zxids), times + 1
        mirror.keep("k", b"", newest)
        mirror.end(call)

    for call in calls:
        mirror.begin(call)
    before = signal.signal(signal.SIGALRM, write)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL, INTERVAL)
    try:
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            zxid = next(zxids)
            mirror.keep("k", b"", zxid)
            least = max(zxid, newest)
            assert mirror.entries["k"].zxid >= least
            mirror.drop("gone", next(zxids))
            call = Call()
            mirror.begin(call)
            mirror.end(call)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert times > 100
    for call in calls:
        mirror.end(call)
    assert not mirror.tombstones
