"""Figures: the measured values, round by round, and the text about them.

A machine is never quiet, and a disturbance of one round affects all contestants of it. So a figure is the median of its
rounds, its spread the middle half of them, and a ratio is taken within each round first: the median of the ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

OURS = "ours"
BEFORE = "before"  # an earlier revision of ours


@dataclass
class Figure:
    """One quantity of one contestant.

    Attributes:
        part: of the benchmark.
        case: the measured action.
        quantity: the measured quantity, with its unit.
        contestant: the contestant that did it.
        rounds: the values, the first round first; a contestant that stops early has fewer.
    """

    part: str
    case: str
    quantity: str
    contestant: str
    rounds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of the rounds."""
        return median(self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        """The middle half of the rounds: the first and the third quartile."""
        if len(self.rounds) < 2:
            return self.rounds[0], self.rounds[0]
        low, _, high = quantiles(self.rounds, n=4, method="inclusive")
        return low, high

    def ratio(self, other: Figure) -> float:
        """This to the other, pair by pair."""
        pairs = zip(self.rounds, other.rounds, strict=False)
        return median(mine / others if others else float("inf") for mine, others in pairs)


def find(figures: Sequence[Figure], part: str, case: str, quantity: str, contestant: str) -> Figure | None:
    """Return that figure, if it was measured."""
    wanted = (part, case, quantity, contestant)
    return next(
        (each for each in figures if (each.part, each.case, each.quantity, each.contestant) == wanted and each.rounds),
        None,
    )
