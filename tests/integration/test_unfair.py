"""Unfair locks: threads of one process hand them to each other without ZooKeeper, within bounds, and lose nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import at_the_handoff, queued
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import AnyLock, Kind, unfair, unfair_lock, unfair_rlock
from tests.helpers.losses import expire, operate, run_out
from tests.helpers.manual_clock import ManualClock
from tests.helpers.proxy import Proxy
from zkconcurrent import LockLostError
from zkconcurrent._engine import local_handoff
from zkconcurrent.testing import Server


def visit(lock: AnyLock, go_on: threading.Event | None = None) -> int:
    """Acquire and release, and return the fencing token."""
    with lock:
        if go_on is not None:
            assert go_on.wait(20)
        return lock.fencing_token


@unfair
def test_other_processes_get_their_turn_by_count(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is handed on as often as it may be, 1,000 times, and not once more, before another process gets it."""
    assert local_handoff.MOST_HANDOVERS == 1000
    monkeypatch.setattr(local_handoff, "MOST_HANDOVERS", 4)
    monkeypatch.setattr(local_handoff, "LONGEST_TURN", 1000.0)
    lock, other = kind(zk, zk_path), kind(connect(), zk_path)
    with lock:
        token = lock.fencing_token
        theirs = in_thread(visit, other)
        eventually(queued(zk, zk_path, 2))
        ours = [in_thread(visit, lock) for _ in range(7)]
        eventually(at_the_handoff(lock, 7))
    tokens = sorted(each.result(20) for each in ours)
    assert tokens[:4] == [token] * 4
    assert token < theirs.result(20) < tokens[4]


@unfair
def test_other_processes_get_their_turn_by_time(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """After 50 ms the lock is not handed on any more: another process that waits gets it."""
    lock, other = kind(zk, zk_path), kind(connect(), zk_path)
    releases = [threading.Event() for _ in range(3)]
    with ManualClock(lock._session) as clock:
        lock.acquire()
        token = lock.fencing_token
        theirs = in_thread(visit, other)
        eventually(queued(zk, zk_path, 2))
        ours = []
        for n, each in enumerate(releases):
            ours.append(in_thread(visit, lock, each))
            eventually(at_the_handoff(lock, n + 1))
        clock.move(0.049, wake=False)
        lock.release()
        releases[0].set()
        assert ours[0].result(20) == token
        eventually(lambda: "<locked" in repr(lock))  # the next thread has taken it, and in time
        clock.move(0.051, wake=False)
        releases[1].set()
        assert ours[1].result(20) == token
        assert theirs.result(20) > token
    releases[2].set()
    assert ours[2].result(20) > theirs.result()


@unfair
def test_a_try_asks_nobody(kind: Kind, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread) -> None:
    """While another thread of the process holds it, a try asks nobody, within another lock too; a timed wait ends."""
    client = connect(hosts=proxy.hosts, timeout=60)
    lock, other = kind(client, zk_path), kind(client, f"{zk_path}-other")

    def fail() -> None:
        with other, proxy.costs():
            assert lock.acquire(False) is False
            assert lock.acquire(timeout=0.05) is False

    with lock:
        in_thread(fail).result(20)
        assert at_the_handoff(lock, 0)()


@pytest.mark.fault(6, 20, 39)
@pytest.mark.parametrize(("kind", "lose"), [(unfair_lock, expire), (unfair_rlock, run_out), (unfair_lock, operate)])
def test_a_loss_opens_the_handoff(
    kind: Kind,
    lose: Callable[[Server, AnyLock], None],
    zookeeper: Server,
    connect: Connect,
    zk_path: str,
    in_thread: InThread,
) -> None:
    """The next thread asks ZooKeeper anew, and the loser can't release the new thread's hold."""
    lock = kind(connect(timeout=4), zk_path)
    lock.acquire()
    token, go_on = lock.fencing_token, threading.Event()
    waiting = in_thread(visit, lock, go_on)
    eventually(at_the_handoff(lock, 1))
    lose(zookeeper, lock)
    eventually(lambda: "<locked" in repr(lock))
    with pytest.raises(LockLostError):
        lock.release()
    assert "<locked" in repr(lock)
    go_on.set()
    assert waiting.result(20) > token


@pytest.mark.fault(9)
@unfair
def test_it_is_handed_on_while_the_service_is_out_of_reach(
    kind: Kind, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To hand it on needs nobody's answer, for as long as the lease runs."""
    monkeypatch.setattr(local_handoff, "LONGEST_TURN", 1000.0)
    lock = kind(connect(hosts=proxy.hosts, timeout=10), zk_path)
    lock.acquire()
    token = lock.fencing_token
    waiting = in_thread(visit, lock)
    eventually(at_the_handoff(lock, 1))
    proxy.stall()
    lock.release()
    assert waiting.result(20) == token
    proxy.resume()
