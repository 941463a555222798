"""The cancellation contract: wherever a task is cancelled, nothing of its call stays, and nobody sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.aio.calls import AGAINST, LOCKS, SCENES, Scene
from tests.aio.loops import Counts, counting, left, nodes, run, soon, until
from tests.conftest import Connect
from tests.helpers.places import PLACES
from tests.helpers.proxy import Proxy
from zkconcurrent import aio
from zkconcurrent._engine.session import Session

MOST = 40  # sleeps; no call has as many
TURNS = 50  # at so many it is cancelled without a pause
MORE = 20  # requests of a clean-up, heartbeats included
ROUND_TRIP = 0.02
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


@pytest.mark.fault(220)
@pytest.mark.parametrize("strikes", ["once", "twice", "at each turn"])
@pytest.mark.parametrize("waking", [False, True], ids=["asleep", "waking"])
@pytest.mark.parametrize("scene", [scene for scene in SCENES if is_apart(scene) or PLACES > 2])
def test_at_each_sleep(
    scene: str, waking: bool, strikes: str, connect: Connect, proxy: Proxy, far: KazooClient, zk_path: str
) -> None:
    """Cancelled as it falls asleep or wakes, once or again and again: no node, hold or sleeper is left.

    A cancelled call makes no more nodes, and sends hardly more requests, than one that is not (fault 220).
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


@pytest.fixture
def slow(connect: Connect, proxy: Proxy) -> KazooClient:
    """A client whose requests are cancelled long before their replies."""
    client = connect(hosts=proxy.hosts)
    proxy.delay(ROUND_TRIP / 2)
    return client


async def cancelled(lock: Any, after: float = 0.0) -> None:
    """Begin to acquire, and be cancelled so many round trips later."""

    async def call() -> None:
        await lock.acquire()

    task = asyncio.create_task(call())
    await asyncio.sleep(after * ROUND_TRIP)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
        raise AssertionError("it was not cancelled")


@pytest.mark.fault(255)
@pytest.mark.parametrize("kind", LOCKS)
async def test_the_next_call_sees_a_free_lock(kind: str, slow: KazooClient, zk_path: str) -> None:
    """The node of a cancelled acquire blocks no call of this client that follows, at whatever moment."""
    lock, other = LOCKS[kind](slow, zk_path), AGAINST.get(kind, LOCKS[kind])(slow, zk_path)
    await lock.acquire()
    await lock.release()  # the path exists
    for behind in (0.0, 0.3, 0.8, 1.2, 1.7):
        for options in ({"blocking": False}, {"timeout": 0.001}):
            await cancelled(lock)
            await asyncio.sleep(behind * ROUND_TRIP)
            assert await other.acquire(**options), f"{options}, {behind} round trips behind"
            await other.release()


@pytest.mark.fault(255)
async def test_the_next_call_counts_no_cancelled_one(slow: KazooClient, zk_path: str) -> None:
    """The same of calls that ask who is there: a lock is not locked, and a permit is available."""
    lock, semaphore = aio.Lock(slow, f"{zk_path}/lock"), aio.Semaphore(slow, f"{zk_path}/semaphore", 2)
    for one in (lock, semaphore):
        async with one:
            pass
    await cancelled(lock)
    assert not await lock.fetch_locked()
    await cancelled(lock)
    assert await lock.owner() is None
    await cancelled(semaphore, 1.5)  # while it takes its permit
    assert await semaphore.available() == 2


@pytest.mark.fault(255)
def test_the_next_call_after_a_lost_reply(connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """The same if the reply to the create is lost, and the next call is the first on the new connection."""
    client = connect(hosts=proxy.hosts)

    async def main() -> None:
        lock = aio.Lock(client, zk_path)
        async with lock:
            pass
        link = Session.of(client).link
        for _ in range(5):
            before = link.connection
            with proxy.lose_answer("create2") as fault:
                task = asyncio.create_task(lock.acquire())
                await asyncio.to_thread(fault.wait)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await until(lambda: link.connected and link.connection is not before, "it is connected again")  # noqa: B023
            assert await lock.acquire(blocking=False)
            await lock.release()

    run(main())


@pytest.mark.fault(255)
async def test_a_lock_that_another_holds_is_not_free(slow: KazooClient, far: KazooClient, zk_path: str) -> None:
    """The next call is refused where somebody holds, ahead of the cancelled one or behind it."""
    lock, elsewhere = aio.Lock(slow, zk_path), aio.Lock(far, zk_path)
    async with elsewhere:
        await cancelled(lock)
        assert not await lock.acquire(blocking=False)
    await cancelled(lock)
    async with elsewhere:
        assert not await lock.acquire(blocking=False)
