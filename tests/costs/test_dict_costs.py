"""The requests of a Dict and a Set: none for a read, one write for a write, one read for another client's change."""

from __future__ import annotations

import time

import pytest
from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Dict, Set


def test_reads(counted: KazooClient, zk: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """The first read lists all in four round trips; from then on no read sends anything."""
    theirs = Dict[bytes](zk, zk_path)
    theirs.update({str(n): b"x" for n in range(50)})
    d = Dict[bytes](counted, zk_path)
    with proxy.costs(addWatch=1, sync=1, getData=51, getChildren=1, flights=3):
        assert len(d) == 50
    with proxy.costs():
        for _ in range(1000):
            assert d["7"] == b"x"
            assert d.get("none") is None
            assert "8" in d
            assert len(d) == 50
        assert len(list(d.items())) == 50
    with proxy.costs(getData=3):
        theirs["7"] = b"y"
        eventually(lambda: d["7"] == b"y")
        theirs["new"] = b"z"
        eventually(lambda: "new" in d)
        del theirs["new"]
        eventually(lambda: "new" not in d)
        time.sleep(0.1)  # nothing more comes


@pytest.mark.fault(170)
def test_reads_of_large_values(counted: KazooClient, zk: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """About 1 MB is read at a time: the heartbeats of the client are answered in between, and no hold is lost."""
    theirs = Dict[bytes](zk, zk_path)
    theirs.update({str(n): bytes(100_000) for n in range(75)})
    with proxy.counting() as first:
        assert len(Dict[bytes](counted, zk_path)) == 75
    assert first.flights == 2 + len((50, 10, 10, 5))


def test_writes(counted: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """One write for each, in one round trip; those that go by the old value read it before, in one more."""
    d = Dict[bytes](counted, zk_path)
    d["warm"] = b"up"
    with proxy.costs(multi=5, flights=5):
        d["a"] = b"1"
        d["b"] = b"1"
        d["a"] = b"2"
        assert d.setdefault("c", b"1") == b"1"
        del d["c"]
    assert len(d) == 3
    with proxy.costs(multi=1, getData=1) as count:
        d["a"] = b"2"
        # Our own change is read, too, as one event is like another.
        eventually(lambda: count.requests["getData"] == 1)
    for call in (lambda: d.replace("a", b"2", b"3"), lambda: d.remove("a", b"3"), lambda: d.pop("b")):
        with proxy.costs(sync=1, getData=3, multi=1) as count:
            assert call()
            eventually(lambda count=count: count.requests["getData"] == 3)  # the third is for our own change's event


@pytest.mark.fault(348)
def test_a_crowd_at_a_set(
    zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Each that pops takes any element, not the first, so few are in each other's way."""
    filled, s = Set(zk, zk_path), Set(counted, zk_path)
    for n in range(300):
        filled.add(str(n))
    s.ready()
    with proxy.counting() as count:
        popping = [in_thread(s.pop) for _ in range(30)]
        assert len({each.result(60) for each in popping}) == 30
    assert count.requests["multi"] <= 2 * 30
