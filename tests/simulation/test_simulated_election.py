"""Elections under random faults: one leads, all changes are observed."""

from __future__ import annotations

import pytest

from tests.simulation.subjects.election import ElectionRun, random_acts
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(89, 109)
def test_whatever_strikes() -> None:
    """No two lead, terms that are lost are told, nobody waits in vain, and nothing is left."""
    injected = {kind for run in runs(ElectionRun, random_acts, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS
