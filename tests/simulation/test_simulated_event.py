"""Events under random faults: every call is right at some moment of its own, no set is missed."""

from __future__ import annotations

import pytest

from tests.simulation.subjects.event import EventRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs

pytestmark = pytest.mark.fault(240)


def test_whatever_strikes() -> None:
    """No set is missed, none is doubled, nobody who is entitled to go on sleeps, and nothing is left."""
    injected = {kind for run in runs(EventRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"remove"}
