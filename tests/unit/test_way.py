"""The way of a waiter to its grant: which listings give one; `tests/simulation/test_way.py` shows that it is right."""

from __future__ import annotations

import pytest

from zkconcurrent._protocol.node_names import as_detached, is_detached
from zkconcurrent._protocol.rules import LATCH, MUTEX, READ, WRITE, Rule
from zkconcurrent._protocol.way_to_grant import Way


def name(role: str, number: int, mark: str = "0", n: int = 1) -> str:
    """Return a contender's name."""
    return f"_c_00000000-0000-0000-0000-{mark}{n:011x}-{role}{number:010d}"


LOCK, READER, WRITER = "lock-", "__READ__", "__WRIT__"


@pytest.mark.parametrize(
    ("rule", "ahead", "behind", "there"),
    [
        (MUTEX, [name(LOCK, 1)], [name(LOCK, 9)], True),
        (MUTEX, [name(LOCK, 1, mark="8")], [], True),
        (MUTEX, [], [name(LOCK, 9)], False),
        (MUTEX, [name(LOCK, 1), name(LOCK, 2, n=2)], [], False),
        (MUTEX, [name(LOCK, 1, mark="4")], [], False),
        (MUTEX, [name(LOCK, 1, mark="c")], [], False),
        (MUTEX, ["x-lock-0000000001"], [], True),
        (MUTEX, [name(LOCK, 5, n=2)], [], False),  # the same number
        (LATCH, [name("latch-", 1, mark="4")], [], True),
        (READ, [name(WRITER, 1)], [], True),
        (READ, [name(WRITER, 2), name(READER, 1, n=2), name(READER, 3, n=3)], [], True),
        (READ, [name(WRITER, 1), name(WRITER, 2, n=2)], [], False),
        (WRITE, [name(READER, 1)], [name(WRITER, 9)], True),
        (WRITE, [name(WRITER, 1)], [], False),
        (WRITE, [name(READER, 1), name(READER, 2, n=2)], [], False),
    ],
)
def test_which_listing_gives_a_way(rule: Rule, ahead: list[str], behind: list[str], there: bool) -> None:
    """One with exactly one contender in the way, which can't leave another in its place."""
    me = name(rule.role, 5)
    assert (Way.of(me, [*behind, me, *ahead], rule, 1, None) is not None) == there


def test_late_numbers_give_none() -> None:
    """Where the sequence numbers run out, a later contender may get a lower one."""
    names = [name(LOCK, 1), me := name(LOCK, 2_000_000_000, n=2)]
    assert Way.of(me, names, MUTEX, 1, None) is None


def test_the_mark_of_a_detached_lock() -> None:
    """It is in the last part of the uuid, whatever stood there."""
    for digit in "0123456789abcdef":
        unique = f"01234567-0123-0123-0123-{digit}123456789ab"
        marked = as_detached(unique)
        assert marked == f"{unique[:24]}4{unique[25:]}"
        assert is_detached(f"_c_{marked}-lock-0000000001")
        assert is_detached(f"_c_{unique}-lock-0000000001") == (digit in "4567cdef")
    assert not is_detached("lock-0000000001")
