"""Every operation of every recipe has met every fault that can befall it, with all that is checked in random runs."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from tests.simulation.explore import injected, tell
from tests.simulation.injection import InjectedRun
from tests.simulation.recipes import TABLES
from tests.simulation.table import Cell, Table

pytestmark = pytest.mark.long


@pytest.mark.filterwarnings("ignore:acquire.. waits for 4 permits:RuntimeWarning")  # they are being added
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_whatever_strikes_wherever(table: Table, simulated: list[str]) -> None:
    """Whatever strikes at whichever operation, all holds that always must; no fault is left out."""
    cells: Counter[Cell] = Counter()
    runs = steps = 0
    began = time.perf_counter()
    for case in injected(table):
        run = case.make()
        assert isinstance(run, InjectedRun)
        assert case.cell is not None
        try:
            run.to_the_end()
        except Exception as error:
            pytest.fail(tell(case, error))
        runs, steps = runs + 1, steps + run.world.steps
        cells[case.cell] += run.injections[-1] in run.happened
    seconds = time.perf_counter() - began
    simulated.append(f"{table.name}: {runs:,} injected runs, {steps:,} steps, {seconds:.0f} s; operations x faults:")
    simulated.append(table.render(cells))
    assert not table.holes(cells)
