"""The cancellation contract: wherever a task is cancelled, nothing of its call stays, and nobody sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.aio.calls import SCENES, Scene
from tests.aio.loops import Counts, counting, left, nodes, run, soon, until
from tests.conftest import Connect
from tests.helpers.places import PLACES
from tests.helpers.proxy import Proxy

MOST = 40  # sleeps; no call has as many
TURNS = 50  # at so many it is cancelled without a pause
MORE = 20  # requests of a clean-up, heartbeats included
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
        strikes: how often: "once"; "twice": once more right behind, and at the next sleep that it has; or, as anyio
            does, "at each turn" of the loop until its end.

    Attributes:
        sprung: the task slept so often, and was cancelled.
    """

    def __init__(self, k: int, *, waking: bool, strikes: str) -> None:
        self._k, self._waking = k, waking
        self._again, self._always = strikes != "once", strikes == "at each turn"
        self._sleeps = self._turns = 0
        self._strikes = 1 if strikes == "once" else 2
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
        if self._always and not self._task.done():
            self._strikes, self._turns = 0, self._turns + 1
            # Not at each turn for ever: others wait until the loop is idle.
            asyncio.get_running_loop().call_later(0 if self._turns < TURNS else 0.002, self._spring)


async def ended(scene: Scene, trap: Trap) -> tuple[bool, Counts]:
    """Run a scene; return whether its call was cancelled, and what its client did until then."""

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
    with counting(scene.near) as counts:
        task = asyncio.create_task(call())
        trap.set(task)
        await scene.let_in()
        cancelled: bool = await soon(task)
    held = [hold for hold in scene.held() if hold not in before]
    assert not held, "cancelled, and held"
    await scene.prove(cancelled=cancelled)
    return cancelled, counts


@pytest.mark.parametrize("strikes", ["once", "twice", "at each turn"])
@pytest.mark.parametrize("waking", [False, True], ids=["asleep", "waking"])
@pytest.mark.parametrize("scene", [scene for scene in SCENES if is_apart(scene) or PLACES > 2])
def test_at_each_sleep(
    scene: str, waking: bool, strikes: str, connect: Connect, proxy: Proxy, far: KazooClient, zk_path: str
) -> None:
    """Cancelled as it falls asleep or wakes, once or again and again: no node, hold or sleeper is left.

    A cancelled call makes no more nodes, and sends hardly more requests, than one that is not (fault 235).
    """
    zk = connect(hosts=proxy.hosts)

    async def main() -> int:
        k, struck = 1, list[Counts]()
        for _ in range(2 * MOST):
            trap = Trap(k, waking=waking, strikes=strikes)
            make: Callable[..., Scene] = SCENES[scene]
            try:
                cancelled, counts = await ended(make(zk, far, zk_path), trap)
                await until(
                    lambda: not left(zk, far), "nothing is left"
                )  # first: it sweeps, which the keeper does later
                await until(lambda: not nodes(far, zk_path), "no node is left")
            except BaseException as error:
                raise AssertionError(f"cancelled at sleep {k}: {nodes(far, zk_path)}, {left(zk, far)}") from error
            if trap.sprung:
                k += 1
                struck.append(counts)
                continue
            assert not cancelled
            assert max((each.tickets for each in struck), default=0) <= max(
                counts.tickets, 1
            )  # a kept lock may need none
            assert max((each.requests for each in struck), default=0) <= counts.requests + MORE
            if k > 1:
                return k - 1
            # The replies came before it fell asleep; on a busy machine they may do so again and again.
            proxy.delay(0.005)
        pytest.fail("it sleeps for ever")

    assert run(main()) > 0
