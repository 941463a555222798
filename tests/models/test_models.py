"""Each model refuses each history that breaks its rule, and takes the history beside it that does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from tests.models.dictionary import Dict
from tests.models.event import Event
from tests.models.history import OPEN, Call, Model, Violation, check
from tests.models.latch import Latch
from tests.models.values import AtomicLong


def call(actor: str, begun: float, ended: float | None, what: str, outcome: Any, *args: Any, **more: Any) -> Call:
    """Return a call of a history."""
    return Call(actor, what, args, begun=begun, ended=ended, outcome=outcome, **more)


def row(*calls: Any) -> list[Call]:
    """Return calls that are made one after the other: the actor, the call, its outcome, its arguments."""
    return [call(actor, n, n + 0.5, what, outcome, *args) for n, (actor, what, outcome, *args) in enumerate(calls)]


class Forged(NamedTuple):
    """A history that breaks a rule.

    Attributes:
        rule: the rule.
        model: the primitive.
        calls: all of them; the outcome of the last one is wrong.
        right: an outcome in its place that would be right.
    """

    rule: str
    model: Model
    calls: list[Call]
    right: Any


FORGED = [
    Forged("a count counts", Latch(2), [call("a", 0, 1, "count_down", None, 1), call("b", 2, 3, "count", 2)], 1),
    Forged(
        "a count counts once",
        Latch(3),
        [call("a", 0, None, "count_down", OPEN, 1), call("b", 2, 3, "count", 2), call("b", 4, 5, "count", 1)],
        2,
    ),
    Forged(
        "nobody passes a closed latch",
        Latch(2),
        [call("a", 0, 9, "count_down", None, 1), call("b", 1, 2, "wait", True, timeout=1.0)],
        False,
    ),
    Forged(
        "no wait fails at an open latch",
        Latch(1),
        [call("a", 0, 1, "count_down", None, 1), call("b", 2, 3, "wait", False, timeout=1.0)],
        True,
    ),
    Forged("a set sets", Event(), [call("a", 0, 1, "set", None), call("b", 2, 3, "is_set", False)], True),
    Forged(
        "a flag that was seen set stays so",
        Event(),
        [call("a", 0, 9, "set", None), call("b", 2, 3, "is_set", True), call("c", 4, 5, "is_set", False)],
        True,
    ),
    Forged(
        "no wait ends before a set",
        Event(),
        [call("a", 0, 1, "set", None), call("a", 2, 3, "clear", None), call("b", 4, 5, "wait", True, timeout=1.0)],
        False,
    ),
    Forged(
        "two add to different numbers", AtomicLong(), [call("a", 0, 2, "add", 1, 1), call("b", 1, 3, "add", 1, 1)], 2
    ),
    Forged(
        "a key that is there stays",
        Dict(),
        row(("a", "set", None, "x", "1"), ("b", "setdefault", "2", "x", "2")),
        "1",
    ),
    Forged(
        "a value that has changed is not replaced",
        Dict(),
        row(("a", "set", None, "x", "1"), ("b", "replace", True, "x", "0", "2")),
        False,
    ),
]


@pytest.mark.parametrize("forged", FORGED, ids=lambda forged: forged.rule)
def test_a_broken_rule_is_found(forged: Forged) -> None:
    """The history with the wrong outcome has no order; with the right one it has."""
    *before, last = forged.calls
    with pytest.raises(Violation):
        check(forged.model, forged.calls)
    check(forged.model, [*before, replace(last, outcome=forged.right)])


def test_a_call_of_unknown_outcome_has_its_effect_at_most_once_and_in_its_time() -> None:
    """It may have been made at any moment from its beginning to its end, or never."""

    def history(found: int, *, at: float) -> list[Call]:
        unknown = [call(f"killed {n}", 1, 5, "add", OPEN, 2**n) for n in range(8)]
        return [*unknown, call("a", 2, 3, "get", 4), call("b", at, at + 1, "get", found)]

    for found, at in ((4, 4), (6, 4), (255, 6), (4, 6)):
        check(AtomicLong(), history(found, at=at))
    for found, at in ((2, 4), (256, 6)):
        with pytest.raises(Violation):
            check(AtomicLong(), history(found, at=at))
    late = call("c", 8, 9, "get", 6)
    with pytest.raises(Violation):
        check(AtomicLong(), [*history(4, at=6), late])


def test_a_long_history_takes_no_time_to_speak_of() -> None:
    """Thousands of calls, a few at once, have few orders; a lie among the last is found."""
    calls, n = [], 3000
    for k in range(n):
        calls.append(call(f"a{k % 2}", k, k + 1.5, "set" if k % 2 else "clear", None))
        calls.append(call(f"b{k % 3}", k + 0.1, k + 2.7, "is_set", bool(k % 3)))
    check(Event(), calls)
    calls += [call("a", n + 9, n + 10, "set", None), call("b", n + 11, n + 12, "is_set", False)]
    with pytest.raises(Violation):
        check(Event(), calls)
