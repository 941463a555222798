"""Conditions when requests are lost, connections drop and processes die, on a real ZooKeeper."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import nothing_left, wait_in, waiter_nodes, waiters
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Condition

lossy = pytest.mark.parametrize("effect", ["lose_answer", "lose_request"])


@pytest.mark.fault(3, 4, 7)
@lossy
@pytest.mark.parametrize(("name", "used"), [("multi", True), ("getData", True), ("multi", False), ("exists", False)])
def test_a_lost_request_or_answer_of_a_wait(
    effect: str,
    name: str,
    used: bool,
    zk: KazooClient,
    connect: Connect,
    proxy: Proxy,
    zk_path: str,
    in_thread: InThread,
) -> None:
    """With any request or reply lost, applied or not, a wait lasts until notified, and has the lock."""
    theirs, mine = Condition(connect(hosts=proxy.hosts, **FAST), zk_path), Condition(zk, zk_path)
    if used:
        with theirs:
            theirs.wait(0.01)  # makes the parents

    def wait() -> bool:
        with theirs, getattr(proxy, effect)(name) as fault:
            woken = theirs.wait(20)
            fault.wait()
            return woken

    future = in_thread(wait)
    eventually(waiters(zk, zk_path, 1))
    assert not future.done()
    with mine:
        mine.notify()
        assert waiter_nodes(zk, zk_path) == []
    assert future.result(20) is True
    eventually(nothing_left(zk, mine))


@pytest.mark.fault(1, 3, 4)
@lossy
@pytest.mark.parametrize("name", ["create2", "getChildren", "delete"])
def test_a_lost_request_or_answer_after_a_wait(
    effect: str, name: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """With any request or reply of acquire or release lost, the lock is held once and left free."""
    theirs, mine = Condition(connect(hosts=proxy.hosts, **FAST), zk_path), Condition(zk, zk_path)
    future = in_thread(wait_in, theirs)
    eventually(waiters(zk, zk_path, 1))
    with getattr(proxy, effect)(name) as fault:
        with mine:
            mine.notify()
        fault.wait()
        assert future.result(20)[0] is True
    eventually(nothing_left(zk, mine))


@pytest.mark.fault(3, 35)
@lossy
def test_a_lost_notification(
    effect: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """When the delete of a waiter's node or its answer is lost, one is woken, or one more."""
    mine, theirs = Condition(connect(hosts=proxy.hosts, **FAST), zk_path), Condition(zk, zk_path)
    futures = []
    for n in range(3):
        futures.append(in_thread(wait_in, theirs))
        eventually(waiters(zk, zk_path, n + 1))
    with mine, getattr(proxy, effect)("delete") as fault:
        mine.notify()
        fault.wait()
        left = 1 if effect == "lose_answer" else 2  # in the one case it can't know that it was its own
        assert len(waiter_nodes(zk, zk_path)) == left
    assert all(future.result(10)[0] for future in futures[: 3 - left])
    with theirs:
        theirs.notify_all()
    assert all(future.result(10)[0] for future in futures)
