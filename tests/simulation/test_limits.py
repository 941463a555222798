"""Holds that last too long, and those that may soon be lost: told at the exact times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helpers.grammar import Grammar
from tests.simulation.checks.told import hear
from tests.simulation.world.run import Run
from tests.simulation.world.schedule import TIMEOUT, Deviation, Schedule
from tests.simulation.world.workload import Visit, Worker
from tests.simulation.world.world import Violation
from zkconcurrent import Acquired, HoldLimit, LockEvent, LossCause, Lost, Recovered, Released, Suspect
from zkconcurrent._threads.base.lock_base import LockBase
from zkconcurrent._threads.lock import Lock
from zkconcurrent._threads.rlock import RLock

LIMIT = 2.0
# By so much a keeper that is starved may be late.
LATE = 15.0
# As computed with floats.
EXACTLY = 1e-6


class LimitedWorker(Worker):
    """A thread whose locks have a limit, and hear that they are suspect."""

    how: Any = "warn"

    def _lock(self, visit: Visit) -> LockBase:
        kind = RLock if visit.reentrant else Lock
        return kind(self.process.client, visit.path, on_suspect=self._warned, hold_limit=LIMIT, on_hold_limit=self.how)

    def _warned(self, _: object, left: float) -> None:
        self.process.warned.append((self.world.now, left))  # type: ignore[attr-defined]


class LosingWorker(LimitedWorker):
    """One whose holds end by their limit; it drops none, whose end is told once it is known."""

    how = "lose"

    def _visit(self, visit: Visit) -> None:
        super()._visit(visit._replace(leave="release") if visit.leave == "forget" else visit)


class LimitedRun(Run):
    """A run of such threads.

    Attributes:
        told: what each process is told.
    """

    worker = LimitedWorker

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        for process in self.processes:
            process.warned = []  # type: ignore[attr-defined]
        self.told = hear(self)

    def to_the_end(self) -> int:
        """Run, and check what was told."""
        steps = super().to_the_end()
        for grammar in self.told.values():
            self.check(grammar)
        return steps

    def check(self, grammar: Grammar) -> None:
        """Check the times of what one process was told."""
        began: dict[int, float] = {}
        sure: dict[int, float] = {}
        for event in grammar.events:
            if isinstance(event, Acquired):
                began[event.token], sure[event.token] = event.at, 0.0
            elif isinstance(event, HoldLimit) and not event.at - began[event.token] >= LIMIT - EXACTLY:
                raise Violation(f"it was told too early: {event}")
            elif isinstance(event, Released) and self.worker is LosingWorker and event.held > LIMIT + LATE:
                raise Violation(f"it was to end: {event}")
            elif isinstance(event, Suspect):
                sure[event.token] = event.at + event.remaining
            elif (
                isinstance(event, Lost)
                and event.cause is LossCause.LEASE_ENDED
                and event.at < sure[event.token] - EXACTLY
            ):
                raise Violation(f"it was to last until {sure[event.token]}: {event}")


class LosingRun(LimitedRun):
    """A run of threads whose holds end by their limit."""

    worker = LosingWorker


def calm(*visits: Visit, deviations: tuple[Deviation, ...] = ()) -> Schedule:
    """Return the schedule of one thread."""
    return Schedule([[(0.0, list(visits))]], list(deviations))


def ended(run: LimitedRun) -> Iterator[LockEvent]:
    """Run to the end; return what the only process was told."""
    run.to_the_end()
    (grammar,) = run.told.values()
    return iter(grammar.events)


def test_the_time_of_a_warning() -> None:
    """It comes with the limit, though nothing else is due then; a shorter hold has none, and the next begins anew."""
    stays = (5.0, 1.9, 2.1)
    events = list(ended(LimitedRun(calm(*(Visit("/lock", stay=stay) for stay in stays)))))
    held_long, held_short = [Acquired, HoldLimit, Released], [Acquired, Released]
    assert [type(event) for event in events] == held_long + held_short + held_long
    for acquired, limit in ((events[0], events[1]), (events[5], events[6])):
        assert isinstance(limit, HoldLimit)
        assert limit.held == pytest.approx(LIMIT, abs=EXACTLY)
        assert limit.at - acquired.at == pytest.approx(LIMIT, abs=EXACTLY)


def test_the_time_of_a_loss() -> None:
    """It comes with the limit."""
    events = list(ended(LosingRun(calm(Visit("/lock", stay=5.0)))))
    assert [type(event) for event in events] == [Acquired, HoldLimit, Lost]
    assert isinstance(lost := events[-1], Lost)
    assert lost.cause is LossCause.LIMIT
    assert lost.held == pytest.approx(LIMIT, abs=EXACTLY)


@pytest.mark.fault(285)
@pytest.mark.parametrize("kind", ["cut", "stall"])
def test_the_time_of_an_outage(kind: str) -> None:
    """`on_suspect` is called as the event comes, with the same seconds: what is left of the lease."""
    found = 0
    for after in range(0, 200, 10):
        run = LimitedRun(calm(Visit("/lock", stay=8.0), deviations=(Deviation(after, kind, 0, 4),)))
        run.to_the_end()
        (process,) = run.processes
        (grammar,) = run.told.values()
        suspects = [event for event in grammar.events if isinstance(event, Suspect)]
        warned: list[tuple[float, float]] = process.warned  # type: ignore[attr-defined]
        assert len(warned) == len(suspects)
        for (at, left), event in zip(warned, suspects, strict=True):
            assert at == pytest.approx(event.at, abs=EXACTLY)
            assert left == pytest.approx(event.remaining, abs=EXACTLY)
            assert 0 < left < TIMEOUT
            found += 1
        ends = [event for event in grammar.events if isinstance(event, Recovered | Lost)]
        assert len(ends) == len(suspects)
    assert found > 5
