"""Faults wherever they can strike: at each operation, and where a turn can end; and a failure in a reader's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from tests.helpers.places import PLACES
from tests.simulation.checks.recipes import SITUATIONS
from tests.simulation.checks.table import Cell, Table
from tests.simulation.world.injection import InjectedRun, Lines, Way
from tests.simulation.world.run import TIMES, Run
from tests.simulation.world.schedule import Schedule
from tests.simulation.world.shrink import shrink

ORDER = 7  # any will do
TRACE = 60
EVERYTHING = PLACES > 2 or TIMES > 1  # else, for the library as it is, one injection for each cell of a table


class Case(NamedTuple):
    """A case to try.

    Attributes:
        name: its description.
        make: makes the run.
        cell: of an injection, where it counts.
    """

    name: str
    make: Callable[[], InjectedRun]
    cell: Cell | None = None


def injected(table: Table) -> Iterator[Case]:
    """Yield every injection of a table."""
    for situation, injection, cell in table.injections():
        where = f"{cell.recipe}, operation {injection.operation} ({cell.operation})"
        how = f"fault {injection.fault}, {injection.way.__name__}, {injection.moment}"
        name = f"situation {table.situations.index(situation)}, {where}: {how}"
        yield Case(name, partial(table.run, situation, injection), cell)


def points(way: Way) -> Iterator[Case]:
    """Yield runs in which it happens where the target's turn can end, up to `PLACES` of those with the same lines."""
    seen: Counter[Lines] = Counter()
    for n, situation in enumerate(SITUATIONS):
        calm = InjectedRun(situation, at=(0, way))
        calm.to_the_end()
        for at, lines in enumerate(calm.points, 1):
            seen[lines] += 1
            if seen[lines] <= PLACES:
                yield Case(f"situation {n}, point {at}: {way.__name__}", partial(InjectedRun, situation, at=(at, way)))


def aloud(make: Callable[[Schedule], Run], schedule: Schedule) -> str:
    """Return what fails in the run of a schedule: the least schedule that fails so, and the events of its run."""
    kind = _kind(_error(make(schedule)))
    if kind == _kind(None):
        return f"{schedule}\nnothing fails"
    least = shrink(schedule, lambda schedule: _kind(_error(make(schedule))) == kind)
    return f"{least}\n{events(make(least))}"


def events(run: Run, error: BaseException | None = None) -> str:
    """Return the last events of a run, and how it fails, or has failed before."""
    run.world.trace = []
    error = _error(run) or error
    return "\n".join([*run.world.trace[-TRACE:], f"{type(error).__name__}: {error}"])


def _error(run: Run) -> BaseException | None:
    try:
        run.to_the_end()
    except Exception as error:
        return error
    return None


def _kind(error: BaseException | None) -> object:
    return type(error), str(error)[:12]
