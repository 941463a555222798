"""The latch: counts down to 0, once, and lets all pass."""

from __future__ import annotations

from collections.abc import Iterator

from tests.models.history import Call, Model, Outcome


class Latch(Model):
    """Opens after `count` counts. Its state is what is left to count."""

    reads = ("count", "wait")

    def __init__(self, count: int) -> None:
        self.initial = count

    def apply(self, left: int, call: Call) -> Iterator[tuple[Outcome, int]]:
        """Count down (how many), count, or wait."""
        if call.what == "count_down":
            yield None, max(0, left - call.args[0])
        elif call.what == "count":
            yield left, left
        elif left == 0:
            yield True, left
        elif call.timeout is not None:
            yield False, left
