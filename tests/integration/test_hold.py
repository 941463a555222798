"""`hold()`, a block with a deadline, and `hold_count()`, of all that can be held, on a real ZooKeeper."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect, InThread
from tests.every_primitive import sleeps
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from tests.integration.test_locklikes import ephemerals
from zkconcurrent import BoundedSemaphore, Lock, MultiLock, ReadWriteLock, RLock, Semaphore
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


@every
def test_held(which: str, zk: KazooClient, zk_path: str) -> None:
    """The block holds, and gives nothing; it releases at its end, also after an error, which it leaves alone."""
    lock = MAKE[which](zk, zk_path)
    block = lock.hold(timeout=20)
    for _ in range(2):
        with block as nothing:
            assert nothing is None
            assert lock.hold_count() == 1
            assert ephemerals(zk, zk_path)
        eventually(lambda: not ephemerals(zk, zk_path))
    for error in (ZeroDivisionError, KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(error), lock.hold():
            raise error
        eventually(lambda: not ephemerals(zk, zk_path))
    for once in ({"timeout": 0}, {"blocking": False}):
        with lock.hold(**once):
            assert lock.hold_count() == 1
        eventually(lambda: not ephemerals(zk, zk_path))


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
        for limit, told in (
            ({"timeout": 0.05}, "within 0.05 s"),
            ({"timeout": 0}, "in one attempt"),
            ({"blocking": False}, "in one attempt"),
        ):
            with pytest.raises(TimeoutError) as caught, mine.hold(**limit):
                pytest.fail("the body ran")
            assert str(caught.value) == f"not acquired {told}: {path}, {holder}"
            assert mine.hold_count() == 0
            eventually(lambda: ephemerals(zk, zk_path) == before)
        assert theirs.hold_count() == 1
    with mine.hold(timeout=20):
        pass


def test_not_acquired_from_a_stranger(zk: KazooClient, zk_path: str) -> None:
    """Of a stranger's megabyte, the error names no more than a log can bear."""
    zk.create(f"{zk_path}/_c_{uuid4()}-lock-0000000000", b"x" * 900_000, ephemeral=True, makepath=True)
    with pytest.raises(TimeoutError, match=f"^not acquired within 0.1 s: {zk_path}, held by 'x{{299}}\\.\\.\\.$"):
        Lock(zk, zk_path).hold(timeout=0.1).__enter__()


@pytest.mark.parametrize("base", [Lock, RLock, Semaphore])
def test_a_program_s_own_class_waits(base: Any, zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """Its `acquire`, which calls that of the library, waits in a block with a timeout, too."""

    class Own(base):
        def acquire(self, *args: Any, **options: Any) -> bool:
            return bool(super().acquire(*args, **options))

    with base(zk, zk_path), pytest.raises(TimeoutError, match=f"not acquired within 0.1 s: {zk_path}"):
        Own(connect(), zk_path).hold(timeout=0.1).__enter__()


@pytest.mark.parametrize("which", ["Lock", "MultiLock", "Semaphore"])
@pytest.mark.parametrize("silent", [True, False])
def test_not_acquired_on_a_dead_connection(
    which: str, silent: bool, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str, in_thread: InThread
) -> None:
    """To look for the holder takes no longer than the clean-up may, and TimeoutError names the path alone."""
    client = connect(proxy.hosts, timeout=40.0)
    mine, theirs = MAKE[which](client, zk_path), MAKE[which](zk, zk_path)

    def attempt() -> None:
        with pytest.raises(TimeoutError, match=f"^not acquired within 2 s: {zk_path}[^ ]*(, {zk_path}/b)?$"):
            mine.hold(timeout=2).__enter__()

    with theirs:
        before = ephemerals(zk, zk_path)
        waiting = in_thread(attempt)
        eventually(lambda: sleeps(client))
        if silent:
            proxy.stall()
        else:
            proxy.refuse()
            proxy.cut()
        # A third of the session timeout, for which an acquire waits for its first replies, would be 13 s.
        waiting.result(12)
        proxy.resume()
        eventually(lambda: ephemerals(zk, zk_path) == before)


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


def test_permits_are_counted(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Of a semaphore, a thread's permits count, however many it has taken at once."""
    semaphore = Semaphore(zk, zk_path, 5)
    assert semaphore.acquire(permits=3)
    with semaphore.hold(timeout=20):
        assert semaphore.hold_count() == 4
    assert in_thread(lambda: (semaphore.acquire(), semaphore.hold_count(), semaphore.release())).result(20)[1] == 1
    semaphore.release(2)
    assert semaphore.hold_count() == 1
    semaphore.release()


def test_the_locks_of_a_multilock(zk: KazooClient, zk_path: str) -> None:
    """A MultiLock is held as often as that of its locks which is held least."""
    a, b = RLock(zk, f"{zk_path}/a"), RLock(zk, f"{zk_path}/b")
    both = MultiLock([a, b])
    with a, a:
        assert both.hold_count() == 0
        with both.hold():
            assert (both.hold_count(), a.hold_count(), b.hold_count()) == (1, 3, 1)
    assert both.hold_count() == 0


def test_a_block_of_many_threads(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Threads that share a block exclude each other."""
    lock, inside = Lock(connect(), zk_path), []
    block = lock.hold(timeout=60)

    def visit() -> None:
        for _ in range(10):
            with block:
                inside.append(1)
                assert len(inside) == 1
                zk.exists(zk_path)
                inside.pop()

    for each in [in_thread(visit) for _ in range(4)]:
        each.result(60)


@pytest.mark.threads_only("forks where the thread of the loop is not")
def test_a_forked_child(zk: KazooClient, zk_path: str) -> None:
    """In a child, an inherited block ends silently, and nothing is held; the parent's hold lives."""
    lock = RLock(zk, zk_path)
    with lock.hold():
        child = os.fork()
        if child:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert lock.hold_count() == 1
    if not child:
        os._exit(lock.hold_count())
    assert not ephemerals(zk, zk_path)
