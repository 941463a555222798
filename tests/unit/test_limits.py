"""Numbers are whole and of a size that can be sent, wherever one is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from zkconcurrent import Condition, CountDownLatch, DoubleBarrier, Queue, Semaphore
from zkconcurrent._arguments.limits import LARGEST, MOST_TOGETHER, most_together
from zkconcurrent._arguments.paths import LONGEST


class Three:
    """A number of another library, such as numpy's."""

    def __index__(self) -> int:
        return 3


MAKERS: list[Callable[[Any], object]] = [
    lambda n: Semaphore(KazooClient(), "/s", n),
    lambda n: CountDownLatch(KazooClient(), "/l", n),
]
CALLS: list[Callable[[Any], object]] = [
    lambda n: Semaphore(KazooClient(), "/s", 9).acquire(permits=n),
    lambda n: Semaphore(KazooClient(), "/s", 9).release(n),
    lambda n: Semaphore(KazooClient(), "/s", 9).resize(n),
    lambda n: CountDownLatch(KazooClient(), "/l", 9).count_down(n),
    lambda n: DoubleBarrier(KazooClient(), "/d", n),
    lambda n: Queue(KazooClient(), "/q", n),
    lambda n: Queue(KazooClient(), "/q", max_attempts=n or 1.5),
    lambda n: Condition(KazooClient(), "/c").notify(n),
]


@pytest.mark.fault(63)
@pytest.mark.parametrize("call", [*MAKERS, *CALLS])
def test_numbers_are_whole(call: Callable[[Any], object]) -> None:
    """A number that is not whole is a TypeError that says so, before anything is sent."""
    for number in (1.0, 2.5, float("nan"), float("inf"), "1", b"1", 1j, [1]):
        with pytest.raises(TypeError, match="int"):
            pytest.fail(f"{number!r} is allowed: {call(number)}")


@pytest.mark.fault(63)
@pytest.mark.parametrize("call", [*MAKERS, *CALLS[:-1]])
@pytest.mark.parametrize("number", [LARGEST + 1, 10**400_000], ids=["2**63", "10**400000"])
def test_numbers_have_a_size(call: Callable[[Any], object], number: int) -> None:
    """A number beyond Java's long is a ValueError, before anything is sent."""
    with pytest.raises(ValueError, match="at most"):
        call(number)


@pytest.mark.fault(63)
@pytest.mark.parametrize("make", MAKERS)
def test_what_is_an_int_is_taken(make: Callable[[Any], object]) -> None:
    """True is 1, and an object with `__index__` is that number: an int from here on, so that all write the same."""
    assert "1" in repr(make(True))
    assert "True" not in repr(make(True))
    assert "Three" not in repr(make(Three()))
    make(LARGEST)


@pytest.mark.fault(50)
def test_permits_of_one_call_are_limited() -> None:
    """As many as one request can ask for, and a ValueError that says how many that is; longer paths have fewer."""
    for path in ("/s", "/" + "x" * (LONGEST - 1)):
        most = most_together(path)
        with pytest.raises(ValueError, match=f"at most {most:,}"):
            Semaphore(KazooClient(), path, 10_000).acquire(permits=most + 1)
    assert most_together("/s") == MOST_TOGETHER
    assert 100 < most < MOST_TOGETHER
