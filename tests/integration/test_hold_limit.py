"""`hold_limit`: a hold that lasts longer is logged and told, once, and ends if its program has asked for that."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.eventually import PATIENCE, eventually
from tests.helpers.grammar import Grammar
from tests.helpers.lock_types import read_lock, unfair_lock, write_lock
from zkconcurrent import (
    BoundedSemaphore,
    HoldLimit,
    Lock,
    LockLostError,
    LossCause,
    RLock,
    Semaphore,
    aio,
    namespace,
)

LIMIT = 0.3
TO_LOSE = 1.0
"""Of holds that end by it: a busy machine gets so far meanwhile."""
KINDS: dict[str, Callable[..., Any]] = {
    "Lock": Lock,
    "Lock(fair=False)": unfair_lock,
    "RLock": RLock,
    "read lock": read_lock,
    "write lock": write_lock,
    "Semaphore": Semaphore,
    "BoundedSemaphore": BoundedSemaphore,
    "of a namespace": lambda client, path, **options: namespace(client, path).RLock("lock", **options),
}
TWINS: dict[str, Callable[..., Any]] = {
    "Lock": aio.Lock,
    "RLock": aio.RLock,
    "read lock": lambda *args, **options: aio.ReadWriteLock(*args, **options).read_lock,
    "Semaphore": aio.Semaphore,
}
kinds = pytest.mark.parametrize("kind", KINDS)
# The pair's locks have one class, as the semaphores have; a namespace passes the arguments on.
some_kinds = pytest.mark.parametrize("kind", ["Lock", "Lock(fair=False)", "Semaphore", "of a namespace"])
Warnings = Callable[[], "list[str]"]


@pytest.fixture
def told(zk: KazooClient) -> Iterator[Grammar]:
    """What a listener hears of the client, in order."""
    grammar = Grammar()
    remove = zkconcurrent.add_listener(grammar, zk)
    yield grammar
    remove()
    assert grammar.wrong == []


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Warnings:
    """Return what returns the warnings of holds that last too long."""

    def found() -> list[str]:
        records = [each for each in caplog.records if "hold_limit" in str(each.msg)]
        assert all(each.levelno == logging.WARNING and each.name == "zkconcurrent" for each in records)
        assert all(vars(each)["zk_by"] for each in records)
        return [each.getMessage() for each in records]

    return found


@some_kinds
def test_a_warning(kind: str, zk: KazooClient, zk_path: str, told: Grammar, warnings: Warnings) -> None:
    """Once for each hold that lasts longer: in the log and as an event; the hold goes on."""
    lock = KINDS[kind](zk, zk_path, hold_limit=LIMIT)
    for holds in (1, 2):
        with lock:
            eventually(lambda holds=holds: len(warnings()) == holds)
            token = lock.fencing_token
            time.sleep(LIMIT * 2 * (holds == 1))
            assert lock.hold_count() == 1
        assert len(warnings()) == holds
        assert f"by {threading.current_thread().name!r}, " in warnings()[-1]
        assert f"longer than its hold_limit of 0.3 s (fencing token {token})" in warnings()[-1]
    assert told.kinds() == ["Acquired", "HoldLimit", "Released"] * 2
    assert all(event.held >= LIMIT for event in told.events if isinstance(event, HoldLimit))


@pytest.mark.fault(286)
@some_kinds
def test_a_loss(
    kind: str, zk: KazooClient, zk_path: str, connect: Connect, told: Grammar, warnings: Warnings, in_thread: InThread
) -> None:
    """The limit's action "lose" lets others in; the holder hears of it at once, and has the error at its next call."""
    lost: list[object] = []
    lock = KINDS[kind](zk, zk_path, hold_limit=TO_LOSE, on_hold_limit="lose", on_lost=lost.append)
    other = KINDS[kind](connect(), zk_path)
    lock.acquire()
    token = lock.fencing_token
    assert 0 < lock.remaining() <= TO_LOSE

    def token_of_another() -> int:
        with other:
            return int(other.fencing_token)

    assert in_thread(token_of_another).result(20) > token
    eventually(lambda: lost == [lock])
    assert lock.hold_count() == 0
    for call in (lock.acquire, lambda: lock.fencing_token, lock.release):
        with pytest.raises(LockLostError, match="it lasted longer than its hold_limit") as caught:
            call()
        assert caught.value.cause is LossCause.LIMIT
    with lock:
        pass
    eventually(lambda: told.kinds()[:3] == ["Acquired", "HoldLimit", "Lost"])
    assert warnings() == [], "the loss is logged as every other"


@pytest.mark.parametrize("kind", TWINS)
def test_on_tasks(kind: str, zk: KazooClient, zk_path: str, warnings: Warnings) -> None:
    """The same for a task: `hold()` cancels the block whose hold has ended."""

    async def main() -> None:
        lock = TWINS[kind](zk, zk_path, hold_limit=LIMIT)
        async with lock:
            while not warnings():
                await asyncio.sleep(0.01)
        assert "by 'Task-" in warnings()[0]
        lock = TWINS[kind](zk, zk_path, hold_limit=TO_LOSE, on_hold_limit="lose")
        with pytest.raises(LockLostError, match="hold_limit"):
            async with lock.hold():
                await asyncio.sleep(30)
        async with lock:
            pass

    asyncio.run(main())
    assert len(warnings()) == 1


def test_levels(zk: KazooClient, zk_path: str, told: Grammar) -> None:
    """The first level counts: to acquire again, or to release a level, does not begin anew."""
    lock = RLock(zk, zk_path, hold_limit=0.6)
    began = time.monotonic()
    with lock:
        while "HoldLimit" not in told.kinds():
            with lock:
                time.sleep(0.05)
            assert time.monotonic() < began + PATIENCE
    assert told.kinds() == ["Acquired", "HoldLimit", "Released"]


def test_the_permits_of_one_acquire(zk: KazooClient, zk_path: str, told: Grammar) -> None:
    """They are one hold: one event; and all are lost."""
    lock = Semaphore(zk, zk_path, 5, hold_limit=TO_LOSE, on_hold_limit="lose")
    lock.acquire(permits=3)
    eventually(lambda: lock.lost.is_set())
    eventually(lambda: told.kinds() == ["Acquired", "HoldLimit", "Lost"])
    with pytest.raises(LockLostError):
        lock.release(3)
    assert lock.hold_count() == 0
    eventually(lambda: lock.available() == 5)


@kinds
def test_what_is_no_limit(kind: str, zk: KazooClient, zk_path: str) -> None:
    """It is refused, with the name of the argument."""
    for wrong, error in (("30", TypeError), (True, TypeError), (0, ValueError), (math.nan, ValueError)):
        with pytest.raises(error, match="hold_limit must be"):
            KINDS[kind](zk, zk_path, hold_limit=wrong)
    with pytest.raises(ValueError, match="on_hold_limit must be 'warn' or 'lose', not 'end'"):
        KINDS[kind](zk, zk_path, hold_limit=1, on_hold_limit="end")
    if kind in TWINS:
        with pytest.raises(TypeError, match="hold_limit must be"):
            TWINS[kind](zk, zk_path, hold_limit="30")
