"""The picture of a run: the faults in their time, and the holders of each path, drawn as the demo draws its own."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from tests.soak.checks.history import Hold
from tests.soak.checks.items import Ledger
from tests.soak.run import Verdict

# The demo is a folder to be run, not a package: its modules are imported as they import each other.
sys.path.append(str(Path(__file__).parents[2] / "examples" / "demo"))

from panel import FAULT, PALE, RULE, Box, Panel, color, line, rect, round_step, svg, text

WIDE = 230  # room for names
NARROW = 6  # height of a row
NEAR = 0.0005  # of the picture's width: holds of a row this close are drawn as one


def picture(verdict: Verdict) -> str:
    """Draw it."""
    history, plan = verdict.history, verdict.plan
    claims = [claim for path, stock in history.queues.items() for claim in Ledger(history, path, stock).claims]
    holds = [hold for hold in (*history.holds, *claims) if hold.end > hold.start]
    start = verdict.start
    end = max((hold.end for hold in holds if hold.end < float("inf")), default=start + 1)
    kinds = sorted({fault.kind for fault in history.faults})
    paths = [*history.models, *history.queues]
    rows = {name: row for row, name in enumerate(sorted(_places(holds)), 1)}

    upper = Panel(100, start, end, kinds, 1, left=WIDE)
    lower = Panel(upper.bottom + 50, start, end, paths, len(rows), NARROW, WIDE)
    faults = [Box(kinds.index(each.kind) + 1, 1, each.at, each.until, FAULT) for each in history.faults]
    title = f"The holders of each lock over time, and the faults (seed {plan.seed})"
    subtitle = (
        f"{len(holds):,} holds of {plan.places} processes in {plan.duration:g} s; {len(history.faults)} faults;"
        f" {len(verdict.violations)} violations"
    )
    body = [
        text(28, 36, title, size=20, weight=700),
        text(28, 59, subtitle, fill=PALE, size=13),
        *upper.lanes(),
        *lower.lanes(),
        *(line(upper.x(each.at), upper.top, upper.x(each.at), lower.bottom, RULE, 0.6) for each in history.faults),
        *upper.marks(faults, 2.0),
        *lower.axis(round_step(end - start, 18), "s"),
        *lower.marks(_boxes(holds, paths, rows, NEAR * (end - start)), 0.5),
        *(shape for each in verdict.violations for shape in _flag(lower, each.at, each.rule)),
        *_legend(lower.bottom + 50, plan.places),
    ]
    return svg(title, lower.bottom + 72, body)


def _places(holds: Iterable[Hold]) -> set[tuple[str, int]]:
    """Return the rows: the threads of each place, whichever process was there."""
    return {_row(hold) for hold in holds}


def _row(hold: Hold) -> tuple[str, int]:
    return hold.who[0].partition(".")[0], hold.who[1]


def _boxes(holds: list[Hold], paths: list[str], rows: dict[tuple[str, int], int], near: float) -> Iterator[Box]:
    def lane(hold: Hold) -> tuple[int, tuple[str, int]]:
        return paths.index(hold.path) + 1, _row(hold)

    for (number, row), group in groupby(sorted(holds, key=lambda hold: (lane(hold), hold.start)), key=lane):
        box: Box | None = None
        for hold in group:
            if box is not None and hold.start - box.end <= near:
                box = replace(box, end=max(box.end, hold.end))
                continue
            if box is not None:
                yield box
            box = Box(number, rows[row], hold.start, hold.end, color(int(row[0])))
        if box is not None:
            yield box


def _flag(panel: Panel, at: float, rule: str) -> Iterator[str]:
    x = panel.x(at)
    yield line(x, panel.top - 10, x, panel.bottom, FAULT, 1.5)
    yield text(x + 5, panel.top - 4, f"violation: {rule}", fill=FAULT, weight=700)


def _legend(y: float, places: int) -> Iterator[str]:
    for place in range(1, places + 1):
        x = WIDE + (place - 1) * 132
        yield rect(x, y - 10, 18, 11, color(place))
        yield text(x + 25, y, f"worker {place} holds")
    yield text(WIDE + places * 132, y, "a row for each of its threads", fill=PALE)
