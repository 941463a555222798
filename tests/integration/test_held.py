"""The handle of a hold, which `with lock.hold() as held` gives, on a real ZooKeeper."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import InThread
from tests.helpers.contenders import at_the_handoff, children
from tests.helpers.eventually import eventually
from zkconcurrent import Condition, Lock, LockLostError, MultiLock, RLock, Semaphore
from zkconcurrent._engine import local_handoff

each = pytest.mark.parametrize("kind", [Lock, RLock, Semaphore], ids=lambda kind: kind.__name__)


@each
def test_its_own_hold(kind: Any, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """It tells of its own hold, on any thread, also when that is over and the same thread holds again."""
    lock = kind(zk, zk_path)
    began = datetime.now(timezone.utc)
    with lock.hold(timeout=20) as held:
        token = held.fencing_token
        assert token == lock.fencing_token
        assert began - timedelta(seconds=1) < held.since < datetime.now(timezone.utc) + timedelta(seconds=1)
        assert in_thread(lambda: (held.fencing_token, held.remaining() > 0, held.lost.is_set())).result(20) == (
            token,
            True,
            False,
        )
        assert held.guard(zk.transaction()).operations[0].path == held.node
        held.guard(zk.transaction()).commit()
    with lock.hold(timeout=20) as later:
        assert later.fencing_token > token
        assert held.remaining() == 0 < later.remaining()
        with pytest.raises(RuntimeError, match=f"the hold of {zk_path} has ended: acquire again"):
            _ = held.fencing_token
        assert not held.lost.is_set()


@each
def test_a_loss(kind: Any, zk: KazooClient, zk_path: str) -> None:
    """It tells of the loss of its own hold, and not of the next one's."""
    lock = kind(zk, zk_path)
    with pytest.raises(LockLostError), lock.hold() as held:
        zk.delete(held.node)
        assert held.lost.wait(20)
        assert held.remaining() == 0
    with lock.hold(timeout=20) as later:
        assert not later.lost.is_set()
        with pytest.raises(LockLostError):
            held.guard(zk.transaction())


@each
def test_a_release_in_the_block(kind: Any, zk: KazooClient, zk_path: str) -> None:
    """The lock is free at once, and the end of the block does nothing, whoever holds by then."""
    lock = kind(zk, zk_path)
    with lock.hold() as held:
        held.release()
        assert lock.hold_count() == 0
        with pytest.raises(RuntimeError):
            held.release()
        assert lock.acquire(timeout=20)
    assert lock.hold_count() == 1
    lock.release()


@pytest.mark.threads_only("a signal handler runs in no task")
def test_a_release_by_a_signal_handler(zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It interrupts a release by the same handle, and is refused: the end of the block still has nothing to do."""
    lock = Lock(zk, zk_path)
    core = lock._lock_core
    begin = core.begin_release

    def refused(_: object) -> None:
        raise RuntimeError

    def interrupted(hold: Any) -> Any:
        monkeypatch.setattr(core, "begin_release", refused)
        with pytest.raises(RuntimeError):
            held.release()
        return begin(hold)

    with lock.hold() as held:
        monkeypatch.setattr(core, "begin_release", interrupted)
        held.release()
    assert lock.hold_count() == 0


def test_the_level_of_an_inner_block(zk: KazooClient, zk_path: str) -> None:
    """Of a re-entrant lock, each block has its own level to release."""
    lock = RLock(zk, zk_path)
    with lock.hold() as outer:
        with lock.hold() as inner:
            assert inner.fencing_token == outer.fencing_token
            inner.release()
            assert lock.hold_count() == 1
        assert lock.hold_count() == 1
    assert lock.hold_count() == 0


def test_a_release_by_another_thread(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Only the block's own thread ends the hold by its handle."""
    lock = Lock(zk, zk_path)
    with lock.hold() as held:
        with pytest.raises(RuntimeError, match="release unlocked lock"):
            in_thread(held.release).result(20)
        assert held.remaining() > 0


@each
def test_a_release_of_the_lock_in_the_block(kind: Any, zk: KazooClient, zk_path: str) -> None:
    """The handle does not pass for the hold that follows: the end of the block releases that."""
    lock = kind(zk, zk_path)
    with lock.hold() as held:
        lock.release()
        assert lock.acquire(timeout=20)
        with pytest.raises(RuntimeError, match=f"the hold of {zk_path} has ended"):
            held.release()
    assert lock.hold_count() == 0


@pytest.mark.threads_only("tasks wait as threads do")
def test_after_a_wait_of_a_condition(zk: KazooClient, zk_path: str) -> None:
    """The wait ends the hold of which the handle tells; the end of the block releases the one that follows."""
    lock = RLock(zk, f"{zk_path}/lock")
    with lock.hold() as held:
        Condition(zk, f"{zk_path}/condition", lock).wait(0.01)
        assert held.remaining() == 0 < lock.remaining()
        with pytest.raises(RuntimeError, match="has ended"):
            held.release()
    assert lock.hold_count() == 0


def visit(lock: Any) -> int:
    """Acquire and release, and return the fencing token."""
    with lock:
        return int(lock.fencing_token)


def test_a_hold_that_was_handed_on(
    zk: KazooClient, zk_path: str, in_thread: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that gets the node of an unfair lock has a hold of its own."""
    monkeypatch.setattr(local_handoff, "LONGEST_TURN", 1000.0)
    lock = Lock(zk, zk_path, fair=False)
    with lock.hold() as held:
        waiting = in_thread(visit, lock)
        eventually(at_the_handoff(lock, 1))
        token, since = held.fencing_token, held.since
    assert waiting.result(20) == token
    assert held.remaining() == 0
    assert held.since == since
    with pytest.raises(RuntimeError, match="has ended"):
        _ = held.fencing_token


def test_the_permits_of_a_thread(zk: KazooClient, zk_path: str) -> None:
    """Each handle has a permit of its own."""
    semaphore = Semaphore(zk, zk_path, 2)
    with semaphore.hold() as one, semaphore.hold() as other:
        assert one.fencing_token != other.fencing_token
        one.release()
        assert other.remaining() > 0
        eventually(lambda: len(children(zk, f"{zk_path}/leases")) == 1)


def test_the_holds_of_a_multilock(zk: KazooClient, zk_path: str) -> None:
    """The block has the handle of each lock, in the order of the locks."""
    a, b = Lock(zk, f"{zk_path}/a"), Lock(zk, f"{zk_path}/b")
    with MultiLock([b, a]).hold() as (of_a, of_b):
        assert (of_a.fencing_token, of_b.fencing_token) == (a.fencing_token, b.fencing_token)


def test_a_release_of_one_lock_of_a_multilock(zk: KazooClient, zk_path: str) -> None:
    """It is refused: the end of the block would release a level that is another block's."""
    lock = RLock(zk, zk_path)
    with lock.hold() as outer:
        with MultiLock([lock]).hold() as (held,), pytest.raises(RuntimeError, match="released together"):
            held.release()
        assert lock.hold_count() == 1
        assert outer.remaining() > 0


def test_a_block_of_its_own(zk: KazooClient, zk_path: str) -> None:
    """A `hold()` is for one block."""
    block = Lock(zk, zk_path).hold()
    with block:
        pass
    with pytest.raises(RuntimeError, match="call hold\\(\\) again"), block:
        pytest.fail("the body ran")
