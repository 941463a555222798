"""Conditions when requests are lost, connections drop and processes die, on a real ZooKeeper."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import wait_in, waiter_nodes, waiters
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Condition

lossy = pytest.mark.parametrize("effect", ["lose_answer", "lose_request"])


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
