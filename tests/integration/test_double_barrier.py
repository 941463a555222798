"""Double barriers on a real ZooKeeper: parties enter together, and leave together."""

from __future__ import annotations

import threading

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import waits
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import DoubleBarrier, LockLostError
from zkconcurrent.testing import Server

JAVA = "77777777-0000-4000-8000-000000000000"  # a party of Curator's; ours sort before and behind it


@pytest.mark.threads_only("calls leave() on other threads, and so in other tasks")
def test_in_and_out_together(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Each waits until all have come, and then until all have left; it can be used again, and leaves nothing."""
    barriers = [DoubleBarrier(client, zk_path, 3) for client in (connect(), connect(), zk)]
    steps: list[str] = []
    finish = [threading.Event() for _ in barriers]

    def take_part(n: int) -> None:
        for turn in range(2):
            assert barriers[n].enter()
            steps.append(f"in {turn}")
            assert finish[n].wait(20)
            assert barriers[n].leave()
            steps.append(f"out {turn}")
            finish[n].clear()

    running = []
    for n in range(2):
        running.append(in_thread(take_part, n))
        eventually(lambda n=n: waits(barriers[n]))
    assert steps == []
    running.append(in_thread(take_part, 2))
    eventually(lambda: steps == ["in 0"] * 3)
    assert zk.exists(f"{zk_path}/ready")
    finish[1].set()
    finish[2].set()
    eventually(lambda: waits(barriers[1]) and waits(barriers[2]))
    assert steps == ["in 0"] * 3
    finish[0].set()
    eventually(lambda: steps[3:] == ["out 0"] * 3 + ["in 1"] * 3)
    for each in finish:
        each.set()
    for each in running:
        each.result(20)
    assert steps[-3:] == ["out 1"] * 3
    assert zk.get_children(zk_path) == []


def test_as_a_block(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """The block begins when all are there and ends when all have left; one that fails does not wait for the others."""
    barrier = DoubleBarrier(zk, zk_path, 2)
    failed = threading.Event()

    def fail() -> None:
        with pytest.raises(ZeroDivisionError), barrier:
            failed.set()
            raise ZeroDivisionError

    failing = in_thread(fail)
    with barrier as inside:
        assert inside is True
        assert failed.wait(10)
        failing.result(10)
        eventually(lambda: len(zk.get_children(zk_path)) == 2)
    assert zk.get_children(zk_path) == []


def test_misuse(zk: KazooClient, zk_path: str) -> None:
    """A party inside can't enter, one outside can't leave; errors name the path."""
    barrier = DoubleBarrier(zk, zk_path, 1)
    with pytest.raises(RuntimeError, match=zk_path):
        barrier.leave()
    assert barrier.enter()
    with pytest.raises(RuntimeError, match=f"{zk_path}.*already"):
        DoubleBarrier(zk, zk_path, 1).enter()
    assert DoubleBarrier(zk, zk_path, 1).leave()  # the same path, so the same barrier


@pytest.mark.fault(147)
def test_ready_is_made_again_as_the_last_party_leaves(
    zk: KazooClient, connect: Connect, zookeeper: Server, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Java's party removes `ready` although one of ours is left; ours make it again, and none of it is left behind."""
    with Proxy(zookeeper.hosts) as slow:
        first, last = (
            DoubleBarrier(connect(hosts=slow.hosts), zk_path, 3),
            DoubleBarrier(connect(proxy.hosts), zk_path, 3),
        )
        first._session.registry.seed, last._session.registry.seed = (each * 8 + "-0000-4000-8000" for each in "f0")
        zk.ensure_path(zk_path)
        zk.create(f"{zk_path}/{JAVA}", ephemeral=True)
        go = threading.Event()
        leaving = [
            in_thread(lambda: last.enter(20) and go.wait(20) and last.leave(20)),
            in_thread(lambda: first.enter(20) and first.leave(20)),
        ]
        # Java's, the last one's, and `ready`: before that is made, there are three parties.
        eventually(lambda: len(names := zk.get_children(zk_path)) == 3 and "ready" in names and waits(first))
        slow.stall(to_server=False)
        zk.delete(f"{zk_path}/{JAVA}")
        zk.delete(f"{zk_path}/ready")
        with proxy.hold("getChildren", where=lambda message: message.path == zk_path) as looked:
            go.set()
            looked.wait()
            slow.resume()
            eventually(lambda: zk.exists(f"{zk_path}/ready"))
        assert [each.result(20) for each in leaving] == [True, True]
        assert zk.get_children(zk_path) == []


@pytest.mark.fault(105)
def test_a_party_that_expires_inside(
    zookeeper: Server, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """A party that has lost its session inside is told so when it leaves: the others have gone on without it."""
    mine, theirs = DoubleBarrier(connect(**FAST), zk_path, 2), DoubleBarrier(zk, zk_path, 2)
    entering = in_thread(lambda: theirs.enter() and theirs.leave(20))
    assert mine.enter(20)
    old = mine.client.client_id
    zookeeper.expire(mine.client)
    assert entering.result(20) is True
    eventually(lambda: mine.client.connected and mine.client.client_id[0] != old[0])
    with pytest.raises(LockLostError, match=zk_path):
        mine.leave()
    with pytest.raises(RuntimeError, match="not inside"):
        mine.leave()
