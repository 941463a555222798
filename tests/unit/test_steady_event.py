"""The event of a loss, which stays whole when an interrupt strikes in it; and the one that a wait uses up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.conftest import InThread
from tests.helpers.eventually import eventually
from tests.helpers.interrupts import at_every_line
from zkconcurrent._runtime.events import AutoResetEvent, SteadyEvent


def test_it_is_an_event(in_thread: InThread) -> None:
    """It is one of `threading`'s; all that wait are woken, also if it is cleared at once."""
    event = SteadyEvent()
    assert isinstance(event, threading.Event)
    assert not event.wait(0)
    assert not event.wait(-1)
    assert not event.wait(0.01)
    waiting = [in_thread(event.wait, timeout) for timeout in (None, 20)]
    eventually(lambda: len(event._sleepers) == 2)
    event.set()
    event.clear()
    assert [each.result(10) for each in waiting] == [True, True]
    assert not event.is_set()
    event.set()
    assert event.is_set()
    assert event.wait()
    assert not event._sleepers


@pytest.mark.fault(195)
@pytest.mark.parametrize("struck", [lambda event: event.set(), lambda event: event.wait(0.001)], ids=["set", "wait"])
def test_interrupted_at_every_line(struck: Callable[[SteadyEvent], Any], in_thread: InThread) -> None:
    """Another thread can set it, and wakes the waiter."""
    for hook in at_every_line("_runtime/events.py"):
        event = SteadyEvent()
        waiting = in_thread(event.wait, 20)
        with suppress(KeyboardInterrupt), hook:
            struck(event)
        in_thread(event.set).result(10)
        assert waiting.result(10), hook.where
    assert hook.line > 2


def test_one_wait_for_each_set() -> None:
    """Set once or twice, the next wait returns at once, and the one after that waits; a clear forgets the set."""
    event = AutoResetEvent()
    assert not event.wait(0)
    for times in (1, 2):
        for _ in range(times):
            event.set()
        assert event.wait(0)
        assert not event.wait(0.01)
        event.set()
        event.clear()
        assert not event.wait(0)
