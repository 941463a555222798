"""A thread's means of waiting: an event that is over once it was waited for."""

from __future__ import annotations

import threading

from zkconcurrent._runtime.events import AutoResetEvent


def test_one_wait_for_each_set() -> None:
    """Set once or twice, the next wait returns at once, and the one after that waits."""
    signal = AutoResetEvent()
    assert not signal.wait(0)
    for times in (1, 2):
        for _ in range(times):
            signal.set()
        assert signal.wait(0)
        assert not signal.wait(0.01)


def test_clear() -> None:
    """A clear forgets the set; a clear of what was not set does nothing."""
    signal = AutoResetEvent()
    for _ in range(2):
        signal.set()
        signal.clear()
        signal.clear()
        assert not signal.wait(0)


def test_it_wakes() -> None:
    """A thread that waits goes on, each time."""
    there, back = AutoResetEvent(), AutoResetEvent()

    def answer() -> None:
        for _ in range(100):
            assert there.wait(20)
            back.set()

    thread = threading.Thread(target=answer)
    thread.start()
    for _ in range(100):
        there.set()
        assert back.wait(20)
    thread.join(20)
    assert not thread.is_alive()
