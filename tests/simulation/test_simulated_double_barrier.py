"""Double barriers under random faults: parties enter together and leave together."""

from __future__ import annotations

import pytest

from tests.simulation.subjects.double_barrier import DoubleBarrierRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(104, 127)
def test_whatever_strikes() -> None:
    """Parties enter and leave together, nobody who is entitled to go on sleeps, and nothing is left."""
    injected = {kind for run in runs(DoubleBarrierRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS
