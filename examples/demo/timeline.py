"""The picture: who held the lock when, as SVG.

A lane for each worker, a row for each of its threads, a mark for each hold. Seen as a whole the holds are thousands of
marks thinner than a pixel, so a second panel shows a few of them in a row, much enlarged.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from verdict import Fault, Hold, victim

WIDTH, LEFT, RIGHT = 1200, 120, 30
ROW, LANE_GAP = 13, 12
INK, PALE, RULE, SHADE = "#1f2933", "#6b7785", "#dfe3e8", "#f5f7f9"
THREADS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#7a5195", "#8c6d31", "#444444"]
FAULT = "#c0362c"
CLOSE_UP_HOLDS = 40


@dataclass(frozen=True)
class Panel:
    """A stretch of time drawn over the width of the picture, with all lanes below each other."""

    top: float
    start: float
    end: float
    workers: int
    threads: int

    @property
    def lane(self) -> float:
        """Height of a worker's lane, with the gap below it."""
        return self.threads * ROW + LANE_GAP

    @property
    def bottom(self) -> float:
        """Where the axis is."""
        return self.top + self.workers * self.lane

    def x(self, at: float) -> float:
        """Where an instant is, from left to right; what is outside is put on the edge."""
        share = (min(max(at, self.start), self.end) - self.start) / (self.end - self.start)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, worker: int, thread: int) -> float:
        """The upper edge of a thread's row."""
        return self.top + LANE_GAP / 2 + (worker - 1) * self.lane + (thread - 1) * ROW

    def lanes(self) -> Iterator[str]:
        """The background: a band and a name for each worker."""
        for worker in range(1, self.workers + 1):
            top = self.y(worker, 1)
            yield rect(LEFT, top - 2, WIDTH - LEFT - RIGHT, self.threads * ROW + 3, SHADE)
            yield text(LEFT - 14, top + self.threads * ROW / 2 + 4, f"worker {worker}", "end", weight=600)

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
        yield line(LEFT, self.bottom, WIDTH - RIGHT, self.bottom, PALE)

    def marks(self, holds: Iterable[Hold], least: float) -> Iterator[str]:
        """One path for each row, with a box of at least `least` pixels for each hold."""
        rows: dict[tuple[int, int], list[str]] = {}
        for hold in holds:
            if hold.end < self.start or hold.start > self.end:
                continue
            x = self.x(hold.start)
            width = max(self.x(hold.end) - x, least)
            y = self.y(hold.worker, hold.thread)
            rows.setdefault((hold.worker, hold.thread), []).append(
                f"M{x:.1f} {y:.1f}h{width:.1f}v{ROW - 2}h-{width:.1f}z"
            )
        for (_, thread), boxes in sorted(rows.items()):
            yield f'<path fill="{color(thread)}" d="{"".join(boxes)}"/>'


def draw(holds: Sequence[Hold], faults: Sequence[Fault], workers: int, threads: int, title: str, subtitle: str) -> str:
    """The whole picture.

    Args:
        holds: in the order they began; at least one.
        faults: marked by where they struck and how long they kept everyone waiting.
        workers: how many lanes.
        threads: how many rows in each.
        title: of the picture.
        subtitle: the figures, in a line.
    """
    start, end = holds[0].start, max(hold.end for hold in holds)
    whole = Panel(150, start, end, workers, threads)
    seen = holds[len(holds) // 8 :][:CLOSE_UP_HOLDS]
    close = Panel(whole.bottom + 92, seen[0].start, seen[-1].end, workers, threads)
    height = close.bottom + 72

    body = [
        rect(0, 0, WIDTH, height, "#ffffff"),
        text(LEFT - 92, 36, title, size=20, weight=700),
        text(LEFT - 92, 59, subtitle, fill=PALE, size=13),
        *whole.lanes(),
        *(shape for fault in faults for shape in waiting(fault, whole)),
        *whole.axis(round_step(end - start, 18), "s"),
        *whole.marks(holds, 0.5),
        *(shape for fault in faults for shape in strike(fault, victim(fault, holds), whole)),
        *zoom(whole, close),
        *close.lanes(),
        *close.axis(round_step(close.end - close.start, 16), "ms"),
        *close.marks(seen, 1.0),
        *legend(close.bottom + 50, threads),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}"'
            f' viewBox="0 0 {WIDTH} {height:.0f}" font-family="Helvetica, Arial, sans-serif">',
            f"<title>{escape(title)}</title>",
            '<defs><pattern id="waiting" width="7" height="7" patternUnits="userSpaceOnUse"'
            ' patternTransform="rotate(45)"><rect width="7" height="7" fill="#fdecea"/>'
            f'<rect width="2" height="7" fill="{FAULT}"/></pattern></defs>',
            *body,
            "</svg>\n",
        ]
    )


def waiting(fault: Fault, panel: Panel) -> Iterator[str]:
    """The time in which the lock belonged to somebody who could not use it."""
    left, right = panel.x(fault.at), panel.x(fault.next_grant)
    yield rect(left, panel.top, right - left, panel.bottom - panel.top, "#fdf3f1")
    y = panel.y(fault.worker, fault.thread)
    yield rect(left, y, max(right - left, 1), ROW - 2, "url(#waiting)")
    if fault.kind == "killed":
        middle = panel.y(fault.worker, 1) + panel.threads * ROW / 2 + 4
        yield text(right + 10, middle, f"worker {fault.worker} is no more", fill=PALE)


def strike(fault: Fault, hold: Hold | None, panel: Panel) -> Iterator[str]:
    """Where the fault struck, and where it ended, with words above the lanes."""
    if fault.woken and hold:
        fate = "its late write is refused, for its old token" if hold.refused else "its late write is taken"
        yield from flag(panel, fault.woken, 62, [f"worker {fault.worker} wakes: {fate}"])
    what = "killed (SIGKILL)" if fault.kind == "killed" else "frozen (SIGSTOP)"
    wait = fault.next_grant - fault.at
    after = f"nobody gets in for {wait:.1f} s, until its session expires" if wait > 0.1 else "the others go on at once"
    yield from flag(panel, fault.at, 36, [f"worker {fault.worker} is {what} inside", after])


def flag(panel: Panel, at: float, height: float, words: Sequence[str]) -> Iterator[str]:
    """A line across the lanes with words at its upper end, on the side with more room."""
    x = panel.x(at)
    yield line(x, panel.top - height, x, panel.bottom, FAULT, 1.5)
    anchor, x = ("end", x - 7) if x > WIDTH * 0.7 else ("start", x + 7)
    for row, part in enumerate(words):
        yield text(x, panel.top - height + 10 + 16 * row, part, anchor, FAULT, weight=400 if row else 700)


def zoom(whole: Panel, close: Panel) -> Iterator[str]:
    """Lines from the stretch that is enlarged to the panel that shows it."""
    left, right = whole.x(close.start), max(whole.x(close.end), whole.x(close.start) + 1.5)
    top = whole.bottom + 26
    yield rect(left, whole.top, right - left, whole.bottom - whole.top, INK, 0.2)
    points = f"{left:.1f},{top} {right:.1f},{top} {WIDTH - RIGHT},{close.top - 6} {LEFT},{close.top - 6}"
    yield f'<polygon points="{points}" fill="{INK}" fill-opacity="0.06"/>'
    words = f"the same, enlarged: {CLOSE_UP_HOLDS} holds in a row, {(close.end - close.start) * 1000:.0f} ms"
    yield text((LEFT + WIDTH - RIGHT) / 2, close.top - 18, words, "middle", weight=600)


def legend(y: float, threads: int) -> Iterator[str]:
    """What the colours mean."""
    x: float = LEFT
    for thread in range(1, threads + 1):
        yield rect(x, y - 10, 18, ROW - 2, color(thread))
        yield text(x + 25, y, f"thread {thread} holds")
        x += 132
    yield rect(x, y - 10, 18, ROW - 2, "url(#waiting)")
    yield text(x + 25, y, "a dead or frozen process holds, until its session expires")


def round_step(span: float, most: int) -> float:
    """The smallest of 0.001, 0.002, 0.005, 0.01, ... that divides the span into at most `most` parts."""
    step = 0.001
    while True:
        for factor in (1, 2, 5):
            if span <= step * factor * most:
                return step * factor
        step *= 10


def color(thread: int) -> str:
    """Of a thread's holds, the same in every lane."""
    return THREADS[(thread - 1) % len(THREADS)]


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
