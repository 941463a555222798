"""`synchronized` on a real server: calls in several processes exclude each other by their arguments."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import wrapt
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.lock_types import against, read_lock
from zkconcurrent import Condition, RLock, synchronized


def test_other_values_do_not_wait(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """While one value's lock is held elsewhere, a call with another goes on; the held one is at the path it says."""
    function = synchronized(zk, f"{zk_path}/users/{{user.real}}")(lambda user: user)
    with RLock(connect(), f"{zk_path}/users/7") as got:
        assert got
        assert function(8) == 8
        assert not RLock(zk, f"{zk_path}/users/7").acquire(blocking=False)
    assert function(7) == 7


@pytest.mark.parametrize("text", ["/", "..", "%", "\0", "\ud800", "\uffff", "😀", "a\u0301", "zookeeper"])
def test_the_server_takes_every_value(text: str, zk: KazooClient, zk_path: str) -> None:
    """The server takes the path that is made of any value."""
    assert synchronized(zk, f"{zk_path}/{{text}}")(lambda text: text)(text) == text
    assert len(zk.get_children(zk_path)) == 1


def test_generators_and_blocks(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A generator holds the lock against others until it ends; so does a context manager, and a block."""
    theirs = connect()

    @synchronized(zk, f"{zk_path}/{{name}}")
    def rows(name: str) -> Iterator[bool]:
        for _ in range(2):
            yield RLock(theirs, f"{zk_path}/{name}").acquire(blocking=False)

    assert list(rows("x")) == [False, False]

    @contextmanager
    @synchronized(zk, f"{zk_path}/{{name}}")
    def block(name: str) -> Iterator[bool]:
        yield RLock(theirs, f"{zk_path}/{name}").acquire(blocking=False)

    with block("x") as got_by_others:
        assert not got_by_others
    with synchronized(zk, f"{zk_path}/y"):
        assert not RLock(theirs, f"{zk_path}/y").acquire(blocking=False)
    for path in ("x", "y"):
        lock = RLock(theirs, f"{zk_path}/{path}")
        assert lock.acquire(blocking=False)
        lock.release()


@pytest.mark.fault(525, 530)
@pytest.mark.parametrize(("kind", "wait_release"), [(RLock, True), (RLock, False), (read_lock, True)])
def test_a_generator_that_several_threads_step(
    kind: Any, wait_release: bool, zk: KazooClient, connect: Connect, zk_path: str
) -> None:
    """A thread that steps a generator may take its lock again; one that closes it ends the hold."""
    lock, theirs = kind(zk, zk_path), against(kind)(connect(), zk_path)

    def is_free(within: float = 20) -> bool:
        if got := theirs.acquire(timeout=within):
            theirs.release()
        return bool(got)

    ended = []

    def takes() -> bool:
        # With an end: a thread that may not would wait for itself.
        if took := lock.acquire(timeout=20):
            lock.release()
        return bool(took)

    @synchronized(lock, wait_release=wait_release)
    def rows() -> Iterator[bool]:
        try:
            while True:
                with lock:
                    yield takes()
        finally:
            ended.append(takes())

    with ExitStack() as stack:
        first, second, third = (stack.enter_context(ThreadPoolExecutor(1)).submit for _ in range(3))

        def begun() -> Any:
            """Return a generator of which two threads have made the first two steps."""
            running = rows()
            assert first(next, running).result()
            assert second(next, running).result()
            assert not is_free(0)
            return running

        third(begun().close).result()
        assert is_free()
        # It ends one level; others are the thread's own.
        assert first(lock.acquire).result()
        running = begun()
        third(running.close).result()
        assert not is_free(0)
        first(lock.release).result()
        assert is_free()
        # The thread that began it may leave its own levels before, and may take the lock while it is suspended.
        assert first(lock.acquire).result()
        running = begun()
        first(lock.release).result()
        assert first(lock.acquire, True, 20).result()
        assert not is_free(0)
        third(running.close).result()
        assert not is_free(0)
        first(lock.release).result()
        assert is_free()
        # The garbage collector closes it, on any thread.
        waiting = [begun()]
        second(waiting.clear).result()
        assert is_free()
        with pytest.raises(RuntimeError):
            first(lock.release).result()
    assert ended == [True] * 4


def test_a_generator_that_has_waited_on_a_condition(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """Its level is one of the hold that it has got again: another thread closes it, and ends that hold."""
    lock = RLock(zk, f"{zk_path}/lock")
    condition = Condition(zk, f"{zk_path}/condition", lock)

    @synchronized(lock)
    def rows() -> Iterator[None]:
        condition.wait(0.05)
        yield

    running = rows()
    next(running)
    in_thread(running.close).result(20)
    assert not lock.locked()


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Semaphore", "Condition"])
def test_wrapt_takes_our_locks(kind: str, zk: KazooClient, zk_path: str) -> None:
    """`wrapt.synchronized` takes every lock of ours, as a decorator and as a block; so does ours."""
    lock = getattr(zkconcurrent, kind)(zk, zk_path)

    def holders() -> int:
        nodes = [zk_path, *(f"{zk_path}/{name}" for name in ("leases", "lock") if zk.exists(f"{zk_path}/{name}"))]
        return sum(name.startswith("_c_") for node in nodes for name in zk.get_children(node))

    for synchronize in (wrapt.synchronized, synchronized):
        assert synchronize(lock)(holders)() == 1
        with synchronize(lock):
            assert holders() == 1
        assert holders() == 0


def test_a_client_of_its_own(zk: KazooClient, zk_path: str, in_thread: InThread) -> None:
    """A function that returns the client is called where the call is; a value that has no text sends nothing."""
    here = threading.local()
    here.zk = zk
    function = synchronized(lambda: here.zk, f"{zk_path}/{{user}}")(lambda user: user)
    assert function(1) == 1
    with pytest.raises(AttributeError):
        in_thread(function, 1).result(20)
    with pytest.raises(TypeError, match="NoneType"):
        function(None)
    assert zk.get_children(zk_path) == ["1"]
