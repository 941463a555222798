"""The cancellation contract: wherever a task is cancelled, nothing of its call stays, and nobody sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.aio.calls import SCENES, Scene
from tests.aio.loops import left, nodes, run, soon, until
from tests.helpers.places import PLACES

MOST = 40  # sleeps; no call has as many
# Their `acquire` has the awaits of a Lock's, an unfair Lock's and a Semaphore's.
ALIKE = ("RLock", "unfair RLock", "BoundedSemaphore")


def is_apart(scene: str) -> bool:
    """Return whether a scene has awaits that no other scene has. One of a free lock awaits the release, too."""
    kind, _, situation = scene.partition(", ")
    return situation == "free" or not (situation == "released" or kind in ALIKE)


class Trap:
    """Cancels a task at its k-th sleep.

    Args:
        k: which one, counted from 1.
        waking: whether as it wakes, when the awaited event has come, and not as it falls asleep.
        again: whether the task is cancelled once more right behind, and at the next sleep that it has.

    Attributes:
        sprung: the task slept so often, and was cancelled.
    """

    def __init__(self, k: int, *, waking: bool, again: bool) -> None:
        self._k, self._waking, self._again = k, waking, again
        self._sleeps = 0
        self._strikes = 2 if again else 1
        self._task: asyncio.Task[Any] | None = None
        self.sprung = False

    def set(self, task: asyncio.Task[Any]) -> None:
        """Watch the task: each of its sleeps begins with a future."""
        self._task = task
        loop = asyncio.get_running_loop()
        create_future = loop.create_future

        def created() -> asyncio.Future[Any]:
            future = create_future()
            if asyncio.current_task() is task:
                self._sleeps += 1
                if self._sleeps >= self._k and self._strikes:
                    self._strikes -= 1
                    if self._waking and not self.sprung:
                        future.add_done_callback(self._spring)  # before the task itself is told
                    else:
                        loop.call_soon(self._spring)
            return future

        loop.create_future = created  # type: ignore[method-assign]

    def _spring(self, _: object = None) -> None:
        assert self._task is not None
        self.sprung = True
        self._task.cancel()
        if self._again:
            self._task.cancel()


async def ended(scene: Scene, trap: Trap) -> bool:
    """Run a scene; return whether its call was cancelled."""

    async def call() -> bool:
        try:
            if await scene.call():
                assert scene.held(), "acquired, and not held"
                await scene.undo()
        except asyncio.CancelledError:
            return True
        return False

    await scene.begin()
    before = scene.held()
    task = asyncio.create_task(call())
    trap.set(task)
    await scene.let_in()
    cancelled: bool = await soon(task)
    held = [hold for hold in scene.held() if hold not in before]
    assert not held, "cancelled, and held"
    await scene.prove(cancelled=cancelled)
    return cancelled


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
@pytest.mark.parametrize("waking", [False, True], ids=["asleep", "waking"])
@pytest.mark.parametrize("scene", [scene for scene in SCENES if is_apart(scene) or PLACES > 2])
def test_at_each_sleep(scene: str, waking: bool, again: bool, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Cancelled as it falls asleep or as it wakes, once or twice: neither a node, nor a hold, nor a sleeper is left."""

    async def main() -> int:
        k = 1
        for _ in range(2 * MOST):
            trap = Trap(k, waking=waking, again=again)
            make: Callable[..., Scene] = SCENES[scene]
            try:
                cancelled = await ended(make(zk, far, zk_path), trap)
                await until(
                    lambda: not left(zk, far), "nothing is left"
                )  # first: it sweeps, which the keeper does later
                await until(lambda: not nodes(far, zk_path), "no node is left")
            except BaseException as error:
                raise AssertionError(f"cancelled at sleep {k}: {nodes(far, zk_path)}, {left(zk, far)}") from error
            if trap.sprung:
                k += 1
                continue
            assert not cancelled
            if k > 1:  # else the replies came before it fell asleep, this once
                return k - 1
        pytest.fail("it sleeps for ever")

    assert run(main()) > 0
