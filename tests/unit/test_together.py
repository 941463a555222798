"""Steps that run side by side: each is resumed when it is due, or whenever the call is woken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zkconcurrent import ClientError
from zkconcurrent._runtime.waiting import Steps
from zkconcurrent._threads.base.side_by_side import Branch, together


class Clock:
    """Time, which a sleep moves."""

    def __init__(self) -> None:
        self.time = 0.0
        self.log: list[tuple[str, float, bool]] = []
        self.closed: list[str] = []

    def now(self) -> float:
        """Return the time."""
        return self.time

    def branch(self, name: str, *pauses: float | None, raises: Exception | None = None) -> Branch[str]:
        """Make steps that sleep, note each resumption, and end."""

        def steps() -> Steps[str]:
            try:
                for pause in pauses:
                    woken = yield pause
                    self.log.append((name, self.time, woken))
                if raises is not None:
                    raise raises
                return name
            finally:
                self.closed.append(name)

        return Branch(steps())

    def run(self, steps: Steps[None], wakes: Callable[[int], bool] = lambda _: False) -> list[float | None]:
        """Run the steps to their end; wake them from the sleeps that `wakes` names. Return the pauses."""
        pauses: list[float | None] = []
        try:
            pause = next(steps)
            while True:
                pauses.append(pause)
                woken = wakes(len(pauses))
                assert woken or pause is not None
                self.time += 0 if woken or pause is None else pause
                pause = steps.send(woken)
        except StopIteration:
            return pauses


def test_each_when_it_is_due() -> None:
    """A sleep that ends resumes those whose time has come, and no others."""
    clock = Clock()
    a, b = clock.branch("a", 1.0, 3.0), clock.branch("b", 2.0)
    assert clock.run(together([a, b], clock.now)) == [1.0, 1.0, 2.0]
    assert clock.log == [("a", 1.0, False), ("b", 2.0, False), ("a", 4.0, False)]
    assert (a.result, b.result, a.done, b.done) == ("a", "b", True, True)


def test_all_when_woken() -> None:
    """A wake-up resumes all, as it may be meant for any; one that sleeps until woken sleeps without an end."""
    clock = Clock()
    branches = [clock.branch("a", None), clock.branch("b", None, None)]
    assert clock.run(together(branches, clock.now), lambda n: n <= 2) == [None, None]
    assert clock.log == [("a", 0.0, True), ("b", 0.0, True), ("b", 0.0, True)]


def test_an_end() -> None:
    """At the end, those that have not ended are closed, and not done."""
    clock = Clock()
    a, b = clock.branch("a", 1.0), clock.branch("b", 5.0)
    assert clock.run(together([a, b], clock.now, lambda: 2.0)) == [1.0, 1.0]
    assert (a.done, b.done, b.result) == (True, False, None)
    assert clock.closed == ["a", "b"]
    none = clock.branch("c", 1.0)
    assert clock.run(together([none], clock.now, lambda: 0.0)) == []
    assert not none.done


def test_errors() -> None:
    """The library's own error is that of its steps; any other is an interrupt, and ends all."""
    clock, error = Clock(), ClientError("/a", "no")
    a, b = clock.branch("a", 1.0, raises=error), clock.branch("b", 2.0)
    clock.run(together([a, b], clock.now))
    assert (a.error, a.done, b.error, b.result) == (error, True, None, "b")
    c, d = clock.branch("c", 1.0, raises=TimeoutError()), clock.branch("d", 2.0)
    with pytest.raises(TimeoutError):
        clock.run(together([c, d], clock.now))
    assert clock.closed == ["a", "b", "c", "d"]
    steps = together([clock.branch("e", 1.0), clock.branch("f", 1.0)], clock.now)
    next(steps)
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt)
    assert clock.closed[-2:] == ["e", "f"]
