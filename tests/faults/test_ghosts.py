"""Parties that are interrupted or cancelled at a barrier: no other party goes on by counting one that has left.

The link of the party that leaves is slow. So a delete for which its call did not wait would come after the next party.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import FAST, Connect
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Barrier, DoubleBarrier, aio
from zkconcurrent._engine.session import Session

pytestmark = pytest.mark.fault(254)

LATE = 0.15  # seconds, each way; more than an interrupted call waits for a plain delete
ROUNDS = 2


def count(zk: KazooClient, path: str) -> int:
    """Return how many parties have a node below a path."""
    if zk.exists(path) is None:
        return 0
    names = zk.get_children(path)
    return sum("party-" in name or count(zk, f"{path}/{name}") for name in names)


@pytest.fixture
def near(connect: Connect, proxy: Proxy) -> KazooClient:
    """Return a client whose link is slow."""
    client = connect(hosts=proxy.hosts, timeout=10, **FAST)
    proxy.delay(LATE)
    return client


def cancelled(call: Callable[[], Any], here: Callable[[], bool], strikes: int) -> None:
    """Cancel a task's call once a condition holds."""
    assert not here(), "the cancel would come before the call"

    async def alone() -> None:
        # A task that is the call alone could not enter a double barrier.
        await call()

    async def main() -> None:
        task = asyncio.ensure_future(alone())
        while not here():
            await asyncio.sleep(0.002)
        for _ in range(strikes):
            task.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def interrupted(call: Callable[[], Any], here: Callable[[], bool], strikes: int) -> None:
    """Interrupt a call of this, the main thread once a condition holds."""
    main, over = threading.main_thread().ident, threading.Event()
    assert main == threading.get_ident()
    assert not here(), "the interrupt would come before the call"

    def strike() -> None:
        while not here():
            time.sleep(0.002)
        for _ in range(strikes):
            if not over.is_set():
                signal.pthread_kill(main, signal.SIGINT)
            time.sleep(0.01)

    striking = threading.Thread(target=strike)
    striking.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        over.set()
        striking.join()


@pytest.mark.parametrize("strikes", [1, 3])
@pytest.mark.parametrize("end", [cancelled, interrupted])
def test_a_double_barriers_enter(end: Any, strikes: int, near: KazooClient, zk: KazooClient, zk_path: str) -> None:
    """An enter that is ended early has withdrawn, and the next party does not enter with it."""
    kind: Any = aio.DoubleBarrier if end is cancelled else DoubleBarrier
    barrier, other = kind(near, zk_path, 2), DoubleBarrier(zk, zk_path, 2)
    for _ in range(ROUNDS):
        end(barrier.enter, lambda: count(zk, zk_path) == 1, strikes)
        assert not other.enter(0)
        assert count(zk, zk_path) == 0


@pytest.mark.parametrize("strikes", [1, 3])
@pytest.mark.parametrize("end", [cancelled, interrupted])
def test_a_double_barriers_leave(end: Any, strikes: int, near: KazooClient, zk: KazooClient, zk_path: str) -> None:
    """A party whose leave is ended early has left, and the next party does not enter beside it."""
    began = threading.Event()
    tasks, threads = aio.DoubleBarrier(near, zk_path, 1), DoubleBarrier(near, zk_path, 1)

    def stay() -> None:
        assert threads.enter()
        began.set()
        threads.leave()

    async def stay_in_task() -> None:
        assert await tasks.enter()
        began.set()
        await tasks.leave()

    for _ in range(ROUNDS):
        began.clear()
        end(stay_in_task if end is cancelled else stay, began.is_set, strikes)
        assert not DoubleBarrier(zk, zk_path, 2).enter(0)
        assert zk.get_children(zk_path) == []


@pytest.mark.parametrize("strikes", [1, 3])
def test_a_cancelled_party_of_a_barrier(strikes: int, near: KazooClient, zk: KazooClient, zk_path: str) -> None:
    """A cancelled wait has withdrawn, and the next party waits for another one."""
    barrier, other = aio.Barrier(near, zk_path, 2), Barrier(zk, zk_path, 2)
    for _ in range(ROUNDS):
        cancelled(barrier.wait, lambda: count(zk, zk_path) == 1, strikes)
        with pytest.raises(threading.BrokenBarrierError):
            other.wait(0.1)
        other.reset()


@pytest.mark.parametrize("strikes", [1, 3])
def test_an_interrupted_party_of_a_barrier(strikes: int, near: KazooClient, zk: KazooClient, zk_path: str) -> None:
    """An interrupted wait has broken the barrier."""
    barrier, other = Barrier(near, zk_path, 2), Barrier(zk, zk_path, 2)
    for _ in range(ROUNDS):
        interrupted(barrier.wait, lambda: count(zk, zk_path) == 1, strikes)
        with pytest.raises(threading.BrokenBarrierError):
            other.wait(20)
        other.reset()
        # In a broken generation no call waits for the delete of the party's node.
        eventually(lambda: count(zk, zk_path) == 0, "the party is gone")


@pytest.mark.parametrize("kind", ["Barrier", "DoubleBarrier"])
@pytest.mark.parametrize("end", [cancelled, interrupted])
def test_a_party_whose_server_is_silent(
    end: Any, kind: str, connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str
) -> None:
    """It tries to withdraw for a third of the session timeout, no longer, and is gone once it is heard."""
    timeout = 12.0
    near = connect(hosts=proxy.hosts, timeout=timeout, **FAST)
    make = getattr(aio if end is cancelled else zkconcurrent, kind)
    barrier = make(near, zk_path, 2)
    began: list[float] = []

    def counted() -> bool:
        # On a busy machine the node may be seen before the party waits: it would first wait for the reply to a read.
        waits = any(ticket.awaits for ticket in list(Session.of(near).registry.tickets.values()))
        if count(zk, zk_path) != 1 or not waits or near._pending or near._queue:
            return False
        proxy.stall()
        began.append(time.monotonic())
        return True

    end(barrier.enter if kind == "DoubleBarrier" else barrier.wait, counted, 1)
    lasted = time.monotonic() - began[0]
    assert timeout / 6 < lasted < timeout * 0.6
    proxy.resume()
    eventually(lambda: count(zk, zk_path) == 0, "the party is gone")
