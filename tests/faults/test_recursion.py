"""A program calls itself until Python refuses, within the library's blocks or just above its calls.

A RecursionError is no interrupt that strikes once: it strikes the clean-up, too. So a call begins only with all the
frames that it may need, and a block only with those that its end needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.helpers.eventually import eventually
from tests.helpers.recursion import depth, recursion_limit, with_frames_left
from zkconcurrent import (
    AtomicLong,
    Condition,
    Dict,
    Election,
    Group,
    MultiLock,
    Queue,
    RLock,
    Semaphore,
    aio,
    synchronized,
)
from zkconcurrent._runtime import interrupts

pytestmark = pytest.mark.fault(163)

LIMITS = range(100, 106)  # frames above the test; the innermost block needs some more each time
KINDS: dict[str, Callable[[KazooClient, str], Any]] = {
    "MultiLock": lambda zk, path: MultiLock([RLock(zk, f"{path}/{name}") for name in "ab"]),
    "RLock": RLock,
    "Semaphore": lambda zk, path: Semaphore(zk, path, 1000),
}


def nodes(zk: KazooClient, path: str) -> int:
    """Return how many nodes of contenders and members there are at a path or below it."""
    try:
        names, stat = zk.get_children(path, include_data=True)
    except NoNodeError:
        return 0
    mine = "/_c_" in path or bool(stat.ephemeralOwner)
    return mine + sum(nodes(zk, f"{path}/{name}") for name in names)


@pytest.mark.parametrize(
    ("kind", "block"), [("RLock", "with"), ("RLock", "hold"), ("RLock", "synchronized"), ("MultiLock", "with")]
)
def test_a_recursion_without_an_end(kind: str, block: str, zk: KazooClient, zk_path: str) -> None:
    """Each block that has begun releases its level: once the error has left them all, nothing is held."""
    lock = KINDS[kind](zk, zk_path)

    def recurse() -> None:
        if block == "with":
            with lock:
                recurse()
        elif block == "hold":
            with lock.hold():
                recurse()
        else:
            synchronized(lock)(recurse)()

    for limit in LIMITS:
        with recursion_limit(depth() + limit), pytest.raises(RecursionError):
            recurse()
        assert lock.hold_count() == 0, limit
    eventually(lambda: nodes(zk, zk_path) == 0)


def test_a_recursion_of_coroutines_without_an_end(zk: KazooClient, zk_path: str) -> None:
    """The same within `async with`, whose coroutines await each other."""

    async def recurse(lock: Any) -> None:
        async with lock:
            await recurse(lock)

    async def main() -> None:
        lock = aio.RLock(zk, zk_path)
        for limit in LIMITS:
            with recursion_limit(depth() + limit), pytest.raises(RecursionError):
                await recurse(lock)
            assert lock.hold_count() == 0, limit

    asyncio.run(main())
    eventually(lambda: nodes(zk, zk_path) == 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_at_every_depth(kind: str, zk: KazooClient, zk_path: str) -> None:
    """The release releases all, or nothing."""
    lock = KINDS[kind](zk, zk_path)
    for margin in range(1, interrupts.FRAMES + 30):
        lock.acquire()
        try:
            with_frames_left(margin, lock.release)
        except RecursionError:
            assert lock.hold_count() == 1, margin
            lock.release()
        assert lock.hold_count() == 0
        eventually(lambda: nodes(zk, zk_path) == 0, str(margin))


def _wait(zk: KazooClient, path: str) -> None:
    with (condition := Condition(zk, path)):
        condition.wait(0.01)


def _lead(zk: KazooClient, path: str) -> None:
    with Election(zk, path).lead():
        pass


def _join(zk: KazooClient, path: str) -> None:
    with Group(zk, path).join():
        pass


@pytest.mark.parametrize("call", [_wait, _lead, _join])
def test_a_block_at_every_depth(call: Callable[[KazooClient, str], None], zk: KazooClient, zk_path: str) -> None:
    """A call that fails has left no node, and so has one that does not fail."""
    for margin in range(1, interrupts.FRAMES + 30):
        try:
            with_frames_left(margin, lambda: call(zk, zk_path))
        except RecursionError:
            failed = margin
        eventually(lambda: nodes(zk, zk_path) == 0, str(margin))
    assert failed < margin


def test_changes_at_every_depth(zk: KazooClient, zk_path: str) -> None:
    """A change that fails was not made; one that returns was made, and later ones find their turn."""
    number, queue, entries = AtomicLong(zk, f"{zk_path}/n"), Queue(zk, f"{zk_path}/q"), Dict(zk, f"{zk_path}/d")
    assert len(entries) == 0
    changes: list[Callable[[], object]] = [
        number.add,
        lambda: queue.put(b""),
        lambda: entries.update({str(margin): b""}),
    ]
    made = [0, 0, 0]
    for margin in range(1, interrupts.FRAMES + 30):
        for which, change in enumerate(changes):
            try:
                with_frames_left(margin, change)
            except RecursionError:
                continue
            made[which] += 1
        assert [number.get(), queue.qsize(), len(entries)] == made, margin
    assert all(made)
