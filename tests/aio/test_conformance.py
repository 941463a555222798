"""CPython's own tests of `asyncio`'s locks, run against ours on a real ZooKeeper.

They come with the running interpreter, as those of `threading` do. Where theirs count turns of the loop (`sleep(0)`),
the loop turns until this client has no request outstanding and nothing is left to do; then each sleeping task waits for
others, as theirs would. A task of theirs that acquires an owned lock does so in a function of the test.

`LEFT_OUT` names each test that is not run, with the reason.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pytest
from kazoo.client import KazooClient
from test.test_asyncio import test_locks as theirs

import zkconcurrent
from tests.aio.loops import idle, watching
from zkconcurrent import aio
from zkconcurrent.testing import Server

_numbers = itertools.count()
_sleep = asyncio.sleep
NAMES = ("Lock", "Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier")

REPR = "the text of the repr: ours is the threaded twin's, which has the path"
WAITERS = "looks into `_waiters`"
ORDER = "tells in which order tasks that are let in together run: ours run as their replies come"
STATE = "sees the barrier between two turns of the loop: ours shows `n_waiting` and `broken` as last seen"
DRAINING = "resets while the parties go on, a state that lasts some turns of the loop and that ours does not have"
VALUE = "looks into `_value`"
LEFT_OUT: dict[str, dict[str, str]] = {
    "LockTests": {
        "test_repr": REPR,
        "test_lock_doesnt_accept_loop_parameter": "calls each class with `loop=` alone: ours need a client and a path",
        "test_acquire_cancel": WAITERS,
        "test_cancel_race": WAITERS,
        "test_cancel_release_race": "has no turn between a cancel and the next one's hold: test_cancellation.py has it",
        "test_finished_waiter_cancelled": WAITERS,
    },
    "EventTests": {
        "test_repr": REPR,
        "test_wait_cancel": WAITERS,
        "test_clear_with_waiters": WAITERS,
        "test_wait": ORDER,
    },
    "ConditionTests": {
        "test_repr": REPR,
        "test_notify": ORDER,
        "test_notify_all": ORDER,
        "test_wait": "its tasks end with the lock held, which the test then releases: ours is an RLock, of its task",
        "test_wait_cancel": WAITERS,
        "test_wait_cancel_contested": "waits in another task than the one that acquired: ours is an RLock, of its task",
        "test_ambiguous_loops": "sets `_loop`; ours is bound to no loop",
        "test_timeout_in_block": "waits in a task of `wait_for`'s, up to Python 3.11: ours is an RLock, of its task",
    },
    "SemaphoreTests": {
        "test_repr": REPR,
        "test_semaphore": VALUE,
        "test_acquire": WAITERS,
        "test_acquire_cancel": WAITERS,
        "test_acquire_fifo_order": ORDER,
        "test_acquire_fifo_order_2": ORDER,
        "test_acquire_fifo_order_3": ORDER,
        "test_acquire_fifo_order_4": VALUE,
        "test_initial_value_zero": "asks `locked()` where no loop runs, of a service that was not asked yet",
    },
    "BarrierTests": {
        "test_repr": REPR,
        "test_barrier": "looks into `_count`",
        "test_filling_task_by_task": STATE,
        "test_draining_state": STATE,
        "test_reset_barrier_while_tasks_waiting_and_waiting_again": STATE,
        "test_reset_barrier_while_tasks_draining": DRAINING,
        "test_reset_barrier_when_tasks_half_draining": DRAINING,
        "test_reset_barrier_when_tasks_half_draining_half_blocking": DRAINING,
        "test_abort_barrier_when_tasks_half_draining_half_blocking": DRAINING,
    },
}
if sys.version_info >= (3, 12):
    LEFT_OUT["ConditionTests"].pop("test_timeout_in_block")


class Asyncio:
    """The module `asyncio`, as CPython's tests see it: its locks are ours."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        for name in NAMES:
            if hasattr(aio, name):
                setattr(self, name, bound(getattr(aio, name), client))

    async def sleep(self, delay: float) -> None:
        """Sleep, or let all others do what they can."""
        await (_sleep(delay) if delay else idle(self._client))

    def timeout(self, delay: float) -> Any:
        """Give up later than they do: in their 10 ms a waiter is to be notified, to have its lock and to release it."""
        return asyncio.timeout(max(delay, 2.0))

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


def bound(kind: Callable[..., Any], client: KazooClient) -> type:
    """Return a class of that name that asks for no client, and makes each object on a path of its own.

    The path was used before: tasks that come together to one that was not make its nodes first, and queue in the order
    in which each is done with that.
    """

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        path = f"/aio-conformance/{next(_numbers)}"
        kind.__init__(self, client, path, *args, **kwargs)  # type: ignore[misc]
        using = threading.Thread(target=use, args=(client, self, (*args, *kwargs.values(), 1)[0]))
        using.start()
        using.join()

    return type(kind.__name__, (kind,), {"__init__": init})  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:the last object of:ResourceWarning")
class OnZooKeeper:
    """Has each test run with locks of ours, each on a path of its own, in a loop that is watched."""

    @pytest.fixture(autouse=True)
    def _ours(self, zookeeper: Server) -> Iterator[None]:
        with (
            zookeeper.client() as client,
            watching(errors=True),  # theirs leave tasks
            patch.object(theirs, "asyncio", Asyncio(client)),
        ):
            yield


def use(client: KazooClient, primitive: Any, value: Any) -> None:
    """Make the nodes below which contenders queue."""
    if isinstance(primitive, aio.Semaphore):
        kind = zkconcurrent.BoundedSemaphore if isinstance(primitive, aio.BoundedSemaphore) else zkconcurrent.Semaphore
        semaphore = kind(client, primitive.path, value)
        if semaphore.acquire(timeout=0.01):
            semaphore.release()
    elif isinstance(primitive, aio.Condition):
        client.ensure_path(f"{primitive.path}/waiters")
        client.ensure_path(primitive._lock.path)
    elif isinstance(primitive, aio.Lock):
        client.ensure_path(primitive.path)


def without(tests: type) -> type:
    """Return CPython's tests without those that are left out."""
    left_out = LEFT_OUT[tests.__name__]
    return type(tests.__name__, (tests,), dict.fromkeys(left_out))


class TestLock(OnZooKeeper, without(theirs.LockTests)):  # type: ignore[misc]
    """`asyncio.Lock`'s tests."""


class TestEvent(OnZooKeeper, without(theirs.EventTests)):  # type: ignore[misc]
    """`asyncio.Event`'s tests."""


class TestCondition(OnZooKeeper, without(theirs.ConditionTests)):  # type: ignore[misc]
    """`asyncio.Condition`'s tests."""


class TestSemaphore(OnZooKeeper, without(theirs.SemaphoreTests)):  # type: ignore[misc]
    """`asyncio.Semaphore`'s tests."""


if hasattr(aio, "Barrier") and hasattr(theirs, "BarrierTests"):

    class TestBarrier(OnZooKeeper, without(theirs.BarrierTests)):  # type: ignore[misc]
        """`asyncio.Barrier`'s tests."""
