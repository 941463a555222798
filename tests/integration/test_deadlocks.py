"""Deadlocks on a real ZooKeeper, of processes, threads and tasks: one victim, soon, and the others go on."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.helpers.contenders import children, queued
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import Kind, write_lock
from tests.helpers.processes import Spawn, line_from, spawning, tell
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    BoundedSemaphore,
    Condition,
    DeadlockError,
    DeadlockFound,
    DeadlockVictim,
    DetachedLock,
    Lock,
    LockEvent,
    ReadWriteLock,
    RLock,
    WaitCancelledError,
    Waiting,
    add_listener,
    aio,
)
from zkconcurrent._engine import local_handoff
from zkconcurrent._engine.session import Session
from zkconcurrent._observe import deadlock_search
from zkconcurrent._observe.observation import observation

Warnings = Callable[[], list[str]]


spawn = spawning("tests.integration.deadlock_party", 30.0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have waits searched soon."""
    monkeypatch.setattr(deadlock_search, "AFTER", 0.2)
    monkeypatch.setattr(deadlock_search, "AGAIN_AFTER", 0.05)
    monkeypatch.setattr(local_handoff, "AFTER", 0.2)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Warnings:
    """Return what returns the warnings of deadlock_search."""
    name = "zkconcurrent.deadlocks"
    return lambda: [each.getMessage() for each in caplog.records if each.name == name and each.levelno > logging.DEBUG]


@pytest.mark.fault(280)
def test_a_ring_of_processes(spawn: Spawn, zk: KazooClient, zk_path: str) -> None:
    """The last to wait gets the error, with who waits for whom; the process that it has waited for goes on."""
    other = spawn("0", "1")
    with RLock(zk, f"{zk_path}/1"):
        assert line_from(other) == "held"
        tell(other)
        eventually(queued(zk, f"{zk_path}/1", 2))
        with pytest.raises(DeadlockError) as caught:
            RLock(zk, f"{zk_path}/0", on_deadlock="raise").acquire()
    cycle = [(edge.path, edge.pid) for edge in caught.value.cycle]
    assert cycle == [(f"{zk_path}/0", os.getpid()), (f"{zk_path}/1", other.pid)]
    assert line_from(other) == "got"


def crossed(in_thread: InThread, zk: KazooClient, first: Sequence[Any], second: Sequence[Any]) -> list[Future[None]]:
    """Have two threads hold one of two locks each, then acquire the other's; the second closes the ring."""
    held, closed = threading.Barrier(2), threading.Event()

    def run(locks: Sequence[Any], *, closes: bool) -> None:
        with locks[0]:
            held.wait(20)
            if closes:
                closed.wait(20)
            with locks[1]:
                pass

    running = [in_thread(run, first, closes=False), in_thread(run, second, closes=True)]
    eventually(queued(zk, first[1].path, 2))
    closed.set()
    return running


@pytest.mark.fault(280)
@pytest.mark.parametrize("kind", [RLock, write_lock])
def test_two_threads_of_two_clients(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, warnings: Warnings
) -> None:
    """The one that closes the ring gets the error, and the listeners hear of it; the other one goes on."""
    told: list[LockEvent] = []
    other = connect()
    makes = [
        [kind(client, f"{zk_path}/{name}", on_deadlock="raise") for name in names]
        for client, names in ((zk, "ab"), (other, "ba"))
    ]
    remove = add_listener(told.append, other)
    try:
        first, second = crossed(in_thread, zk, *makes)
        with pytest.raises(DeadlockError, match=r"waits for \S+ \(for \d+\.\d s\), held by") as caught:
            second.result(20)
        first.result(20)
        eventually(lambda: any(isinstance(each, DeadlockFound) for each in told))
    finally:
        remove()
    assert [edge.path for edge in caught.value.cycle] == [f"{zk_path}/a", f"{zk_path}/b"]
    assert caught.value.path == f"{zk_path}/a"
    assert pickle.loads(pickle.dumps(caught.value)).cycle == caught.value.cycle
    mine = [type(each) for each in told if each.path == f"{zk_path}/a"]
    assert mine == [Waiting, DeadlockFound, DeadlockVictim]
    eventually(warnings)
    assert len(warnings()) == 1
    assert children(zk, f"{zk_path}/a") == children(zk, f"{zk_path}/b") == []


@pytest.mark.fault(280)
def test_threads_that_wait_for_their_turn(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Of an unfair lock, a thread that holds something waits in the queue after a while, where it can be seen."""
    unfair = RLock(zk, f"{zk_path}/a", fair=False, on_deadlock="raise")
    same = RLock(zk, f"{zk_path}/b", on_deadlock="raise")
    held, ends = threading.Barrier(2), list[str]()

    def run(*locks: RLock) -> None:
        try:
            with locks[0]:
                held.wait(20)
                with locks[1]:
                    ends.append("got")
        except DeadlockError:
            ends.append("victim")

    for each in [in_thread(run, unfair, same), in_thread(run, same, unfair)]:
        each.result(20)
    assert sorted(ends) == ["got", "victim"]


@pytest.mark.fault(280)
def test_only_a_warning(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, warnings: Warnings
) -> None:
    """By default a deadlock is logged, once, by the wait that closed it, however long it lasts; all wait on."""
    other = connect()
    mine = [RLock(zk, f"{zk_path}/{name}") for name in "ab"]
    running = crossed(in_thread, zk, mine, [RLock(other, f"{zk_path}/{name}") for name in "ba"])
    eventually(warnings)
    searched_again(zk, other)
    assert len(warnings()) == 1
    assert "a deadlock of 2 waits: thread" in warnings()[0]
    assert not any(each.done() for each in running)
    assert mine[1].cancel_waits() == 1
    running[1].result(20)


def searched_again(*clients: KazooClient) -> None:
    """Wait until each wait of some clients that is searched at all has been searched twice more."""
    checks = [check for client in clients for check in observation(Session.of(client)).deadlocks._checks]
    before = [check._pause for check in checks]
    eventually(lambda: all(check._pause >= 4 * pause for check, pause in zip(checks, before, strict=True)))


class Held:
    """A block in a hold that others may end before the block does."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        with suppress(RuntimeError, ValueError):
            self._lock.release()


@pytest.mark.fault(283)
@pytest.mark.parametrize("kind", ["bare acquire", "permit", "detached lock", "timeout"])
def test_what_is_not_certain(
    kind: str, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread, warnings: Warnings
) -> None:
    """A ring that others may yet end, or one of its waits by itself, is no deadlock: none is logged, no wait ends."""
    other, both, got = connect(), threading.Barrier(2), list[bool]()
    a, wanted = (Lock(client, f"{zk_path}/a", on_deadlock="raise") for client in (zk, other))
    b, held = (
        BoundedSemaphore(client, f"{zk_path}/b", 1)
        if kind == "permit"
        else DetachedLock(client, f"{zk_path}/b", owner)
        if kind == "detached lock"
        else Lock(client, f"{zk_path}/b", on_deadlock="raise")
        for client, owner in ((zk, "one"), (other, "two"))
    )

    def run(holds: Any, waits: Any) -> None:
        with holds:
            both.wait(20)
            with waits:
                got.append(True)

    waits = wanted.hold(60) if kind == "timeout" else wanted
    running = [in_thread(run, a, b), in_thread(run, held if kind == "timeout" else Held(held), waits)]
    eventually(lambda: a.waiters() and b.waiters())
    searched_again(zk, other)
    assert (warnings(), got) == ([], [])
    if kind == "timeout":
        assert wanted.cancel_waits() == 1
        with pytest.raises(WaitCancelledError):
            running[1].result(20)
    else:
        held.release()
        running[1].result(20)
    running[0].result(20)


@pytest.mark.fault(280)
def test_a_read_lock_taken_again_through_another_client(
    zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """A writer waits for the first read lock, and the second one for the writer."""
    first, writer, second = (
        ReadWriteLock(client, zk_path, on_deadlock="raise") for client in (zk, connect(), connect())
    )
    with first.read_lock:
        writing = in_thread(lambda: writer.write_lock.acquire() and writer.write_lock.release())
        eventually(queued(zk, zk_path, 2))
        with pytest.raises(DeadlockError) as caught:
            second.read_lock.acquire()
        assert [edge.hard for edge in caught.value.cycle] == [False, True]
    writing.result(20)


@pytest.mark.fault(282)
def test_a_condition_can_not_be_ended(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """A wait on a condition must have its lock again; the other member is the victim."""
    other, waits = connect(), threading.Event()
    lock, outer = (RLock(zk, f"{zk_path}/{name}", on_deadlock="raise") for name in ("lock", "outer"))
    condition = Condition(zk, f"{zk_path}/condition", lock)

    def wait() -> bool:
        with outer, condition:
            waits.set()
            return condition.wait(20)

    waiting = in_thread(wait)
    assert waits.wait(20)
    theirs = RLock(other, lock.path, on_deadlock="raise")
    with theirs:
        Condition(other, f"{zk_path}/condition", theirs).notify()
        eventually(queued(zk, lock.path, 2))
        with pytest.raises(DeadlockError):
            RLock(other, outer.path, on_deadlock="raise").acquire()
    assert waiting.result(20)


@pytest.mark.fault(281)
def test_a_member_that_is_cut_off(
    zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """The one that is to find the deadlock is cut off as it reads: it finds it once it is connected again."""
    mine = [RLock(zk, f"{zk_path}/{name}", on_deadlock="raise") for name in "ab"]
    client = connect(proxy.hosts, timeout=20)
    theirs = [RLock(client, f"{zk_path}/{name}", on_deadlock="raise") for name in "ba"]
    searched = observation(Session.of(client)).deadlocks._checks
    # Once the wait is to be searched, only the search lists what its thread holds.
    with proxy.hold("getChildren", where=lambda read: read.path == f"{zk_path}/b" and any(searched)) as search:
        first, second = crossed(in_thread, zk, mine, theirs)
        search.wait()
        proxy.refuse()
        proxy.cut()
    searched_again(client)
    assert not second.done()
    proxy.resume()
    with pytest.raises(DeadlockError):
        second.result(20)
    first.result(20)


def test_tasks_of_one_loop(zk: KazooClient, zk_path: str) -> None:
    """Two tasks of one client wait for each other."""
    names = aio.namespace(zk, zk_path, on_deadlock="raise")

    async def run(held: asyncio.Event, other: asyncio.Event, *locks: str) -> None:
        async with names.RLock(locks[0]):
            held.set()
            await other.wait()
            async with names.RLock(locks[1]):
                pass

    async def main() -> list[Any]:
        events = asyncio.Event(), asyncio.Event()
        ring = run(*events, "a", "b"), run(*events[::-1], "b", "a")
        return await asyncio.wait_for(asyncio.gather(*ring, return_exceptions=True), 20)

    ends = asyncio.run(main())
    assert sorted(type(end).__name__ for end in ends) == ["DeadlockError", "NoneType"]


@pytest.mark.fault(283)
def test_no_false_report_under_contention(
    zk: KazooClient,
    connect: Connect,
    zk_path: str,
    in_thread: InThread,
    warnings: Warnings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads that take locks in one order are searched all the time, and nothing is ever found."""
    monkeypatch.setattr(deadlock_search, "AFTER", 0.02)
    clients, searches, over = [zk, connect()], observation(Session.of(zk)).deadlocks, threading.Event()

    def run(n: int) -> int:
        done = 0
        while not over.is_set():
            with ExitStack() as held:
                for name in "abc"[n % 2 :]:
                    lock = ReadWriteLock(clients[n % 2], f"{zk_path}/{name}", on_deadlock="raise")
                    side = lock.read_lock if (n + done) % 3 else lock.write_lock
                    held.enter_context(side)
                done += 1
                over.wait(0.05)  # so that others wait for long enough to be searched
        return done

    running = [in_thread(run, n) for n in range(8)]
    try:
        eventually(lambda: searches.requests > 50)
    finally:
        over.set()
    assert sum(each.result(30) for each in running) > 0
    assert warnings() == []
