"""The loops that wait: their leftovers when interrupts strike in a row.

A wait in a signal handler lends the lock that its thread has, and has it again however the wait ends.
"""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.interrupts import at_every_line
from zkconcurrent._runtime import waiting
from zkconcurrent._runtime.waiting import Steps, _sleep, end_early, wait, wait_async

DEPTH = 2


@pytest.mark.fault(178)
def test_a_wait_interrupted_twice() -> None:
    """A second Ctrl-C, at any line after the first has ended the wait, leaves no frame without its lock."""
    lock = threading.RLock()
    call: Any = SimpleNamespace(owned_locks=(lock,))

    class Interrupted:
        def wait(self, _pause: float) -> bool:
            assert not lock._is_owned()  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    for hook in at_every_line("waiting.py", "interrupts.py"):
        for _ in range(DEPTH):
            lock.acquire()
        with pytest.raises(KeyboardInterrupt), hook:
            _sleep(call, Interrupted(), 1.0)
        for _ in range(DEPTH):
            lock.release()  # else, after the interrupt at hook.where, a RuntimeError
        assert not lock._is_owned(), hook.where  # type: ignore[attr-defined]
    assert hook.line > 10


def test_two_that_end_a_call_at_once() -> None:
    """Of two that end a call early, one on top of the other, one has ended it."""
    ended: list[bool] = []

    def wake() -> None:
        if len(ended) < 1:
            ended.append(False)
            ended[0] = end_early(call, KeyError)

    call: Any = SimpleNamespace(wake=wake, waits_for=("it",))
    ended.append(end_early(call, ValueError))
    assert ended == [False, True]
    assert (call.why_end, call.waits_for) == (ValueError, ())


@pytest.mark.fault(205)
@pytest.mark.parametrize("in_task", [False, True], ids=["thread", "task"])
def test_a_call_interrupted_twice(in_task: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second Ctrl-C, as the loop is about to abandon the call for the first, leaves it abandoned."""
    abandoned, strikes, end = [], [KeyboardInterrupt], waiting._end

    def struck(*of: Any) -> None:
        if strikes:
            raise strikes.pop()
        end(*of)

    def steps() -> Steps[None]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(waiting, "_end", struck)
    link = SimpleNamespace(sleep_event=threading.Event)
    call: Any = SimpleNamespace(
        settled=False, session=SimpleNamespace(link=link), begin=lambda *_: None, abandon=lambda: abandoned.append(1)
    )
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(wait_async(call, steps())) if in_task else wait(call, steps())
    assert not strikes
    assert abandoned


@pytest.mark.fault(205)
def test_interrupts_in_a_row_as_a_call_ends() -> None:
    """However many strike, the call is abandoned: nothing of it is left for which others would wait."""
    abandoned, strikes = [], [KeyboardInterrupt, TimeoutError, KeyboardInterrupt, TimeoutError]

    def abandon() -> None:
        if strikes:
            raise strikes.pop()
        abandoned.append(1)

    def steps() -> Steps[None]:
        raise TimeoutError("the first")
        yield

    link = SimpleNamespace(sleep_event=threading.Event)
    call: Any = SimpleNamespace(
        settled=False, session=SimpleNamespace(link=link), begin=lambda *_: None, abandon=abandon
    )
    with pytest.raises(KeyboardInterrupt):  # the last
        wait(call, steps())
    assert not strikes
    assert abandoned
