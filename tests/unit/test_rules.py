"""The rules as properties: who holds, and whom the others watch, for any queue."""

from __future__ import annotations

import itertools
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconcurrent import ForeignNodeError, SequenceExhaustedError
from zkconcurrent._rules import MUTEX, blockers, check_queue, check_sequence, line_up

uuids = st.uuids().map(str)
sequences = st.integers(0, 2_147_483_646).map(lambda n: f"{n:010d}")
ours = st.builds(lambda u, n: f"_c_{u}-lock-{n}", uuids, sequences)
foreign = st.one_of(
    st.sampled_from(["0", "lock", "_c_", "lock-", "zzz"]),
    st.builds(lambda u, n: f"_c_{u}-latch-{n}", uuids, sequences),
    st.text("abc-_0123456789", min_size=1, max_size=20),
)
queues = st.lists(st.one_of(ours, foreign), min_size=1, max_size=12, unique=True)


@given(queues)
def test_exactly_one_holds(queue: list[str]) -> None:
    """In any queue, exactly one contender is blocked by nobody: no two hold, and nobody is forgotten."""
    assert len([me for me in queue if not blockers(me, queue, MUTEX)]) == 1


@given(queues)
def test_the_first_in_line_holds(queue: list[str]) -> None:
    """Who holds is the first of the line."""
    assert blockers(line_up(queue, MUTEX)[0], queue, MUTEX) == []


@given(queues)
def test_each_watches_the_one_just_ahead(queue: list[str]) -> None:
    """A waiter's nearest blocker stands directly before it: a release wakes one."""
    line = line_up(queue, MUTEX)
    for ahead, me in itertools.pairwise(line):
        assert blockers(me, queue, MUTEX)[0] == ahead


@given(queues, st.data())
def test_whoever_watches_is_rightly_blocked(queue: list[str], data: st.DataObject) -> None:
    """While the watched node exists, I am blocked, whoever else comes and goes."""
    me = data.draw(st.sampled_from(queue))
    watched = blockers(me, queue, MUTEX)
    if not watched:
        return
    others = [name for name in queue if name not in (me, watched[0])]
    kept = data.draw(st.sets(st.sampled_from(others))) if others else set()
    left = [name for name in queue if name in kept or name in (me, watched[0])]
    assert blockers(me, left, MUTEX)


@given(queues)
def test_a_newcomer_waits_for_everybody(queue: list[str]) -> None:
    """Somebody who would come last is blocked by any child, the last of the line first."""
    assert blockers(None, queue, MUTEX) == line_up(queue, MUTEX)[::-1]
    assert blockers(None, [], MUTEX) == []


@given(st.lists(ours, min_size=2, max_size=8, unique_by=lambda name: name[-10:]))
def test_ours_hold_in_order_of_arrival(queue: list[str]) -> None:
    """Among our own nodes, the order is that of the sequence numbers."""
    assert [int(name[-10:]) for name in line_up(queue, MUTEX)] == sorted(int(name[-10:]) for name in queue)


def test_curators_order() -> None:
    """The key is all after the last role, or the whole name: a child named 0 stands before everybody."""
    first = "_c_7f3f0b6c-1111-4222-8333-444444444444-lock-0000000001"
    assert line_up([first, "0", "zz-lock-0000000000"], MUTEX) == ["0", "zz-lock-0000000000", first]


def test_kazoos_nodes_are_refused() -> None:
    """A child made by kazoo's own Lock is an error that names it and the path."""
    node = uuid.uuid4().hex + "__lock__0000000003"
    with pytest.raises(ForeignNodeError, match=node) as caught:
        check_queue("/app/lock", ["_c_x-lock-0000000001", node])
    assert caught.value.path == "/app/lock"
    check_queue("/app/lock", ["_c_x-lock-0000000001", "anything-else"])


@pytest.mark.parametrize("number", ["2147483647", "-2147483648", "-000000001"])
def test_a_number_that_orders_nothing_is_refused(number: str) -> None:
    """At its end, the counter repeats itself, then gives negative numbers: neither is an order."""
    with pytest.raises(SequenceExhaustedError, match="idle"):
        check_sequence("/app/lock", f"_c_x-lock-{number}", MUTEX)


def test_running_out_is_told_before() -> None:
    """From 2,000,000,000 on a number is late, but good."""
    assert not check_sequence("/app/lock", "_c_x-lock-1999999999", MUTEX)
    assert check_sequence("/app/lock", "_c_x-lock-2000000000", MUTEX)
