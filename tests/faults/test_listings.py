"""Of the many that wait at one path, none keeps a listing of it."""

from __future__ import annotations

import asyncio
import gc
import re
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.all_objects import held_by, of_all_objects
from tests.helpers.eventually import eventually
from zkconcurrent import aio
from zkconcurrent._engine.session import Session

CROWD = 40
NAME = re.compile(r"(\A|/)(_c_|item-)")  # of a node in a listing, or its path

Scene = Callable[[Any, KazooClient, str], Callable[[], object]]
"""Has all that a crowd waits for; returns what each calls."""


def _lock(kinds: Any, zk: KazooClient, path: str) -> Callable[[], object]:
    holder = zkconcurrent.Lock(zk, path)
    holder.acquire()
    lock = kinds.Lock(zk, path)
    return lambda _=holder: lock.acquire()


def _semaphore(kinds: Any, zk: KazooClient, path: str) -> Callable[[], object]:
    holder = zkconcurrent.Semaphore(zk, path, 1)
    holder.acquire()
    permits = kinds.Semaphore(zk, path, 1)
    return lambda _=holder: permits.acquire()


def _put(kinds: Any, zk: KazooClient, path: str) -> Callable[[], object]:
    zkconcurrent.Queue(zk, path, 1).put(b"")
    queue = kinds.Queue(zk, path, 1)
    return lambda: queue.put(b"")


def _detached(kinds: Any, zk: KazooClient, path: str) -> Callable[[], object]:
    zkconcurrent.DetachedLock(zk, path, "holder").acquire()
    owners = iter(range(CROWD))
    return lambda: kinds.DetachedLock(zk, path, f"owner {next(owners)}").acquire()


def _latch(kinds: Any, zk: KazooClient, path: str) -> Callable[[], object]:
    latch = zkconcurrent.CountDownLatch(zk, path, CROWD + 1)
    for _ in range(CROWD):
        latch.count_down()
    return kinds.CountDownLatch(zk, path, CROWD + 1).wait  # type: ignore[no-any-return]


SCENES: dict[str, Scene] = {
    "Lock": _lock,
    "Semaphore": _semaphore,
    "Queue, get": lambda kinds, zk, path: kinds.Queue(zk, path).get,
    "Queue, put": _put,
    "Barrier": lambda kinds, zk, path: kinds.Barrier(zk, path, 2 * CROWD).wait,
    "DoubleBarrier": lambda kinds, zk, path: lambda: kinds.DoubleBarrier(zk, path, 2 * CROWD).enter(),
    "DetachedLock": _detached,
    "CountDownLatch": _latch,
}


def _kept(there: list[object]) -> int:
    """Return how many names of contenders are in lists, tuples, dictionaries and sets, wherever these are kept."""
    kinds = (list, tuple, dict, set, frozenset, deque)
    found = {id(each): each for each in there if isinstance(each, kinds)}
    for each in there:  # a tuple of strings is known to nobody but its owner
        for inner in gc.get_referents(each):
            if isinstance(inner, kinds):
                found[id(inner)] = inner
    return sum(
        sum(type(name) is str and NAME.search(name) is not None for name in held_by(each))
        for each in found.values()
        if len(each) >= CROWD // 2
    )


@pytest.mark.fault(241)
@pytest.mark.parametrize("kinds", [zkconcurrent, aio], ids=["threads", "tasks"])
def test_a_crowd_keeps_no_listing(kinds: Any, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """What n waiters keep of the names at their path does not grow by the square of n."""
    client, begun = connect(timeout=30), []
    try:
        for n, (name, scene) in enumerate(SCENES.items(), 1):
            before = of_all_objects(_kept)
            wait = scene(kinds, client, f"{zk_path}/{name}")
            begun += [in_thread(_together, wait)] if kinds is aio else [in_thread(wait) for _ in range(CROWD)]
            eventually(lambda n=n: _waiting(client) >= n * CROWD, name)
            eventually(lambda before=before: of_all_objects(_kept) - before < 6 * CROWD, name)
    finally:
        client.stop()
        for each in begun:
            each.exception(30)


def _together(wait: Callable[[], Any]) -> None:
    """Have a crowd of tasks wait, in a loop of their own."""

    async def one() -> None:
        # A task that is this call alone could not enter a double barrier.
        await wait()

    async def crowd() -> None:
        await asyncio.gather(*(one() for _ in range(CROWD)), return_exceptions=True)

    asyncio.run(crowd())


def _waiting(client: KazooClient) -> int:
    registry = Session.of(client).registry
    return len({waiter for waiters in list(registry._awaiting.values()) for waiter in list(waiters)})
