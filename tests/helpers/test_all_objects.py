"""The look at all objects, beside a thread that fills a tuple all the time."""

from __future__ import annotations

import time

import pytest

from tests.conftest import InThread
from tests.helpers import all_objects
from tests.helpers.all_objects import held_by, of_all_objects


def test_tuples_that_another_thread_fills(in_thread: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each can be read, as far as it is filled, and the thread that fills it does not notice."""
    monkeypatch.setattr(all_objects, "TURN", 0.5)  # both take their turns
    filled, stopped = 0, False

    def fill() -> None:
        nonlocal filled
        while not stopped:
            assert len(tuple(number for number in range(500))) == 500
            filled += 1

    def unfilled(there: list[object]) -> int:
        began = time.monotonic()  # the look takes longer than a thread waits for its turn, by CPython's own setting
        while time.monotonic() < began + 0.05:
            pass
        return sum(len(held_by(each)) < len(each) for each in there if type(each) is tuple)

    filling = in_thread(fill)
    try:
        found = sum(of_all_objects(unfilled) for _ in range(5))
    finally:
        stopped = True
    filling.result(10)
    assert found, "no tuple was met while it was filled"
    assert filled > 1
