"""Every operation of every recipe has met every fault that can befall it, with all that is checked in random runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from pkgutil import iter_modules
from random import Random

import pytest

from tests.simulation import checks, subjects
from tests.simulation.checks.data_recipes import MAP, QUEUE, VALUE
from tests.simulation.checks.explore import EVERYTHING, ORDER, Case, events, injected, points
from tests.simulation.checks.recipes import SITUATIONS
from tests.simulation.checks.table import EVERYWHERE, Cell, Table
from tests.simulation.world.injection import InjectedRun, Situation, Way

# A primitive's table is in `checks`, or beside its subject.
MODULES = [
    import_module(f"{folder.__name__}.{module.name}")
    for folder in (checks, subjects)
    for module in iter_modules(folder.__path__)
]
TABLES = [*{id(each): each for module in MODULES for each in vars(module).values() if isinstance(each, Table)}.values()]


def run(case: Case) -> InjectedRun:
    """Run a case to its end; if that fails, tell of it."""
    made = case.make()
    try:
        made.to_the_end()
    except Exception as error:
        pytest.fail(f"{case.name}\n{events(case.make(), error)}")
    return made


def shuffled(cases: Iterable[Case]) -> list[Case]:
    """Return cases in an order of no pattern."""
    found = list(cases)
    Random(ORDER).shuffle(found)
    return found


@pytest.mark.long
@pytest.mark.fault(134, 160, 266)
@pytest.mark.filterwarnings("ignore:acquire.. waits for 4 permits:RuntimeWarning")  # they are being added
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_whatever_strikes_wherever(table: Table) -> None:
    """With any fault at any operation, all invariants hold; no fault is left out."""
    cells: Counter[Cell] = Counter()
    for case in shuffled(injected(table)):  # so that one injection for each cell has all situations, ways and moments
        assert case.cell is not None
        if EVERYTHING or not cells[case.cell]:
            tried = run(case)
            cells[case.cell] += tried.injections[-1] in tried.happened
    assert not table.holes(cells)


@pytest.mark.long
@pytest.mark.parametrize("way", EVERYWHERE, ids=lambda way: way.__name__)
def test_whatever_strikes_at_any_moment_of_a_lock(way: Way) -> None:
    """With a fault wherever the thread's turn can end, two never hold, nobody is forgotten and nothing is left."""
    for case in points(way):
        run(case)


@pytest.mark.parametrize("situation", [each for each in SITUATIONS if each.first is None])
def test_nothing_is_lost_in_calm(situation: Situation) -> None:
    """Where nothing goes wrong, no hold is lost."""
    assert not run(Case("calm", lambda: InjectedRun(situation))).checks.lost


@pytest.mark.long
@pytest.mark.fault(132, 267)
@pytest.mark.parametrize("table", [VALUE, MAP, QUEUE], ids=lambda table: table.name)
@pytest.mark.parametrize("operation", ["DetachTicket", "Discard"])
def test_an_interrupt_as_a_ticket_outlives_its_call(table: Table, operation: str) -> None:
    """A client knows of all that it keeps beyond a call, from before the call to its very end."""
    cases = [each for each in injected(table) if each.cell and each.cell[1:] == (operation, 16)]
    assert cases
    for case in cases:
        run(case)
