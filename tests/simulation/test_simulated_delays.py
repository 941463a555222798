"""Queues of delayed items under random faults, and clocks that are set: none early, none slept past."""

from __future__ import annotations

import pytest

from tests.simulation.subjects.queues import QueueRun, random_delays
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(86)
def test_whatever_strikes() -> None:
    """No item is taken before its consumer's clock says that it is due, lost or taken twice; no consumer oversleeps."""
    injected = {kind for run in runs(QueueRun, random_delays, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"lose", "strike", "set_clock"}
