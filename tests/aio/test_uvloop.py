"""A core of these tests on uvloop: each call to its end, cancellations, loops that are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
import uvloop
from kazoo.client import KazooClient

from tests.aio import test_cancellation, test_ended_tasks
from tests.aio.calls import SCENES
from tests.aio.loops import soon
from tests.conftest import Connect
from tests.helpers.proxy import Proxy


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


@pytest.mark.parametrize("scene", SCENES)
async def test_to_its_end(scene: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A call that nobody cancels comes to its end."""
    running = SCENES[scene](zk, far, zk_path)
    call = await anext(running)
    assert call is not None
    task = asyncio.create_task(test_cancellation.outcome(call))
    await anext(running)
    assert not await soon(task)
    with suppress(StopAsyncIteration):
        await running.asend("")


@pytest.mark.parametrize("end", test_cancellation.ENDS)
@pytest.mark.parametrize("scene", ["Lock, held elsewhere", "event"])
def test_as_it_waits(
    scene: str,
    end: str,
    connect: Connect,
    proxy: Proxy,
    far: KazooClient,
    zk_path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call that waits for others ends as soon as it is struck, holds nothing, and leaves nothing."""
    test_cancellation.test_as_it_waits(scene, end, connect, proxy, far, zk_path, monkeypatch)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_holder_whose_loop_is_closed(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A task that is thrown away in its block keeps nothing."""
    test_ended_tasks.test_a_block_whose_loop_is_closed("RLock", zk, far, zk_path)
