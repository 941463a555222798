"""Detached locks under random faults: one owner holds, until that is ended on purpose."""

from __future__ import annotations

import pytest

from tests.simulation.subjects.detached import DetachedRun, random_acts
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(114, 115, 116, 117, 129, 130, 131)
def test_whatever_strikes() -> None:
    """No two hold, only the owner or an operator ends a hold, failed acquires leave none, and nobody waits in vain."""
    injected: set[str] = set()
    confirmed = adopted = 0
    for run in runs(DetachedRun, random_acts, 100):
        injected.update(run.injected)
        confirmed += len(run.checks.confirmed)
        adopted += len(run.checks.adopted)
    assert injected >= COMMON_FAULTS | {"lose", "strike", "remove", "end_waits"}
    assert confirmed > 60
    assert adopted > 10
