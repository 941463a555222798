"""Semaphores under random faults: the invariants hold after every step."""

from __future__ import annotations

import pytest

from tests.simulation.subjects.resizing import ResizeRun, random_resizes
from tests.simulation.subjects.semaphore import SemaphoreRun, random_uses
from tests.simulation.world.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """No more permits are out than there are; nobody is forgotten; nothing is left, and nothing added twice."""
    injected = {kind for run in runs(SemaphoreRun, random_uses, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"remove", "reap", "lose"}


@pytest.mark.fault(97, 98)
def test_whatever_strikes_a_resize() -> None:
    """No permit is granted that was not free; nobody waits for one that is; the last number that was set stays."""
    injected = {kind for run in runs(ResizeRun, random_resizes, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"remove", "reap", "lose"}
