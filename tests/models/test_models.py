"""Each model refuses each history that breaks its rule, and takes the history beside it that does not."""

from __future__ import annotations

import queue
import threading
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from tests.models.barrier import Barrier
from tests.models.dictionary import Dict
from tests.models.election import Election
from tests.models.event import Event
from tests.models.history import OPEN, Call, Judge, Model, Violation, check
from tests.models.latch import Latch
from tests.models.lock import Lock, RLock
from tests.models.queue import Queue
from tests.models.rwlock import ReadWriteLock
from tests.models.semaphore import BoundedSemaphore, Semaphore
from tests.models.values import AtomicLong, SharedValue
from zkconcurrent import DeadlockError, LockLostError

TRIES = ("acquire", "get", "claim")


def call(actor: str, begun: float, ended: float | None, what: str, outcome: Any, *args: Any, **more: Any) -> Call:
    """Return a call of a history."""
    return Call(actor, what, args, party=actor, begun=begun, ended=ended, outcome=outcome, **more)


def row(*calls: Any) -> list[Call]:
    """Return calls that are made one after the other: the actor, the call, its outcome, its arguments."""
    return [
        call(actor, n, n + 0.5, what, outcome, *args, timeout=0.0 if what in TRIES else None)
        for n, (actor, what, outcome, *args) in enumerate(calls)
    ]


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
    Forged("one holds", Lock(), row(("a", "acquire", True, None), ("b", "acquire", True, None)), False),
    Forged(
        "one that waits comes in before a later one",
        Lock(),
        [
            call("a", 0, 1, "acquire", True, None),
            call("b", 2, 3, "acquire", False, None, timeout=0.5),
            call("a", 4, 5, "release", None, None),
            call("b", 6, 7, "acquire", False, None, timeout=0.5),
        ],
        True,
    ),
    Forged(
        "a hold ends once", Lock(), row(("a", "acquire", True, None), *[("a", "release", None, None)] * 2), RuntimeError
    ),
    Forged(
        "a loss is told",
        Lock(),
        row(
            ("a", "acquire", True, None),
            ("a", "expired", None),
            ("b", "acquire", True, None),
            ("a", "release", None, None),
        ),
        LockLostError,
    ),
    Forged(
        "a level is released by its holder",
        RLock(),
        row(*[("a", "acquire", True, None)] * 2, ("a", "release", None, None), ("b", "acquire", True, None)),
        False,
    ),
    Forged(
        "no writer beside a reader",
        ReadWriteLock(),
        row(("a", "acquire", True, "read"), ("b", "acquire", True, "read"), ("c", "acquire", True, "write")),
        False,
    ),
    Forged(
        "no reader becomes a writer",
        ReadWriteLock(),
        row(("a", "acquire", True, "read"), ("a", "acquire", True, "write")),
        DeadlockError,
    ),
    Forged("no permit too many", Semaphore(2), row(("a", "acquire", True, 1), ("b", "acquire", True, 2)), False),
    Forged(
        "a permit that is added is there",
        Semaphore(1),
        row(("a", "acquire", True, 1), ("b", "release", None, 1), ("c", "acquire", False, 1)),
        True,
    ),
    Forged("no permit is added", BoundedSemaphore(1), row(("b", "release", None, 1)), ValueError),
    Forged(
        "parties go on together",
        Barrier(2),
        [call("a", 0, 9, "wait", 0), call("b", 1, 2, "wait", 0)],
        1,
    ),
    Forged(
        "a barrier that is broken lets nobody pass",
        Barrier(2),
        [call("c", 0, 1, "abort", None), call("a", 2, None, "wait", OPEN), call("b", 2, 3, "wait", 1)],
        threading.BrokenBarrierError,
    ),
    Forged("an item is taken once", Queue(), row(("a", "put", None, 1), ("a", "get", 1), ("b", "get", 1)), queue.Empty),
    Forged("the first comes first", Queue(), row(("a", "put", None, 1), ("a", "put", None, 2), ("b", "get", 2)), 1),
    Forged(
        "an item that was claimed is not free",
        Queue(),
        row(("a", "put", None, 1), ("a", "claim", 1), ("b", "get", 1)),
        queue.Empty,
    ),
    Forged(
        "an item whose claim has failed is there again",
        Queue(),
        row(("a", "put", None, 1), ("a", "claim", 1), ("a", "fail", None), ("b", "get", queue.Empty)),
        1,
    ),
    Forged(
        "a claim that is lost is not acknowledged",
        Queue(),
        row(("a", "put", None, 1), ("a", "claim", 1), ("a", "expired", None), ("a", "ack", None)),
        LockLostError,
    ),
    Forged(
        "two add to different numbers", AtomicLong(), [call("a", 0, 2, "add", 1, 1), call("b", 1, 3, "add", 1, 1)], 2
    ),
    Forged("no word is lost", SharedValue(), row(("a", "update", (1,), 1), ("b", "update", (2,), 2)), (1, 2)),
    Forged(
        "a key that is there stays",
        Dict(False),
        row(("a", "set", None, "x", "1"), ("b", "setdefault", "2", "x", "2")),
        "1",
    ),
    Forged(
        "a value that has changed is not replaced",
        Dict(False),
        row(("a", "set", None, "x", "1"), ("b", "replace", True, "x", "0", "2")),
        False,
    ),
    Forged(
        "an entry goes with its session",
        Dict(True),
        row(("a", "set", None, "x", "1"), ("a", "expired", None), ("b", "pop", "1", "x")),
        None,
    ),
]


@pytest.mark.parametrize("forged", FORGED, ids=lambda forged: forged.rule)
def test_a_broken_rule_is_found(forged: Forged) -> None:
    """The history with the wrong outcome has no order; with the right one it has."""
    *before, last = forged.calls
    with pytest.raises(Violation):
        check(forged.model, forged.calls)
    check(forged.model, [*before, replace(last, outcome=forged.right)])


def test_a_wait_misses_no_pulse() -> None:
    """A wait that has found the flag clear is entitled to go on once the flag was set, though it is clear again."""
    judge, wait = Judge(Event()), Call("a", "wait")
    judge.begins(wait)
    judge.rests([wait])
    judge.happens(Call("b", "set"))
    judge.happens(Call("b", "clear"))
    with pytest.raises(Violation, match="is entitled to go on"):
        judge.rests([wait])
    judge.ends(wait, True)
    judge.rests([])


def test_the_candidate_that_has_stood_longest_leads() -> None:
    """One whose session ends stands again, as the last."""
    judge = Judge(Election())
    for each in row(("a", "stand", None), ("b", "stand", None), ("a", "expired", None)):
        judge.happens(each)
    assert judge.states == {("b", "a")}


def test_a_waiter_is_entitled_in_its_order() -> None:
    """Who has queued first is let in first."""
    judge, first, second = Judge(Lock()), *(Call(actor, "acquire", (None,), party=actor) for actor in "bc")
    judge.happens(Call("a", "acquire", (None,), party="a"), True)
    for waiter in (first, second):
        judge.begins(waiter)
        judge.rests(judge.open)
    judge.happens(Call("a", "release", (None,), party="a"))
    with pytest.raises(Violation, match="which no order explains"):
        judge.ends(second, True)
    second.outcome = OPEN
    judge.ends(first, True)
    judge.rests([second])


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
