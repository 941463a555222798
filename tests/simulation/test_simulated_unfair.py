"""Unfair locks under random faults: the invariants hold after every step."""

from __future__ import annotations

from tests.simulation.subjects.unfair import ClosedRun, UnfairRun, random_unfair
from tests.simulation.world.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """No two hold together, by one ticket or two; nobody waits at an open gate; nothing is left, there or in it."""
    injected: set[str] = set()
    handed_over = []
    for run in runs(UnfairRun, random_unfair, 100):
        injected.update(run.injected)
        handed_over.append(run.checks.handed_over)
    assert injected >= COMMON_FAULTS | {"remove", "close"}
    assert sum(handed_over) > len(handed_over) / 2


def test_a_session_that_ends_while_something_is_kept() -> None:
    """No thread is given a ticket that was lost while it was kept for it."""
    closed = 0
    while (run := ClosedRun(closed)).to_the_end() and run.kept_for > closed:
        closed += 1
    assert closed > 20
