"""What listeners are told in random runs of all primitives: for each owner and lock in order, whatever strikes."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from typing import Any

import pytest

from tests.helpers.grammar import Grammar
from tests.simulation.subjects.detached import DetachedRun
from tests.simulation.world.run import Run, runs
from tests.simulation.world.world import Violation
from zkconcurrent._engine import telling

SUBJECTS = {
    "cancels": ("CancelRun", "random_cancels", 60),
    "condition": ("CondRun", "random_turns", 60),
    "detached": ("DetachedRun", "random_acts", 40),
    "election": ("ElectionRun", "random_acts", 60),
    "quorum": ("QuorumRun", "random_takes", 10),
    "rwlock": ("RWRun", "random_passes", 60),
    "semaphore": ("SemaphoreRun", "random_uses", 60),
    "tasks": ("TaskRun", "random_tasks", 100),
    "unfair": ("UnfairRun", "random_unfair", 60),
}


def heard(run: Run) -> list[Grammar]:
    """Have each process of a run listened to by one that other threads may overtake, and by one that fails."""
    told = []
    end = run.checks.end
    removes = []

    def fail(_: object) -> None:
        raise ValueError

    for process in run.processes:
        told.append(grammar := Grammar(lambda _: run.world.point()))
        for listener in (fail, grammar):
            removes.append(telling.add(listener, process.session))

    def all_told() -> None:
        end()
        for process, grammar in zip(run.processes, told, strict=True):
            if not process.alive:
                continue
            if process.session.teller.untold:
                raise Violation(f"{process.name} has yet to tell {list(process.session.teller.untold)}")
            # Another process may have ended the hold of an owner, which this one learns of at a release alone.
            if grammar.open() and not isinstance(run, DetachedRun):
                raise Violation(f"the end was not told: {grammar.open()}")

    run.checks.end = all_told  # type: ignore[method-assign]
    return told


@pytest.mark.parametrize("subject", SUBJECTS)
def test_whatever_strikes(subject: str) -> None:
    """Each acquire has one outcome, each hold one end; none is left out, told twice or told too early."""
    module = import_module(f"tests.simulation.subjects.{subject}")
    kind, draw, seeds = SUBJECTS[subject]
    told: list[Grammar] = []
    kinds: Counter[str] = Counter()

    def make(schedule: Any) -> Run:
        run: Run = getattr(module, kind)(schedule)
        told[:] = heard(run)
        return run

    for _ in runs(make, getattr(module, draw), seeds):
        for each in told:
            assert each.wrong == []
            kinds.update(each.kinds())

    assert kinds["Acquired"] > 100
