"""The random run, or case, that found each seeded bug when all were last searched for: it is tried first.

A change of the code gives others their turn, and the run may find nothing any more; then all are tried, as ever. So
a noted run saves time, and proves nothing by itself. `make seeds` searches anew.
"""

from __future__ import annotations

import os
from pathlib import Path

NOTES = Path(__file__).with_name("found.txt")
_searches = bool(os.environ.get("SIM_SEARCH"))


def _read() -> dict[str, str]:
    lines = NOTES.read_text().splitlines()
    return dict(line.split("\t") for line in lines)  # type: ignore[misc]


_noted = {} if _searches else _read()
stale: list[str] = []
"""The bugs that their noted runs did not find."""


def noted(bug: str) -> str | None:
    """Return what found a bug: a seed, or a case's name."""
    return _noted.get(bug)


def note(bug: str, by: object) -> None:
    """Note what has found it, if this run is there to search. Several processes may do so at once."""
    if _searches:
        with NOTES.open("a") as notes:
            notes.write(f"{bug}\t{by}\n")
