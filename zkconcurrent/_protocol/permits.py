"""How many permits a semaphore has: the number in its node `permits`, and what the names of its children add."""

from __future__ import annotations

import re
from collections.abc import Sequence

ADDED = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-([0-9]{1,19})")
"""The names of the nodes that add permits: a UUID, and how many permits it adds."""
_NUMBER = re.compile(rb"([0-9]{1,19})|(-?[0-9]{1,24}) resized")


def count(added: Sequence[str]) -> int:
    """Return how many permits were added."""
    return sum(int(match[1]) for match in map(ADDED.fullmatch, added) if match is not None)


def number_in(data: bytes) -> tuple[int, bool] | None:
    """Return the number of permits besides the added ones, and whether `resize` has written it; None for other data.

    It is negative if a resize has left fewer permits than were added.
    """
    number = _NUMBER.fullmatch(data)
    return None if number is None else (int(number[1] or number[2]), number[2] is not None)
