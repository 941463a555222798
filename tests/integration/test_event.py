"""Events on a real ZooKeeper: all clients see a set, none is missed, and no fault doubles or loses a set."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.proxy import Proxy
from zkconcurrent import Event, ForeignNodeError


def test_all_see_it(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """All other clients see a set or a clear at once; the epoch counts the sets that changed something."""
    mine, theirs = Event(zk, zk_path), Event(connect(), zk_path)
    assert not mine.is_set()
    assert zk.exists(zk_path) is None
    mine.set()
    assert theirs.is_set()
    theirs.set()
    assert zk.get(zk_path)[0] == b"1 set"
    theirs.clear()
    assert not mine.is_set()
    mine.clear()
    mine.set()
    assert zk.get(zk_path)[0] == b"2 set"
    assert theirs.wait(0)
    assert zk.get(zk_path)[1].ephemeralOwner == 0


@pytest.mark.fault(60)
def test_destroy_sees_what_comes_between(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Destroy deletes only the state that it has seen: what another program writes meanwhile stays."""
    event = Event(connect(hosts=proxy.hosts), zk_path)
    event.set()
    with proxy.hold("getChildren") as looked:
        destroying = in_thread(event.destroy)
        looked.wait()
        zk.set(zk_path, b"mine now")
    with pytest.raises(ForeignNodeError, match="mine now"):
        destroying.result(20)
    assert zk.get(zk_path)[0] == b"mine now"
