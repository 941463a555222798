"""The cases that the simulation tries, always in the same order.

Three kinds of cases take turns: injections of the table (a fault at one operation), faults at each point at which the
target's turn can end, and random schedules. A case that fails is told as a schedule, made as small as can be, with
its trace.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from operator import itemgetter
from random import Random
from typing import NamedTuple

from tests.helpers.places import PLACES
from tests.simulation.checks.table import EVERYWHERE, LOCKS, SITUATIONS, Cell, Table
from tests.simulation.world.injection import InjectedRun, Lines, Way
from tests.simulation.world.run import TIMES, Run
from tests.simulation.world.schedule import Schedule, random_schedule
from tests.simulation.world.shrink import shrink
from tests.simulation.world.world import Violation

RANDOM = 400
ORDER = 7  # any will do
TRACE = 60
EVERYTHING = PLACES > 2 or TIMES > 1  # else, for the library as it is, one injection for each cell of a table


class Case(NamedTuple):
    """A case to try.

    Attributes:
        name: its description.
        make: makes the run, with `trace=True` or without.
        schedule: of a random case, the drawn schedule.
        cell: of a injection, where it counts.
    """

    name: str
    make: Callable[..., Run]
    schedule: Schedule | None = None
    cell: Cell | None = None


class Found(NamedTuple):
    """The result of an exploration.

    Attributes:
        steps, cases: how many were run.
        cells: how often each fault was injected at each operation.
        failed: the case that failed, and how.
    """

    steps: int
    cases: int
    cells: Counter[Cell]
    failed: tuple[Case, BaseException] | None


def random_case(seed: int) -> Case:
    """Return the random case of a seed."""
    schedule = random_schedule(Random(seed))
    return Case(f"random schedule {seed}", partial(Run, schedule), schedule)


def injected(table: Table) -> Iterator[Case]:
    """Yield every injection of a table."""
    for situation, injection, cell in table.injections():
        where = f"{cell.recipe}, operation {injection.operation} ({cell.operation})"
        how = f"fault {injection.fault}, {injection.way.__name__}, {injection.moment}"
        name = f"situation {table.situations.index(situation)}, {where}: {how}"
        yield Case(name, partial(table.run, situation, injection), cell=cell)


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


def _calm() -> Iterator[Case]:
    for n, situation in enumerate(SITUATIONS):
        if situation.first is None:
            yield Case(f"situation {n}, calm", partial(CalmRun, situation))


class CalmRun(InjectedRun):
    """A run in which nothing goes wrong."""

    def to_the_end(self) -> int:
        """Run; nothing may be lost.

        Raises:
            Violation: something was, or anything else is wrong.
        """
        steps = super().to_the_end()
        if self.checks.lost:
            raise Violation(f"lost, and nothing went wrong: {list(self.checks.lost)}")
        return steps


@cache
def prepared() -> list[Case]:
    """Return all cases, to be called while the library is as it is: runs show where a fault can be injected."""
    kinds = [
        [random_case(seed) for seed in range(RANDOM)],
        list(injected(LOCKS)),
        *(list(points(way)) for way in EVERYWHERE),
    ]
    for kind in kinds[1:]:
        Random(ORDER).shuffle(kind)
    # Spread evenly, each kind over all; but interrupts, of which each finds something else, come early.
    when = [(n / len(kind) / (4 if kind is kinds[2] else 1), case) for kind in kinds for n, case in enumerate(kind)]
    return [*_calm(), *(case for _, case in sorted(when, key=itemgetter(0)))]


def _cases() -> Iterator[Case]:
    yield from prepared()
    yield from map(random_case, itertools.count(RANDOM))


def explore(enough: Callable[[int, int], bool], first: str | None = None, *, everything: bool = EVERYTHING) -> Found:
    """Try the cases one after the other, until one fails or, by the steps and cases there were, it is enough.

    Args:
        enough: by the steps and the cases that there were, the omitted ones included.
        first: the name of the one to begin with.
        everything: whether also to run an injection whose cell of the table is filled; else it is omitted.
    """
    steps = tried = omitted = 0
    cells: Counter[Cell] = Counter()
    beginning = (case for case in prepared() if case.name == first)
    for case in itertools.chain(beginning, _cases()):
        if enough(steps, tried + omitted):
            break
        if not everything and case.cell is not None and cells[case.cell]:
            omitted += 1
            continue
        run = case.make()
        tried += 1
        try:
            run.to_the_end()
        except Exception as error:
            return Found(steps + run.world.steps, tried, cells, (case, error))
        steps += run.world.steps
        if isinstance(run, InjectedRun) and case.cell is not None and run.injections[-1] in run.happened:
            cells[case.cell] += 1
    return Found(steps, tried, cells, None)


def tell(case: Case, error: BaseException) -> str:
    """Return a failure in a reader's words: the least schedule that fails so, and the events of its run."""
    if case.schedule is not None:
        return f"{case.name}\n{aloud(Run, case.schedule)}"
    return f"{case.name}\n{_events(case.make, error)}"


def aloud(make: Callable[..., Run], schedule: Schedule) -> str:
    """Return what fails in the run of a schedule: the least schedule that fails so, and the events of its run."""
    kind = _kind(_error(make(schedule)))
    if kind == _kind(None):
        return f"{schedule}\nnothing fails"
    least = shrink(schedule, lambda schedule: _kind(_error(make(schedule))) == kind)
    return f"{least}\n{_events(partial(make, least))}"


def _events(make: Callable[..., Run], error: BaseException | None = None) -> str:
    run = make(trace=True)
    error = _error(run) or error
    return "\n".join([*(run.world.trace or [])[-TRACE:], f"{type(error).__name__}: {error}"])


def _error(run: Run) -> BaseException | None:
    try:
        run.to_the_end()
    except Exception as error:
        return error
    return None


def _kind(error: BaseException | None) -> object:
    return type(error), str(error)[:12]
