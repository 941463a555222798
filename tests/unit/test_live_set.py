"""`LiveSet`: members leave when they are garbage, and keep their order; it keeps none of them, nor they it."""

from __future__ import annotations

import sys
import threading
import weakref

import pytest

from zkconcurrent._runtime.live_set import LiveSet


class Member:
    """Can be referred to weakly, as calls can."""


# Everything here must go by its reference count alone.
pytestmark = pytest.mark.usefixtures("uncollected")


def test_members_in_order_of_arrival() -> None:
    """One that is added again keeps its place; one that leaves and returns is the last."""
    members = LiveSet[Member]()
    first, second, third = Member(), Member(), Member()
    for each in (first, second, first, third):
        members.add(each)
    assert list(members) == [first, second, third]
    assert len(members) == 3
    assert second in members
    members.discard(second)
    members.discard(second)
    assert second not in members
    members.add(second)
    assert list(members) == [first, third, second]
    members.clear()
    assert not members


class Equal(Member):
    """Equal to every other one, as a program's lock may be to another lock of its path; so it has no hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.fault(385)
def test_members_that_are_equal() -> None:
    """Each member is one by itself, also if it can't be hashed."""
    members = LiveSet[Equal]()
    first, second, third = Equal(), Equal(), Equal()
    members.add(first)
    members.add(second)
    assert [id(each) for each in members] == [id(first), id(second)]
    assert third not in members
    members.discard(first)
    assert [id(each) for each in members] == [id(second)]
    del second
    assert not members


def test_garbage_leaves() -> None:
    """A member that is collected is gone at once, also while the set is read."""
    members = LiveSet[Member]()
    kept, dropped = Member(), Member()
    members.add(dropped)
    members.add(kept)
    read = iter(members)
    del dropped
    assert len(members) == 1
    assert list(read) == [kept]


def test_a_set_that_goes_before_its_members() -> None:
    """Nothing is left of it, nor does the end of a member fail."""
    members = LiveSet[Member]()
    member = Member()
    members.add(member)
    forget = weakref.ref(members._forget)
    del members
    del member
    assert forget() is None


def test_changes_while_it_is_read() -> None:
    """Threads may add and remove while others read."""
    members = LiveSet[Member]()
    stop = threading.Event()

    def change() -> None:
        while not stop.is_set():
            mine = [Member() for _ in range(20)]
            for each in mine:
                members.add(each)
            for each in mine[::2]:
                members.discard(each)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [threading.Thread(target=change) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for _ in range(500):
            assert all(isinstance(each, Member) for each in members)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not members
