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
from kazoo.security import make_acl

import zkconcurrent
from tests.conftest import Connect, InThread, await_heartbeat
from tests.helpers.contenders import at_the_handoff
from tests.helpers.eventually import PATIENCE, eventually
from tests.helpers.grammar import Grammar
from tests.helpers.lock_types import read_lock, unfair_lock, unfair_rlock, write_lock
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    BoundedSemaphore,
    Condition,
    HoldLimit,
    Lock,
    LockLostError,
    LossCause,
    RefusedError,
    RLock,
    Semaphore,
    aio,
    namespace,
)
from zkconcurrent._engine.session import Session

LIMIT = 0.3
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
some_kinds = pytest.mark.parametrize("kind", ["Lock", "Lock(fair=False)", "read lock", "Semaphore", "of a namespace"])
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
    for event in told.events:
        if isinstance(event, HoldLimit):
            assert event.held >= LIMIT
    with lock:
        pass
    assert told.kinds()[-2:] == ["Acquired", "Released"]


@pytest.mark.fault(286)
@some_kinds
def test_a_loss(
    kind: str, zk: KazooClient, zk_path: str, connect: Connect, told: Grammar, warnings: Warnings, in_thread: InThread
) -> None:
    """The limit's action "lose" lets others in; the holder hears of it at once, and has the error at its next call."""
    lost: list[object] = []
    lock = KINDS[kind](zk, zk_path, hold_limit=LIMIT, on_hold_limit="lose", on_lost=lost.append)
    other = KINDS[kind](connect(), zk_path)
    lock.acquire()
    token = lock.fencing_token
    assert 0 < lock.remaining() <= LIMIT

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
        assert lock.fencing_token > token
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
        lock = TWINS[kind](zk, zk_path, hold_limit=LIMIT, on_hold_limit="lose")
        with pytest.raises(LockLostError, match="hold_limit"):
            async with lock.hold():
                await asyncio.sleep(30)
        async with lock:
            pass

    asyncio.run(main())
    assert len(warnings()) == 1


@pytest.mark.parametrize("kind", [RLock, read_lock, write_lock, unfair_rlock])
def test_levels(kind: Any, zk: KazooClient, zk_path: str, told: Grammar) -> None:
    """The first level counts: to acquire again, or to release a level, does not begin anew."""
    lock = kind(zk, zk_path, hold_limit=0.6)
    began = time.monotonic()
    with lock:
        while "HoldLimit" not in told.kinds():
            with lock:
                time.sleep(0.05)
            assert time.monotonic() < began + PATIENCE
    assert told.kinds() == ["Acquired", "HoldLimit", "Released"]


def test_a_hand_over_in_the_process(zk: KazooClient, zk_path: str, told: Grammar, in_thread: InThread) -> None:
    """The next thread's hold is a new one, though it has the same node; that of an object without a limit has none."""
    lock, free = (unfair_lock(zk, zk_path, **options) for options in ({"hold_limit": LIMIT}, {}))
    tokens: list[int] = []

    def hold(mine: Lock, seconds: float) -> None:
        with mine:
            tokens.append(mine.fencing_token)
            time.sleep(seconds)

    for mine, seconds in ((lock, 3 * LIMIT), (free, 3 * LIMIT)):
        told.events.clear()
        tokens.clear()
        # The hand-over comes within the 50 ms of a turn.
        lock.acquire()
        tokens.append(lock.fencing_token)
        waiting = in_thread(hold, mine, seconds)
        eventually(at_the_handoff(lock, 1))
        lock.release()
        waiting.result(20)
        held = [each.held for each in told.events if isinstance(each, HoldLimit)]
        assert len(held) == (1 if mine is lock else 0)
        assert all(each >= LIMIT for each in held)
    assert tokens


def test_a_conditions_wait(zk: KazooClient, zk_path: str, told: Grammar) -> None:
    """It gives the hold up: the wait does not count, and the hold after it begins anew."""
    lock = RLock(zk, f"{zk_path}/lock", hold_limit=2.0)
    condition = Condition(zk, f"{zk_path}/condition", lock)
    with condition:
        time.sleep(0.4)
        assert not condition.wait(1.7)
        eventually(lambda: "HoldLimit" in told.kinds())
    assert told.kinds() == ["Acquired", "Released", "Acquired", "HoldLimit", "Released"]
    _, _, again, limit, _ = told.events
    assert limit.at - again.at >= 2.0 - 0.05


@pytest.mark.fault(301)
def test_a_conditions_wait_that_is_refused(connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str) -> None:
    """The hold goes on, and so does its limit, also one that has come while the wait tried to give the hold up."""
    limit = 5 * LIMIT  # the wait begins well before
    zk.create(zk_path, acl=[make_acl("world", "anyone", read=True, create=True)])
    zk.create(f"{zk_path}/condition", acl=[make_acl("world", "anyone", read=True)])
    client = connect(proxy.hosts, timeout=40.0)
    await_heartbeat(client)  # a multi of a heartbeat would be held, and all replies behind it
    lock = RLock(client, f"{zk_path}/lock", hold_limit=limit, on_hold_limit="lose")
    condition = Condition(client, f"{zk_path}/condition", lock)
    condition.acquire()
    lost = lock.lost
    with proxy.hold("multi") as held:
        timer = threading.Timer(2 * limit, held.release)
        timer.start()
        with pytest.raises(RefusedError):
            condition.wait()
        timer.join()
    eventually(lost.is_set)
    with pytest.raises(LockLostError):
        condition.release()


def test_the_permits_of_one_acquire(zk: KazooClient, zk_path: str, told: Grammar, warnings: Warnings) -> None:
    """They are one hold: one warning, one event; and all are lost."""
    lock = Semaphore(zk, zk_path, 5, hold_limit=LIMIT)
    lock.acquire(permits=3)
    eventually(warnings)
    time.sleep(LIMIT)
    lock.release(3)
    assert len(warnings()) == 1
    assert told.kinds() == ["Acquired", "HoldLimit", "Released"]
    lock = Semaphore(zk, zk_path, 5, hold_limit=LIMIT, on_hold_limit="lose")
    lock.acquire(permits=3)
    eventually(lambda: lock.lost.is_set())
    with pytest.raises(LockLostError):
        lock.release(3)
    assert lock.hold_count() == 0
    eventually(lambda: lock.available() == 5)


def test_objects_of_one_path(zk: KazooClient, zk_path: str, warnings: Warnings) -> None:
    """The limit is that of the object which has acquired the hold; a hold without one costs the keeper nothing."""
    limited, free = Lock(zk, zk_path, hold_limit=LIMIT), Lock(zk, zk_path)
    with free:
        time.sleep(LIMIT * 2)
        assert Session.of(zk).hold_limits.due == math.inf
    assert warnings() == []
    with limited:
        eventually(warnings)
    eventually(lambda: Session.of(zk).hold_limits.due == math.inf)


def test_a_limit_that_has_not_come(zk: KazooClient, zk_path: str) -> None:
    """It changes nothing; `remaining()` counts a limit that ends the hold."""
    with Lock(zk, zk_path, hold_limit=1, on_hold_limit="lose") as _, Lock(zk, f"{zk_path}-other", hold_limit=1) as _:
        pass
    lock = Lock(zk, zk_path, hold_limit=1)
    with lock:
        assert lock.remaining() > 1
    lock = Lock(zk, zk_path, hold_limit=1, on_hold_limit="lose")
    with lock:
        assert lock.remaining() <= 1
    assert lock.remaining() == 0


@kinds
def test_what_is_no_limit(kind: str, zk: KazooClient, zk_path: str) -> None:
    """It is refused, with the name of the argument."""
    for wrong, error in (
        ("30", TypeError),
        (True, TypeError),
        (0, ValueError),
        (-1.0, ValueError),
        (math.nan, ValueError),
    ):
        with pytest.raises(error, match="hold_limit must be"):
            KINDS[kind](zk, zk_path, hold_limit=wrong)
    with pytest.raises(ValueError, match="on_hold_limit must be 'warn' or 'lose', not 'end'"):
        KINDS[kind](zk, zk_path, hold_limit=1, on_hold_limit="end")
    if kind in TWINS:
        with pytest.raises(TypeError, match="hold_limit must be"):
            TWINS[kind](zk, zk_path, hold_limit="30")


def test_a_limit_that_never_comes(zk: KazooClient, zk_path: str) -> None:
    """A limit may be as large as an integer can be."""
    with Lock(zk, zk_path, hold_limit=10**400) as held:
        assert held
