"""Conditions under random faults: no notification is lost, the lock is as it was."""

from __future__ import annotations

from tests.simulation.subjects.condition import CondRun, random_turns
from tests.simulation.world.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """No two hold together; a notified waiter wakes and says so; a waiter has all its levels again; nothing is left."""
    injected = {kind for run in runs(CondRun, random_turns, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"lose"}
