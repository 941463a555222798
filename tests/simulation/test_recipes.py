"""Every operation of every recipe has met every fault that can befall it, with all that is checked in random runs."""

from __future__ import annotations

import time
from collections import Counter
from importlib import import_module
from pkgutil import iter_modules
from random import Random

import pytest

from tests.simulation import checks, subjects
from tests.simulation.checks import data_recipes
from tests.simulation.checks.explore import EVERYTHING, ORDER, injected, tell
from tests.simulation.checks.table import LOCKS, Cell, Table
from tests.simulation.world.injection import InjectedRun

pytestmark = pytest.mark.long
# A primitive's table is in `checks`, or beside its subject.
MODULES = [
    import_module(f"{folder.__name__}.{module.name}")
    for folder in (checks, subjects)
    for module in iter_modules(folder.__path__)
]
FOUND = {id(each): each for module in MODULES for each in vars(module).values() if isinstance(each, Table)}
TABLES = [table for table in FOUND.values() if table is not LOCKS]  # its runs are in test_simulation.py


@pytest.mark.fault(134, 266)
@pytest.mark.filterwarnings("ignore:acquire.. waits for 4 permits:RuntimeWarning")  # they are being added
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_whatever_strikes_wherever(table: Table, simulated: list[str]) -> None:
    """With any fault at any operation, all invariants hold; no fault is left out."""
    cells: Counter[Cell] = Counter()
    runs = steps = 0
    began = time.perf_counter()
    cases = list(injected(table))
    Random(ORDER).shuffle(cases)  # so that one injection for each cell has all situations, ways and moments
    for case in cases:
        assert case.cell is not None
        if cells[case.cell] and not EVERYTHING:
            continue
        run = case.make()
        assert isinstance(run, InjectedRun)
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


@pytest.mark.fault(132, 267)
@pytest.mark.parametrize(
    "table", [data_recipes.VALUE, data_recipes.MAP, data_recipes.QUEUE], ids=lambda table: table.name
)
@pytest.mark.parametrize("operation", ["DetachTicket", "Discard"])
def test_an_interrupt_as_a_ticket_outlives_its_call(table: Table, operation: str) -> None:
    """A client knows of all that it keeps beyond a call, from before the call to its very end."""
    cases = [
        each for each in injected(table) if each.cell and (each.cell.operation, each.cell.fault) == (operation, 16)
    ]
    assert cases
    for case in cases:
        try:
            case.make().to_the_end()
        except Exception as error:
            pytest.fail(tell(case, error))
