"""The words for figures: medians, spreads, ratios, targets, tables and charts, on numbers that are given."""

from __future__ import annotations

import pytest

from benchmarks.figures import Figure
from benchmarks.meter import Cost
from benchmarks.stage import Queue, Turn

NOTHING = Cost(0, 0, 0, 0, 0, 0, 0)
OURS = Figure("uncontended", "Lock", "ms", "ours", [1.0, 2.0, 9.0, 3.0])
KAZOO = Figure("uncontended", "Lock", "ms", "kazoo", [2.0, 5.0, 9.0, 4.0])


def test_a_median_and_its_spread() -> None:
    """A figure is the median of its rounds, its spread their middle half; of one round, that."""
    assert OURS.median == 2.5
    assert OURS.spread == (1.75, 4.5)
    assert Figure("", "", "", "", [7.0]).spread == (7.0, 7.0)


def test_a_ratio_is_taken_round_by_round() -> None:
    """It is the median of the rounds' ratios, not the ratio of the medians; rounds without a partner do not count."""
    assert OURS.ratio(KAZOO) == pytest.approx(0.625)  # of 0.5, 0.4, 1 and 0.75; the medians' would be 0.556
    assert OURS.ratio(Figure("", "", "", "", [10.0])) == 0.1


def test_hand_overs_are_those_between_processes_to_one_that_waited() -> None:
    """From release called to acquired; not within a process, nor to a contender that came just then."""
    ms = 1_000_000
    turns = [
        Turn(0, 0, 10 * ms, player=0),
        Turn(1 * ms, 12 * ms, 20 * ms, player=1),
        Turn(2 * ms, 21 * ms, 30 * ms, player=1),
        Turn(29 * ms, 33 * ms, 40 * ms, player=0),
    ]
    assert list(Queue(turns, NOTHING, 1).hand_overs(waited=3)) == [2.0]
    assert list(Queue(turns, NOTHING, 1).hand_overs()) == [2.0, 3.0]
