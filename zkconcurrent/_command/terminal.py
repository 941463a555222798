"""What people read: tables that fit a terminal, durations, and colours."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

BOLD, RED = "\x1b[1m", "\x1b[31m"
_NORMAL = "\x1b[m"
# In characters: a name may have a million, and would make each line of a table that wide.
_WIDEST = 300
# In characters: the least width to which a column is narrowed.
_NARROWEST = 8
_BETWEEN = "  "


def has_screen() -> bool:
    """Return whether standard output is a terminal whose lines can be overwritten."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def styled(style: str, text: str) -> str:
    """Return text in a style, where colours are wanted."""
    return f"{style}{text}{_NORMAL}" if has_screen() and not os.environ.get("NO_COLOR") else text


def size() -> os.terminal_size:
    """Return the terminal's size; COLUMNS and LINES, which shells export, may be outdated."""
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        found = os.terminal_size((0, 0))
    return found if all(found) else shutil.get_terminal_size()


def age(seconds: float) -> str:
    """Return a duration in its two largest units, such as "3d 2h"."""
    whole = max(0, int(seconds))
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "m"), (whole % 60, "s")]
    while len(parts) > 1 and not parts[0][0]:
        del parts[0]
    return " ".join(f"{count}{unit}" for count, unit in parts[:2])


def table(rows: Sequence[dict[str, str]], *, fits: bool) -> list[str]:
    """Return the lines of a table, the first of which has the columns' names.

    Args:
        rows: the cells of each row, by column; all rows have the same columns.
        fits: if standard output is a terminal, cut texts in their middle until the lines fit.
    """
    lines = [[*rows[0]], *([*row.values()] for row in rows)] if rows else []
    widths = [min(max(map(len, column)), _WIDEST) for column in zip(*lines, strict=True)]
    if fits := fits and sys.stdout.isatty():
        room = size().columns - len(_BETWEEN) * (len(widths) - 1)
        while sum(widths) > room and (widest := max(widths)) > _NARROWEST:
            widths[widths.index(widest)] -= 1
    return [
        _BETWEEN.join(
            (_cut(text, width) if fits else text).ljust(width) for text, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]


def _cut(text: str, width: int) -> str:
    """Cut out a text's middle: hosts differ at their beginnings, paths at their ends."""
    if len(text) <= width:
        return text
    kept = width - len("..")
    return f"{text[: kept // 2]}..{text[-(kept - kept // 2) :]}"
