"""Latches on a real ZooKeeper: every count counts once, and the waiters go on when all have come."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import waits
from tests.helpers.eventually import eventually
from zkconcurrent import CountDownLatch, ForeignNodeError


def test_who_waits_goes_on(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """The latch opens when all have counted, in any process; a later wait returns at once. One of nothing is open."""
    mine, theirs = CountDownLatch(zk, zk_path, 3), CountDownLatch(connect(), zk_path, 3)
    assert mine.count == 3
    assert CountDownLatch(zk, zk_path, 0).wait()
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
