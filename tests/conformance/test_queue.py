"""CPython's own tests of `queue`, run against ours on a real ZooKeeper, with the codec JSON.

They come with the running interpreter, as those of `threading` do; those of `shutdown` since Python 3.13. `LEFT_OUT`
names each test that is not run, with the reason.
"""

from __future__ import annotations

import itertools
import unittest
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from kazoo.client import KazooClient
from test import test_queue as theirs

import zkconcurrent
from zkconcurrent._engine import patience
from zkconcurrent._threads.base.queue_base import QueueBase
from zkconcurrent.testing import Server

_numbers = itertools.count()

IDENTITY = "wants the very object back that was put: ours comes out of bytes"
LOAD = "puts up to 65,536 items from many threads: minutes here; the integration tests have a smaller one"
LEFT_OUT = {
    "test_shrinking_queue": "assigns `maxsize`: ours is agreed on by all clients",
    "test_references": IDENTITY,
    "test_is_default": "compares two names of one class of the standard library",
    "test_reentrancy": "puts in `__del__`, which the garbage collector runs anywhere: no place to wait for a server",
    "test_failing_queue": "overrides the private hooks `_put` and `_get`",
    "test_many_threads": LOAD,
    "test_many_threads_nonblock": LOAD,
    "test_many_threads_timeout": LOAD,
    "test_shutdown_all_methods_in_many_threads": LOAD,
    "test_shutdown_immediate_all_methods_in_many_threads": LOAD,
}


def priority(item: Any) -> int:
    """Return the priority of what they put into a PriorityQueue, which may be text."""
    first = item[0] if isinstance(item, tuple) else item
    return first if isinstance(first, int) else 0


def patient(queue: Any, block: bool, timeout: float | None) -> float | None:
    """Return when to give up: in 0.1 s they expect an item that is there; ours gets more."""
    return QueueBase._limit(queue, block, max(timeout, 1.0) if timeout and timeout > 0.05 else timeout)


def unfinished_tasks(queue: Any) -> int:
    """Return what theirs has as an attribute: the items that are there, and those that this client has not done."""
    return queue.qsize() + queue._view.unfinished  # type: ignore[no-any-return]


class OnZooKeeper:
    """Gives each test queues of ours, each on a path of its own."""

    client: KazooClient
    queue: Any

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _connect(cls, zookeeper: Server) -> Iterator[None]:
        client = KazooClient(zookeeper.hosts)
        client.start()

        def bound(kind: Callable[..., Any], **options: Any) -> type:
            def init(self: Any, *args: Any) -> None:
                kind.__init__(  # type: ignore[misc]
                    self, client, f"/conformance-queue/{next(_numbers)}", *args, codec=zkconcurrent.JSON, **options
                )

            more = {"__init__": init, "_limit": patient, "unfinished_tasks": property(unfinished_tasks)}
            return type(kind.__name__, (kind,), more)  # type: ignore[arg-type]

        cls.client = client
        cls.queue = SimpleNamespace(
            Queue=bound(zkconcurrent.Queue),
            LifoQueue=bound(zkconcurrent.LifoQueue),
            PriorityQueue=bound(zkconcurrent.PriorityQueue, priority=priority),
            SimpleQueue=bound(zkconcurrent.SimpleQueue),
            Empty=zkconcurrent.Empty,
            Full=zkconcurrent.Full,
            ShutDown=zkconcurrent.ShutDown,
        )
        with patch.object(patience, "CLEAN_UP_PATIENCE", 5.0):
            yield
        client.stop()
        client.close()


def without(tests: type) -> type:
    """Return CPython's tests without those that are left out."""
    return type(tests.__name__, (tests,), {name: None for name in LEFT_OUT if hasattr(tests, name)})


class TestQueue(OnZooKeeper, without(theirs.QueueTest), unittest.TestCase):  # type: ignore[misc]
    """`queue.Queue`'s tests."""


class TestLifoQueue(OnZooKeeper, without(theirs.LifoQueueTest), unittest.TestCase):  # type: ignore[misc]
    """`queue.LifoQueue`'s tests."""


class TestPriorityQueue(OnZooKeeper, without(theirs.PriorityQueueTest), unittest.TestCase):  # type: ignore[misc]
    """`queue.PriorityQueue`'s tests."""


class TestSimpleQueue(OnZooKeeper, without(theirs.BaseSimpleQueueTest), unittest.TestCase):  # type: ignore[misc]
    """`queue.SimpleQueue`'s tests."""

    def setUp(self) -> None:
        """Make the queue."""
        self.type2test = self.queue.SimpleQueue
        super().setUp()


def test_what_is_left_out() -> None:
    """Each of these tests exists, in this version of Python or a later one."""
    names = {name for kind in vars(theirs).values() if isinstance(kind, type) for name in dir(kind)}
    assert {name for name in LEFT_OUT if "shutdown" not in name} <= names
