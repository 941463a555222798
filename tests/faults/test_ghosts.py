"""Parties that are interrupted or cancelled at a barrier: no other party goes on by counting one that has left.

The link of the party that leaves is slow, or its server is silent. So a delete for which its call did not wait would
come after the next party.
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
STRIKES = 3


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


@pytest.mark.parametrize("silent", [False, True], ids=["a slow link", "a silent server"])
@pytest.mark.parametrize("kind", ["Barrier", "DoubleBarrier"])
@pytest.mark.parametrize("end", [cancelled, interrupted])
def test_a_party(
    end: Any, kind: str, silent: bool, connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str
) -> None:
    """A party whose call is ended has withdrawn, or broken the barrier: no other party goes on with it.

    Its call ends after a third of the session timeout at most, and the party goes once the server is heard again.
    """
    # A call that is ended early tries to withdraw for a third of it: a machine may stand still for so long.
    near = connect(hosts=proxy.hosts, timeout=12 if silent else 60, **FAST)
    threads: Any = {"Barrier": Barrier, "DoubleBarrier": DoubleBarrier}[kind]
    barrier = (getattr(aio, kind) if end is cancelled else threads)(near, zk_path, 2)

    def here() -> bool:
        if silent and waits(near):
            proxy.stall()
            return True
        return waits(near)

    if not silent:
        proxy.delay(LATE)
    end(near, barrier.wait if kind == "Barrier" else barrier.enter, here)
    if silent:
        proxy.resume()
    elif kind == "DoubleBarrier":
        assert not DoubleBarrier(zk, zk_path, 2).enter(0)
        assert count(zk, zk_path) == 0
    else:
        other = Barrier(zk, zk_path, 2)
        assert other.broken == (end is interrupted)
        with pytest.raises(threading.BrokenBarrierError):
            other.wait(0.1)
        other.reset()
    # In a broken generation no call waits for the delete of the party's node.
    eventually(lambda: count(zk, zk_path) == 0, "the party is gone")
