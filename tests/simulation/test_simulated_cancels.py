"""`cancel_waits()` under random faults: no wait that was ended goes on or leaves anything."""

from __future__ import annotations

import pytest

from tests.simulation.subjects.cancels import CancelRun, random_cancels
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(95)
def test_whatever_strikes() -> None:
    """A wait that was ended holds nothing, leaves nothing and does not go on; all others get their turns."""
    injected: set[str] = set()
    told = 0
    for run in runs(CancelRun, random_cancels, 100):
        injected.update(run.injected)
        told += run.told
    assert injected >= COMMON_FAULTS | {"cancel", "shut", "end_waits"}
    assert told > 100
