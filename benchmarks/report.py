"""The results of a run: Markdown tables, which read well in a terminal too, and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figures import BEFORE, OURS, Figure, find
from benchmarks.parts import EVENTS, PARTS, REQUESTS, SINCE_END, SINCE_KILL, TIME
from benchmarks.targets import TARGETS

NAMES = {
    "raw": "kazoo, raw create + delete",
    "kazoo": "kazoo",
    "curator": "Curator (Java)",
    OURS: "zkconcurrent",
    BEFORE: "zkconcurrent, before",
    "locking": "kazoo, LockingQueue",
    "watch": "kazoo, raw watch + list",
    "getting": "zkconcurrent, get",
    "unwaited": "zkconcurrent, release(wait=False)",
    "unfair": "zkconcurrent, fair=False",
    "one node": "1. one node, everyone tries",
    "everyone": "2. everyone watches the list",
    "twin": "zkconcurrent, threads",
    "pool": "kazoo, asyncio.to_thread",
    "aiozk": "aiozk",
    "aio": "zkconcurrent.aio",
    "awaited": "zkconcurrent.aio, release awaited",
}


def tables(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield a table for each part that was measured."""
    for name, part in PARTS.items():
        mine = [figure for figure in figures if figure.part == name]
        if mine:
            yield f"\n### {name}: {part.title}\n"
            if any(figure.quantity == TIME for figure in mine):
                yield from table(["waiters", "contestant", EVENTS, REQUESTS, TIME, "ours : it"], _queues(mine))
            else:
                ours = "ours : it" if part.ours == OURS else f"{part.ours} : it"
                yield from table(["case", "contestant", "quantity", "median", "middle half", ours], _rows(mine))


def _rows(figures: Sequence[Figure]) -> Iterator[list[str]]:
    case = ""
    for figure in figures:
        begins, case = figure.case != case, figure.case
        names = [case if begins else "", name_of(figure.contestant), figure.quantity]
        yield [*names, number(figure.median), _spread(figure), _ratio(figures, figure)]


def _queues(figures: Sequence[Figure]) -> Iterator[list[str]]:
    case = ""
    for figure in figures:
        if figure.quantity == TIME:
            begins, case = figure.case != case, figure.case
            counts = [find(figures, figure.part, case, each, figure.contestant) for each in (EVENTS, REQUESTS)]
            words = [number(each.median) for each in counts if each is not None]
            names = [case.partition(" ")[0] if begins else "", name_of(figure.contestant)]
            yield [*names, *words, f"{number(figure.median)} ({_spread(figure)})", _ratio(figures, figure)]


def _spread(figure: Figure) -> str:
    low, high = figure.spread
    return f"{number(low)} - {number(high)}"


def _ratio(figures: Sequence[Figure], figure: Figure) -> str:
    ours = find(figures, figure.part, figure.case, figure.quantity, PARTS[figure.part].ours)
    if ours is None or ours is figure or not figure.median or figure.quantity in (SINCE_END, SINCE_KILL):
        return ""  # the one may be negative, and most of the other is the server's
    return number(ours.ratio(figure))


def targets(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield the table of what was to be reached."""
    yield "\n### targets\n"
    yield from table(["figure", "target", "measured", "reached"], _targets(figures))


def _targets(figures: Sequence[Figure]) -> Iterator[list[str]]:
    for target in TARGETS:
        measured = target.measured(figures)
        reached = "not measured" if measured is None else "yes" if target.is_reached(measured) else "NO"
        bound = f"{'>=' if target.at_least else '<='} {target.bound:g}"
        yield [target.words, bound, "" if measured is None else number(measured), reached]


def table(head: Sequence[str], rows: Iterator[list[str]]) -> Iterator[str]:
    """Yield the lines of a table, its columns aligned."""
    cells = [list(head), *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for index, row in enumerate(cells):
        yield "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        if not index:
            yield "| " + " | ".join("-" * width for width in widths) + " |"


def number(value: float) -> str:
    """Write a figure with as many digits as mean something."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 20 else f"{value:.2f}"


def name_of(contestant: str) -> str:
    """Return what a contestant is called in tables and charts."""
    return NAMES.get(contestant, contestant)


def as_json(machine: Mapping[str, str], quick: bool, figures: Sequence[Figure]) -> dict[str, Any]:
    """Return a run as JSON has it."""
    return {
        "machine": dict(machine),
        "quick": quick,
        "figures": [{**vars(each), "median": each.median, "spread": each.spread} for each in figures],
        "targets": [
            {"figure": each.words, "bound": each.bound, "at least": each.at_least, "measured": each.measured(figures)}
            for each in TARGETS
        ],
    }


def from_json(run: Mapping[str, Any]) -> list[Figure]:
    """Return the figures of a run that was written."""
    fields = ("part", "case", "quantity", "contestant", "rounds")
    return [Figure(**{field: each[field] for field in fields}) for each in run["figures"]]
