"""A hold that may soon be lost: `on_suspect` tells of it, and `remaining()` says for how long it surely lasts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import read_lock
from tests.helpers.proxy import Proxy
from zkconcurrent import Election, Lock, MultiLock, Semaphore, aio, namespace
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

TIMEOUT = 6.0
KINDS: dict[str, Callable[..., Any]] = {
    "Lock": Lock,
    "read lock": read_lock,
    "Semaphore": Semaphore,
    "MultiLock": lambda client, path, **options: namespace(client, path).MultiLock(["a", "b"], **options),
}
TWINS: dict[str, Callable[..., Any]] = {
    "Lock": aio.Lock,
    "MultiLock": lambda client, path, **options: aio.namespace(client, path).MultiLock(["a", "b"], **options),
}


@pytest.mark.fault(285)
@pytest.mark.parametrize("kind", ["Lock", "MultiLock"])
def test_a_cut_link(kind: str, zk_path: str, connect: Connect, proxy: Proxy) -> None:
    """`on_suspect` is called once an outage, only of a hold; a call that blocks stops no heartbeat."""
    told: list[tuple[Any, float]] = []
    threads: set[str] = set()
    go_on = threading.Event()

    def on_suspect(lock: Any, left: float) -> None:
        threads.add(threading.current_thread().name)
        told.append((lock, left))
        go_on.wait(60)

    client = connect(hosts=proxy.hosts, timeout=TIMEOUT)
    session = Session.of(client)
    lock = KINDS[kind](client, f"{zk_path}/lock", on_suspect=on_suspect)
    try:
        with Lock(client, f"{zk_path}/other"):
            proxy.stall()
            eventually(lambda: session.suspect)
            proxy.resume()
            eventually(lambda: not session.suspect)
        assert told == []
        for outages in (1, 2):
            with lock:
                proxy.stall()
                eventually(lambda outages=outages: len(told) == outages)
                assert lock.suspect
                assert told[-1][0] is lock
                assert lock.remaining() <= told[-1][1] < TIMEOUT
                proxy.resume()
                eventually(lambda: not lock.suspect)
                last = time.monotonic() + lock.remaining()
                eventually(lambda last=last: time.monotonic() + lock.remaining() > last + 1, "the heartbeat goes on")
                assert len(told) == outages
    finally:
        go_on.set()
    assert all(name.startswith("zkconcurrent on_suspect ") for name in threads)


@pytest.mark.fault(285)
@pytest.mark.parametrize(("kind", "waits"), [("Lock", True), ("MultiLock", False)])
def test_a_cut_link_on_tasks(kind: str, waits: bool, zk_path: str, connect: Connect, proxy: Proxy) -> None:
    """`on_suspect` runs in the loop that has acquired, plain or async, with the object of `aio`."""
    told: list[tuple[Any, object]] = []
    seconds: list[float] = []

    async def later(lock: Any, left: float) -> None:
        await asyncio.sleep(0)
        at_once(lock, left)

    def at_once(lock: Any, left: float) -> None:
        told.append((lock, asyncio.get_running_loop()))
        seconds.append(left)

    async def until(condition: Callable[[], object]) -> None:
        while not condition():
            await asyncio.sleep(0.01)

    async def main(callback: Callable[..., Any]) -> None:
        lock = TWINS[kind](client, zk_path, on_suspect=callback)
        async with lock:
            proxy.stall()
            await asyncio.wait_for(until(lambda: told), 30)
            assert told == [(lock, asyncio.get_running_loop())]
            assert lock.remaining() <= seconds[-1] < TIMEOUT
            proxy.resume()
            await asyncio.wait_for(until(lambda: not lock.suspect), 30)
        assert lock.remaining() == 0

    client = connect(hosts=proxy.hosts, timeout=TIMEOUT)
    asyncio.run(main(later if waits else at_once))


@pytest.mark.fault(287)
def test_a_frozen_server(zk_path: str, connect: Connect) -> None:
    """The connection is open, and no reply comes: told once before the loss."""
    told: list[float] = []
    lost: list[Lock] = []
    with Server() as server:
        client = connect(hosts=server.hosts, timeout=4.0)
        events: list[zkconcurrent.LockEvent] = []
        remove = zkconcurrent.add_listener(events.append, client)
        lock = Lock(client, zk_path, on_suspect=lambda _, left: told.append(left), on_lost=lost.append)
        lock.acquire()
        server.freeze()
        try:
            eventually(lambda: lost)
        finally:
            server.thaw()
    # The client drops the connection after a while, which is no news.
    eventually(lambda: [type(event).__name__ for event in events] == ["Acquired", "Suspect", "Lost"])
    remove()
    (left,) = told
    assert 0 < left < 4.0


def test_which_client_is_cut_off(zk_path: str, zk: KazooClient, connect: Connect, proxy: Proxy) -> None:
    """A MultiLock is suspect with any of its clients, and lasts no longer than the lock of that client."""
    told: list[str] = []
    locks = [Lock(client, f"{zk_path}/{n}") for n, client in enumerate((zk, connect(hosts=proxy.hosts)))]
    every = MultiLock(locks, on_suspect=lambda *_: told.append("MultiLock"))
    assert every.remaining() == 0
    with every:
        proxy.stall()
        eventually(lambda: told == ["MultiLock"])
        assert locks[1].suspect
        assert every.suspect
        left = locks[1].remaining()
        assert every.remaining() <= left
        proxy.resume()
        eventually(lambda: not every.suspect)
    assert told == ["MultiLock"]


def test_the_remaining_time_of_a_term(connect: Connect, zk_path: str) -> None:
    """As that of a lock; 0 when the term is over: of a thread, a task and a candidacy."""
    zk = connect(timeout=TIMEOUT)
    election = Election(zk, f"{zk_path}/one")
    with election.lead() as term:
        assert 0 < term.remaining() < TIMEOUT
    assert term.remaining() == 0
    election.stand()
    standing = election.wait()
    assert standing is not None
    assert 0 < standing.remaining() < TIMEOUT
    election.withdraw()
    assert standing.remaining() == 0

    async def main() -> None:
        async with aio.Election(zk, f"{zk_path}/other").lead() as term:
            assert 0 < term.remaining() < TIMEOUT
        assert term.remaining() == 0

    asyncio.run(main())


def test_what_is_no_callback(zk: KazooClient, zk_path: str) -> None:
    """It is refused."""
    for make in (*KINDS.values(), *TWINS.values()):
        with pytest.raises(TypeError, match="on_suspect must be callable, not int"):
            make(zk, zk_path, on_suspect=1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_other_threads_see(kind: str, zk_path: str, zk: KazooClient, in_thread: InThread) -> None:
    """Every thread of the process sees how long the hold of another one lasts, and its loss."""
    lock = KINDS[kind](zk, zk_path)
    assert lock.acquire(timeout=30)
    mine = lock.lost
    remaining, suspect, lost = in_thread(lambda: (lock.remaining(), lock.suspect, lock.lost)).result()
    assert (remaining > 0, suspect, lost.is_set(), lost == mine) == (True, False, False, True)
    lock.release()
