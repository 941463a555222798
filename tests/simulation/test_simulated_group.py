"""Groups under random faults: a member has its node, or joins again; no client deletes another's."""

from __future__ import annotations

import pytest

from tests.simulation.subjects.group import GroupRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(278)
def test_whatever_strikes() -> None:
    """Each id has one member, who is there as long as it may, and nothing is left."""
    injected = {kind for run in runs(GroupRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS
