"""Pictures as SVG: a panel has lanes, a lane has rows, and each stretch of time is a box in a row."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LEFT, RIGHT = 1200, 120, 30
ROW, LANE_GAP = 13, 12
INK, PALE, RULE, SHADE = "#1f2933", "#6b7785", "#dfe3e8", "#f5f7f9"
COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#7a5195", "#8c6d31", "#444444"]
FAULT = "#c0362c"


@dataclass(frozen=True)
class Box:
    """A stretch of time in a row of a lane; rows and lanes count from 1."""

    lane: int
    row: int
    start: float
    end: float
    color: str


@dataclass(frozen=True)
class Panel:
    """A stretch of time over the width of the picture, with the lanes below each other."""

    top: float
    start: float
    end: float
    names: Sequence[str]  # of the lanes
    rows: int  # in each
    row: float = ROW  # height
    left: float = LEFT

    @property
    def lane(self) -> float:
        """Height of a lane, with the gap below it."""
        return self.rows * self.row + LANE_GAP

    @property
    def bottom(self) -> float:
        """The y of the axis."""
        return self.top + len(self.names) * self.lane

    def x(self, at: float) -> float:
        """The x of an instant; an instant outside the panel is put on its edge."""
        share = (min(max(at, self.start), self.end) - self.start) / (self.end - self.start)
        return self.left + share * (WIDTH - self.left - RIGHT)

    def y(self, lane: int, row: int) -> float:
        """The upper edge of a row."""
        return self.top + LANE_GAP / 2 + (lane - 1) * self.lane + (row - 1) * self.row

    def lanes(self) -> Iterator[str]:
        """The background: a band and a name for each lane."""
        for number, name in enumerate(self.names, 1):
            top = self.y(number, 1)
            yield rect(self.left, top - 2, WIDTH - self.left - RIGHT, self.rows * self.row + 3, SHADE)
            yield text(self.left - 14, top + self.rows * self.row / 2 + 4, name, "end", weight=600)

    def axis(self, step: float, label: str) -> Iterator[str]:
        """Lines and numbers every `step` seconds, counted from 0."""
        unit = 1000 if label == "ms" else 1
        tick = 0
        while self.start + tick * step <= self.end:
            x = self.x(self.start + tick * step)
            yield line(x, self.top, x, self.bottom + 4, RULE)
            name = f"{tick * step * unit:g}"
            yield text(x, self.bottom + 18, f"{name} {label}" if tick == 0 else name, "middle", PALE)
            tick += 1
        yield line(self.left, self.bottom, WIDTH - RIGHT, self.bottom, PALE)

    def marks(self, boxes: Iterable[Box], least: float) -> Iterator[str]:
        """One path for each colour of each row, with a box of at least `least` pixels for each stretch."""
        rows: dict[tuple[int, int, str], list[str]] = {}
        for box in boxes:
            if box.end < self.start or box.start > self.end:
                continue
            x = self.x(box.start)
            width = max(self.x(box.end) - x, least)
            y = self.y(box.lane, box.row)
            rows.setdefault((box.lane, box.row, box.color), []).append(
                f"M{x:.1f} {y:.1f}h{width:.1f}v{max(self.row - 2, 1):g}h-{width:.1f}z"
            )
        for (_, _, fill), shapes in sorted(rows.items()):
            yield f'<path fill="{fill}" d="{"".join(shapes)}"/>'


def svg(title: str, height: float, body: Iterable[str], definitions: str = "") -> str:
    """The whole file."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}"'
            f' viewBox="0 0 {WIDTH} {height:.0f}" font-family="Helvetica, Arial, sans-serif">',
            f"<title>{escape(title)}</title>",
            f"<defs>{definitions}</defs>",
            rect(0, 0, WIDTH, height, "#ffffff"),
            *body,
            "</svg>\n",
        ]
    )


def round_step(span: float, most: int) -> float:
    """The smallest of 0.001, 0.002, 0.005, 0.01, ... that divides the span into at most `most` parts."""
    step = 0.001
    while True:
        for factor in (1, 2, 5):
            if span <= step * factor * most:
                return step * factor
        step *= 10


def color(number: int) -> str:
    """One of the colours, by a number from 1."""
    return COLORS[(number - 1) % len(COLORS)]


def rect(x: float, y: float, width: float, height: float, fill: str, opacity: float = 1) -> str:
    """A filled box."""
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect {box} fill="{fill}" fill-opacity="{opacity:g}"/>'


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, width: float = 1) -> str:
    """A straight line."""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{stroke}" stroke-width="{width:g}"/>'


def text(
    x: float, y: float, words: str, anchor: str = "start", fill: str = INK, size: int = 12, weight: int = 400
) -> str:
    """A line of text; `y` is its baseline."""
    style = f'text-anchor="{anchor}" fill="{fill}" font-size="{size}" font-weight="{weight}"'
    halo = 'paint-order="stroke" stroke="#ffffff" stroke-width="4" stroke-opacity="0.85"'  # keeps lines off the words
    return f'<text x="{x:.1f}" y="{y:.1f}" {style} {halo}>{escape(words)}</text>'
