"""Groups and double barriers: the requests and round trips of each call, and the parties that it wakes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread, await_heartbeat
from tests.helpers.contenders import waits
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import DoubleBarrier, Group
from zkconcurrent.testing import Server


def test_a_group(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """To join: a write, two reads, one with a watch; to leave: a write; to look: a listing, a read for each member."""
    group, other = Group(counted, zk_path), Group(zk, zk_path)
    members = [other.join() for _ in range(3)]
    with proxy.costs(multi=1, getChildren=1, getData=1) as joining:
        member = group.join(b"", "id")
        eventually(lambda: member._member.ticket.awaits and joining.requests.get("getData"))
    assert joining.flights <= 2
    with proxy.costs(sync=1, getChildren=1, getData=4, flights=2):
        assert len(group.members()) == 4
    with proxy.costs(multi=1, flights=1):
        member.leave()
    seen = group.observe()
    assert len(next(seen)) == 3
    with proxy.costs(exists=1, getChildren=1, getData=3) as until_waiting:
        change = in_thread(next, seen)
        eventually(lambda: until_waiting.requests.get("getData") == 3 and waits(group))
    with proxy.counting() as woken:
        members[0].leave()
        assert len(change.result(10)) == 2
    assert woken.requests["getChildren"] <= 2
    assert woken.requests["getData"] <= 4 + 3


@pytest.mark.fault(170)
def test_a_large_group(zk: KazooClient, counted: KazooClient, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """The members are read some at a time, so that the client's heartbeats are answered in between."""
    zk.ensure_path(zk_path)
    for n in range(75):
        zk.create(f"{zk_path}/{n}", bytes(100_000))
    with proxy.counting() as looking:
        assert list(Group(counted, zk_path).members()) == [str(n) for n in range(75)]
    assert looking.flights == 1 + len((50, 10, 10, 5))
    group = Group(counted, zk_path)
    seen = group.observe()
    next(seen)
    with proxy.counting() as watching:
        change = in_thread(next, seen)
        eventually(lambda: waits(group) and watching.requests.get("getData") == 75)
    assert watching.flights == 1 + len((50, 10, 10, 5))
    zk.set(f"{zk_path}/3", b"new")
    assert change.result(20)["3"] == b"new"


@pytest.fixture
def behind(zookeeper: Server) -> Iterator[Proxy]:
    """Another one, for the other party."""
    with Proxy(zookeeper.hosts) as behind:
        yield behind


def test_a_double_barrier(
    zk: KazooClient,
    counted: KazooClient,
    connect: Connect,
    proxy: Proxy,
    behind: Proxy,
    zk_path: str,
    in_thread: InThread,
) -> None:
    """To enter: a write and two reads; then two to wait, or a write to open. To leave: three reads and a write."""
    mine, theirs = DoubleBarrier(counted, zk_path, 2), DoubleBarrier(connect(hosts=behind.hosts), zk_path, 2)
    assert not theirs.enter(0)  # makes the parent
    mine._session.registry.seed = "0" * 8 + "-0000-4000-8000"  # it leaves last
    entered = in_thread(lambda: theirs.enter(20) and theirs.leave(20))
    eventually(lambda: waits(theirs))
    behind.stall(to_server=False)  # it does not see us come, and open it
    with proxy.costs(create2=1, getData=1, getChildren=1, multi=1, flights=2):
        assert mine.enter(20)
    behind.resume()
    eventually(lambda: len(zk.get_children(zk_path)) == 2 and waits(theirs))
    with proxy.costs(sync=1, getData=1, getChildren=1, multi=1, flights=2):
        assert mine.leave(20)
    assert entered.result(20)
    with proxy.costs(create2=1, getData=2, getChildren=2, flights=2) as waiting:
        others = in_thread(lambda: mine.enter(20) and mine.leave(20))
        eventually(lambda: waits(mine) and waiting.requests.get("getChildren") == 2)
    assert theirs.enter(20)
    assert theirs.leave(20)
    assert others.result(20)


@pytest.mark.fault(258)
def test_a_chroot_is_looked_for_once(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """The first call of a plain client with a chroot costs two reads more; of `connect`, none."""
    zk.ensure_path(zk_path)
    plain = connect(hosts=f"{proxy.hosts}{zk_path}")
    await_heartbeat(plain)
    look = {"sync": 1, "getChildren": 1}
    for path, costs in (("/one", {**look, "sync": 2, "exists": 1}), ("/one", look), ("/two", look)):
        with proxy.costs(**costs):
            assert next(Group(plain, path).observe()) == {}
    with zkconcurrent.connect(f"zk://{proxy.hosts}{zk_path}") as opened:
        await_heartbeat(opened)
        with proxy.costs(**look):
            assert next(Group(opened, "/one").observe()) == {}
