"""A core of these tests on uvloop: acquire, cancel, condition, cut and reconnect, loops that are closed.

uvloop has its own callbacks, so how long one of them keeps the loop is watched on asyncio's loop alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import uvloop
from kazoo.client import KazooClient

from tests.aio import test_barrier as of_barriers
from tests.aio import test_cancellation, test_ended_tasks, test_locks
from tests.conftest import Connect, InThread
from tests.helpers.proxy import Proxy

some = pytest.mark.parametrize("make", ["Lock", "RLock", "Semaphore"])


@pytest.fixture(autouse=True)
def _on_uvloop(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each loop that the test makes is uvloop's."""
    made = []

    def new_event_loop() -> asyncio.AbstractEventLoop:
        made.append(uvloop.new_event_loop())
        return made[-1]

    monkeypatch.setattr(asyncio, "new_event_loop", new_event_loop)
    monkeypatch.setattr(asyncio.events, "new_event_loop", new_event_loop)  # where `asyncio.run` finds it
    yield
    assert made
    assert all(loop.is_closed() for loop in made)


@some
def test_acquire(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Threads and tasks of two clients hold one after the other, in the order in which they came."""
    test_locks.test_threads_and_tasks_in_order(make, zk, far, zk_path)


@some
async def test_true_means_held(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Clause 3."""
    await test_cancellation.test_true_means_held(make, zk, far, zk_path)


@some
def test_granted_and_cancelled_together(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Clause 2."""
    test_cancellation.test_granted_and_cancelled_together(make, zk, far, zk_path)


@some
def test_cancelled_while_stalled(make: str, connect: Connect, far: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """Clauses 1 and 4."""
    test_cancellation.test_clean_up_never_suspends(make, connect, far, zk_path, proxy)


@some
def test_cancelled_while_cut(make: str, connect: Connect, far: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """Clause 1, with a cut and a reconnect."""
    test_cancellation.test_cancelled_while_out_of_reach(make, connect, far, zk_path, proxy)


async def test_condition(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Tasks and threads wait and notify; clause 6."""
    await test_locks.test_a_condition(zk, far, f"{zk_path}/a")
    await test_cancellation.test_a_wait_takes_its_lock_back(zk, far, f"{zk_path}/b")
    await test_cancellation.test_a_notification_is_not_lost(zk, far, f"{zk_path}/c")


async def test_event_and_latch(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Tasks and threads wait for one flag and one count."""
    await test_locks.test_an_event_and_a_latch(zk, far, zk_path)


def test_barrier(zk: KazooClient, connect: Connect, zk_path: str, in_thread: InThread) -> None:
    """Tasks and threads of several clients trip it."""
    of_barriers.test_it_trips_again_and_again(zk, connect, f"{zk_path}/a")
    of_barriers.test_threads_come_too(zk, connect, f"{zk_path}/b", in_thread)


@pytest.mark.parametrize("wait", ["RLock", "Semaphore", "event", "condition"])
def test_loops_that_are_closed(wait: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Clause 7, of waiters."""
    test_ended_tasks.test_loops_that_are_closed(wait, zk, far, zk_path)


def test_a_holder_whose_loop_is_closed(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Clause 7, of a holder."""
    test_ended_tasks.test_a_holder_whose_loop_is_closed("RLock", True, zk, far, zk_path)
