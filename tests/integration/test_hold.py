"""Exclusion, `hold()` and `hold_count()` of each kind of lock, on a real ZooKeeper."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from zkconcurrent import BoundedSemaphore, Condition, Lock, MultiLock, ReadWriteLock, RLock, Semaphore, synchronized
from zkconcurrent._runtime.identity import HOST
from zkconcurrent._threads.base import lock_base

Make = Callable[[KazooClient, str], Any]
MAKE: dict[str, Make] = {
    "Lock": lambda client, path: Lock(client, path),
    "unfair Lock": lambda client, path: Lock(client, path, fair=False),
    "RLock": lambda client, path: RLock(client, path),
    "read lock": lambda client, path: ReadWriteLock(client, path).read_lock,
    "write lock": lambda client, path: ReadWriteLock(client, path).write_lock,
    "Semaphore": lambda client, path: Semaphore(client, path, 1),
    "BoundedSemaphore": lambda client, path: BoundedSemaphore(client, path, 1),
    "MultiLock": lambda client, path: MultiLock([RLock(client, f"{path}/b"), RLock(client, f"{path}/a")]),
}
AGAINST = {"read lock": MAKE["write lock"]}
every = pytest.mark.parametrize("which", MAKE)
REENTRANT = ("RLock", "read lock", "write lock", "MultiLock")


def ephemerals(client: KazooClient, path: str) -> list[str]:
    """Return the ephemeral nodes at and below a path."""
    try:
        names, stat = client.get_children(path, include_data=True)
    except NoNodeError:
        return []
    below = [node for name in names for node in ephemerals(client, f"{path}/{name}")]
    return below + [path] * bool(stat.ephemeralOwner)


@pytest.mark.fault(27)
@every
def test_exclusion(which: str, zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Threads of two clients count without losing one; at the end no node is left."""
    make, against, other = MAKE[which], AGAINST.get(which, MAKE[which]), connect()
    counter = [0]

    def count(lock: Any) -> None:
        for _ in range(15):
            with lock:
                seen = counter[0]
                time.sleep(0.0005)  # long enough for somebody else to get in, if he could
                counter[0] = seen + 1

    locks = [make(zk, zk_path), against(zk, zk_path), against(other, zk_path), against(other, zk_path)]
    for each in [in_thread(count, lock) for lock in locks]:
        each.result(60)
    assert counter == [60]
    eventually(lambda: ephemerals(zk, zk_path) == [])


@every
def test_held(which: str, zk: KazooClient, zk_path: str) -> None:
    """The block holds; it releases at its end, also after an error, which it leaves alone."""
    lock = MAKE[which](zk, zk_path)
    with lock.hold(timeout=20):
        assert lock.hold_count() == 1
        assert ephemerals(zk, zk_path)
    eventually(lambda: not ephemerals(zk, zk_path))
    for error in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(error), lock.hold():
            raise error
        eventually(lambda: not ephemerals(zk, zk_path))
    with lock.hold(blocking=False):
        assert lock.hold_count() == 1


@every
def test_not_acquired(
    which: str, zk: KazooClient, connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TimeoutError names the path and the holder; the body does not run, nothing is left, and another's hold stays."""
    monkeypatch.setattr(lock_base, "CLEAN_UP_PATIENCE", 30.0)
    path = f"{zk_path}/a" if which == "MultiLock" else zk_path
    holder = f"held by thread 'MainThread' of process {os.getpid()} on host '{HOST}'"
    mine, theirs = MAKE[which](connect(), zk_path), AGAINST.get(which, MAKE[which])(zk, zk_path)
    with theirs:
        before = ephemerals(zk, zk_path)
        for limit, told in (({"timeout": 0.05}, "within 0.05 s"), ({"blocking": False}, "in one attempt")):
            with pytest.raises(TimeoutError) as caught, mine.hold(**limit):
                pytest.fail("the body ran")
            assert str(caught.value) == f"not acquired {told}: {path}, {holder}"
            assert mine.hold_count() == 0
            eventually(lambda: ephemerals(zk, zk_path) == before)
        assert theirs.hold_count() == 1
    with mine.hold(timeout=20):
        pass


@every
def test_levels(which: str, zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """A thread counts its own acquires that it has not released; another thread, none."""
    lock = MAKE[which](zk, zk_path)
    other = MAKE[which](zk, zk_path)
    assert lock.hold_count() == 0
    with lock.hold():
        if which in REENTRANT:
            with lock.hold(timeout=0), lock:
                assert (lock.hold_count(), other.hold_count()) == (3, 3)
        assert (lock.hold_count(), other.hold_count()) == (1, 1)
        assert in_thread(lock.hold_count).result(20) == 0
    assert lock.hold_count() == 0


def test_several(zk: KazooClient, zk_path: str) -> None:
    """Of a semaphore, each permit counts; a MultiLock is held as often as that of its locks which is held least."""
    semaphore = Semaphore(zk, f"{zk_path}/permits", 5)
    assert semaphore.acquire(permits=3)
    with semaphore.hold(timeout=20):
        assert semaphore.hold_count() == 4
    semaphore.release(3)
    a, b = RLock(zk, f"{zk_path}/a"), RLock(zk, f"{zk_path}/b")
    both = MultiLock([a, b])
    with a, a:
        assert both.hold_count() == 0
        with both.hold():
            assert (both.hold_count(), a.hold_count(), b.hold_count()) == (1, 3, 1)
    assert both.hold_count() == 0


def impatient(kind: type[Any]) -> type[Any]:
    """Return a kind whose `acquire` gives up where it is told nothing, as a program's own class may."""

    class Impatient(kind):  # type: ignore[misc]
        def acquire(self, blocking: bool = True, timeout: float = 0.1) -> bool:
            return super().acquire(blocking, timeout)  # type: ignore[no-any-return]

    return Impatient


@pytest.mark.fault(59)
@pytest.mark.threads_only("derives from the threads' classes")
@pytest.mark.parametrize("make", [Lock, RLock, Semaphore, "multi", "condition", "synchronized"])
def test_a_block_does_not_run_with_nothing_held(make: Any, connect: Connect, zk: KazooClient, zk_path: str) -> None:
    """Where `acquire` returns False, `with` raises: its body never runs, and its end releases nothing of others."""
    path = f"{zk_path}/lock" if make in ("condition", "synchronized") else zk_path
    mine: Any
    holder: Any
    if make == "multi":
        mine, holder = impatient(MultiLock)([Lock(zk, path)]), Lock(connect(), path)
    elif isinstance(make, str):
        mine, holder = impatient(RLock)(zk, path), RLock(connect(), path)
        mine = Condition(zk, zk_path, mine) if make == "condition" else synchronized(mine)
    else:
        mine, holder = impatient(make)(zk, path), make(connect(), path)
    ran = False
    with holder:
        with pytest.raises(RuntimeError, match="nothing is held"), mine:
            ran = True
        assert holder.locked()
    assert not ran
    with mine:
        ran = True
    assert ran
    if isinstance(holder, Semaphore):
        assert holder.available() == 1
