"""The cancellation contract, clause by clause: faults, moments that meet, and loops that end."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.aio.calls import AGAINST, LOCKS
from tests.aio.loops import idle, left, nodes, run, soon, until
from tests.conftest import FAST, Connect, Eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import LockLostError, aio
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

every = pytest.mark.parametrize("make", LOCKS)


async def cancelled(task: asyncio.Task[Any]) -> None:
    """Wait until a task that is being cancelled has ended so."""
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


def owning(acquire: Callable[[], Any]) -> asyncio.Task[Any]:
    """Acquire in a task that does more than that."""

    async def own() -> object:
        return await acquire()

    return asyncio.create_task(own())


@every
def test_true_means_held(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Clause 3: acquire returns True, a cancel that comes after it changes nothing, and the lock is held."""
    lock, other = LOCKS[make](zk, zk_path), AGAINST.get(make, LOCKS[make])(far, zk_path)

    async def main() -> None:
        async def own() -> bool:
            assert await lock.acquire()
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(0)
            assert not await other.acquire(blocking=False)
            await lock.release()
            return True

        assert await asyncio.create_task(own())
        assert await other.acquire(timeout=10)
        await other.release()

    run(main())


@every
def test_granted_and_cancelled_together(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Clause 2: the waiter that is granted the lock as it is cancelled hands it on to the next in line."""
    against = AGAINST.get(make, LOCKS[make])
    lock, held, behind = LOCKS[make](zk, zk_path), against(far, zk_path), against(zk, zk_path)

    async def main() -> None:
        for locally in (False, True):
            holder = against(zk, zk_path) if locally else held
            await holder.acquire()
            first = owning(lock.acquire)
            await idle(zk)
            got, over = asyncio.Event(), asyncio.Event()
            second = asyncio.create_task(hold_until(over, got))
            await idle(zk)
            holder.release()  # hands it to a task of this client in this very moment
            first.cancel()
            await cancelled(first)
            await soon(got.wait())
            await until(lambda: len(nodes(far, zk_path)) <= (3 if "permits" in make else 2))
            hold = behind._lock_core.newest() if hasattr(behind, "_lock_core") else None
            assert hold is None or hold.alive
            over.set()
            await second
        await until(lambda: not nodes(far, zk_path))

    async def hold_until(over: asyncio.Event, got: asyncio.Event) -> None:
        await behind.acquire()
        got.set()
        await over.wait()
        behind.release()

    run(main())


@every
def test_clean_up_never_suspends(make: str, connect: Connect, far: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """Clauses 1 and 4: while nothing is answered, a cancelled task ends at once, and its node goes afterwards."""
    zk = connect(hosts=proxy.hosts, **FAST)
    lock, held = LOCKS[make](zk, zk_path), AGAINST.get(make, LOCKS[make])(far, zk_path)
    session = zk.client_id[0]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await held.acquire()
        waiting = owning(lock.acquire)
        await idle(zk)
        there = len(await asyncio.to_thread(nodes, far, zk_path, session))
        assert there == (2 if make == "MultiLock" else 1) or "unfair" in make
        await asyncio.to_thread(proxy.stall)
        began = loop.time()
        waiting.cancel()
        await cancelled(waiting)
        assert loop.time() - began < 2
        late = owning(lock.acquire)  # one whose create is not answered
        await asyncio.sleep(0.05)
        late.cancel()
        await cancelled(late)
        assert loop.time() - began < 3
        await asyncio.to_thread(proxy.resume)
        await until(lambda: not nodes(far, zk_path, session))
        await held.release()
        assert await lock.acquire(timeout=10)
        await lock.release()
        await until(lambda: not left(zk))

    run(main())


@every
def test_cancelled_while_out_of_reach(
    make: str, connect: Connect, far: KazooClient, zk_path: str, proxy: Proxy
) -> None:
    """Clause 1: nobody answers, or takes connections; the delete is owed by the session, and done when it is back."""
    zk = connect(hosts=proxy.hosts, **FAST)
    lock, held = LOCKS[make](zk, zk_path), AGAINST.get(make, LOCKS[make])(far, zk_path)
    session = zk.client_id[0]

    async def main() -> None:
        await held.acquire()
        waiting = [owning(lock.acquire) for _ in range(3)]
        await idle(zk)
        await asyncio.to_thread(proxy.refuse)
        await asyncio.to_thread(proxy.cut)
        await until(lambda: not zk.connected)
        new = owning(lock.acquire)
        await asyncio.sleep(0.02)
        for task in (*waiting, new):
            task.cancel()
            await cancelled(task)
        await asyncio.to_thread(proxy.resume)
        await until(lambda: not nodes(far, zk_path, session))
        await held.release()
        assert await lock.acquire(timeout=10)
        await lock.release()
        await until(lambda: not left(zk))

    run(main())


def test_a_wait_takes_its_lock_back(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Clause 6: a cancelled wait goes on waiting for its lock, despite further cancels, and ends with the lock held."""
    mine, theirs = aio.Condition(zk, zk_path), aio.Condition(far, zk_path)

    async def main() -> None:
        async def wait() -> None:
            await mine.acquire()
            try:
                await mine.wait()
            finally:
                assert mine._lock.fencing_token
                assert not await theirs.acquire(blocking=False)
                mine.release()

        task = asyncio.create_task(wait())
        await idle(zk)
        async with theirs:
            for _ in range(5):
                task.cancel()
                await idle(zk)
                assert not task.done()
        await cancelled(task)
        await until(lambda: not nodes(far, zk_path))

    run(main())


def test_a_notification_is_not_lost(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Clause 6: one that was notified, and is cancelled before it has its lock back, has another waiter notified."""
    mine, theirs = aio.Condition(zk, zk_path), aio.Condition(far, zk_path)

    async def main() -> None:
        async def wait(condition: aio.Condition) -> bool:
            async with condition:
                return await condition.wait()

        first = asyncio.create_task(wait(mine))
        await idle(zk)
        second = asyncio.create_task(wait(theirs))
        await idle(far)
        async with theirs:
            await theirs.notify()
            await idle(zk)
            first.cancel()
        await cancelled(first)
        assert await soon(second)
        await until(lambda: not nodes(far, zk_path))

    run(main())


def test_a_wait_that_is_cut_off(connect: Connect, far: KazooClient, zk_path: str, proxy: Proxy) -> None:
    """Clause 6: cancelled while the service is out of reach, it ends in bounded time; its lock is a loss."""
    zk = connect(hosts=proxy.hosts, timeout=4, **FAST)
    mine, theirs = aio.Condition(zk, zk_path), aio.Condition(far, zk_path)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def wait() -> None:
            async with mine:
                try:
                    await mine.wait()
                finally:
                    with pytest.raises(LockLostError):
                        mine.release()
                    with pytest.raises(RuntimeError):
                        mine.release()
                    await mine.acquire()  # the end of the block releases

        task = asyncio.create_task(wait())
        await idle(zk)
        await asyncio.to_thread(proxy.refuse)
        await asyncio.to_thread(proxy.cut)
        await until(lambda: not zk.connected)
        began = loop.time()
        task.cancel()
        await asyncio.sleep(2.5)
        await asyncio.to_thread(proxy.resume)
        await soon(asyncio.wait([task]))
        assert task.cancelled()
        assert loop.time() - began < 15
        await until(lambda: not nodes(far, zk_path))
        async with theirs:
            await theirs.notify()
        await until(lambda: not left(zk, far))

    run(main())


WAITS: dict[str, Callable[[KazooClient, str], Any]] = {
    **{make: (lambda client, path, make=make: LOCKS[make](client, path).acquire()) for make in LOCKS},
    "event": lambda client, path: aio.Event(client, path).wait(),
    "latch": lambda client, path: aio.CountDownLatch(client, path, 1).wait(),
    "value": lambda client, path: aio.SharedValue(client, path, b"").wait_for(bool),
    "condition": lambda client, path: wait_on(aio.Condition(client, path)),
}


async def wait_on(condition: aio.Condition) -> None:
    """Wait to be notified."""
    async with condition:
        await condition.wait()


@pytest.mark.parametrize("wait", WAITS)
def test_loops_that_are_closed(
    wait: str, zk: KazooClient, far: KazooClient, zk_path: str, eventually: Eventually
) -> None:
    """Clause 7: a loop is closed, and its task never ended: the call is abandoned, and its node goes."""
    session = zk.client_id[0]
    loops, kept = 100 if wait == "Lock" else 10, []
    rival = AGAINST.get(wait, LOCKS[wait])(far, zk_path) if wait in LOCKS else None

    async def acquire(call: Callable[[], Any]) -> None:
        await call()

    async def hold() -> None:
        if rival is not None:
            await rival.acquire()
            held.set()
            await over.wait()
            await rival.release()

    async def settle() -> None:
        await idle(zk)

    holding = asyncio.new_event_loop()
    held, over = asyncio.Event(), asyncio.Event()
    owner = holding.create_task(hold())
    holding.run_until_complete(held.wait() if rival is not None else settle())
    for _ in range(loops):
        loop = asyncio.new_event_loop()
        task = loop.create_task(acquire(lambda: WAITS[wait](zk, zk_path)))
        loop.run_until_complete(settle())
        assert not task.done()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        kept.append(task)
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
    # Kept, as a program may: nothing is garbage.
    eventually(lambda: not nodes(far, zk_path, session), "the nodes of closed loops are gone")
    over.set()
    holding.run_until_complete(owner)
    holding.run_until_complete(holding.shutdown_default_executor())
    holding.close()
    gc.collect()
    kept.clear()
    gc.collect()
    eventually(lambda: not left(zk), "the client knows of no call")


OWNED: dict[str, Any] = {
    **{make: LOCKS[make] for make in ("RLock", "unfair RLock", "read lock", "write lock")},
    "MultiLock": lambda client, path: aio.MultiLock([aio.RLock(client, f"{path}/a"), aio.RLock(client, f"{path}/b")]),
}


@pytest.mark.parametrize("make", OWNED)
@pytest.mark.parametrize("end", ["returns", "raises", "cancelled"])
def test_a_task_that_ends_with_a_hold(make: str, end: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """The library releases a lock that only its task may release when that task ends, and warns."""
    lock, rival = OWNED[make](zk, zk_path), AGAINST.get(make, LOCKS[make])(far, zk_path)

    async def own() -> None:
        assert await lock.acquire()
        if make != "read lock":
            assert await lock.acquire()  # at any depth
        if end == "raises":
            raise ZeroDivisionError
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

    async def enter() -> None:
        async with rival:
            pass

    with pytest.warns(ResourceWarning, match="forgetful has ended without releasing .*which the library releases"):
        run(main())
    for core in lock._lock_cores():
        assert not any(core.path_state.holds.values())


@pytest.mark.parametrize("make", ["Lock", "Semaphore"])
def test_a_task_that_leaves_its_hold_to_others(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A lock that any task may release stays held after the task that acquired it, without a warning."""
    lock = LOCKS[make](zk, zk_path)

    async def main() -> None:
        await owning(lock.acquire)
        await asyncio.sleep(0.2)
        assert await asyncio.to_thread(nodes, far, zk_path)
        await lock.release()

    run(main())


def test_a_generator_beside_permits_that_are_left(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A generator that is closed gives one permit back, and leaves those of tasks that have ended."""
    semaphore = aio.Semaphore(zk, zk_path, 4)

    async def numbers() -> AsyncIterator[int]:
        async with semaphore:
            yield 1

    async def main() -> None:
        for _ in range(3):
            await owning(semaphore.acquire)
        for _ in range(2):
            generator: Any = numbers()
            assert await generator.__anext__()
            assert len(await asyncio.to_thread(nodes, far, zk_path)) == 4
            await generator.aclose()
            await until(lambda: len(nodes(far, zk_path)) < 4)
            await idle(zk)
            assert len(await asyncio.to_thread(nodes, far, zk_path)) == 3
        await semaphore.release(3)

    run(main())


@pytest.mark.parametrize("make", OWNED)
def test_a_generator_after_a_task_that_has_forgotten(
    make: str, zk: KazooClient, far: KazooClient, zk_path: str
) -> None:
    """A generator that is closed releases, also after a task that ended while it held the same lock."""
    lock = OWNED[make](zk, zk_path)

    async def numbers() -> AsyncIterator[int]:
        async with lock:
            yield 1

    async def main() -> None:
        with pytest.warns(ResourceWarning, match="has ended without releasing"):
            await owning(lock.acquire)
            await until(lambda: not nodes(far, zk_path))
        gc.collect()
        generator: Any = numbers()
        assert await generator.__anext__()
        await generator.aclose()
        await until(lambda: not nodes(far, zk_path))

    run(main())


@pytest.mark.parametrize("make", OWNED)
def test_a_holder_that_is_thrown_away(
    make: str, zk: KazooClient, far: KazooClient, zk_path: str, eventually: Eventually
) -> None:
    """A task that the garbage collector takes, with its loop, holds nothing any more."""
    lock = OWNED[make](zk, zk_path)

    async def hold() -> None:
        assert await lock.acquire()
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(hold())
        await idle(zk)
        task._log_destroy_pending = False  # type: ignore[attr-defined]

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_default_executor())
    assert nodes(far, zk_path)
    loop.close()
    del loop
    gc.collect()
    eventually(lambda: not nodes(far, zk_path), "the node is gone")


def test_a_reader_that_is_thrown_away_beside_another(
    zk: KazooClient, far: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a task that is collected while another runs, with the same read lock held, leaves the other's hold."""
    monkeypatch.setattr(Session, "wake_keeper", Session.sweep)  # the keeper may be as quick
    read, write = LOCKS["read lock"](zk, zk_path), LOCKS["write lock"](far, zk_path)

    async def hold() -> None:
        async with read, read:
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(hold())
        await idle(zk)
        task._log_destroy_pending = False  # type: ignore[attr-defined]

    async def other() -> None:
        async with read:
            assert len(await asyncio.to_thread(nodes, far, zk_path)) == 2
            gc.collect()
            await until(lambda: len(nodes(far, zk_path)) == 1)
            assert not await write.acquire(blocking=False)
            assert read.fencing_token
        assert await write.acquire(timeout=10)
        write.release()

    for _ in range(2):
        loop = asyncio.new_event_loop()
        gc.disable()
        try:
            loop.run_until_complete(main())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
            del loop
            asyncio.run(other())  # not `run`, which has the garbage collector look at nothing made before
        finally:
            gc.enable()


@pytest.mark.parametrize(
    ("make", "block"),
    [("Lock", "condition"), ("RLock", "condition"), ("write lock", "condition"), ("Lock", "hold"), ("RLock", "lock")],
)
def test_a_waiter_that_is_thrown_away_beside_a_holder(
    make: str, block: str, zk: KazooClient, far: KazooClient, zk_path: str, eventually: Eventually
) -> None:
    """Fault 135: the end of a task that is collected in `Condition.wait` leaves the hold of another task."""
    condition = aio.Condition(zk, zk_path, LOCKS[make](zk, f"{zk_path}-lock"))
    lock: Any = condition._lock

    async def wait() -> None:
        async with lock.hold() if block == "hold" else lock if block == "lock" else condition:
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

    async def last() -> None:
        generator: Any = holding()
        assert await generator.__anext__()
        await generator.aclose()  # of a task that lives: it releases

    async def holding() -> AsyncIterator[int]:
        async with lock:
            yield 1

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
    asyncio.run(last())
    eventually(lambda: not nodes(far, f"{zk_path}-lock"), "nothing holds the lock")


@pytest.mark.parametrize("make", ["Lock", "RLock", "write lock", "Semaphore", "MultiLock"])
def test_a_holder_whose_loop_is_closed(
    make: str, zk: KazooClient, far: KazooClient, zk_path: str, eventually: Eventually
) -> None:
    """Clause 7: a task that is thrown away in its `async with` holds nothing any more."""
    lock = LOCKS[make](zk, zk_path)

    async def hold() -> None:
        async with lock:
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(hold())
        await idle(zk)
        task._log_destroy_pending = False  # type: ignore[attr-defined]

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_default_executor())
    assert nodes(far, zk_path)
    loop.close()
    del loop
    gc.collect()
    eventually(lambda: not nodes(far, zk_path), "the holder's node is gone")


def test_interrupted(zookeeper: Server, far: KazooClient, zk_path: str, eventually: Eventually) -> None:
    """Clause 7: KeyboardInterrupt in `asyncio.run` leaves no node, and the client goes on."""
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
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "1", done.stderr
    eventually(lambda: not nodes(far, zk_path))
