"""Fault 16: an interrupt at any line of the library leaves no node, no hold and nobody stuck.

A trace function raises KeyboardInterrupt at the n-th line that the library runs in a call, for every n there is.
"""

from __future__ import annotations

import linecache
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, Eventually, InThread
from tests.integration.test_locks import queued
from tests.kinds import Kind, against, every
from zkconcurrent import Condition, Lock, ReadWriteLock, RLock

PACKAGE = str(Path(zkconcurrent.__file__).parent)


def _signals_come_here(line: str) -> bool:
    """Return whether CPython may deliver a signal at the line; a trace function can raise at any.

    A `with` line is visited again on the way out, before `__exit__` is called, and no signal is delivered between the
    two (bpo-29988); nor before the return of a constant.
    """
    return not line.lstrip().startswith(("with ", "return True", "return None", "return False"))


class InterruptAt:
    """Raise KeyboardInterrupt at the n-th line run below the first frame of the library; count the lines."""

    def __init__(self, line: int) -> None:
        self.left = line
        self.where = ""

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line" and _signals_come_here(linecache.getline(frame.f_code.co_filename, frame.f_lineno)):
            self.left -= 1
            if self.left == 0:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
                raise KeyboardInterrupt
        return self._trace


def lines_of(call: Callable[[], object]) -> int:
    """Return how many lines of the library a call runs."""
    counter = InterruptAt(-1)
    with counter:
        call()
    return -1 - counter.left


@every
def test_acquire_interrupted_at_every_line(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """A free lock: the acquire either is interrupted and leaves nothing, or has succeeded."""
    lock, other = kind(connect(timeout=2), zk_path), against(kind)(zk, zk_path)
    lock.acquire()
    lock.release()
    total = lines_of(lock.acquire)
    lock.release()
    for line in range(1, total + 40):
        hook = InterruptAt(line)
        try:
            with hook:
                assert lock.acquire()
        except KeyboardInterrupt:
            assert "<unlocked" in repr(lock), hook.where
        else:
            lock.release()
        eventually(queued(zk, zk_path, 0), f"interrupted at line {line}: {hook.where}")
    assert total > 100
    with other:
        pass


@every
def test_a_waiter_interrupted_at_every_line(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """A held lock, with a deadline: wherever the waiter is interrupted, nothing of it holds the queue up."""
    lock, held = kind(connect(timeout=2), zk_path), against(kind)(zk, zk_path)
    with held:
        total = lines_of(lambda: lock.acquire(timeout=0.02))
        for line in range(1, total + 20):
            hook = InterruptAt(line)
            try:
                with hook:
                    assert lock.acquire(timeout=0.02) is False
            except KeyboardInterrupt:
                pass
            eventually(queued(zk, zk_path, 1), f"interrupted at line {line}: {hook.where}")
    with lock:
        pass


@every
def test_release_interrupted_at_every_line(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """Either the lock is held still, and can be released again, or it is free; leaving a with block always frees it."""
    lock = kind(connect(timeout=2), zk_path)
    lock.acquire()
    total = lines_of(lock.release)
    for line in range(1, total + 20):
        hook = InterruptAt(line)
        lock.acquire()
        try:
            with hook:
                lock.release()
        except KeyboardInterrupt:
            if "<locked" in repr(lock):
                lock.release()
        eventually(queued(zk, zk_path, 0), f"interrupted at line {line}: {hook.where}")


def test_an_interrupted_waiter_holds_nobody_up(
    zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually, in_thread: InThread
) -> None:
    """Ctrl-C in the main thread while it waits: its node goes, and who queued behind it gets the lock."""
    held, behind = Lock(zk, zk_path), Lock(connect(), zk_path)
    me = Lock(connect(), zk_path)
    held.acquire()

    def interrupt() -> bool:
        eventually(queued(zk, zk_path, 2))
        waiting = in_thread(behind.acquire)
        eventually(queued(zk, zk_path, 3))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        eventually(queued(zk, zk_path, 2))
        held.release()
        return bool(waiting.result(10))

    interrupting = in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        me.acquire()
    assert interrupting.result(20)
    behind.release()


def test_a_downgrade_interrupted_at_every_line(
    zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """A read lock taken while writing: an interrupt leaves no read node, and the write lock as it was."""
    pair, other = ReadWriteLock(connect(timeout=2), zk_path), ReadWriteLock(zk, zk_path)
    with pair.write_lock:
        token = pair.write_lock.fencing_token
        total = lines_of(pair.read_lock.acquire)
        pair.read_lock.release()
        for line in range(1, total + 20):
            hook = InterruptAt(line)
            try:
                with hook:
                    assert pair.read_lock.acquire()
            except KeyboardInterrupt:
                assert not pair.read_lock._is_owned(), hook.where
            else:
                pair.read_lock.release()
            eventually(queued(zk, zk_path, 1), f"interrupted at line {line}: {hook.where}")
        assert pair.write_lock.fencing_token == token
    assert total > 80
    with other.write_lock:
        pass


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_a_wait_interrupted_at_every_line(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """Wherever a wait is interrupted, the lock is held with all its levels when that is raised, and no waiter is left.

    The time is up at once, so that all of a wait is run: giving the lock up, waiting, withdrawing, taking it again.
    """
    client = connect(timeout=2)
    lock = kind(client, f"{zk_path}/lock")
    condition = Condition(client, f"{zk_path}/condition", lock)
    levels = 2 if kind is RLock else 1
    for _ in range(levels):
        lock.acquire()
    total = min(lines_of(lambda: condition.wait(0.002)) for _ in range(2))
    for line in range(1, total + 40):
        hook = InterruptAt(line)
        try:
            with hook:
                condition.wait(0.002)  # kazoo takes an interrupt that strikes as it sends for a lost connection
        except KeyboardInterrupt:
            pass
        hold = lock._mine()
        assert hold is not None, hook.where
        assert hold.alive, hook.where
        assert hold.depth == levels, hook.where
        assert zk.get_children(f"{zk_path}/condition/waiters") == [], hook.where
        eventually(queued(zk, lock.path, 1), f"interrupted at line {line}: {hook.where}")
    assert total > 200
    for _ in range(levels):
        lock.release()
    eventually(queued(zk, lock.path, 0))
