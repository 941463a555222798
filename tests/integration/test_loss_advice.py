"""The advice of a `LockLostError`, followed to the letter where the error was raised, settles the loss."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers.contenders import NODE
from tests.helpers.eventually import eventually
from zkconcurrent import Condition, Election, Lock, LockLostError, MultiLock, RLock, Semaphore

IN_BLOCK = "leave its `with` block or, if it has none, call release(); then acquire again"
SETTLED = "nothing is left to release: acquire again"


def lose(operator: KazooClient, path: str, lost: Callable[[], bool]) -> None:
    """Have an operator delete all nodes of contenders below a path, and wait until the client has noticed."""
    for name in operator.get_children(path):
        if NODE.match(name) or "-lease-" in name:
            operator.delete(f"{path}/{name}")
        else:
            lose(operator, f"{path}/{name}", lambda: True)
    eventually(lost, "the loss")


MAKES: dict[str, Callable[[KazooClient, str], Any]] = {
    "Lock": lambda client, path: Lock(client, path),
    "RLock": lambda client, path: RLock(client, path),
    "Semaphore": lambda client, path: Semaphore(client, path),
    "MultiLock": lambda client, path: MultiLock([RLock(client, f"{path}/1"), RLock(client, f"{path}/2")]),
}


@pytest.fixture
def operator(connect: Connect) -> KazooClient:
    """Another session, which deletes nodes."""
    return connect()


def is_lost(lock: Any) -> Callable[[], bool]:
    """Return the question whether a lock is lost."""
    event = lock.lost
    return lambda: event.is_set() and not lock.hold_count()


@pytest.mark.parametrize("name", MAKES)
def test_in_a_block(name: str, zk: KazooClient, operator: KazooClient, zk_path: str) -> None:
    """Inside a block, an error says to leave it; the error of its end says that nothing is left; acquiring works."""
    lock = MAKES[name](zk, zk_path)
    with pytest.raises(LockLostError, match=re.escape(SETTLED)):  # noqa: SIM117
        with lock:
            lose(operator, zk_path, is_lost(lock))
            with pytest.raises(LockLostError, match=re.escape(IN_BLOCK)):
                lock.acquire()
    with lock.hold(30):
        pass


@pytest.mark.parametrize("name", MAKES)
def test_between_acquire_and_release(name: str, zk: KazooClient, operator: KazooClient, zk_path: str) -> None:
    """Without a block, an error says to call release(), which says that nothing is left; acquiring works."""
    lock = MAKES[name](zk, zk_path)
    lock.acquire()
    lose(operator, zk_path, is_lost(lock))
    with pytest.raises(LockLostError, match=re.escape(IN_BLOCK)):
        lock.acquire()
    with pytest.raises(LockLostError, match=re.escape(SETTLED)):
        lock.release()
    assert lock.acquire(timeout=30)
    lock.release()


def test_several_levels(zk: KazooClient, operator: KazooClient, zk_path: str) -> None:
    """Of a lock at several levels, each error says how many are left."""
    lock = RLock(zk, zk_path)
    lock.acquire()
    with pytest.raises(LockLostError, match=re.escape(IN_BLOCK)), lock:
        lock.acquire()
        lose(operator, zk_path, is_lost(lock))
        with pytest.raises(LockLostError, match="3 levels are left: leave the `with` block of each or, for one"):
            lock.acquire()
        with pytest.raises(LockLostError, match="2 levels are left"):
            lock.release()
    with pytest.raises(LockLostError, match=re.escape(SETTLED)):
        lock.release()
    with lock:
        pass


def test_several_permits(zk: KazooClient, operator: KazooClient, zk_path: str) -> None:
    """Of a semaphore, as many `release()`s are owed as this thread has lost permits; n at once count n."""
    semaphore = Semaphore(zk, zk_path, 3)
    semaphore.acquire(permits=3)
    lose(operator, zk_path, is_lost(semaphore))
    with pytest.raises(LockLostError, match="3 levels are left"):
        semaphore.acquire()
    with pytest.raises(LockLostError, match=re.escape(IN_BLOCK)):
        semaphore.release(2)
    with pytest.raises(LockLostError, match=re.escape(SETTLED)):
        semaphore.release()
    with semaphore:
        pass


@pytest.mark.parametrize("noticed", [True, False])
def test_a_conditions_wait(noticed: bool, zk: KazooClient, operator: KazooClient, zk_path: str) -> None:
    """A wait whose lock was lost before says to leave the block, also if only its own delete finds that out."""
    condition = Condition(zk, zk_path)
    with pytest.raises(LockLostError, match=re.escape(SETTLED)):  # noqa: SIM117
        with condition:
            lose(operator, zk_path, is_lost(condition._lock) if noticed else lambda: True)
            with pytest.raises(LockLostError, match=re.escape(IN_BLOCK)):
                condition.wait(5)
    with condition:
        condition.notify()


def test_a_node_that_is_gone_at_the_release(zk: KazooClient, operator: KazooClient, zk_path: str) -> None:
    """A release that finds out itself has settled the loss."""
    lock = Lock(zk, zk_path)
    lock.acquire()
    (name,) = operator.get_children(zk_path)
    operator.delete(f"{zk_path}/{name}")
    with pytest.raises(LockLostError, match=re.escape(SETTLED)):
        lock.release()
    with lock:
        pass


def test_an_election(zk: KazooClient, operator: KazooClient, zk_path: str) -> None:
    """A term's error asks for no `release()`, which an election has not; the end of the block settles it."""
    election = Election(zk, zk_path)
    with pytest.raises(LockLostError) as caught, election.lead() as term:
        lose(operator, zk_path, term.lost.is_set)
    assert "release()" not in str(caught.value)
    with election.lead():
        pass
