"""Dictionaries under random faults: reads go only forward, no update is lost."""

from __future__ import annotations

import pytest

from tests.simulation.subjects.dicts import DictRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(99, 100)
def test_whatever_strikes() -> None:
    """A written value is read, reads go only forward, each write is applied once, and the copies agree at rest."""
    injected = {kind for run in runs(DictRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS - {"late"} | {"lose"}
