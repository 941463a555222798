"""The diagrams of the page on recipes, drawn from the rules: who holds and who watches whom is what the code says.

Each scene is a list of names as they are on the server. The library's own rules decide the rest, so no picture can
differ from the locks. The pictures are kept beside the page, for viewers that build nothing; the build draws them anew,
and `tests/docs/test_diagrams.py` compares.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from zkconcurrent._protocol.blocking_rules import MUTEX, READ, Rule, blocker, holders, line_up

FOLDER = Path(__file__).parent / "explanation" / "diagrams"

_BOX, _GAP, _MARGIN = 96, 28, 16
_ARCS, _HEIGHT = 60, 44
_HELD, _WAITS, _INK, _ARROW = "#bfe5c7", "#e8eaee", "#1f2430", "#b4552d"


class Scene(NamedTuple):
    """One queue at one moment.

    Attributes:
        title: what a screen reader says of it.
        queue: the children's names.
        rule: how the queue decides.
        permits: of a semaphore, the leases that are out, of how many; the first in the queue watches them.
    """

    title: str
    queue: tuple[str, ...]
    rule: Rule = MUTEX
    permits: tuple[int, int] = (0, 0)


def _locks(*numbers: int) -> tuple[str, ...]:
    return tuple(f"_c_{number}-lock-{number:010d}" for number in numbers)


def _pair(*marks: str) -> tuple[str, ...]:
    """Return names of readers and writers: "R3" and "W4"."""
    return tuple(f"_c_{mark}-{'__READ__' if mark[0] == 'R' else '__WRIT__'}{int(mark[1:]):010d}" for mark in marks)


SCENES = {
    "mutex": Scene("A lock: the first in the queue holds, each other watches the one ahead of it", _locks(0, 1, 2, 3)),
    "mutex-gap": Scene(
        "The second has given up: the third now watches the first, nobody else is woken", _locks(0, 2, 3)
    ),
    "readers": Scene(
        "Readers hold together; a writer watches the last of them; readers behind it watch the writer",
        _pair("R0", "R1", "W2", "R3", "R4", "W5"),
        READ,
    ),
    "downgrade": Scene(
        "A writer that reads: both its nodes have one number and hold; when the writer's goes, the reader's stays",
        _pair("W2", "R2", "W3", "R4"),
        READ,
    ),
    "semaphore": Scene(
        "A semaphore: the first in the queue watches the leases, each other the one ahead of it",
        _locks(7, 8, 9),
        permits=(3, 3),
    ),
}


def draw(scene: Scene) -> str:
    """Return the picture of a scene, as SVG."""
    line = line_up(scene.queue, scene.rule)
    out, permits = scene.permits
    hold = [] if permits else holders(line, scene.rule)
    left = out * (_BOX + _GAP) if permits else 0
    x = {name: _MARGIN + left + (_GAP if left else 0) + i * (_BOX + _GAP) for i, name in enumerate(line)}
    top = _ARCS
    parts = [_box(_MARGIN + i * (_BOX + _GAP), top, "lease", "held", _HELD) for i in range(out)]
    for name in line:
        says = "holds" if name in hold else "waits"
        parts.append(_box(x[name], top, _label(name), says, _HELD if name in hold else _WAITS))
    for name in line:
        ahead = blocker(name, line, scene.rule)
        if ahead is not None:
            parts.append(_arc(x[name], x[ahead], top))
        elif permits:
            parts.append(_arc(x[name], _MARGIN + (out - 1) * (_BOX + _GAP), top))
    width = max([*x.values(), left]) + _BOX + _MARGIN
    height = top + _HEIGHT + _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' font-family="sans-serif" role="img">',
            f"<title>{escape(scene.title)}</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
            ' orient="auto">',
            f'<path d="M0 0 8 4 0 8z" fill="{_ARROW}"/></marker></defs>',
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _label(name: str) -> str:
    """Return what is said of a node: its role and its number."""
    role, number = re.search(r"-(lock-|__READ__|__WRIT__)(\d+)$", name).groups()  # type: ignore[union-attr]
    return f"{ {'lock-': 'lock', '__READ__': 'read', '__WRIT__': 'write'}[role] } {int(number)}"


def _box(x: int, y: int, label: str, says: str, fill: str) -> str:
    middle = x + _BOX // 2
    return (
        f'<rect x="{x}" y="{y}" width="{_BOX}" height="{_HEIGHT}" rx="6" fill="{fill}" stroke="{_INK}"/>'
        f'<text x="{middle}" y="{y + 19}" text-anchor="middle" font-size="14" font-weight="bold" fill="{_INK}">'
        f"{escape(label)}</text>"
        f'<text x="{middle}" y="{y + 36}" text-anchor="middle" font-size="12" fill="{_INK}">{says}</text>'
    )


def _arc(start: int, end: int, top: int) -> str:
    """Return an arrow over the boxes, from who watches to what is watched."""
    a, b = start + _BOX // 2 - 10, end + _BOX // 2 + 10
    rise = top - min(_ARCS - 12, 26 + (a - b) // 7)
    return (
        f'<path d="M{a} {top - 3} C{a} {rise} {b} {rise} {b} {top - 3}" fill="none" stroke="{_ARROW}" '
        'stroke-width="2" marker-end="url(#tip)"/>'
    )


def draw_all() -> None:
    """Draw every scene; a file that is right already is not touched."""
    FOLDER.mkdir(exist_ok=True)
    for name, scene in SCENES.items():
        file, picture = FOLDER / f"{name}.svg", draw(scene)
        if not file.exists() or file.read_text() != picture:
            file.write_text(picture)


if __name__ == "__main__":
    draw_all()
