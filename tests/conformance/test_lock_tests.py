"""CPython's own tests of `threading`'s locks, all of them, run against ours on a real ZooKeeper.

They come with the running interpreter (`test.lock_tests`; Debian keeps them in libpython3-testsuite). Where they are
not to be had, importing them fails, and so does this module.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partialmethod
from typing import Any
from unittest.mock import patch

import pytest
from kazoo.client import KazooClient
from test import lock_tests

import zkconcurrent
from tests.helpers.contenders import waits
from tests.helpers.eventually import eventually
from tests.helpers.lock_types import write_lock
from zkconcurrent._engine import patience
from zkconcurrent._threads.base.primitive import Primitive
from zkconcurrent.testing import Server

# Two of CPython's tests drop a lock while it is held.
pytestmark = pytest.mark.filterwarnings("ignore:the last object of:ResourceWarning")
# The name of a thread that logs, and what it is called before it has that.
LOGS = r"^zkconcurrent log|\(_run_as\)$"
_numbers = itertools.count()


def patient(primitive: Primitive, timeout: float | None) -> float | None:
    """Return when to give up: in 5 ms they expect a permit that is free, in 500 an event that is set; it gets more."""
    return Primitive._until(primitive, max(timeout, 3.0) if timeout else timeout)


class OnZooKeeper:
    """Gives each test locks of ours, each on a path of its own."""

    client: KazooClient

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _connect(cls, zookeeper: Server) -> Iterator[None]:
        client = KazooClient(zookeeper.hosts)
        client.start()
        # The keeper starts with the first object, and stays: the tests count threads.
        zkconcurrent.Lock(client, f"/conformance/{next(_numbers)}")
        cls.client = client
        with (
            patch.object(zkconcurrent.Event, "_until", patient),
            patch.object(zkconcurrent.Semaphore, "_until", patient),
            # The node that a timeout leaves would be in the way of the try that comes right after it.
            patch.object(patience, "CLEAN_UP_PATIENCE", 5.0),
        ):
            yield
        client.stop()
        client.close()

    @pytest.fixture(autouse=True)
    def _count_new_threads(self) -> Iterator[None]:
        """Count only the threads that a test starts: one that an earlier test has left may end meanwhile.

        A thread of the library that logs what an earlier test has dropped is waited for: it may come and go amid a
        count, and is counted if it stays.

        Theirs then waits for a second, and collects garbage a hundred times.
        """
        before, running = set(threading.enumerate()), threading.enumerate

        def new() -> list[threading.Thread]:
            until = time.monotonic() + 20
            while any(re.search(LOGS, each.name) for each in running()) and time.monotonic() < until:
                time.sleep(0.01)
            return [each for each in running() if each not in before]

        def have_ended(*_: object) -> None:
            until = time.monotonic() + 20
            # Those of the library that log may come, and go, meanwhile.
            while new() and time.monotonic() < until:
                time.sleep(0.01)
            assert not new()

        with (
            patch.object(threading, "enumerate", new),
            patch.object(lock_tests.threading_helper, "threading_cleanup", have_ended),
        ):
            yield

    def make(self, kind: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make what the standard library makes of `args`, on a fresh path."""
        return kind(self.client, f"/conformance/{next(_numbers)}", *args, **kwargs)

    def assertTimeout(self, actual: float, expected: float) -> None:  # noqa: N802 - theirs
        """Check that a wait is not too short: how long it takes says more of the machine."""
        assert actual >= 0.6 * expected


class TestLock(OnZooKeeper, lock_tests.LockTests):
    """`threading.Lock`'s tests."""

    locktype = partialmethod(OnZooKeeper.make, zkconcurrent.Lock)


class TestRLock(OnZooKeeper, lock_tests.RLockTests):
    """`threading.RLock`'s tests."""

    locktype = partialmethod(OnZooKeeper.make, zkconcurrent.RLock)


class TestUnfairLock(OnZooKeeper, lock_tests.LockTests):
    """`threading.Lock`'s tests, of one that threads hand to each other."""

    locktype = partialmethod(OnZooKeeper.make, zkconcurrent.Lock, fair=False)


class TestUnfairRLock(OnZooKeeper, lock_tests.RLockTests):
    """`threading.RLock`'s tests, of one that threads hand to each other."""

    locktype = partialmethod(OnZooKeeper.make, zkconcurrent.RLock, fair=False)


class TestSemaphore(OnZooKeeper, lock_tests.SemaphoreTests):
    """`threading.Semaphore`'s tests."""

    semtype = partialmethod(OnZooKeeper.make, zkconcurrent.Semaphore)


class TestBoundedSemaphore(OnZooKeeper, lock_tests.BoundedSemaphoreTests):
    """`threading.BoundedSemaphore`'s tests."""

    semtype = partialmethod(OnZooKeeper.make, zkconcurrent.BoundedSemaphore)


class TestWriteLock(OnZooKeeper, lock_tests.RLockTests):
    """A write lock alone is an RLock."""

    locktype = partialmethod(OnZooKeeper.make, write_lock)


class TestEvent(OnZooKeeper, lock_tests.EventTests):
    """`threading.Event`'s tests, but one."""

    # It is of the lock inside, `_cond`, which ours has not. test_processes shows the rights of a forked child.
    test_at_fork_reinit = None

    @pytest.fixture(autouse=True)
    def _blocked(self) -> Iterator[None]:
        """Wait until their threads wait, where they only sleep: a late thread does not see a flag set and cleared."""

        def wait_threads_blocked(n: int) -> None:
            eventually(lambda: waits(self.made, n))

        # There is none before Python 3.11.
        with patch.object(lock_tests, "wait_threads_blocked", wait_threads_blocked, create=True):
            yield

    def eventtype(self) -> zkconcurrent.Event:
        """Make an event."""
        self.made: zkconcurrent.Event = self.make(zkconcurrent.Event)
        return self.made


def several(kind: Callable[..., Any], client: KazooClient, path: str) -> zkconcurrent.MultiLock:
    """Make a MultiLock of two locks."""
    return zkconcurrent.MultiLock([kind(client, f"{path}-{name}") for name in "ab"])


class TestMultiLock(OnZooKeeper, lock_tests.LockTests):
    """Several Locks as one are a Lock, but for what `threading` itself does to it in a forked child."""

    test_at_fork_reinit = None

    locktype = partialmethod(OnZooKeeper.make, functools.partial(several, zkconcurrent.Lock))


class TestMultiRLock(OnZooKeeper, lock_tests.RLockTests):
    """Several RLocks as one are an RLock, but for what only `threading.Condition` asks: they have no one depth."""

    test__is_owned = test_recursion_count = test_release_save_unacquired = test_repr_count = None

    locktype = partialmethod(OnZooKeeper.make, functools.partial(several, zkconcurrent.RLock))


class Threading:
    """The module `threading`, as CPython's tests of conditions see it: its locks are ours."""

    def __init__(self, make: Callable[..., Any], lock: Callable[..., Any]) -> None:
        self.Lock = lambda: make(zkconcurrent.Lock)
        self.RLock = lambda: make(lock)

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


class TestCondition(OnZooKeeper, lock_tests.ConditionTests):
    """`threading.Condition`'s tests, with the lock that a condition has of its own."""

    @pytest.fixture(autouse=True)
    def _locks(self) -> Iterator[None]:
        with patch.object(lock_tests, "threading", Threading(self.make, zkconcurrent.RLock)):
            yield

    condtype = partialmethod(OnZooKeeper.make, zkconcurrent.Condition)

    def test_nan_timeout(self) -> None:
        """Theirs, of Python 3.14, counts the waiters in a private list; `repr` shows how many wait here."""
        condition = self.condtype()
        with condition:
            for wait in (condition.wait, functools.partial(condition.wait_for, lambda: False)):
                with pytest.raises(ValueError, match="NaN"):
                    wait(math.nan)
            assert ", 0) object" in repr(condition)


class TestConditionOfAWriteLock(TestCondition):
    """The same with a write lock, where the condition would have one of its own."""

    def condtype(self, lock: Any = None) -> zkconcurrent.Condition:
        """Make a condition."""
        return self.make(zkconcurrent.Condition, lock or self.make(write_lock))  # type: ignore[no-any-return]


class TestTheirConditionOfOurs(TestCondition):
    """`threading.Condition` itself, with locks of ours."""

    lock: Callable[..., Any] = zkconcurrent.RLock
    test_nan_timeout = getattr(lock_tests.ConditionTests, "test_nan_timeout", None)

    def condtype(self, lock: Any = None) -> threading.Condition:  # type: ignore[override]
        """Make a condition."""
        return threading.Condition(lock or self.make(type(self).lock))


class TestTheirConditionOfAWriteLock(TestTheirConditionOfOurs):
    """The same with a write lock."""

    lock = staticmethod(write_lock)


class TestBarrier(OnZooKeeper, lock_tests.BarrierTests):
    """`threading.Barrier`'s tests."""

    defaultTimeout = 10.0  # noqa: N815 - theirs: of 2 s they expect that all come

    barriertype = partialmethod(OnZooKeeper.make, zkconcurrent.Barrier)
