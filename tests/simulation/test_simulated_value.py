"""Atomic numbers and shared values under random faults: every change is applied once."""

from __future__ import annotations

import pytest

from tests.simulation.subjects.values import ValueRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(92, 93, 133)
def test_whatever_strikes() -> None:
    """An answered change was applied once, a refused one never; no turn is left, and no waiter misses its value."""
    injected = {kind for run in runs(ValueRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"lose", "strike"}
