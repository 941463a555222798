"""One test over everything that the simulation tries, for the library as it is and for each seeded mutant of it."""

from __future__ import annotations

import os
import time

import pytest

from tests.simulation.checks.explore import explore, prepared, tell
from tests.simulation.checks.found import note, noted
from tests.simulation.checks.mutants import MUTANTS, Mutant, seeded
from tests.simulation.checks.table import LOCKS

pytestmark = pytest.mark.xdist_group("computing")  # the cases are prepared once in a process
STEPS = int(os.environ.get("SIM_STEPS", "20000"))
Report = list[str]


def test_whatever_strikes() -> None:
    """A fifth of the random runs: two never hold, nobody is forgotten and nothing is left."""
    found = explore(lambda steps, _: steps >= STEPS // 5)
    assert found.failed is None, tell(*found.failed)


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(None, marks=pytest.mark.long, id="the library"), *MUTANTS],
    ids=lambda mutant: mutant.name,
)
def test_simulation(mutant: Mutant | None, simulated: Report) -> None:
    """With any fault, two never hold, nobody is forgotten and nothing is left; each seeded bug is found."""
    all_cases = len(prepared())
    began = time.perf_counter()
    if mutant is not None:
        with seeded(mutant):
            found = explore(lambda _, tried: tried >= all_cases, noted(mutant.name), everything=True)
        assert found.failed is not None, f"{found.steps:,} steps did not find it"
        case, error = found.failed
        note(mutant.name, case.name)
        simulated.append(
            f"{mutant.name:75} {found.cases:5} cases {found.steps:8,} steps: {type(error).__name__} {error}"[:170]
        )
        return
    found = explore(lambda steps, tried: tried >= all_cases and steps >= STEPS)
    assert found.failed is None, tell(*found.failed)
    speed = found.steps / (time.perf_counter() - began)
    simulated.insert(0, f"{found.cases:,} cases, {found.steps:,} steps, {speed:,.0f} a second; operations x faults:")
    simulated.insert(1, LOCKS.render(found.cells))
    assert found.steps >= 20_000
    assert not LOCKS.holes(found.cells)
