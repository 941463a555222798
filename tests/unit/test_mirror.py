"""The copy of a `Dict` or `Set`: neither a signal handler's write nor a slow read takes anything back."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from types import FrameType

import pytest

from tests.conftest import PATIENCE
from zkconcurrent._protocol.operations import Node
from zkconcurrent._recipes.map import mirror as mirrors
from zkconcurrent._recipes.map.mirror import Layout, Mirror

INTERVAL = 0.0007  # seconds; longer than a handler takes, or they pile up


class Call:
    """A call under way."""


def test_a_signal_handler_that_writes() -> None:
    """At any interrupted line of a change, the handler's newer state stays, and the change goes on."""
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
        until = time.monotonic() + PATIENCE
        while times < 500 and time.monotonic() < until:
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
    assert times >= 500
    for call in calls:
        mirror.end(call)
    assert not mirror.tombstones


def read_slowly() -> bool:
    """Delete an entry while a read that was answered before is yet to be taken; return whether it comes back."""
    mirror, call = Mirror(Layout("/a", "Dict"), threading.RLock()), Call()
    mirror.keep("k", b"", 5)
    reading = mirrors.read(mirror, ["k"], mirror)
    next(reading)
    mirror.begin(call)
    mirror.drop("k", 7)
    mirror.end(call)
    with pytest.raises(StopIteration):
        reading.send([(Node(b"", 5, 0.0, 0, 0, 0, 0.0, mzxid=5), 6)])
    assert not mirror.tombstones
    return "k" in mirror.entries


def test_a_slow_read() -> None:
    """A name deleted meanwhile stays deleted. Random runs hardly ever keep a thread for so long at that place."""
    assert not read_slowly()
