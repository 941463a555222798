"""Tasks and loops that end while a call waits, or while they hold: the library releases what only they may release."""

from __future__ import annotations

import asyncio
import gc
import textwrap
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.calls import AGAINST, BLOCKS, LOCKS
from tests.aio.loops import idle, nodes, run, soon, until
from tests.conftest import PATIENCE
from tests.helpers.eventually import eventually
from tests.helpers.processes import run_python
from zkconcurrent import aio
from zkconcurrent.testing import Server

OWNED: dict[str, Any] = {
    "RLock": aio.RLock,
    "MultiLock": lambda client, path: aio.MultiLock([aio.RLock(client, f"{path}/a"), aio.RLock(client, f"{path}/b")]),
}


@pytest.mark.fault(42)
@pytest.mark.parametrize("make", OWNED)
@pytest.mark.parametrize("end", ["returns", "cancelled"])
def test_a_task_that_ends_with_a_hold(
    make: str, end: str, zk: KazooClient, far: KazooClient, zk_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The library releases a lock that only its task may release when that task ends, and warns.

    The log tells of it, too.
    """
    lock, rival = OWNED[make](zk, zk_path), AGAINST.get(make, aio.RLock)(far, zk_path)

    async def own() -> None:
        for _ in range(2):  # at any depth
            assert await lock.acquire()
        if end == "cancelled":
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(own(), name="forgetful")
        await idle(zk, far)
        waiting = asyncio.create_task(enter())  # not before: a rival that comes first waits for nothing
        await idle(zk, far)
        task.cancel()
        await asyncio.wait([task])
        await soon(waiting)
        async with lock:  # a task that comes later has nothing to do with it
            pass
        await until(lambda: not nodes(far, zk_path))
        await until(lambda: "the task that held it has ended without releasing it" in caplog.text)

    async def enter() -> None:
        async with rival:
            pass

    with pytest.warns(ResourceWarning, match="forgetful has ended without releasing .*which the library releases"):
        run(main())
    for core in lock._lock_cores():
        assert not any(core.path_state.holds.values())


@pytest.mark.fault(135)
@pytest.mark.parametrize(("make", "block"), [("RLock", "condition"), ("Lock", "hold")])
def test_a_waiter_that_is_thrown_away_beside_a_holder(
    make: str, block: str, zk: KazooClient, far: KazooClient, zk_path: str
) -> None:
    """The end of a task that is collected in `Condition.wait` leaves the hold of another task."""
    condition = aio.Condition(zk, zk_path, LOCKS[make](zk, f"{zk_path}-lock"))
    lock: Any = condition._lock

    async def wait() -> None:
        async with lock.hold() if block == "hold" else condition:
            await condition.wait()

    async def main() -> weakref.ref[asyncio.Task[None]]:
        task = asyncio.create_task(wait())
        await idle(zk)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        return weakref.ref(task)

    async def other() -> None:
        async with lock:
            token = lock.fencing_token
            gc.collect()
            assert waiter() is None
            assert lock.hold_count() == 1
            assert lock.fencing_token == token
            assert await asyncio.to_thread(nodes, far, f"{zk_path}-lock")

    loop = asyncio.new_event_loop()
    gc.disable()
    try:
        waiter = loop.run_until_complete(main())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        del loop
        eventually(lambda: not nodes(far, zk_path), "the keeper has abandoned the wait")
        asyncio.run(other())
    finally:
        gc.enable()
    eventually(lambda: not nodes(far, f"{zk_path}-lock"), "nothing holds the lock")


def thrown_away(loop: asyncio.AbstractEventLoop, stay: Callable[[asyncio.Event], Any]) -> None:
    """Run a task until it has set its event, close its loop, and leave it to the garbage collector."""
    inside = asyncio.Event()
    task = loop.create_task(stay(inside))
    loop.run_until_complete(inside.wait())
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.mark.fault(125, 141)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("make", [*BLOCKS, "claim()"])
def test_a_block_whose_loop_is_closed(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A task that is thrown away in its block keeps nothing, although its client lives on."""
    queue, elsewhere = aio.Queue[bytes](zk, f"{zk_path}-q"), zkconcurrent.Queue[bytes](far, f"{zk_path}-q")
    elsewhere.put(b"one")

    async def stay(inside: asyncio.Event) -> None:
        async with queue.claim() if make == "claim()" else BLOCKS[make](zk, zk_path):
            inside.set()
            await asyncio.Event().wait()

    thrown_away(asyncio.new_event_loop(), stay)
    gc.collect()
    assert elsewhere.get(timeout=PATIENCE) == b"one"
    eventually(lambda: not nodes(far, zk_path), "what its block kept is gone")


def test_an_owner_whose_loop_is_closed(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """So does one that is thrown away with a lock which only it may release."""
    lock = aio.RLock(zk, zk_path)

    async def stay(inside: asyncio.Event) -> None:
        assert await lock.acquire()
        inside.set()
        await asyncio.Event().wait()

    thrown_away(asyncio.new_event_loop(), stay)
    gc.collect()
    eventually(lambda: not nodes(far, zk_path), "the holder's node is gone")


def test_interrupted(zookeeper: Server, far: KazooClient, zk_path: str) -> None:
    """KeyboardInterrupt in `asyncio.run` leaves no node, and the client goes on."""
    program = f"""
        import asyncio, os, signal
        from kazoo.client import KazooClient
        from zkconcurrent import aio

        zk = KazooClient({zookeeper.hosts!r})
        zk.start()
        lock = aio.Lock(zk, {zk_path!r})

        async def wait():
            await lock.acquire()

        async def main():
            async with lock:
                waiting = asyncio.create_task(wait())
                while len(zk.get_children({zk_path!r})) < 2:
                    await asyncio.sleep(0.01)
                signal.raise_signal(signal.SIGINT)
                await waiting

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            pass
        while zk.get_children({zk_path!r}):
            pass
        asyncio.run(wait())  # kazoo's thread lives
        print(len(zk.get_children({zk_path!r})))
        zk.stop()
    """
    done = run_python("-W", "error", "-c", textwrap.dedent(program))
    assert done.stdout.strip() == "1", done.stderr
    eventually(lambda: not nodes(far, zk_path))
