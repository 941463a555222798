"""A program calls itself until Python refuses, within the library's blocks or just above its calls.

A RecursionError is no interrupt that strikes once: it strikes the clean-up, too. So a call begins only with all the
frames that it may need, and a block only with those that its end needs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from greenlet import greenlet  # type: ignore[import-untyped,unused-ignore]
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.conftest import Connect
from tests.faults import storm
from tests.helpers.eventually import eventually
from tests.helpers.recursion import depth, recursion_limit, with_frames_left
from zkconcurrent import (
    AtomicLong,
    Condition,
    DetachedLock,
    Dict,
    Election,
    Group,
    Lock,
    MultiLock,
    Queue,
    ReadWriteLock,
    RLock,
    Semaphore,
    aio,
    synchronized,
)
from zkconcurrent._runtime import interrupts, waiting

pytestmark = pytest.mark.fault(163)

LIMITS = range(100, 106)  # frames above the test; the innermost block needs some more each time
KINDS: dict[str, Callable[[KazooClient, str], Any]] = {
    "Condition": Condition,
    "MultiLock": lambda zk, path: MultiLock([RLock(zk, f"{path}/{name}") for name in "ab"]),
    "RLock": RLock,
    "ReadLock": lambda zk, path: ReadWriteLock(zk, path).read_lock,
    "Semaphore": lambda zk, path: Semaphore(zk, path, 1000),
}
NO_HOLD = ("Condition", "hold")
# How many of its acquires the thread has not released.
LEVELS: Callable[[Any], int] = lambda lock: getattr(lock, "_lock", lock).hold_count()  # noqa: E731


def nodes(zk: KazooClient, path: str) -> int:
    """Return how many nodes of contenders and members there are at a path or below it."""
    try:
        names, stat = zk.get_children(path, include_data=True)
    except NoNodeError:
        return 0
    mine = "/_c_" in path or bool(stat.ephemeralOwner)
    return mine + sum(nodes(zk, f"{path}/{name}") for name in names)


@pytest.mark.parametrize(
    ("kind", "block"),
    [(kind, block) for kind in KINDS for block in ("with", "hold", "synchronized") if (kind, block) != NO_HOLD],
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
        assert LEVELS(lock) == 0, limit
    eventually(lambda: nodes(zk, zk_path) == 0)


@pytest.mark.parametrize("block", ["async with", "hold"])
def test_a_recursion_of_coroutines_without_an_end(block: str, zk: KazooClient, zk_path: str) -> None:
    """The same within `async with`, whose coroutines await each other."""

    async def recurse(lock: Any) -> None:
        async with lock if block == "async with" else lock.hold():
            await recurse(lock)

    async def main() -> None:
        locks = aio.RLock(zk, f"{zk_path}/r"), aio.MultiLock([aio.RLock(zk, f"{zk_path}/{name}") for name in "ab"])
        for lock in locks:
            for limit in LIMITS:
                with recursion_limit(depth() + limit), pytest.raises(RecursionError):
                    await recurse(lock)
                assert lock.hold_count() == 0, limit

    asyncio.run(main())
    eventually(lambda: nodes(zk, zk_path) == 0)


@pytest.mark.parametrize("kind", ["Lock", "MultiLock", "Semaphore"])
def test_a_release_at_every_depth(kind: str, zk: KazooClient, zk_path: str) -> None:
    """The release releases all, or nothing."""
    lock = {"Lock": Lock, **KINDS}[kind](zk, zk_path)
    for margin in range(1, interrupts.FRAMES + 30):
        lock.acquire()
        try:
            with_frames_left(margin, lock.release)
        except RecursionError:
            assert lock.hold_count() == 1, margin
            lock.release()
        assert lock.hold_count() == 0
        eventually(lambda: nodes(zk, zk_path) == 0, str(margin))


def _lead(election: Election) -> None:
    with election.lead():
        pass


def _wait(condition: Condition) -> None:
    with condition:
        condition.wait(0.01)


def _join(group: Group) -> None:
    with group.join():
        pass


def _hold(lock: DetachedLock) -> None:
    with lock:
        pass


@pytest.mark.parametrize(
    ("make", "call"),
    [
        (Condition, _wait),
        (Election, _lead),
        (Group, _join),
        (lambda zk, path: DetachedLock(zk, path, "me"), _hold),
    ],
)
def test_a_block_at_every_depth(
    make: Callable[[KazooClient, str], Any], call: Callable[[Any], None], zk: KazooClient, zk_path: str
) -> None:
    """A call that fails has left no node, and so has one that does not fail."""
    primitive = make(zk, zk_path)
    for margin in range(1, interrupts.FRAMES + 30):
        try:
            with_frames_left(margin, lambda: call(primitive))
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


def test_the_frames_of_a_call(connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call needs nearly as many frames as it asks for."""
    monkeypatch.setattr(storm, "PATH", zk_path)
    monkeypatch.setattr(waiting, "check_depth", lambda _: None)
    most = 0

    def profile(frame: FrameType | None, event: str, _arg: object) -> None:
        nonlocal most
        if event != "call":
            return
        frames = 0
        while frame is not None and frame.f_code is not waiting.wait.__code__:
            frame, frames = frame.f_back, frames + 1
        if frame is not None:
            most = max(most, frames)

    client = connect()
    every = storm.every_kind(client)
    sys.setprofile(profile)
    try:
        storm.use(every, 0.05)
    finally:
        sys.setprofile(None)

    assert 10 < most < interrupts.FRAMES / 2
    eventually(lambda: not client._zkconcurrent_session.registry.deletes)


class _Node:
    """An object that makes another: CPython 3.13 inlines that, and counts two frames for each `__init__` it shows."""

    def __init__(self, more: int, call: Callable[[], object]) -> None:
        if more:
            _Node(more - 1, call)
        else:
            call()


def _as_objects(frames: int, call: Callable[[], object]) -> None:
    _Node(frames, call)


def _as_a_greenlet(frames: int, call: Callable[[], object]) -> None:
    """A greenlet goes on with the count of the one that starts it, and shows none of its frames."""
    if frames:
        _as_a_greenlet(frames - 1, call)
    else:
        greenlet(call).switch()


@pytest.mark.parametrize("go_down", [_as_objects, _as_a_greenlet])
def test_a_release_where_not_all_frames_are_seen(
    go_down: Callable[[int, Callable[[], object]], None], zk: KazooClient, zk_path: str
) -> None:
    """It releases all, or nothing, also where CPython counts more frames than the stack shows."""
    for _ in range(50):  # until all is inlined
        go_down(20, lambda: None)
    lock = Lock(zk, zk_path)
    refused = 0
    for frames in range(200):
        lock.acquire()
        with recursion_limit(depth() + 200):
            try:
                go_down(frames, lock.release)
            except RecursionError:
                refused += 1
                assert lock.hold_count() == 1, frames
        if lock.hold_count():
            lock.release()
    assert refused
    eventually(lambda: nodes(zk, zk_path) == 0)
