"""Parties that are interrupted or cancelled at a barrier: no other party goes on by counting one that has left.

The link of the party that leaves is slow. So a delete for which its call did not wait would come after the next party.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import FAST, Connect
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Barrier, DoubleBarrier, aio
from zkconcurrent._engine.session import Session

pytestmark = pytest.mark.fault(254)
LATE = 0.15  # seconds, each way; more than an interrupted call waits for a plain delete
ROUNDS = 2
STRIKES = 3
# A call that is ended early tries to withdraw for a third of it: a machine may stand still for so long.
PATIENT = 60.0


def count(zk: KazooClient, path: str) -> int:
    """Return how many parties have a node below a path."""
    if zk.exists(path) is None:
        return 0
    names = zk.get_children(path)
    return sum("party-" in name or count(zk, f"{path}/{name}") for name in names)


def waits(client: KazooClient) -> bool:
    """Return whether a party of the client sleeps until another one comes: its requests have their replies."""
    tickets = list(Session.of(client).registry.tickets.values())
    return any(ticket.awaits for ticket in tickets) and not client._pending and not client._queue


@pytest.fixture
def near(connect: Connect, proxy: Proxy) -> KazooClient:
    """Return a client whose link is slow."""
    client = connect(hosts=proxy.hosts, timeout=PATIENT, **FAST)
    proxy.delay(LATE)
    return client


def cancelled(_client: KazooClient, call: Callable[[], Any], here: Callable[[], bool]) -> None:
    """Cancel a task's call once a condition holds, and then again."""

    async def alone() -> None:
        # A task that is the call alone could not enter a double barrier.
        await call()

    async def main() -> None:
        task = asyncio.ensure_future(alone())
        while not here():
            await asyncio.sleep(0.002)
        for _ in range(STRIKES):
            task.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def interrupted(client: KazooClient, call: Callable[[], Any], here: Callable[[], bool]) -> None:
    """Interrupt a call of this, the main thread once a condition holds, and then whenever it waits for replies."""
    over, struck = threading.Event(), list[int]()

    def handle(*_: object) -> None:
        if not over.is_set():
            struck.append(1)
            raise KeyboardInterrupt

    def strike() -> None:
        for number in range(STRIKES):
            ready = client._pending.__len__ if number else here
            eventually(lambda: over.is_set() or (len(struck) == number and ready()))  # noqa: B023
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    before, striking = signal.signal(signal.SIGINT, handle), threading.Thread(target=strike)
    striking.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            try:
                call()
            finally:
                over.set()
    finally:
        over.set()
        striking.join()
        signal.signal(signal.SIGINT, before)


ends = pytest.mark.parametrize("end", [cancelled, interrupted])


@ends
def test_a_double_barriers_enter(end: Any, near: KazooClient, zk: KazooClient, zk_path: str) -> None:
    """An enter that is ended early has withdrawn, and the next party does not enter with it."""
    kind: Any = aio.DoubleBarrier if end is cancelled else DoubleBarrier
    barrier, other = kind(near, zk_path, 2), DoubleBarrier(zk, zk_path, 2)
    for _ in range(ROUNDS):
        end(near, barrier.enter, lambda: waits(near))
        assert not other.enter(0)
        assert count(zk, zk_path) == 0


@ends
def test_a_double_barriers_leave(end: Any, near: KazooClient, zk: KazooClient, zk_path: str) -> None:
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
        end(near, stay_in_task if end is cancelled else stay, began.is_set)
        assert not DoubleBarrier(zk, zk_path, 2).enter(0)
        assert zk.get_children(zk_path) == []


@ends
def test_a_party_of_a_barrier(end: Any, near: KazooClient, zk: KazooClient, zk_path: str) -> None:
    """A cancelled wait has withdrawn, and an interrupted one has broken the barrier: no other party goes on with it."""
    kind: Any = aio.Barrier if end is cancelled else Barrier
    barrier, other = kind(near, zk_path, 2), Barrier(zk, zk_path, 2)
    for _ in range(ROUNDS):
        end(near, barrier.wait, lambda: waits(near))
        assert other.broken == (end is interrupted)
        with pytest.raises(threading.BrokenBarrierError):
            other.wait(0.1)
        other.reset()
        # In a broken generation no call waits for the delete of the party's node.
        eventually(lambda: count(zk, zk_path) == 0, "the party is gone")


@pytest.mark.parametrize("kind", ["Barrier", "DoubleBarrier"])
@ends
def test_a_party_whose_server_is_silent(
    end: Any, kind: str, connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str
) -> None:
    """The call of a party ends, after a third of the session timeout, and the party goes once the server is heard."""
    near = connect(hosts=proxy.hosts, timeout=12, **FAST)
    threads: Any = {"Barrier": Barrier, "DoubleBarrier": DoubleBarrier}[kind]
    barrier = (getattr(aio, kind) if end is cancelled else threads)(near, zk_path, 2)

    def silenced() -> bool:
        if waits(near):
            proxy.stall()
            return True
        return False

    end(near, barrier.enter if kind == "DoubleBarrier" else barrier.wait, silenced)
    proxy.resume()
    eventually(lambda: count(zk, zk_path) == 0, "the party is gone")
