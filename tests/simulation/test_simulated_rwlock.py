"""Read-write locks under random faults: the invariants hold after every step."""

from __future__ import annotations

from tests.simulation.subjects.rwlock import RWRun, random_passes
from tests.simulation.world.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """No reader and writer, and no two writers, hold together; nobody is forgotten; nothing is left."""
    injected = {kind for run in runs(RWRun, random_passes, 120) for kind in run.injected}
    assert injected >= COMMON_FAULTS
