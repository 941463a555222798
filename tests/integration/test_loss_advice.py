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
from zkconcurrent import Lock, LockLostError, MultiLock, RLock, Semaphore

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
