"""Latches on a real ZooKeeper: every count counts once, and the waiters go on when all have come."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import waits
from tests.helpers.eventually import eventually
from zkconcurrent import CountDownLatch, ForeignNodeError, Lock
from zkconcurrent._arguments.limits import most_together
from zkconcurrent._arguments.paths import LONGEST


def test_who_waits_goes_on(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The latch opens when all have counted, in any process; a later wait returns at once."""
    mine, theirs = CountDownLatch(zk, zk_path, 3), CountDownLatch(connect(), zk_path, 3)
    assert mine.count == 3
    assert zk.exists(zk_path) is None
    waiting = [in_thread(each.wait) for each in (mine, theirs, theirs)]
    eventually(lambda: waits(mine) and waits(theirs))
    theirs.count_down(2)
    assert mine.count == 1
    assert not mine.wait(0.05)
    assert not mine.wait(0)
    assert not any(each.done() for each in waiting)
    mine.count_down()
    assert [each.result(10) for each in waiting] == [True] * 3
    assert theirs.wait()
    assert theirs.wait(0)
    assert mine.count == 0
    children = zk.get_children(zk_path)
    assert sorted(name.rpartition("-")[2] for name in children) == ["1", "2"]
    assert all(zk.get(f"{zk_path}/{name}")[1].ephemeralOwner == 0 for name in children)
    mine.count_down()
    theirs.count_down(5)
    assert zk.get_children(zk_path) == children


def test_a_latch_of_nothing(zk: KazooClient, zk_path: str) -> None:
    """A count of zero is open, and needs no node."""
    latch = CountDownLatch(zk, zk_path, 0)
    assert latch.wait()
    latch.count_down()
    assert zk.exists(zk_path) is None


def test_bad_arguments(zk: KazooClient, zk_path: str) -> None:
    """A count is an int and not negative, a countdown at least one."""
    for count in (1.0, "1", None):
        with pytest.raises(TypeError, match="count must be an int"):
            CountDownLatch(zk, zk_path, count)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="-1"):
        CountDownLatch(zk, zk_path, -1)
    latch = CountDownLatch(zk, zk_path, 1)
    for n in (0, -1):
        with pytest.raises(ValueError, match="one or more"):
            latch.count_down(n)
    with pytest.raises(TypeError, match="n must be an int"):
        latch.count_down(1.5)  # type: ignore[arg-type]
    assert latch.count == 1


def test_another_count(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A client with another count than the latch was made with is told both, and changes nothing."""
    CountDownLatch(zk, zk_path, 3).count_down()
    other = CountDownLatch(connect(), zk_path, 4)
    for call in (other.count_down, other.wait, lambda: other.wait(0), lambda: other.count):
        with pytest.raises(ValueError, match=r"count of 3, not 4"):
            call()
    assert len(zk.get_children(zk_path)) == 1
    assert not other._session.registry.tickets


def test_what_is_no_latchs(zk: KazooClient, zk_path: str) -> None:
    """Other data in the node is an error that names both; other children do not count."""
    latch = CountDownLatch(zk, zk_path, 1)
    zk.create(zk_path, b"once", makepath=True)
    with pytest.raises(ForeignNodeError, match="b'once'"):
        latch.count_down()
    zk.set(zk_path, b"1 count")
    for name in ("x", "count-1", f"_c_{'0' * 36}-lock-0000000001"):
        zk.create(f"{zk_path}/{name}")
    assert latch.count == 1


@pytest.mark.fault(50)
def test_destroy_of_a_crowd_of_counts(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """More counts than fit into a request go in pieces, and the client's other locks stay."""
    path = f"{zk_path}/{'x' * (LONGEST - len(zk_path) - 1)}"
    latch, most = CountDownLatch(mine := connect(), path, 20_000), most_together(path)
    latch.count_down()
    for n in range(3):
        with zk.transaction() as counts:
            for m in range(most):
                counts.create(f"{path}/_c_00000000-0000-4000-8000-{n * most + m:012d}-count-1")
    assert latch.count == 19_999 - 3 * most
    with Lock(mine, f"{zk_path}-lock") as held:
        assert held
        in_thread(latch.destroy).result(60)
    assert zk.exists(path) is None
    assert latch.count == 20_000


@pytest.mark.threads_only("tests/unit/test_twins.py compares the repr of each class of tasks with its twin's")
def test_the_object_itself(zk: KazooClient, zk_path: str) -> None:
    """The repr tells what this process last knew."""
    latch = CountDownLatch(zk, zk_path, 2)
    assert repr(latch) == f"<zkconcurrent.CountDownLatch at {id(latch):#x}: count=2/2>"
    latch.count_down()
    assert repr(latch) == f"<zkconcurrent.CountDownLatch at {id(latch):#x}: count=1/2>"
