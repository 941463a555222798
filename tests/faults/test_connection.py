"""Connections that drop, stall or lose an answer, under locks that wait and hold; each line of the table is a test."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState

from tests.conftest import FAST, Connect, InThread
from tests.helpers.contenders import queued
from tests.helpers.eventually import PATIENCE, eventually
from tests.helpers.manual_clock import ManualClock
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock, LockLostError
from zkconcurrent.testing import Server


@contextmanager
def traffic(client: KazooClient) -> Iterator[None]:
    """Have a client ask 20 questions a second, whether they are answered or not."""
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(0.05):
            client.exists_async("/")

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        stop.set()
        asking.join()


@pytest.mark.fault(4)
def test_a_drop_within_the_session(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A hold stays, suspect meanwhile; a hold released while disconnected is deleted once the connection is back."""
    client = connect(hosts=proxy.hosts, timeout=60, **FAST)
    lock = Lock(client, zk_path)
    lock.acquire()
    token = lock.fencing_token
    assert not lock.suspect
    proxy.refuse()
    proxy.cut()
    eventually(lambda: lock.suspect)
    assert "<locked" in repr(lock)
    proxy.resume()
    eventually(lambda: not lock.suspect)
    assert lock.fencing_token == token
    assert not lock.lost.is_set()
    proxy.refuse()
    proxy.cut()
    eventually(lambda: client.state == KazooState.SUSPENDED)
    lock.release()
    assert len(zk.get_children(zk_path)) == 1
    proxy.resume()
    eventually(queued(zk, zk_path, 0))


@pytest.mark.fault(9)
def test_a_black_hole(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread, caplog: pytest.LogCaptureFixture
) -> None:
    """With a link that drops everything and closes nothing, the hold is lost before another can get in."""
    caplog.set_level(logging.WARNING, "zkconcurrent")
    mine, theirs = Lock(connect(hosts=proxy.hosts, timeout=8, **FAST), zk_path), Lock(zk, zk_path)
    mine.acquire()
    lost = mine.lost
    got: list[bool] = []
    waiting = in_thread(lambda: theirs.acquire() and got.append(lost.is_set()))
    eventually(queued(zk, zk_path, 2))
    proxy.stall()
    proxy.refuse()
    eventually(lambda: mine.suspect)
    assert lost.wait(20)
    waiting.result(20)
    assert got == [True]
    eventually(lambda: "suspect" in caplog.text)
    eventually(lambda: "lost" in caplog.text)
    proxy.resume()
    theirs.release()
    with pytest.raises(LockLostError):
        mine.release()
    assert mine.acquire(timeout=20)
    mine.release()


@pytest.mark.fault(9)
def test_a_dead_link_under_steady_traffic(connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A link that dies while requests go on is noticed by the heartbeat, and replaced."""
    client = connect(hosts=proxy.hosts, timeout=12, **FAST)
    states: list[str] = []
    client.add_listener(states.append)
    lock = Lock(client, zk_path)
    lock.acquire()
    with proxy.hold("exists"), traffic(client):  # on this connection nothing more is answered, on the next all is
        eventually(lambda: KazooState.SUSPENDED in states)
        eventually(lambda: client.connected)
    assert not lock.lost.is_set()
    lock.release()


@pytest.mark.fault(10)
def test_a_frozen_server(zookeeper: Server, connect: Connect, zk_path: str) -> None:
    """With the server stopped in its tracks, a timed acquire returns in time, or in a third of T."""
    lock = Lock(connect(timeout=9), zk_path)
    zookeeper.freeze()
    try:
        assert lock.acquire(timeout=0.5) is False
    finally:
        zookeeper.thaw()
    assert lock.acquire(timeout=20)
    lock.release()


@pytest.mark.fault(2, 13)
@pytest.mark.parametrize("applied", [True, False])
def test_a_create_that_straddles_an_expiry(
    applied: bool, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """The answer to a create lost, and a new session while the old node exists: that is never taken for ours."""
    client = connect(hosts=proxy.hosts, timeout=4, **FAST)
    lock = Lock(client, zk_path)
    with lock:
        pass
    old = client.client_id
    fault = proxy.lose_answer("create2") if applied else proxy.lose_request("create2")
    with fault:
        proxy.refuse()  # before: else the client might be back, in its session, sooner than that
        waiting = in_thread(lambda: (lock.acquire(), lock.owner(), lock.fencing_token))
        fault.wait()
        eventually(lambda: client.state == KazooState.SUSPENDED)
        client._reset_session()  # no server has ended it
        proxy.resume()
        _, owner, token = waiting.result(20)
    assert owner.session == client.client_id[0] != old[0]
    assert owner.token == token
    assert queued(zk, zk_path, 1)()
    lock.release()
    eventually(queued(zk, zk_path, 0))


@pytest.mark.fault(17)
def test_a_time_out_that_races_with_the_grant(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """Whichever is first, a waiter that is told True holds, and one that is told False has left nothing."""
    mine, theirs = Lock(zk, zk_path), Lock(connect(), zk_path)
    outcomes, after = set(), 0.1

    def turn() -> bool:
        nonlocal after
        mine.acquire()
        waiting = in_thread(theirs.acquire, timeout=0.1)
        time.sleep(after)
        mine.release()
        got = waiting.result(PATIENCE)
        outcomes.add(got)
        # The next release comes nearer to the end of the waiter's time.
        after *= 1.1 if got else 0.9
        eventually(queued(zk, zk_path, got))
        if got:
            assert theirs.owner().session == theirs.client.client_id[0]
            theirs.release()
        return outcomes == {True, False}

    eventually(turn)


@pytest.mark.fault(1)
def test_a_create_that_lingers(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A create that a lost connection delivers after its recipe has looked is found, and deleted."""
    client = connect(hosts=proxy.hosts, timeout=6, **FAST)
    lock = Lock(client, zk_path)
    with proxy.lose_request("create2"):
        lock.acquire()
    mine = zk.get_children(zk_path)[0]
    lock.release()
    late = mine[: mine.index("lock-") - 13] + "f" * 12 + "-lock-"
    client.create(f"{zk_path}/{late}", b"", ephemeral=True, sequence=True)
    eventually(queued(zk, zk_path, 0))


@pytest.mark.fault(18)
def test_a_deadline_is_one_for_the_whole_call(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """A timed acquire does not begin to count anew when those ahead come and go."""
    ahead, me = [Lock(connect(), zk_path) for _ in range(4)], Lock(zk, zk_path)
    ahead[0].acquire()
    others = []
    for number, lock in enumerate(ahead[1:]):
        others.append(in_thread(lock.acquire))
        eventually(queued(zk, zk_path, number + 2))
    with ManualClock(me._session) as clock:
        mine = in_thread(me.acquire, timeout=40)
        eventually(queued(zk, zk_path, 5))
        for passed, lock, got in zip((12, 24, 36), ahead, others, strict=False):
            clock.move(passed)  # within the deadline, which this must not move
            eventually(lambda passed=passed: clock.seen.count(passed) > 1)
            lock.release()
            got.result(10)
        assert not mine.done()
        clock.move(41)
        assert mine.result(20) is False
    ahead[-1].release()
