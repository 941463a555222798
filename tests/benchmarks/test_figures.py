"""The words for figures: medians, spreads, ratios, targets, tables and charts, on numbers that are given."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.charts import charts
from benchmarks.figures import Figure
from benchmarks.meter import Cost
from benchmarks.parts import EVENTS, REQUESTS, TIME
from benchmarks.report import tables, targets
from benchmarks.stage import Queue, Turn
from benchmarks.targets import TARGETS, Target

MACHINE = {"processor": "a processor, 2 cores", "python": "CPython 3", "zookeeper": "3.8, one server", "curator": "5.4"}
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


def test_targets() -> None:
    """A ratio to a peer, the figure itself, or the greatest of all crowds; none where it was not measured."""
    ratio = Target("", "uncontended", "Lock", "ms", "kazoo", 0.62)
    assert ratio.measured([OURS, KAZOO]) == pytest.approx(0.625)
    assert ratio.measured([OURS]) is ratio.measured([KAZOO]) is None
    assert Target("", "uncontended", "Lock", "ms", None, 3).measured([OURS]) == 2.5
    crowds = [Figure("crowd", f"{count} waiting", EVENTS, "ours", [count / 100]) for count in (1, 10, 100)]
    assert Target("", "crowd", "*", EVENTS, None, 1).measured(crowds) == 1.0
    assert ratio.is_reached(0.624)
    assert not ratio.is_reached(0.626)
    assert Target("", "", "", "", None, 1.7, True).is_reached(1.7)
    assert not Target("", "", "", "", None, 1.7, True).is_reached(1.6)


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


def test_tables_and_charts() -> None:
    """Every contestant has its row with the ratio of ours to it; every chart is well-formed, also of few figures."""
    quantities = ((EVENTS, 1.0), (REQUESTS, 5.0), (TIME, 2.0))
    crowd = [
        Figure("crowd", f"{count} waiting", quantity, name, [value])
        for count in (1, 1000)
        for name in ("ours", "kazoo")
        for quantity, value in quantities
    ]
    figures = [OURS, KAZOO, *crowd]
    lines = list(tables(figures))
    row = next(line for line in lines if "| kazoo" in line)
    assert [cell.strip() for cell in row.split("|")] == ["", "", "kazoo", "ms", "4.50", "3.50 - 6.00", "0.62", ""]
    assert any("| 1000" in line and "5.00" in line and "2.00 (2.00 - 2.00)" in line for line in lines)
    pictures = dict(charts(figures, MACHINE))
    assert set(pictures) == {"uncontended.svg", "crowd.svg"}
    assert all(ElementTree.fromstring(picture).tag.endswith("svg") for picture in pictures.values())
    assert sum("not measured" in line for line in targets(figures)) < len(TARGETS)
