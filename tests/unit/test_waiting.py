"""The loop that waits: what it leaves when interrupts strike in a row."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from zkconcurrent._engine.call import Call
from zkconcurrent._runtime.wait_loops import Steps, wait


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


def test_an_interrupt_between_two_sleeps() -> None:
    """It is told, and the recipe that must come to its end begins anew."""
    strikes, told = [KeyboardInterrupt()], list[BaseException]()
    call: Any = SimpleNamespace(run=lambda recipe, *_: recipe)

    def recipe() -> Steps[int]:
        if strikes:
            raise strikes.pop()
        return 1
        yield

    with pytest.raises(StopIteration) as ended:
        next(Call.outlast(call, recipe, 0.0, 0.0, told.append))
    assert (ended.value.value, len(told)) == (1, 1)
