"""What listeners are told in random runs of all primitives: for each owner and lock in order, whatever strikes.

The listener of each process is one that other threads may overtake, behind one that always fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.helpers.grammar import Grammar
from tests.simulation.subjects.cancels import CancelRun, random_cancels
from tests.simulation.subjects.condition import CondRun, random_turns
from tests.simulation.subjects.detached import DetachedRun
from tests.simulation.subjects.detached import random_acts as random_owners
from tests.simulation.subjects.election import ElectionRun
from tests.simulation.subjects.election import random_acts as random_terms
from tests.simulation.subjects.rwlock import RWRun, random_passes
from tests.simulation.subjects.semaphore import SemaphoreRun, random_uses
from tests.simulation.subjects.tasks import TaskRun, random_tasks
from tests.simulation.subjects.unfair import UnfairRun, random_unfair
from tests.simulation.world.run import Run, runs
from tests.simulation.world.schedule import Schedule, random_schedule
from tests.simulation.world.world import Violation
from zkconcurrent._engine import telling


def random_visits(seed: int) -> Schedule:
    """Draw visits to locks."""
    return random_schedule(Random(seed))


SUBJECTS: dict[str, tuple[type[Run], Callable[[int], Any], int]] = {
    "Lock": (Run, random_visits, 100),
    "ReadWriteLock": (RWRun, random_passes, 60),
    "Semaphore": (SemaphoreRun, random_uses, 60),
    "Condition": (CondRun, random_turns, 60),
    "Election": (ElectionRun, random_terms, 60),
    "DetachedLock": (DetachedRun, random_owners, 60),
    "unfair": (UnfairRun, random_unfair, 60),
    "tasks": (TaskRun, random_tasks, 100),
    "cancelled": (CancelRun, random_cancels, 60),
}


def fail(_: object) -> None:
    """Fail, as a listener of a program may."""
    raise ValueError


def heard(kind: type[Run], told: Counter[str], schedule: Any) -> Run:
    """Make a run that raises a `Violation` if its processes tell anything wrong; count what they tell."""
    run = kind(schedule)
    listeners = [(process, Grammar(lambda _: run.world.point())) for process in run.processes]
    for process, grammar in listeners:
        telling.add(fail, process.session)
        telling.add(grammar, process.session)
    end, to_the_end = run.checks.end, run.to_the_end

    def at_rest() -> None:
        end()
        for process, grammar in listeners:
            if process.alive and process.session.teller.untold:
                raise Violation(f"{process.name} has yet to tell {list(process.session.teller.untold)}")
            # Another process may have ended the hold of a detached lock's owner: only a release would tell.
            if process.alive and grammar.open() and kind is not DetachedRun:
                raise Violation(f"{process.name} never told the end of {grammar.open()}")

    def run_and_check() -> int:
        try:
            return to_the_end()
        finally:
            telling.registered.clear()
            for _, grammar in listeners:
                told.update(grammar.kinds())
                if grammar.wrong:
                    raise Violation(grammar.wrong[0])

    run.checks.end = at_rest  # type: ignore[method-assign]
    run.to_the_end = run_and_check  # type: ignore[method-assign]
    return run


@pytest.mark.parametrize("subject", SUBJECTS)
def test_whatever_strikes(subject: str) -> None:
    """Each acquire has one outcome, each hold one end; none is left out, told twice or told too early."""
    kind, draw, seeds = SUBJECTS[subject]
    told: Counter[str] = Counter()
    for _ in runs(partial(heard, kind, told), lambda seed: draw(seed), seeds):
        pass
    assert told["Acquired"] > 100
    assert told["Released"] > 50
