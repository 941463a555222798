"""One test over everything that the simulation tries of locks, and another over a fifth."""

from __future__ import annotations

import os
import time

import pytest

from tests.simulation.checks.explore import explore, prepared, tell
from tests.simulation.checks.table import LOCKS

pytestmark = pytest.mark.xdist_group("computing")  # the cases are prepared once in a process
STEPS = int(os.environ.get("SIM_STEPS", "20000"))
Report = list[str]


def test_whatever_strikes() -> None:
    """A fifth of the random runs: two never hold, nobody is forgotten and nothing is left."""
    found = explore(lambda steps, _: steps >= STEPS // 5)
    assert found.failed is None, tell(*found.failed)


@pytest.mark.long
def test_at_every_moment(simulated: Report) -> None:
    """With any fault, two never hold, nobody is forgotten and nothing is left."""
    all_cases = len(prepared())
    began = time.perf_counter()
    found = explore(lambda steps, tried: tried >= all_cases and steps >= STEPS)
    assert found.failed is None, tell(*found.failed)
    speed = found.steps / (time.perf_counter() - began)
    simulated.insert(0, f"{found.cases:,} cases, {found.steps:,} steps, {speed:,.0f} a second; operations x faults:")
    simulated.insert(1, LOCKS.render(found.cells))
    assert found.steps >= 20_000
    assert not LOCKS.holes(found.cells)
