"""Versions that begin anew, under random faults: all nodes that several clients write have been written very often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.subjects import barrier, dicts, double_barrier, values
from tests.simulation.world.ensemble import LAST
from tests.simulation.world.run import Run, Schedule, runs

KINDS: dict[str, tuple[Callable[[Schedule], Run], Callable[[int], Schedule]]] = {
    "values": (values.ValueRun, values.random_steps),
    "maps": (dicts.DictRun, dicts.random_steps),
    "barriers": (barrier.BarrierRun, barrier.random_meetings),
    "double barriers": (double_barrier.DoubleBarrierRun, double_barrier.random_steps),
}


def worn(kind: str) -> Callable[[Any], Run]:
    """Return what makes a run of that kind on nodes whose versions are about to wrap around."""

    def make(schedule: Any) -> Run:
        run = KINDS[kind][0](schedule)
        run.ensemble.worn = LAST - 1
        return run

    return make


@pytest.mark.fault(172)
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_strikes(kind: str) -> None:
    """Every change counts as before."""
    for run in runs(worn(kind), KINDS[kind][1], 30):
        assert run.injected
