"""Locks whose releases wait for nothing, under random faults: the same invariants hold after every step."""

from __future__ import annotations

from functools import partialmethod
from random import Random
from unittest.mock import patch

from tests.simulation.subjects.rwlock import RWRun, random_passes
from tests.simulation.world.run import COMMON_FAULTS, Run, runs
from tests.simulation.world.schedule import random_schedule
from zkconcurrent import Lock, RLock


def test_whatever_strikes() -> None:
    """No two hold together, nobody is forgotten, nothing is left, and no client waits for itself."""
    injected: set[object] = set()
    with (
        patch.object(Lock, "release", partialmethod(Lock.release, wait=False)),
        patch.object(RLock, "release", partialmethod(RLock.release, wait=False)),
    ):
        for run in runs(Run, lambda seed: random_schedule(Random(seed)), 100):
            injected.update(run.injected)
        for run in runs(RWRun, random_passes, 60):
            injected.update(run.injected)
    assert injected >= COMMON_FAULTS
