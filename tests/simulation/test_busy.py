"""Servers that are so busy that they refuse a request now and then, and serve those behind it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.simulation.subjects.condition import CondRun, random_turns
from tests.simulation.subjects.event import EventRun, random_steps
from tests.simulation.subjects.rwlock import RWRun, random_passes
from tests.simulation.subjects.semaphore import SemaphoreRun, random_uses
from tests.simulation.world.ensemble import Transport
from tests.simulation.world.run import Run, runs
from tests.simulation.world.schedule import random_schedule

pytestmark = [pytest.mark.fault(160), pytest.mark.long]
SHARE = 0.1  # of all requests


def busy(run: Run, seed: int) -> Run:
    """Have the servers of a run refuse a request now and then."""
    random, serve = Random(f"busy {seed}"), run.ensemble.serve

    def serve_or_refuse(wire: Transport) -> None:
        wire.throttled = wire.throttled or random.random() < SHARE
        serve(wire)

    run.ensemble.serve = serve_or_refuse  # type: ignore[method-assign]
    return run


@pytest.mark.parametrize(
    ("kind", "schedule_of"),
    [
        pytest.param(Run, lambda seed: random_schedule(Random(seed)), id="lock"),
        pytest.param(RWRun, random_passes, id="rwlock"),
        pytest.param(SemaphoreRun, random_uses, id="semaphore"),
        pytest.param(CondRun, random_turns, id="condition"),
        pytest.param(EventRun, random_steps, id="event"),
    ],
)
def test_whatever_strikes(kind: type[Run], schedule_of: Callable[[int], Any]) -> None:
    """All holds that always must."""
    seeds = iter(range(1_000_000))
    for run in runs(lambda schedule: busy(kind(schedule), next(seeds)), schedule_of, 50):
        assert run.checks is not None
