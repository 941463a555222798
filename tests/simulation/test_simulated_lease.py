"""Leases of the whole client, while servers disagree about who leads, in schedules that strike at its proofs.

`test_lease.py` asks the rule alone, in many more histories; here are those that the library
could be brought to by a change elsewhere.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.world.run import Run, runs
from tests.simulation.world.schedule import LEASE_KINDS, lease_schedule


@pytest.mark.fault(44, 45)
def test_whatever_strikes() -> None:
    """No lease runs when its session is over, with any leader, and with any messages late or lost."""
    injected = {kind for run in runs(Run, lambda seed: lease_schedule(Random(seed)), 150) for kind in run.injected}
    assert injected >= set(LEASE_KINDS)
