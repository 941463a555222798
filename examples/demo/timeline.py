"""The picture: when each thread held the lock, as SVG.

Each worker has a lane, each of its threads a row, each hold a mark. In the whole run the holds are thousands of marks
thinner than a pixel, so a second panel enlarges a few consecutive ones.
"""

from collections.abc import Iterable, Iterator, Sequence

from panel import FAULT, INK, LEFT, PALE, RIGHT, ROW, WIDTH, Box, Panel, color, line, rect, round_step, svg, text
from verdict import Fault, Hold, victim

CLOSE_UP_HOLDS = 40
PATTERN = (
    '<pattern id="waiting" width="7" height="7" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)"><rect width="7" height="7" fill="#fdecea"/>'
    f'<rect width="2" height="7" fill="{FAULT}"/></pattern>'
)


def draw(holds: Sequence[Hold], faults: Sequence[Fault], workers: int, threads: int, title: str, subtitle: str) -> str:
    """Returns the whole picture.

    Args:
        holds: in the order they began; at least one.
        faults: each is marked where it began, and for as long as it kept all threads out.
        workers: the number of lanes.
        threads: the number of rows in each.
        title: of the picture.
        subtitle: the figures, in one line.
    """
    start, end = holds[0].start, max(hold.end for hold in holds)
    lanes = [f"worker {worker}" for worker in range(1, workers + 1)]
    whole = Panel(150, start, end, lanes, threads)
    seen = holds[len(holds) // 8 :][:CLOSE_UP_HOLDS]
    close = Panel(whole.bottom + 92, seen[0].start, seen[-1].end, lanes, threads)
    height = close.bottom + 72

    body = [
        text(LEFT - 92, 36, title, size=20, weight=700),
        text(LEFT - 92, 59, subtitle, fill=PALE, size=13),
        *whole.lanes(),
        *(shape for fault in faults for shape in waiting(fault, whole)),
        *whole.axis(round_step(end - start, 18), "s"),
        *whole.marks(boxes(holds), 0.5),
        *(shape for fault in faults for shape in strike(fault, victim(fault, holds), whole)),
        *zoom(whole, close),
        *close.lanes(),
        *close.axis(round_step(close.end - close.start, 16), "ms"),
        *close.marks(boxes(seen), 1.0),
        *legend(close.bottom + 50, threads),
    ]
    return svg(title, height, body, PATTERN)


def boxes(holds: Iterable[Hold]) -> Iterator[Box]:
    """A box for each hold."""
    for hold in holds:
        yield Box(hold.worker, hold.thread, hold.start, hold.end, color(hold.thread))


def waiting(fault: Fault, panel: Panel) -> Iterator[str]:
    """The time in which a dead or frozen worker kept the lock."""
    left, right = panel.x(fault.at), panel.x(fault.next_grant)
    yield rect(left, panel.top, right - left, panel.bottom - panel.top, "#fdf3f1")
    y = panel.y(fault.worker, fault.thread)
    yield rect(left, y, max(right - left, 1), ROW - 2, "url(#waiting)")
    if fault.kind == "killed":
        middle = panel.y(fault.worker, 1) + panel.rows * ROW / 2 + 4
        yield text(right + 10, middle, f"worker {fault.worker} is dead", fill=PALE)


def strike(fault: Fault, hold: Hold | None, panel: Panel) -> Iterator[str]:
    """The start and the end of a fault, with words above the lanes."""
    if fault.woken and hold:
        fate = "the store refuses its late write (old token)" if hold.refused else "the store takes its late write"
        yield from flag(panel, fault.woken, 62, [f"worker {fault.worker} wakes: {fate}"])
    what = "killed (SIGKILL)" if fault.kind == "killed" else "frozen (SIGSTOP)"
    wait = fault.next_grant - fault.at
    after = f"others wait {wait:.1f} s, until its session expires" if wait > 0.1 else "others go on at once"
    yield from flag(panel, fault.at, 36, [f"worker {fault.worker} is {what} inside", after])


def flag(panel: Panel, at: float, height: float, words: Sequence[str]) -> Iterator[str]:
    """A line across the lanes, with words at its upper end on the side with more room."""
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
    words = f"enlarged: {CLOSE_UP_HOLDS} consecutive holds, {(close.end - close.start) * 1000:.0f} ms"
    yield text((LEFT + WIDTH - RIGHT) / 2, close.top - 18, words, "middle", weight=600)


def legend(y: float, threads: int) -> Iterator[str]:
    """The meaning of the colours."""
    x: float = LEFT
    for thread in range(1, threads + 1):
        yield rect(x, y - 10, 18, ROW - 2, color(thread))
        yield text(x + 25, y, f"thread {thread} holds")
        x += 132
    yield rect(x, y - 10, 18, ROW - 2, "url(#waiting)")
    yield text(x + 25, y, "a dead or frozen process holds until its session expires")
