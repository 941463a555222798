"""Make a schedule that fails as short and as calm as it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.simulation.world.schedule import Deviation, Schedule

KINDS = {"reentrant", "do"}  # the fields of a visit that say what it is


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """Return the least schedule that is found to fail still, taking one thing away, or simplifying it, at a time."""
    while True:
        for candidate in _simpler(schedule):
            if fails(candidate):
                schedule = candidate
                break
        else:
            return schedule


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    threads, deviations, round_trip = schedule
    if round_trip:
        yield schedule._replace(round_trip=0.0)
    n = len(deviations)
    for size in (n // 2, n // 4, 2, 1):
        for i in range(0, n, size) if size else ():
            yield schedule._replace(deviations=deviations[:i] + deviations[i + size :])
            if i + size < n:  # the next deviations happen when they did
                gap = sum(each.after for each in deviations[i : i + size])
                later = deviations[i + size]
                later = later._replace(after=later.after + gap)
                yield schedule._replace(deviations=[*deviations[:i], later, *deviations[i + size + 1 :]])
    for p, process in enumerate(threads):
        if len(threads) > 1:
            yield schedule._replace(threads=threads[:p] + threads[p + 1 :])
        for t, (start, visits) in enumerate(process):

            def instead(*other: tuple[float, list[Any]], p: int = p, t: int = t) -> Schedule:
                new = [*threads[p][:t], *other, *threads[p][t + 1 :]]
                return schedule._replace(threads=[*threads[:p], new, *threads[p + 1 :]])

            if len(process) > 1:
                yield instead()
            if start:
                yield instead((0.0, visits))
            for v, visit in enumerate(visits):
                if len(visits) > 1:
                    yield instead((start, visits[:v] + visits[v + 1 :]))
                for simpler in _simpler_visits(visit):
                    yield instead((start, [*visits[:v], simpler, *visits[v + 1 :]]))
    for i, deviation in enumerate(deviations):
        for milder in _milder(deviation):
            yield schedule._replace(deviations=[*deviations[:i], milder, *deviations[i + 1 :]])


def _simpler_visits(visit: Any) -> Iterator[Any]:
    """Yield the visit with one of its fields as it is by default, the last first; not its kind."""
    for field, plain in reversed(visit._field_defaults.items()):
        if getattr(visit, field) != plain and field not in KINDS:
            yield visit._replace(**{field: plain})
    if getattr(visit, "within", None) is not None:
        yield visit.within


def _milder(deviation: Deviation) -> Iterator[Deviation]:
    if deviation.which:
        yield deviation._replace(which=0)
    if deviation.length:
        yield deviation._replace(length=0)
    for after in (1, deviation.after // 2, deviation.after - 3, deviation.after - 1):
        if 0 < after < deviation.after:
            yield deviation._replace(after=after)
