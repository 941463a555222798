"""The charts, as SVG: bars where contestants do one thing, curves where a queue grows.

Each bar is a median, with its value; the thin line on it is the middle half of the rounds. Curves have a logarithmic
scale both ways: a cost that grows with the queue rises, any other is flat.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.figures import OURS, Figure, find
from benchmarks.parts import CROWDS, EVENTS, HERDS, PARTS, PEERS, REQUESTS, STRATEGIES, TIME
from benchmarks.report import name_of, number
from benchmarks.stage import ROOT

# The demo is a folder to be run, not a package: its modules are imported as they import each other.
sys.path.append(str(ROOT / "examples" / "demo"))

from panel import INK, PALE, RULE, WIDTH, line, rect, svg, text

MARGIN, NAMES = 28, 400  # where text begins, and bars
BAR, GAP = 20, 14
COLORS = {
    OURS: "#0072b2",
    "unfair": "#56b4e9",
    "kazoo": "#e69f00",
    "raw": "#b8bfc7",
    "curator": "#009e73",
    "one node": "#c0362c",
    "everyone": "#cc79a7",
    "aio": "#0072b2",
    "awaited": "#0072b2",
    "twin": "#56b4e9",
    "pool": "#e69f00",
    "aiozk": "#009e73",
}
OTHERS = "#8c6d31"
BARS = {  # the file, the part, its quantity, and the title above it
    "uncontended.svg": ("uncontended", "ms", "Acquire + release, nobody else there", "milliseconds; less is better"),
    "network.svg": ("network", "ms", "Acquire + release through a network", "milliseconds; less is better"),
    "reentrant.svg": ("reentrant", "µs", "Acquire + release of what is held", "microseconds; less is better"),
    "try.svg": ("try", "ms", "A try that fails", "milliseconds; less is better"),
    "threads.svg": ("threads", "cycles/s", "Eight threads of a process, one lock", "cycles per second; more is better"),
    "handover.svg": ("handover", "ms", "Hand-over between processes", "milliseconds; less is better"),
    "tasks.svg": ("tasks", "ms", "Tasks of one event loop, one lock", "milliseconds; less is better"),
    "readers.svg": ("readers", "cycles/s", "Eight readers, four processes", "cycles per second; more is better"),
}


def charts(figures: Sequence[Figure], machine: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the name of a file and a chart, for each part that was measured."""
    versions = f"{machine['python']}, ZooKeeper {machine['zookeeper'].partition(',')[0]}, Curator {machine['curator']}"
    on = f"{machine['processor']}; {versions}"
    for name, (part, quantity, title, unit) in BARS.items():
        mine = [figure for figure in figures if figure.part == part and figure.quantity == quantity]
        if mine:
            yield name, bars(title, f"{unit}. {on}", mine)
    for name, part, counts, who, title in (
        ("crowd.svg", "crowd", CROWDS, PEERS, "A crowd waits: threads of four processes"),
        ("herd.svg", "herd", HERDS, STRATEGIES, "Three strategies: each waiter in a session of its own"),
    ):
        if any(figure.part == part for figure in figures):
            panels = [
                Curves(
                    quantity,
                    "waiters",
                    {
                        each: [(n, found.median) for n in counts if (found := _at(figures, part, n, quantity, each))]
                        for each in who
                    },
                )
                for quantity in (EVENTS, REQUESTS, TIME)
            ]
            yield name, curves(title, on, panels, {each: (_role(each, who), COLORS[each]) for each in who})


class Curves(NamedTuple):
    """A panel: a quantity, the meaning of the counts below it, and for each curve its points."""

    quantity: str
    axis: str
    series: Mapping[str, Sequence[tuple[float, float]]]


def bars(title: str, subtitle: str, figures: Sequence[Figure]) -> str:
    """Draw a bar for each contestant, with the cases below each other."""
    cases = list(dict.fromkeys(figure.case for figure in figures))
    scale = (WIDTH - NAMES - 110) / max(figure.spread[1] for figure in figures)
    y, body = 86.0, [*_head(title, subtitle)]
    for case in cases:
        body.append(text(MARGIN, y + BAR * 0.7, case, weight=700))
        for figure in (each for each in figures if each.case == case):
            low, high = (NAMES + edge * scale for edge in figure.spread)
            end = NAMES + figure.median * scale
            middle = y + BAR / 2 - 2
            bold = 700 if figure.contestant == PARTS[figure.part].ours else 400
            body += [
                text(NAMES - 10, y + BAR * 0.7, name_of(figure.contestant), "end", weight=bold),
                rect(NAMES, y, max(end - NAMES, 1), BAR - 4, COLORS.get(figure.contestant, OTHERS)),
                line(low, middle, high, middle, INK),
                line(low, middle - 3, low, middle + 3, INK),
                line(high, middle - 3, high, middle + 3, INK),
                text(max(end, high) + 8, y + BAR * 0.7, number(figure.median), weight=bold),
            ]
            y += BAR
        y += GAP
    body.append(line(NAMES, 80, NAMES, y - GAP, PALE))
    return svg(title, y + 10, body)


def curves(title: str, subtitle: str, panels: Sequence[Curves], who: Mapping[str, tuple[str, str]]) -> str:
    """Draw panels side by side: how each quantity grows.

    Args:
        title: above all.
        subtitle: below it.
        panels: from left to right.
        who: the name and the colour of each curve; ours is thicker.
    """
    body = [*_head(title, f"logarithmic scales; less is better. {subtitle}")]
    width, height, top = 300, 300, 120
    for place, panel in enumerate(panels):
        left = 75 + place * 385
        values = [value for series in panel.series.values() for _, value in series]
        counts = sorted({count for series in panel.series.values() for count, _ in series})
        low = math.floor(math.log10(max(min(values), 0.1)))
        high = math.floor(math.log10(max(values))) + 1
        first = math.log10(counts[0])
        last = max(math.log10(counts[-1]), first + 1)

        def at(
            count: float,
            value: float,
            left: float = left,
            low: int = low,
            high: int = high,
            first: float = first,
            last: float = last,
        ) -> tuple[float, float]:
            share = (math.log10(max(value, 10**low)) - low) / (high - low)
            return left + (math.log10(count) - first) / (last - first) * width, top + height * (1 - share)

        body.append(text(left - 40, top - 18, panel.quantity, weight=700))
        for power in range(low, high + 1):
            _, y = at(counts[0], 10**power)
            body += [
                line(left, y, left + width, y, RULE),
                text(left - 8, y + 4, f"{10**power:,}" if power >= 0 else f"{10**power:g}", "end", PALE),
            ]
        for count in counts:
            x, _ = at(count, 1)
            body += [
                line(x, top, x, top + height, RULE),
                text(x, top + height + 18, f"{count}" if count < 1000 else f"{count / 1000:g}k", "middle", PALE),
            ]
        body.append(text(left + width / 2, top + height + 38, panel.axis, "middle", PALE))
        for name, series in panel.series.items():
            points = [at(*point) for point in series]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            thick, color = 3 if name == OURS else 2, who[name][1]
            body.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{thick}"/>')
            body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in points]
    for place, (name, (words, color)) in enumerate(who.items()):
        x = 75 + place * 230
        body += [
            rect(x, top + height + 62, 18, 11, color),
            text(x + 26, top + height + 72, words, weight=700 if name == OURS else 400),
        ]
    return svg(title, top + height + 95, body)


def _role(name: str, who: Sequence[str]) -> str:
    """Return what a curve is called: ours is the third of the strategies."""
    return "3. each watches the one ahead" if name == OURS and who is STRATEGIES else name_of(name)


def _at(figures: Sequence[Figure], part: str, count: int, quantity: str, name: str) -> Figure | None:
    return find(figures, part, f"{count} waiting", quantity, name)


def _head(title: str, subtitle: str) -> Iterator[str]:
    yield text(MARGIN, 36, title, size=20, weight=700)
    yield text(MARGIN, 59, subtitle, fill=PALE, size=13)
