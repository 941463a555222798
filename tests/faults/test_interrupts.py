"""Fault 16: an interrupt at any line of the library leaves no node, no hold and nobody stuck.

A trace function raises KeyboardInterrupt at the n-th line that the library runs in a call, for every n there is.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
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
from kazoo.exceptions import NoNodeError

import zkconcurrent
from tests.conftest import Connect, Eventually, InThread
from tests.integration.test_locks import queued
from tests.integration.test_unfair import at_the_gate
from tests.kinds import Kind, against, every
from zkconcurrent import Condition, Lock, ReadWriteLock, RLock, Semaphore

PACKAGE = str(Path(zkconcurrent.__file__).parent)
# Short, as what an interrupt leaves is found by heartbeats; but no lease ends although the machine is busy.
SESSION = 4.0


def _signals_come_here(line: str) -> bool:
    """Return whether CPython may deliver a signal at the line; a trace function can raise at any.

    A `with` line is visited again on the way out, before `__exit__` is called, and no signal is delivered between the
    two (bpo-29988); nor before the return of a constant, nor at a `try:`, which does nothing.
    """
    return not line.lstrip().startswith(("with ", "try:", "return True", "return None", "return False"))


class InterruptAt:
    """Raise KeyboardInterrupt at the n-th line run below the first frame of the library; count the lines.

    With a `file`, only its lines count. An interrupt that somebody swallows is an error.
    """

    def __init__(self, line: int, file: str = "") -> None:
        self.left = line
        self.file = file
        self.where = ""

    def __enter__(self) -> None:
        gc.disable()  # an interrupt in a generator of the call before, which is being collected, is ignored
        sys.settrace(self._trace)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        sys.settrace(None)
        gc.enable()
        assert not self.where or kind is not None, f"the interrupt at {self.where} was swallowed"

    def _trace(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        counts = frame.f_code.co_filename.endswith(self.file)
        if (
            event == "line"
            and counts
            and _signals_come_here(linecache.getline(frame.f_code.co_filename, frame.f_lineno))
        ):
            self.left -= 1
            if self.left == 0:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
                raise KeyboardInterrupt
        return self._trace


class InterruptAgainAt(InterruptAt):
    """Raise it at the n-th line of the library that is run once Ctrl-C has raised it."""

    counts_from_here = False

    def __enter__(self) -> None:
        self._handler = signal.signal(signal.SIGINT, self._interrupt)
        super().__enter__()

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        signal.signal(signal.SIGINT, self._handler)
        super().__exit__(kind, *rest)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is InterruptAgainAt._trace.__code__:  # what is raised there ends the tracing
                threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, number)).start()
                return
            frame = frame.f_back
        raise KeyboardInterrupt

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.counts_from_here = self.counts_from_here or (event == "exception" and arg[0] is KeyboardInterrupt)
        if self.counts_from_here:
            return super()._trace(frame, event, arg)
        return self._trace if frame.f_code.co_filename.startswith(PACKAGE) else None


def lines_of(call: Callable[[], object], file: str = "") -> int:
    """Return how many lines of the library, or of one file of it, a call runs."""
    counter = InterruptAt(-1, file)
    with counter:
        call()
    return -1 - counter.left


@every
def test_acquire_interrupted_at_every_line(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """A free lock: the acquire either is interrupted and leaves nothing, or has succeeded."""
    lock, other = kind(connect(timeout=SESSION), zk_path), against(kind)(zk, zk_path)
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
    lock, held = kind(connect(timeout=SESSION), zk_path), against(kind)(zk, zk_path)
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
def test_a_waiter_interrupted_twice(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually, in_thread: InThread
) -> None:
    """Ctrl-C, and again at every line of what the first one has to do: nothing of the waiter is left for anybody."""
    client = connect(timeout=SESSION)
    lock, held = kind(client, zk_path), against(kind)(client, zk_path)

    def hold(until: threading.Event) -> None:
        with held:
            assert until.wait(20)

    def interrupt() -> None:
        eventually(lambda: at_the_gate(lock, 1)() or queued(zk, zk_path, 2)())
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    for line in itertools.count(1):
        until = threading.Event()
        holding = in_thread(hold, until)
        eventually(queued(zk, zk_path, 1))
        interrupting = in_thread(interrupt)
        hook = InterruptAgainAt(line)
        with pytest.raises(KeyboardInterrupt), hook:
            lock.acquire()
        until.set()
        holding.result(20)
        interrupting.result(20)
        eventually(queued(zk, zk_path, 0), f"interrupted again at line {line}: {hook.where}")
        if not hook.where:
            break
    assert line > 10
    with held:
        pass


def interrupt_releases(lock: Any, free: Callable[[], bool], eventually: Eventually) -> int:
    """Interrupt a release at every line; release again what is held still. Return how many lines there are."""
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
        eventually(free, f"interrupted at line {line}: {hook.where}")
    return total


@every
def test_release_interrupted_at_every_line(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """Either the lock is held still, and can be released again, or it is free; leaving a with block always frees it."""
    assert interrupt_releases(kind(connect(timeout=SESSION), zk_path), queued(zk, zk_path, 0), eventually) > 20


@pytest.mark.usefixtures("uncollected")
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
    pair, other = ReadWriteLock(connect(timeout=SESSION), zk_path), ReadWriteLock(zk, zk_path)
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


def test_a_waiter_for_an_event_interrupted_at_every_line(
    connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """Nothing of a wait is left, set flag or not, and the event goes on as it was."""
    event = zkconcurrent.Event(connect(timeout=SESSION), zk_path)
    session = event._session
    event.set()
    for timeout, expected in ((5, True), (0.02, False)):
        total = lines_of(lambda timeout=timeout: event.wait(timeout))
        for line in range(1, total + 20):
            hook = InterruptAt(line)
            try:
                with hook:
                    assert event.wait(timeout) is expected
            except KeyboardInterrupt:
                pass
            eventually(lambda: not session.registry.tickets and not session.registry._awaiting, hook.where)
            assert not session.parked, hook.where
        assert total > 40
        assert event.is_set() is expected
        event.clear()
    event.set()
    assert event.wait(5)


@pytest.mark.parametrize("what", ["set", "clear"])
def test_a_change_of_an_event_interrupted_at_every_line(
    what: str, zk: KazooClient, connect: Connect, zk_path: str
) -> None:
    """The flag is as it was or as it shall be, the epoch fits, and the change can be made again."""
    event = zkconcurrent.Event(connect(timeout=SESSION), zk_path)
    back = "clear" if what == "set" else "set"
    event.set()
    if what == "set":
        event.clear()
    total = lines_of(getattr(event, what))
    getattr(event, back)()
    for line in range(1, total + 20):
        hook = InterruptAt(line)
        before = int(zk.get(zk_path)[0].split()[0])
        try:
            with hook:
                getattr(event, what)()
        except KeyboardInterrupt:
            getattr(event, what)()
        epoch, flag = zk.get(zk_path)[0].decode().split()
        assert (int(epoch), flag) == (before + (what == "set"), what), hook.where
        getattr(event, back)()
    assert total > 40
    assert not event._session.registry.tickets


def test_a_count_interrupted_at_every_line(connect: Connect, zk_path: str, eventually: Eventually) -> None:
    """A count that is interrupted has counted once or not at all, and what waits at the latch is not disturbed."""
    latch = zkconcurrent.CountDownLatch(connect(timeout=SESSION), zk_path, 1_000_000)
    latch.count_down()
    total = lines_of(latch.count_down)
    for line in range(1, total + 20):
        hook, left = InterruptAt(line), latch.count
        try:
            with hook:
                latch.count_down(3)
        except KeyboardInterrupt:
            assert latch.count in (left, left - 3), hook.where
        else:
            assert latch.count == left - 3
        try:
            with InterruptAt(line):
                assert latch.wait(0.02) is False
        except KeyboardInterrupt:
            pass
        eventually(lambda: not latch._session.registry.tickets and not latch._session.registry._awaiting, hook.where)
    assert total > 40


def left(zk: KazooClient, paths: list[str]) -> int:
    """Return how many nodes there are at the paths; those idle for long may have been reaped."""
    nodes = 0
    for path in paths:
        with contextlib.suppress(NoNodeError):
            nodes += len(zk.get_children(path))
    return nodes


def test_a_multilock_interrupted_at_every_line(
    zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """All or none: an interrupted acquire leaves no lock held, also when the last is held by somebody else."""
    client, paths = connect(timeout=SESSION), [f"{zk_path}/{name}" for name in "ab"]
    lock, last = zkconcurrent.MultiLock([Lock(client, path) for path in paths]), Lock(zk, paths[-1])

    def acquire(timeout: float) -> None:
        if lock.acquire(timeout=timeout):
            lock.release()

    # Where the last is held, at its own lines only: to wait for a lock is told above.
    for held, timeout, file in ((0, 5.0, ""), (1, 0.03, "_multilock.py")):
        if held:
            last.acquire()
        total = lines_of(lambda: acquire(5.0), file)  # long enough for the locks that are free
        for line in range(1, total + 20):
            hook = InterruptAt(line, file)
            try:
                with hook:
                    assert lock.acquire(timeout=timeout) is not bool(held)
            except KeyboardInterrupt:
                assert not any("<locked" in repr(each) for each in lock.locks), hook.where
            else:
                if not held:
                    lock.release()
            eventually(lambda: left(zk, paths) == held, f"interrupted at line {line}: {hook.where}")  # noqa: B023
        assert total > (20 if file else 200)
    last.release()


def test_a_multilocks_release_interrupted_at_every_line(
    zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """Either it is held still, as a whole, and can be released again, or all is free."""
    client, paths = connect(timeout=SESSION), [f"{zk_path}/{name}" for name in "ab"]
    lock = zkconcurrent.MultiLock([Lock(client, path) for path in paths])
    assert interrupt_releases(lock, lambda: left(zk, paths) == 0, eventually) > 40


def idle(client: KazooClient, path: str, leases: int = 0, locks: int = 0) -> Callable[[], bool]:
    """Return a condition: so many permits are out, and so many are in the queue."""
    return lambda: queued(client, f"{path}/leases", leases)() and queued(client, f"{path}/locks", locks)()


def test_permits_interrupted_at_every_line_of_acquire(
    zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """Free permits: the acquire either is interrupted and leaves nothing, or has all of them."""
    semaphore, other = Semaphore(connect(timeout=SESSION), zk_path, 2), Semaphore(zk, zk_path, 2)
    semaphore.acquire(permits=2)
    semaphore.release(2)
    total = lines_of(lambda: semaphore.acquire(permits=2))
    semaphore.release(2)
    for line in range(1, total + 20):
        hook = InterruptAt(line)
        try:
            with hook:
                assert semaphore.acquire(permits=2)
        except KeyboardInterrupt:
            assert "value=2" in repr(semaphore), hook.where
        else:
            semaphore.release(2)
        eventually(idle(zk, zk_path), f"interrupted at line {line}: {hook.where}")
    assert total > 200
    assert other.acquire(permits=2)
    assert queued(zk, f"{zk_path}/permits", 0)()
    other.release(2)


def test_a_waiter_for_permits_interrupted_at_every_line(
    zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """No permit is free, with a deadline: wherever the first in the queue is interrupted, it holds nobody up."""
    semaphore, held = Semaphore(connect(timeout=SESSION), zk_path), Semaphore(zk, zk_path)
    with held:
        total = lines_of(lambda: semaphore.acquire(timeout=0.02))
        for line in range(1, total + 5):
            hook = InterruptAt(line)
            try:
                with hook:
                    assert semaphore.acquire(timeout=0.02) is False
            except KeyboardInterrupt:
                pass
            eventually(idle(zk, zk_path, leases=1), f"interrupted at line {line}: {hook.where}")
    with semaphore:
        pass


def test_release_of_permits_interrupted_at_every_line(
    zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """Either all permits are held still, and can be released again, or all are free; none is added."""
    semaphore = Semaphore(connect(timeout=SESSION), zk_path, 2)
    semaphore.acquire(permits=2)
    total = lines_of(lambda: semaphore.release(2))
    for line in range(1, total + 20):
        hook = InterruptAt(line)
        semaphore.acquire(permits=2)
        try:
            with hook:
                semaphore.release(2)
        except KeyboardInterrupt:
            assert "value=1" not in repr(semaphore), hook.where
            if "value=0" in repr(semaphore):
                semaphore.release(2)
        eventually(idle(zk, zk_path), f"interrupted at line {line}: {hook.where}")
    assert queued(zk, f"{zk_path}/permits", 0)()


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_a_wait_interrupted_at_every_line(
    kind: Kind, zk: KazooClient, connect: Connect, zk_path: str, eventually: Eventually
) -> None:
    """Wherever a wait is interrupted, the lock is held with all its levels when that is raised, and no waiter is left.

    The time is up at once, so that all of a wait is run: giving the lock up, waiting, withdrawing, taking it again.
    """
    client = connect(timeout=SESSION)
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
                condition.wait(0.002)
        except KeyboardInterrupt:
            pass
        hold = lock._mine()
        assert hold is not None, hook.where
        assert hold.alive, hook.where
        assert hold.depth == levels, hook.where
        assert queued(zk, f"{zk_path}/condition/waiters", 0)(), hook.where
        eventually(queued(zk, lock.path, 1), f"interrupted at line {line}: {hook.where}")
    assert total > 200
    for _ in range(levels):
        lock.release()
    eventually(queued(zk, lock.path, 0))
