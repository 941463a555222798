"""The cancellation contract: wherever and however a call of a task is ended, nothing of it stays, and nobody sleeps.

`calls.py` has the calls, each as a scene. They are cancelled at each of their sleeps, and their loop is closed there;
those that wait for others are also ended by anyio, and while ZooKeeper does not answer.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.calls import AGAINST, APART, BLOCKS, CANCELLED, CLOSED, LOCKS, SCENES, Scene, held
from tests.aio.loops import Counts, cancelled, counting, idle, left, nodes, run, soon, until
from tests.conftest import FAST, Connect
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import aio
from zkconcurrent._engine import keeper_thread
from zkconcurrent._engine.session import Session

MOST = 40  # sleeps; no call has as many
TURNS = 50  # at so many it is cancelled without a pause
MORE = 20  # requests of a clean-up, heartbeats included
ROUND_TRIP = 0.02
# A party whose loop is closed may break its barrier, as one that dies.
BREAKS = ("barrier", "barrier, as the last")
Call = Callable[[], Awaitable[object]]


def left_of(strikes: str, *clients: KazooClient) -> object:
    """Return what a call has left."""
    if strikes == CLOSED:
        # The call's objects go with its loop, unless the keeper looks at the call just then.
        gc.collect()
    return left(*clients)


class Trap:
    """Ends a call at the k-th sleep of its task.

    Args:
        k: which one, counted from 1.
        waking: whether as it wakes, when the awaited event has come, and not as it falls asleep.
        strikes: how: it is cancelled "once"; or, as anyio does, "at each turn" of the loop until its end; or its loop
            is closed.

    Attributes:
        sprung: the task slept so often, and was struck.
    """

    def __init__(self, k: int, *, waking: bool, strikes: str) -> None:
        self._k, self._waking, self._strikes = k, waking, strikes
        self._sleeps = self._turns = 0
        self._task: asyncio.Task[Any] | None = None
        self.sprung = False

    def set(self, task: asyncio.Task[Any]) -> None:
        """Watch the task: each of its sleeps begins with a future."""
        self._task, watched = task, weakref.ref(task)
        loop = task.get_loop()
        create_future = loop.create_future

        def created() -> asyncio.Future[Any]:
            future = create_future()
            if asyncio.current_task() is watched():
                self._sleeps += 1
                if self._sleeps == self._k and self._waking:
                    future.add_done_callback(self._spring)  # before the task itself is told
                elif self._sleeps == self._k:
                    loop.call_soon(self._spring)
            return future

        loop.create_future = created  # type: ignore[method-assign]

    def _spring(self, _: object = None) -> None:
        assert self._task is not None
        self.sprung = True
        if self._strikes == CLOSED:
            raise KeyboardInterrupt  # which ends `run_forever` before any other callback
        self._task.cancel()
        if self._strikes == "at each turn" and not self._task.done():
            self._turns += 1
            # Not at each turn for ever: others wait until the loop is idle.
            asyncio.get_running_loop().call_later(0 if self._turns < TURNS else 0.002, self._spring)


async def outcome(call: Call) -> bool:
    """Make a call; return whether it was cancelled."""
    try:
        assert await call() is not False
    except asyncio.CancelledError:
        return True
    return False


def in_a_loop_that_is_closed(call: Call, trap: Trap) -> bool:
    """Make a call in a loop of its own, which is closed if the trap springs; return whether it did."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(outcome(call))
    trap.set(task)
    try:
        with suppress(KeyboardInterrupt):
            loop.run_until_complete(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        return not task.done() or task.result()
    finally:
        loop.close()
        trap._task = None  # nothing keeps it


def collected() -> bool:
    """Have the garbage collected: the task of a closed loop, once the keeper has abandoned its call."""
    return gc.collect() >= 0


def news(client: KazooClient, before: list[Any]) -> list[Any]:
    """Return what the tasks of a client hold, and did not hold before."""
    return [hold for hold in held(client) if hold not in before]


async def ended(scene: Scene, near: KazooClient, trap: Trap, *, closed: bool) -> tuple[bool, Counts]:
    """Run a scene; return whether its call was ended by the trap, and what its client did until then."""
    call = await anext(scene)
    assert call is not None
    before = held(near)
    with counting(near) as counts:
        task: asyncio.Task[bool]
        if closed:
            task = asyncio.create_task(asyncio.to_thread(in_a_loop_that_is_closed, call, trap))
        else:
            trap.set(task := asyncio.create_task(outcome(call)))
        await anext(scene)
        struck: bool = await soon(task)
    if closed:
        Session.of(near).wake_keeper()
        await until(lambda: collected() and not news(near, before), "nothing is held")
    assert not news(near, before), "cancelled, and held"
    with suppress(StopAsyncIteration):
        await scene.asend((CLOSED if closed else CANCELLED) if struck else "")
    return struck, counts


@pytest.mark.fault(102, 220)
@pytest.mark.parametrize("waking", [False, True], ids=["asleep", "waking"])
@pytest.mark.parametrize(
    ("scene", "strikes"),
    [
        (scene, strikes)
        for scene in SCENES
        for strikes in ("once", "at each turn", CLOSED)
        if strikes != CLOSED or scene not in BREAKS
    ],
)
def test_at_each_sleep(
    scene: str,
    waking: bool,
    strikes: str,
    connect: Connect,
    proxy: Proxy,
    far: KazooClient,
    zk_path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A call that is ended as it falls asleep or wakes leaves no node, hold or sleeper.

    A cancelled call makes no more nodes, and sends hardly more requests, than one that is not.
    """
    monkeypatch.setattr(keeper_thread, "IDLE_BEAT", 0.0)  # it finds at each turn which loops are closed
    zk = connect(hosts=proxy.hosts)

    async def main() -> int:
        k = 1
        # At a path of its own: later calls at this one need no receipt, or no node at all, if an earlier one left it.
        unstruck = Trap(10 * MOST, waking=waking, strikes=strikes)
        _, undisturbed = await ended(SCENES[scene](zk, far, f"{zk_path}-undisturbed"), zk, unstruck, closed=False)
        for _ in range(2 * MOST):
            trap = Trap(k, waking=waking, strikes=strikes)
            try:
                struck, counts = await ended(SCENES[scene](zk, far, zk_path), zk, trap, closed=strikes == CLOSED)
                # First what is left, as this sweeps, which the keeper does later.
                await until(lambda: not left_of(strikes, zk, far), "nothing is left")
                await until(lambda: not nodes(far, zk_path), "no node is left")
            except BaseException as error:
                raise AssertionError(f"struck at sleep {k}: {nodes(far, zk_path)}, {left(zk, far)}") from error
            if trap.sprung:
                k += 1
                if strikes != CLOSED:
                    assert counts.tickets <= max(undisturbed.tickets, 1)  # a kept lock may need none
                    assert counts.requests <= undisturbed.requests + MORE
                continue
            assert not struck
            if k > 1:
                return k - 1
            # The replies came before it fell asleep; on a busy machine they may do so again and again.
            proxy.delay(0.005)
        pytest.fail("it sleeps for ever")

    assert run(main()) > 0


@pytest.mark.fault(125)
@pytest.mark.parametrize("make", ["hold()", "lead()"])
def test_nothing_of_a_block_keeps_its_task(make: str, zk: KazooClient, zk_path: str) -> None:
    """Thrown away as it wakes, it is gone at once.

    CPython 3.10 and 3.11 crash if the end of a coroutine frees the one that awaits it, as that of a block would.
    """
    tasks = weakref.WeakSet[Any]()

    async def call() -> None:
        tasks.add(asyncio.current_task())
        async with BLOCKS[make](zk, zk_path):
            pass

    gc.disable()
    try:
        # On a busy machine the replies may come before it falls asleep.
        assert any(in_a_loop_that_is_closed(call, Trap(1, waking=True, strikes=CLOSED)) for _ in range(100))
        assert not list(tasks)
    finally:
        gc.enable()
    eventually(lambda: not nodes(zk, zk_path), "no node is left")


async def within(scope: anyio.CancelScope, call: Call) -> None:
    """Make a call in a scope of anyio."""
    with scope:
        await call()
    assert scope.cancelled_caught
    raise asyncio.CancelledError


def until_it_is_stopped(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped, and close it."""
    loop.run_forever()
    loop.close()
    raise asyncio.CancelledError


async def struck_as_it_waits(scene: Scene, near: KazooClient, end: str, proxy: Proxy) -> None:
    """Run a scene whose call waits for others, and is ended there."""
    call = await anext(scene)
    assert call is not None
    if end == CLOSED:
        loop = asyncio.new_event_loop()
        kept = loop.create_task(outcome(call))  # as a program may do: nothing is garbage
        kept._log_destroy_pending = False  # type: ignore[attr-defined]
        task = asyncio.create_task(asyncio.to_thread(until_it_is_stopped, loop))
    else:
        scope = anyio.CancelScope()
        task = asyncio.create_task(within(scope, call))
    await idle(near)
    assert not task.done()
    if end == CLOSED:
        loop.call_soon_threadsafe(loop.stop)
    elif end == "anyio":
        scope.cancel()
    else:
        await asyncio.to_thread(proxy.stall)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    await asyncio.to_thread(proxy.resume)
    Session.of(near).wake_keeper()
    await anext(scene)
    with suppress(StopAsyncIteration):
        await scene.asend(CLOSED if end == CLOSED else CANCELLED)


ENDS = ("anyio", "stalled", CLOSED)
# Those whose cancelled calls wait for ZooKeeper, for a third of the session timeout at most.
CLEAN_UP = ("condition", "barrier", "double barrier", "queue, to get", "queue that is full, to put")
WAITS = [
    *(f"{make}, held elsewhere" for make in APART),
    "detached lock, held elsewhere",
    *("event", "latch", "value", "election, lead", "election, wait"),
    *CLEAN_UP,
]


@pytest.mark.parametrize(
    ("scene", "end"),
    [
        (scene, end)
        for end in ENDS
        for scene in WAITS
        if not (scene in CLEAN_UP and end == "stalled") and not (scene in BREAKS and end == CLOSED)
    ],
)
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
    monkeypatch.setattr(keeper_thread, "IDLE_BEAT", 0.0)
    zk = connect(hosts=proxy.hosts, timeout=60, **FAST)  # none ends with the session

    async def main() -> None:
        await struck_as_it_waits(SCENES[scene](zk, far, zk_path), zk, end, proxy)
        gc.collect()  # the errors of a group of tasks keep a queue, and so its member
        await until(lambda: not left(zk, far), "nothing is left")
        await until(lambda: not nodes(far, zk_path), "no node is left")

    run(main())


@pytest.mark.fault(82, 220)
@pytest.mark.parametrize("cancels", [1, 100])
def test_an_item_under_way(cancels: int, zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """It is back in its place before the cancellation goes on, so a program may stop its client at once."""
    client = connect(proxy.hosts)
    queue: aio.Queue[bytes] = aio.Queue(client, zk_path)

    async def main() -> None:
        await queue.put(b"one")
        with proxy.hold("multi", where=lambda message: not message.heartbeat) as held:
            task = asyncio.create_task(queue.get())
            await asyncio.to_thread(held.wait)
            for _ in range(cancels):
                task.cancel()
                await asyncio.sleep(0)
            await asyncio.sleep(0.1)
            assert not task.done()
            held.release()
            await cancelled(task)

    run(main())
    client.stop()
    assert zkconcurrent.Queue[bytes](zk, zk_path).get_nowait() == b"one"


@pytest.fixture
def slow(connect: Connect, proxy: Proxy) -> KazooClient:
    """A client whose requests are cancelled long before their replies."""
    client = connect(hosts=proxy.hosts)
    proxy.delay(ROUND_TRIP / 2)
    return client


async def begin_in_vain(lock: Any) -> None:
    """Begin to acquire, and be cancelled."""

    async def call() -> None:
        await lock.acquire()

    task = asyncio.create_task(call())
    await asyncio.sleep(0)
    task.cancel()
    await cancelled(task)


@pytest.mark.fault(255)
@pytest.mark.parametrize("kind", APART)
async def test_the_next_call_sees_a_free_lock(kind: str, slow: KazooClient, zk_path: str) -> None:
    """The node of a cancelled acquire blocks no call of this client that follows, at whatever moment."""
    lock, other = LOCKS[kind](slow, zk_path), AGAINST.get(kind, LOCKS[kind])(slow, zk_path)
    await lock.acquire()
    await lock.release()  # the path exists
    for behind in (0.0, 0.8, 1.7):
        await begin_in_vain(lock)
        await asyncio.sleep(behind * ROUND_TRIP)
        assert await other.acquire(blocking=False), f"{behind} round trips behind"
        await other.release()


@pytest.mark.fault(255)
async def test_a_lock_that_another_holds_is_not_free(slow: KazooClient, far: KazooClient, zk_path: str) -> None:
    """The next call is refused where somebody holds, ahead of the cancelled one or behind it."""
    lock, elsewhere = aio.Lock(slow, zk_path), aio.Lock(far, zk_path)
    async with elsewhere:
        await begin_in_vain(lock)
        assert not await lock.acquire(blocking=False)
    await begin_in_vain(lock)
    async with elsewhere:
        assert not await lock.acquire(blocking=False)
