"""The rules as properties: the holders, and the nodes that the others watch, for any queue."""

from __future__ import annotations

import itertools
import re
import uuid
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconcurrent import ForeignNodeError, SequenceExhaustedError
from zkconcurrent._protocol.blocking_rules import (
    LATCH,
    MUTEX,
    PERMIT,
    READ,
    WRITE,
    Rule,
    behind,
    blocker,
    check_queue,
    check_sequence,
    holders,
    in_the_way,
    line_up,
)
from zkconcurrent._protocol.layout import KINDS, other_folder
from zkconcurrent._protocol.operations import Names

Named: TypeAlias = "st.SearchStrategy[str]"
Case: TypeAlias = tuple[Rule, list[str]]

uuids = st.uuids().map(str)
sequences = st.integers(0, 2_147_483_646).map(lambda n: f"{n:010d}")
few = st.integers(0, 5).map(lambda n: f"{n:010d}")
foreign = st.one_of(
    st.sampled_from(["0", "lock", "_c_", "lock-", "zzz", "__READ__", "a__WRIT__", "x__WRIT__0000000003"]),
    st.builds(lambda u, n: f"_c_{u}-latch-{n}", uuids, sequences),
    st.text("abc-_0123456789", min_size=1, max_size=20),
)


def named(role: str, numbers: Named = sequences) -> Named:
    """Return names of ours in a role."""
    return st.builds(lambda u, n: f"_c_{u}-{role}{n}", uuids, numbers)


def lists(names: Names) -> st.SearchStrategy[list[str]]:
    """Return queues of such names."""
    return st.lists(names, min_size=1, max_size=12, unique=True)


latches = lists(named("latch-") | foreign)
mutexes = lists(named("lock-") | foreign)
# Of few numbers, so that the two nodes of a downgrade are met.
pairs = lists(named("__READ__", few) | named("__WRIT__", few) | foreign)
queues: st.SearchStrategy[Case] = st.one_of(
    st.tuples(st.just(MUTEX), mutexes),
    st.tuples(st.just(LATCH), latches),
    st.tuples(st.sampled_from([READ, WRITE]), pairs),
)


def exclude(rule: Rule, one: str, other: str) -> bool:
    """Return whether two must not hold together, said apart from the code: as a user would."""
    if rule in (MUTEX, LATCH):
        return True
    writers = ("__WRIT__" in one) + ("__WRIT__" in other)
    return writers == 2 or (writers == 1 and rule.key(one) != rule.key(other))


@given(queues)
def test_the_nearest_in_the_way_is_watched(case: Case) -> None:
    """The nearest ahead of me in the line that excludes me, and nobody else: a reader watches a writer.

    So no two hold that exclude each other, the first in the line holds, and the end of a mutex's hold wakes one waiter.
    """
    rule, queue = case
    line = line_up(queue, rule)
    for me in queue:
        nearest = next((name for name in line[: line.index(me)][::-1] if exclude(rule, me, name)), None)
        assert blocker(me, queue, rule) == nearest


@given(queues, st.data())
def test_whoever_watches_is_rightly_blocked(case: Case, data: st.DataObject) -> None:
    """While the watched node exists, I am blocked, though others come and go."""
    rule, queue = case
    me = data.draw(st.sampled_from(queue))
    watched = blocker(me, queue, rule)
    if watched is None:
        return
    others = [name for name in queue if name not in (me, watched)]
    kept = data.draw(st.sets(st.sampled_from(others))) if others else set()
    left = [name for name in queue if name in kept or name in (me, watched)]
    assert blocker(me, left, rule)


@given(queues)
def test_a_newcomer_waits_for_all_in_its_way(case: Case) -> None:
    """Somebody who would come last is blocked by any child, a reader by any writer."""
    rule, queue = case
    excluding = [name for name in line_up(queue, rule) if rule != READ or "__WRIT__" in name]
    assert in_the_way(None, queue, rule) == excluding
    assert in_the_way(None, [], rule) == []


@given(st.lists(named("__READ__") | named("__WRIT__"), min_size=2, max_size=8, unique_by=lambda name: name[-10:]))
def test_readers_and_writers_share_one_order(queue: list[str]) -> None:
    """The line is that of the numbers, whatever the roles; the readers before the first writer hold, or it alone."""
    line = line_up(queue, READ)
    assert line == line_up(queue, WRITE) == sorted(queue, key=lambda name: int(name[-10:]))
    readers = list(itertools.takewhile(lambda name: "__READ__" in name, line))
    assert holders(queue, WRITE) == (readers or line[:1])


def test_a_downgrade_stands_in_for_its_writer() -> None:
    """A reader with a writer's number holds beside it, in either order, and keeps those behind out after it."""
    writer, reader = "_c_1-__WRIT__0000000004", "_c_2-__READ__0000000004"
    others = ["_c_3-__WRIT__0000000005", "_c_4-__READ__0000000006"]
    for both in ([writer, reader], [reader, writer]):
        assert sorted(holders([*both, *others], WRITE)) == sorted(both)
        assert blocker(others[0], [*both, *others], WRITE) in both
    assert holders([reader, *others], WRITE) == [reader]
    assert blocker(others[0], [reader, *others], WRITE) == reader
    assert blocker(others[1], [reader, *others], READ) == others[0]


def test_kazoos_nodes_are_refused() -> None:
    """A child made by kazoo's own Lock is an error that names it and the path."""
    node = uuid.uuid4().hex + "__lock__0000000003"
    with pytest.raises(ForeignNodeError, match=node) as caught:
        check_queue("/app/lock", ["_c_x-lock-0000000001", node])
    assert caught.value.path == "/app/lock"


OURS_OR_SEQUENTIAL = [
    "_c_7f3f0b6c-1111-4222-8333-444444444444-lock-0000000001",
    "_c_7f3f0b6c-1111-4222-8333-444444444444-turn-0000000004",
    "_c_7f3f0b6c-1111-4222-8333-444444444444-lock--000000001",
    "_c_7f3f0b6c-1111-4222-8333-444444444444-lock--2147483648",
    "_c_7f3f0b6c-1111-4222-8333-444444444444-lock-2147483647",
    "zz-lock-0000000000",
    "lock-0000000007",
    "n_0000000007",
    "0000000007",
    "löck-0000000007",
]


def test_foreign_contenders_count() -> None:
    """A child that ends in a number of ten digits, or a negative one, waits, whether its maker is ours or not."""
    check_queue("/app/lock", OURS_OR_SEQUENTIAL)


@pytest.mark.fault(236)
@pytest.mark.parametrize("rule", [MUTEX, LATCH, READ, WRITE, PERMIT], ids=lambda rule: rule.role)
def test_the_nodes_of_other_kinds_are_refused(rule: Rule) -> None:
    """A node with the role of another kind's is refused, before and behind ours; unknown roles count.

    The same holds for names without Curator's prefix, as an old Curator makes them.
    """
    ours = f"_c_7f3f0b6c-1111-4222-8333-444444444444-{rule.role}0000000005"
    for role, kind in KINDS.items():
        theirs = [
            f"_c_7f3f0b6c-1111-4222-8333-55555555555a-{role}{n}" for n in ("0000000001", "0000000009", "-000000001")
        ]
        if role in (*LATCH.roles, *MUTEX.roles, *READ.roles, "queue-", "qn-"):
            theirs += [f"{role}0000000001"]
        for name in theirs:
            if role in rule.roles:
                check_queue("/app/lock", [ours, name, "zz-0000000001"], rule)
                continue
            with pytest.raises(ForeignNodeError, match=re.escape(kind)) as caught:
                check_queue("/app/lock", [ours, name, "zz-0000000001"], rule)
            assert repr(name) in str(caught.value)


@pytest.mark.fault(236)
def test_a_queue_whose_node_has_data_is_refused() -> None:
    """The path of a queue has no data; one that has keeps another primitive's state."""
    names = Names(["_c_7f3f0b6c-1111-4222-8333-444444444444-lock-0000000001"])
    check_queue("/app/lock", names)
    names.data_length = 7
    with pytest.raises(ForeignNodeError, match="7 bytes of data"):
        check_queue("/app/lock", names)


NEITHER = ["orders", "0", "-1", "lock", "waiters", "permits", "x-0000000001\n", "00000000071x", "lock_000000001"]
NEITHER += ["_c_x-lock-", "_c_x-lock-00000001", "_c_0-count-3", "_c_7f3f0b6c-1111-4222-8333-44444444444a"]


@pytest.mark.parametrize("name", NEITHER)
def test_what_waits_by_no_number_is_refused(name: str) -> None:
    """A child that is neither ours nor sequential came from a path that nests, or by hand: an error that names it."""
    with pytest.raises(ForeignNodeError, match="nest") as caught:
        check_queue("/app/lock", [*OURS_OR_SEQUENTIAL, name])
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("number", ["2147483647", "-2147483648", "-000000001"])
def test_a_number_that_orders_nothing_is_refused(number: str) -> None:
    """At its end, the counter repeats itself, then gives negative numbers: neither is an order."""
    with pytest.raises(SequenceExhaustedError, match="idle"):
        check_sequence("/app/lock", f"_c_x-lock-{number}", MUTEX)


def test_who_is_behind() -> None:
    """Whom a contender excludes and who came later, in the order of their turns; never itself."""
    queue = ["x__READ__0000000003", "x__WRIT__0000000002", "x__READ__0000000001", "x__WRIT__0000000004"]
    assert behind(queue[2], queue, READ) == [queue[1], queue[3]]
    assert behind(queue[1], queue, WRITE) == [queue[0], queue[3]]
    assert behind(queue[3], queue, WRITE) == []


def test_the_folder_of_another_kind_is_known_by_its_name() -> None:
    """The error says whose it is."""
    assert "like that of a Condition:" in str(other_folder("waiters"))
    assert "like that of a Semaphore:" in str(other_folder("permits"))
    assert other_folder("orders") is None
