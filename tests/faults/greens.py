"""Locks between greenlets; run by test_gevent in a process of its own, as monkey-patching is for a whole process.

python -m tests.faults.greens HOSTS PATH
"""

# ruff: noqa: E402 - gevent patches before all else
from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import gevent
from kazoo.client import KazooClient
from kazoo.handlers.gevent import SequentialGeventHandler

from zkconcurrent import ClientError, Condition, Lock, LockLostError, RLock, inspect

# A wait that blocks the hub waits for an answer that only the hub could read: for seconds, until its time is up.
HUB_LATE = 4.0
SESSION = 30.0


def beats() -> tuple[list[float], Any]:
    """Start a greenlet that notes how late it is woken, for as long as the hub is blocked."""
    late: list[float] = []

    def beat() -> None:
        while True:
            began = time.monotonic()
            gevent.sleep(0.01)
            late.append(time.monotonic() - began - 0.01)

    return late, gevent.spawn(beat)


def contend(locks: list[Lock | RLock]) -> None:
    """Greenlets exclude each other, each under a name of its own."""
    inside: list[int] = []
    tokens: list[int] = []

    def work(lock: Lock | RLock) -> None:
        for _ in range(10):
            with lock:
                inside.append(1)
                gevent.sleep(0.001)
                assert len(inside) == 1
                inside.pop()
                tokens.append(lock.fencing_token)

    workers = [gevent.spawn(work, locks[number % len(locks)]) for number in range(6)]
    gevent.joinall(workers, timeout=60, raise_error=True)
    assert len(tokens) == 60
    assert tokens == sorted(set(tokens))


def is_refused(call: Callable[[], object]) -> bool:
    """Return whether a call raises RuntimeError; gevent would print what a greenlet dies of."""
    try:
        call()
    except RuntimeError:
        return True
    return False


def nodes(zk: KazooClient, path: str) -> int:
    """Return how many nodes there are at a path; the server may have reaped one that is idle."""
    stat = zk.exists(path)
    return 0 if stat is None else stat.numChildren


def crowd(zk: KazooClient, path: str) -> None:
    """More greenlets than kazoo's pipe has room for."""

    def work(number: int) -> None:
        with Lock(zk, f"{path}-crowd/{number}"):
            pass

    gevent.joinall([gevent.spawn(work, number) for number in range(200)], timeout=120, raise_error=True)
    assert not any(nodes(zk, f"{path}-crowd/{number}") for number in range(200))


def confer(mine: Condition, theirs: Condition) -> None:
    """Greenlets wait for each other; one that is killed as it waits leaves no node, and the lock free."""

    def wait(condition: Condition) -> bool:
        with condition, condition:
            return condition.wait(60)

    def queued(n: int) -> None:
        while nodes(mine.client, f"{mine.path}/waiters") != n:
            gevent.sleep(0.01)

    waiting = [gevent.spawn(wait, condition) for condition in (mine, theirs, mine)]
    queued(3)
    waiting[1].kill()
    queued(2)
    with theirs:
        theirs.notify_all()
    gevent.joinall(waiting, timeout=60, raise_error=True)
    assert [waiting[0].value, waiting[2].value] == [True, True]
    with mine:
        assert mine.wait(0.05) is False


def main(hosts: str, path: str) -> None:
    """Use locks as greenlets do."""
    before = set(threading.enumerate())
    zk, other = (KazooClient(hosts, timeout=SESSION, handler=SequentialGeventHandler()) for _ in range(2))
    zk.start()
    other.start()
    late, beating = beats()
    lock, rlock = Lock(zk, path), RLock(zk, f"{path}-r")
    contend([lock])
    contend([lock, Lock(other, path)])
    contend([rlock, RLock(other, f"{path}-r")])
    confer(Condition(zk, f"{path}-c"), Condition(other, f"{path}-c"))
    late_before = max(late)
    crowd(zk, path)
    del late[:]

    with rlock, rlock:  # a greenlet is an owner
        assert rlock._recursion_count() == 2
        assert gevent.spawn(rlock._is_owned).get() is False
        assert gevent.spawn(rlock.acquire, False).get() is False
        began, beaten = time.monotonic(), len(late)
        assert gevent.spawn(rlock.acquire, timeout=3.0).get() is False
        assert time.monotonic() - began > 2.5
        assert len(late) > beaten + 1, "the hub was blocked"
        assert gevent.spawn(is_refused, rlock.release).get()
        waiting = gevent.spawn(rlock.acquire, timeout=threading.TIMEOUT_MAX)
        while not [wait for wait in inspect().waits if wait.awaits]:
            gevent.sleep(0.01)
        assert not waiting.ready()
        found = inspect()
        assert [(hold.path, hold.depth) for hold in found.holds] == [(rlock.path, 2)]
        assert [(wait.path, wait.holder) for wait in found.waits] == [(rlock.path, found.holds[0].owner)]
        waiting.kill()  # an exception in the waiter: its node goes
        while nodes(zk, rlock.path) > 1:
            gevent.sleep(0.01)

    lock.acquire()
    gevent.spawn(lock.release).get()  # a Lock may be released by another greenlet
    assert not lock.locked()

    refused: list[object] = []

    def on_event(_event: object) -> None:
        try:
            lock.acquire()
        except ClientError as error:
            refused.append(error)

    zk.create(f"{path}-event")
    zk.get(f"{path}-event", watch=on_event)
    zk.delete(f"{path}-event")
    while not refused:
        gevent.sleep(0.01)

    told: list[object] = []
    watched = Lock(other, f"{path}-lost", on_lost=told.append)
    watched.acquire()
    lost = watched.lost
    waiting = gevent.spawn(Lock(zk, watched.path).acquire)
    while nodes(zk, watched.path) < 2:
        gevent.sleep(0.01)
    other.stop()
    assert lost.wait(20)
    assert waiting.get(timeout=20)
    try:
        watched.release()
    except LockLostError:
        pass
    else:
        raise AssertionError("a lost hold was released")
    while told != [watched]:
        gevent.sleep(0.01)
    beating.kill()
    late_most = max(late_before, *late)
    assert late_most < HUB_LATE, f"the hub was blocked for {late_most} s"
    sys.stdout.write(f"threads {len(set(threading.enumerate()) - before)}\n")
    zk.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])
