"""Barriers under random faults: the invariants hold after every step."""

from __future__ import annotations

from tests.simulation.subjects.barrier import BarrierRun, random_meetings
from tests.simulation.world.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """All living parties of a generation pass or none does; nobody is forgotten; nothing is left."""
    injected: set[str] = set()
    trips = failures = actions = meetings = leaves = 0
    for run in runs(BarrierRun, random_meetings, 120):
        injected.update(run.injected)
        meetings += 1
        trips, failures = trips + len(run.checks.trips), failures + len(run.checks.failed)
        actions += len(run.checks.acted)
        leaves += run.checks.withdrawn > 0
    assert injected >= COMMON_FAULTS | {"remove", "close", "slow", "leave"}
    assert min(trips, failures) > meetings
    assert leaves > meetings / 4
    assert actions > meetings / 4  # in three of ten schedules a trip has one
