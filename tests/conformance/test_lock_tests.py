"""CPython's own tests of `threading`'s locks, all of them, run against ours on a real ZooKeeper.

They come with the running interpreter (`test.lock_tests`; Debian keeps them in libpython3-testsuite). Where they are
not to be had, importing them fails, and so does this module.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from test import lock_tests

import zkconcurrent
from tests.kinds import write_lock
from zkconcurrent.testing import Server

_numbers = itertools.count()


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
        yield
        client.stop()
        client.close()

    def make(self, kind: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make what the standard library makes of `args`, on a fresh path."""
        return kind(self.client, f"/conformance/{next(_numbers)}", *args, **kwargs)


# Two of CPython's tests drop a lock while it is held.
@pytest.mark.filterwarnings("ignore:the last object of:ResourceWarning")
class TestLock(OnZooKeeper, lock_tests.LockTests):
    """`threading.Lock`'s tests."""

    def locktype(self, *args: Any, **kwargs: Any) -> zkconcurrent.Lock:
        """Make a lock."""
        return self.make(zkconcurrent.Lock, *args, **kwargs)  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:the last object of:ResourceWarning")
class TestRLock(OnZooKeeper, lock_tests.RLockTests):
    """`threading.RLock`'s tests."""

    def locktype(self, *args: Any, **kwargs: Any) -> zkconcurrent.RLock:
        """Make a lock."""
        return self.make(zkconcurrent.RLock, *args, **kwargs)  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("ignore:the last object of:ResourceWarning")
class TestWriteLock(OnZooKeeper, lock_tests.RLockTests):
    """A write lock alone is an RLock."""

    def locktype(self, *args: Any, **kwargs: Any) -> zkconcurrent.RLock:
        """Make a lock."""
        return self.make(write_lock, *args, **kwargs)  # type: ignore[no-any-return]


class TestBarrier(OnZooKeeper, lock_tests.BarrierTests):
    """`threading.Barrier`'s tests."""

    def barriertype(self, *args: Any, **kwargs: Any) -> zkconcurrent.Barrier:
        """Make a barrier."""
        return self.make(zkconcurrent.Barrier, *args, **kwargs)  # type: ignore[no-any-return]
