"""Conditions when requests are lost, connections drop and processes die, on a real ZooKeeper."""

from __future__ import annotations

import time

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect, InThread
from tests.faults.conftest import SESSION, SLACK
from tests.helpers.contenders import nothing_left, wait_in, waiter_nodes, waiters
from tests.helpers.eventually import eventually
from tests.helpers.manual_clock import ManualClock
from tests.helpers.processes import Spawn, line_from, tell
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
def test_a_lost_withdrawal(effect: str, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """The delete of a waiter whose time is up is lost: if it was applied, that can't be known."""
    condition = Condition(connect(hosts=proxy.hosts, **FAST), zk_path)
    with condition:
        with getattr(proxy, effect)("delete") as fault:
            assert condition.wait(0.1) is (effect == "lose_answer")
            fault.wait()
        assert waiter_nodes(zk, zk_path) == []
    eventually(nothing_left(zk, condition))


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


@pytest.mark.fault(8)
def test_a_notification_during_a_disconnect(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """A waiter that is cut off when it is notified wakes when it is back, within its session."""
    theirs, mine = Condition(connect(hosts=proxy.hosts, timeout=10, **FAST), zk_path), Condition(zk, zk_path)
    future = in_thread(wait_in, theirs)
    eventually(waiters(zk, zk_path, 1))
    session = theirs.client.client_id
    proxy.refuse()
    proxy.cut()
    with mine:
        mine.notify()
    assert not future.done()
    proxy.resume()
    assert future.result(20)[0] is True
    assert theirs.client.client_id == session


@pytest.mark.fault(8, 35)
def test_a_timeout_during_a_disconnect(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """Its time is up while it is cut off: notified or not, it says so truly once it is back."""
    theirs, mine = Condition(connect(hosts=proxy.hosts, timeout=30, **FAST), zk_path), Condition(zk, zk_path)
    for notified in (False, True):
        with ManualClock(theirs._session) as clock:
            future = in_thread(wait_in, theirs, 60)
            eventually(waiters(zk, zk_path, 1))
            proxy.refuse()
            proxy.cut()
            if notified:
                with mine:
                    mine.notify()
            clock.move(61)
            eventually(lambda clock=clock: clock.seen.count(61) > 2)  # it has found that its time is up
            assert not future.done()
            proxy.resume()
            assert future.result(20)[0] is notified
        assert waiter_nodes(zk, zk_path) == []


@pytest.mark.fault(32)
def test_a_waiter_is_killed(party: Spawn, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """The notification of a dead waiter goes to the next waiter, once the dead one's session is over."""
    dead = party("wait_for_a_notification")
    assert line_from(dead) == "waiting"
    eventually(waiters(zk, zk_path, 1))
    condition = Condition(zk, zk_path)
    future = in_thread(wait_in, condition)
    eventually(waiters(zk, zk_path, 2))
    dead.kill()
    eventually(waiters(zk, zk_path, 1))
    with condition:
        condition.notify()
    assert future.result(10)[0] is True


@pytest.mark.fault(32)
def test_a_notifier_is_killed(party: Spawn, zk: KazooClient, zk_path: str) -> None:
    """A waiter whose notifier dies with the lock wakes, and has the lock after the notifier's session."""
    waiter, notifier = party("wait_for_a_notification"), party("notify_and_stay")
    assert line_from(waiter) == "waiting"
    eventually(waiters(zk, zk_path, 1))
    tell(notifier)
    assert line_from(notifier) == "notified"
    assert waiter_nodes(zk, zk_path) == []
    notifier.kill()
    began = time.monotonic()
    assert line_from(waiter) == "True"
    assert time.monotonic() - began < SESSION + SLACK
    assert waiter.wait(20) == 0
    eventually(nothing_left(zk, Condition(zk, zk_path)))
