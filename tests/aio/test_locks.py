"""The locks of tasks: asyncio's interface, mutual exclusion, losses, and queries."""

from __future__ import annotations

import asyncio
import math
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.calls import LOCKS
from tests.aio.loops import idle, nodes, run, soon, until
from tests.conftest import FAST, Connect, await_heartbeat
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import LockLostError, WaitCancelledError, aio
from zkconcurrent._engine.holds import PathState
from zkconcurrent._protocol.operations import Recipe
from zkconcurrent._recipes.event import Flag, turn
from zkconcurrent._threads.base.cancel import waits
from zkconcurrent.aio import _event, _twin
from zkconcurrent.testing import Server

TWINS = {
    "Lock": zkconcurrent.Lock,
    "RLock": zkconcurrent.RLock,
    "write lock": lambda client, path: zkconcurrent.ReadWriteLock(client, path).write_lock,
    "Semaphore": zkconcurrent.Semaphore,
}


@pytest.mark.parametrize("make", TWINS)
def test_threads_and_tasks_in_order(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Threads and tasks of one client, and of another process, get one path in the order in which they came."""
    order: list[int] = []
    lock, elsewhere = LOCKS[make](zk, zk_path), LOCKS[make](far, zk_path)
    inside = 0

    def enter(n: int) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        order.append(n)

    def leave() -> None:
        nonlocal inside
        inside -= 1

    def in_thread(n: int) -> None:
        with TWINS[make](zk, zk_path):  # type: ignore[operator]
            enter(n)
            leave()

    async def in_task(n: int, lock: Any) -> None:
        async with lock:
            enter(n)
            await asyncio.sleep(0)
            leave()

    async def main() -> None:
        await lock.acquire()
        waiting = []
        for n in range(9):
            waiting.append(
                asyncio.create_task(
                    asyncio.to_thread(in_thread, n) if n % 3 == 1 else in_task(n, elsewhere if n % 3 == 2 else lock)
                )
            )
            await until(lambda n=n: len(nodes(far, zk_path)) == n + 2)
        lock.release()
        await soon(asyncio.gather(*waiting))

    run(main())
    assert order == list(range(9))


@pytest.mark.parametrize("make", ["RLock", "read lock", "MultiLock"])
async def test_a_task_that_would_own_it_and_end(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A task made for an acquire alone is refused before anything is sent; so is wait_for, up to Python 3.11."""
    lock = aio.MultiLock([aio.RLock(zk, zk_path)]) if make == "MultiLock" else LOCKS[make](zk, zk_path)
    with pytest.raises(RuntimeError, match="timeout="):
        await asyncio.create_task(lock.acquire())
    if sys.version_info < (3, 12):
        with pytest.raises(RuntimeError, match="timeout="):
            await asyncio.wait_for(lock.acquire(), 5)
    else:
        assert await asyncio.wait_for(lock.acquire(), 5)
        await lock.release()
    assert not await asyncio.to_thread(nodes, far, zk_path)
    assert await lock.acquire(timeout=5)
    await lock.release()


@pytest.mark.parametrize("make", ["Lock", "RLock", "read lock", "Semaphore"])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
def test_a_loss(make: str, plain: bool, zookeeper: Server, connect: Connect, far: KazooClient, zk_path: str) -> None:
    """`lost` is set, `on_lost` runs on the loop that acquired, release raises once; then all is new."""
    zk = connect(timeout=4)
    told: list[tuple[Any, int]] = []

    def tell(lock: Any) -> None:
        told.append((lock, threading.get_ident()))

    async def tell_later(lock: Any) -> None:
        await asyncio.sleep(0)
        tell(lock)

    on_lost = tell if plain else tell_later
    if make.startswith(("read", "write")):
        pair = aio.ReadWriteLock(zk, zk_path, on_lost=on_lost)
        lock: Any = pair.read_lock if make == "read lock" else pair.write_lock
    else:
        lock = LOCKS[make](zk, zk_path, on_lost=on_lost)

    async def main() -> None:
        await lock.acquire()
        token, lost = lock.fencing_token, lock.lost
        assert not lost.is_set()
        waiting = asyncio.create_task(lost.wait())
        (node,) = await asyncio.to_thread(nodes, far, zk_path)
        await asyncio.to_thread(far.delete, node)
        assert await soon(waiting)
        assert lost.is_set()
        assert await lost.wait()
        await until(lambda: told)
        assert told == [(lock, threading.get_ident())]
        with pytest.raises(LockLostError):
            _ = lock.fencing_token
        with pytest.raises(LockLostError):
            await lock.acquire()
        with pytest.raises(LockLostError):
            lock.release()
        async with lock:
            assert lock.fencing_token > token
            assert not lock.lost.is_set()
            await asyncio.to_thread(zookeeper.expire, zk)
            await soon(lock.lost.wait())
            with pytest.raises(LockLostError):
                lock.release()
            await lock.acquire()
        await until(lambda: len(told) == 2)

    run(main())


@pytest.mark.fault(355)
@pytest.mark.parametrize("make", ["Lock", "RLock", "Semaphore", "MultiLock"])
async def test_a_hold_that_no_task_asks_about(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A plain thread, or a callback of the loop, is told of this process's newest hold."""
    lock: Any = LOCKS[make](zk, zk_path)

    def ask() -> tuple[bool, bool, bool]:
        return lock.lost.is_set(), lock.suspect, lock.remaining() > 0

    loop = asyncio.get_running_loop()
    async with lock:
        assert await asyncio.to_thread(ask) == (False, False, True)
        told = loop.create_future()
        loop.call_soon(lambda: told.set_result(ask()))
        assert await told == (False, False, True)
        lost = await asyncio.to_thread(lambda: lock.lost)
        for node in (await asyncio.to_thread(nodes, far, zk_path))[:2]:
            await asyncio.to_thread(far.delete, node)
        assert await soon(lost.wait())
        assert await asyncio.to_thread(lambda: lock.lost.is_set())
        with pytest.raises(LockLostError):
            lock.release()
        await lock.acquire()


@pytest.mark.fault(354)
@pytest.mark.parametrize("make", ["Lock", "MultiLock"])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_a_loss_after_a_try_on_another_loop(
    make: str, closed: bool, zk: KazooClient, far: KazooClient, zk_path: str
) -> None:
    """`on_lost` is called on the loop that holds the lock, not on one that has only tried since."""
    told: list[int] = []

    def on_lost(_: object) -> None:
        told.append(threading.get_ident())

    if make == "MultiLock":
        lock: Any = aio.MultiLock([aio.RLock(zk, f"{zk_path}/a"), aio.RLock(zk, f"{zk_path}/b")], on_lost=on_lost)
    else:
        lock = LOCKS[make](zk, zk_path, on_lost=on_lost)
    other = asyncio.new_event_loop()

    async def attempt() -> bool:
        return bool(await lock.acquire(blocking=False))

    def try_it() -> None:
        assert not other.run_until_complete(attempt())
        if closed:
            other.close()

    async def main() -> None:
        await lock.acquire()
        await asyncio.to_thread(try_it)
        (node, *_) = await asyncio.to_thread(nodes, far, zk_path)
        await asyncio.to_thread(far.delete, node)
        await until(lambda: told)
        assert told == [threading.get_ident()]
        with pytest.raises(LockLostError):
            lock.release()

    run(main())
    other.close()


@pytest.mark.fault(186)
def test_a_loss_that_a_release_of_several_finds(zk: KazooClient, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """An awaited release raises no error of it; so `lost` is set, and `on_lost` called, once."""
    told: list[object] = []
    mine = connect(proxy.hosts)
    lock = aio.MultiLock([aio.Lock(mine, f"{zk_path}/{name}") for name in "ab"], on_lost=told.append)

    async def main() -> None:
        await lock.acquire()
        lost = lock.lost
        # Until the release, the client hears nothing of it.
        proxy.stall(to_server=False)
        zk.delete(f"{zk_path}/a/{zk.get_children(f'{zk_path}/a')[0]}")
        released = lock.release()
        proxy.resume()
        await released
        await until(lambda: told)
        assert lost.is_set()
        async with lock:
            pass
        assert told == [lock]

    run(main())


@pytest.mark.fault(208)
def test_a_loss_that_is_found_at_once(
    zk: KazooClient, connect: Connect, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replies to the deletes of a release come before it returns, and nobody awaits it."""
    told: list[object] = []
    lock = aio.MultiLock([aio.Lock(zk, f"{zk_path}/{name}") for name in "ab"], on_lost=told.append)
    theirs, core = connect(), lock._core
    begin = core._begin_release

    def begun() -> Any:
        released = begin()
        for each, hold, _ in released[0]:
            eventually(lambda each=each, hold=hold: each.session.is_discarded(hold.ticket))
        return released

    async def main() -> None:
        await lock.acquire()
        lost = lock.lost
        await asyncio.to_thread(await_heartbeat, zk)  # another one would find the loss before the release
        theirs.delete(f"{zk_path}/a/{theirs.get_children(f'{zk_path}/a')[0]}")
        monkeypatch.setattr(core, "_begin_release", begun)
        lock.release()
        await until(lambda: told)
        assert lost.is_set()
        assert told == [lock]

    asyncio.run(main())  # `begun` blocks the loop, which `run` would report


@pytest.mark.parametrize("make", ["Lock", "read lock", "Semaphore"])
async def test_locked_as_last_seen(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Acts of this process show at once; a loop that asks again and again sees those of others."""
    lock, other = LOCKS[make](zk, zk_path), LOCKS[make](far, zk_path)
    assert not lock.locked()
    async with lock:
        assert lock.locked()
        assert not lock.suspect
        assert await lock.fetch_locked()
    assert not lock.locked()
    async with other:
        assert await lock.fetch_locked()
        assert lock.locked()
        owner = await lock.owner()
        assert owner is not None
        assert owner.thread == asyncio.current_task().get_name()  # type: ignore[union-attr]
        assert await lock.waiters() == []
    await until(lambda: not lock.locked(), "it is seen")
    assert not await lock.fetch_locked()
    assert await lock.owner() is None


async def test_a_completion_of_several(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Any number of tasks, of any loops, and nobody at all, await what a plain method has begun."""
    lock, event = aio.Lock(zk, zk_path), aio.Event(far, f"{zk_path}-event")

    async def both(*completions: aio.Completion) -> None:
        await asyncio.gather(*(await_it(each) for each in completions for _ in range(3)))

    async def await_it(completion: aio.Completion) -> None:
        await completion
        assert completion.done()

    await lock.acquire()
    completions = lock.release(), event.set()
    await asyncio.gather(
        both(*completions), asyncio.to_thread(lambda: asyncio.run(both(*completions))), both(*completions)
    )
    await both(*completions)
    event.clear()  # nobody awaits it
    await until(lambda: zkconcurrent.Event(zk, f"{zk_path}-event").is_set() is False)


def test_the_last_line(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A `set()`, a `count_down()` and a `release()` in the last line of a program's main reach the server."""
    event, latch, lock = aio.Event(zk, f"{zk_path}-e"), aio.CountDownLatch(zk, f"{zk_path}-l", 1), aio.Lock(zk, zk_path)

    async def main() -> None:
        await lock.acquire()
        event.set()
        latch.count_down()
        lock.release()

    run(main())
    assert zkconcurrent.Event(far, f"{zk_path}-e").wait(20)
    assert zkconcurrent.CountDownLatch(far, f"{zk_path}-l", 1).wait(20)
    with zkconcurrent.Lock(far, zk_path):
        pass


def test_two_loops(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """One object serves several loops, one after the other and at once."""
    lock = aio.Lock(zk, zk_path)
    counted = 0

    async def main() -> None:
        nonlocal counted
        for _ in range(20):
            async with lock:
                seen = counted
                await asyncio.sleep(0)
                counted = seen + 1

    async def twice() -> None:
        await asyncio.gather(main(), asyncio.to_thread(lambda: asyncio.run(main())))

    run(main())
    run(twice())
    assert counted == 60
    assert not nodes(far, zk_path)


@pytest.mark.fault(392)
@pytest.mark.parametrize("make", [aio.Lock, aio.RLock], ids=lambda make: make.__name__)
@pytest.mark.parametrize("call", ["wait", "wait_for"])
async def test_a_task_that_only_waits_for_a_condition(make: Any, call: str, zk: KazooClient, zk_path: str) -> None:
    """It does not hold an RLock, and is told so; with a Lock, which belongs to no task, it waits."""
    condition = aio.Condition(zk, zk_path, make(zk, f"{zk_path}/lock"))
    arguments = [bool] if call == "wait_for" else []
    async with condition:
        waiting = asyncio.create_task(getattr(condition, call)(*arguments, timeout=0.05))
        if make is aio.RLock:
            with pytest.raises(RuntimeError, match=rf"Await {call}\(timeout="):
                await waiting
        else:
            assert await waiting is False
        if sys.version_info >= (3, 12) or make is aio.Lock:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(getattr(condition, call)(*arguments), 0.05)


def test_the_twin_of_threads_after_the_holder(zk: KazooClient, zk_path: str) -> None:
    """A call in the loop may wait for a lock of a task that has ended: a thread may release it."""
    lock, twin = aio.Lock(zk, zk_path), zkconcurrent.Lock(zk, zk_path)

    async def own() -> None:
        assert await lock.acquire()

    async def main() -> None:
        await asyncio.create_task(own())
        release = threading.Timer(0.1, twin.release)
        release.start()
        with pytest.warns(RuntimeWarning, match="running event loop"):
            assert twin.acquire(timeout=10)
        release.join()
        twin.release()

    asyncio.run(main())  # without a watch over the loop, which stops


@pytest.mark.parametrize("make", ["Lock", "read lock", "MultiLock"])
def test_the_twin_of_threads_in_the_loop(make: str, zk: KazooClient, zk_path: str) -> None:
    """A call of the threads' twin that would stop the loop until one of the loop's own tasks releases is refused."""
    lock = LOCKS[make](zk, zk_path)
    pair = zkconcurrent.ReadWriteLock(zk, zk_path) if make in ("read lock", "write lock") else None
    twin: Any
    if make == "MultiLock":
        twin = zkconcurrent.MultiLock([zkconcurrent.RLock(zk, f"{zk_path}/b"), zkconcurrent.Lock(zk, f"{zk_path}/a")])
    else:
        twin = getattr(zkconcurrent, make)(zk, zk_path) if pair is None else pair.write_lock

    async def main() -> None:
        async with lock:
            for options in ({}, {"timeout": 5}):
                with pytest.raises(RuntimeError, match=f"holds {zk_path}.* zkconcurrent.aio instead"):
                    twin.acquire(**options)
            assert not twin.acquire(blocking=False)
            assert not await asyncio.to_thread(twin.acquire, timeout=0.05)
            if make == "read lock":
                assert pair is not None
                with pytest.warns(RuntimeWarning, match="running event loop"):
                    pair.read_lock.acquire()
                pair.read_lock.release()

        def use() -> None:
            with twin:
                pass

        await asyncio.to_thread(use)

    run(main())


@pytest.mark.fault(120)
@pytest.mark.parametrize("looked_up", [False, True])
def test_a_detached_lock_that_is_released_and_acquired_again(
    looked_up: bool, connect: Connect, proxy: Proxy, zk: KazooClient, zk_path: str
) -> None:
    """An acquire does not take for the owner's the hold that a release in the background is about to end: fault 120."""
    client = connect(hosts=proxy.hosts, timeout=20, **FAST)
    busy, lock, again = (aio.DetachedLock(client, f"{zk_path}/{name}", "job") for name in ("busy", "lock", "lock"))

    async def acquire() -> bool:
        return await lock.acquire(timeout=20)

    async def main() -> None:
        await busy.acquire()
        await lock.acquire()
        with proxy.hold("delete") as fault:
            busy.release()  # the next release waits for this
            await until(fault.injected.is_set)
            (again if looked_up else lock).release()
            assert again.hold_count() == 0
            acquiring = asyncio.ensure_future(acquire())
            await asyncio.sleep(0.05)
            assert not acquiring.done()
        assert await acquiring
        assert zk.get_children(lock.path)
        assert lock.hold_count() == 1
        await lock.release()
        assert not zk.get_children(lock.path)

    run(main())


@pytest.mark.fault(120)
def test_a_detached_lock_whose_release_takes_long(connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """An acquire waits for it up to its deadline, or until it is told to end: fault 120."""
    lock = aio.DetachedLock(connect(hosts=proxy.hosts, timeout=20, **FAST), zk_path, "job")

    async def main() -> None:
        await lock.acquire()
        proxy.refuse()
        proxy.cut()
        await until(lambda: not lock.client.connected)
        released = lock.release()
        assert lock.hold_count() == 0
        assert not await lock.acquire(timeout=0.05)
        assert not await lock.acquire(blocking=False)
        acquiring = asyncio.ensure_future(lock.acquire())
        await until(lambda: waits(lock._core._session.calls, lock._core._lock_core.queue_key))
        assert lock.cancel_waits() == 1
        with pytest.raises(WaitCancelledError):
            await acquiring
        acquiring = asyncio.ensure_future(lock.acquire())
        await asyncio.sleep(0.05)
        proxy.resume()
        assert await acquiring
        assert released.done()
        await lock.release()

    run(main())


@pytest.mark.fault(226)
def test_a_late_reply_undoes_nothing(
    zk: KazooClient, far: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain query whose reply is seen late undoes nothing that this process has done meanwhile."""
    locks = [kind(zk, f"{zk_path}-{n}") for n, kind in enumerate((aio.Lock, aio.Semaphore))]
    event = aio.Event(zk, zk_path)
    seen: list[object] = []
    go_on = threading.Event()
    note = PathState.note_holders

    def late(state: PathState, role: str, nodes: Sequence[str], grants: int) -> None:
        seen.append(len(nodes))
        go_on.wait()
        note(state, role, nodes, grants)

    def looking(path: str, value: bool) -> Recipe[Flag]:
        go_on.wait()
        seen.append(event.is_set())  # between the two replies
        return (yield from turn(path, value))

    async def main() -> None:
        for lock in locks:
            async with type(lock)(far, lock.path):
                with monkeypatch.context() as patch:
                    patch.setattr(PathState, "note_holders", late)
                    assert not lock.locked()
                    await until(lambda: seen)
            async with lock:
                pass
            assert not lock.locked()
            go_on.set()
            await idle(zk)
            assert seen == [1]
            assert not lock.locked()
            seen.clear()
            go_on.clear()
        monkeypatch.setattr(_event, "turn", looking)
        for wanted in (True, False):
            event._queries.clear()
            assert event.is_set() is not wanted
            turning = event.set() if wanted else event.clear()
            go_on.set()
            await turning
            assert seen.pop() is wanted
            go_on.clear()

    monkeypatch.setattr(_twin, "REFRESH", math.inf)  # each asks once
    run(main())


async def test_a_busy_process_sees_others(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A process that acquires and releases again and again still sees, by plain queries, that others hold."""
    one = aio.ReadWriteLock(zk, zk_path).read_lock
    other = aio.ReadWriteLock(far, zk_path).read_lock
    seen = []

    async def pass_by() -> None:
        while not any(seen):
            async with one:
                await asyncio.sleep(0)
            seen.append(one.locked())

    async with other:
        await asyncio.wait_for(asyncio.gather(*(pass_by() for _ in range(3))), 20)


async def test_what_this_process_has_done_shows_at_once(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Also where another object of the path has released it, a semaphore was resized, or a clear follows a set.

    What others have done shows to a loop that asks again and again.
    """
    one, other = (aio.Lock(zk, f"{zk_path}/lock") for _ in range(2))
    async with one:
        assert await other.fetch_locked()
    assert not other.locked()
    semaphore, elsewhere = (aio.Semaphore(client, f"{zk_path}/semaphore") for client in (zk, far))
    await elsewhere.acquire()
    assert await semaphore.fetch_locked()
    await semaphore.resize(5)
    assert not semaphore.locked()
    await elsewhere.resize(1)
    await until(semaphore.locked, "the resize is seen")
    await elsewhere.release()
    event = aio.Event(zk, f"{zk_path}/event")
    event.set()
    cleared = event.clear()
    while not cleared.done():
        assert not event.is_set()
        await asyncio.sleep(0)
    assert not event.is_set()
    await aio.Event(far, event.path).set()
    await until(event.is_set, "it is seen")


async def test_queries_do_not_queue_up(
    counted: KazooClient, proxy: Proxy, zk_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the server does not answer, a plain query is not sent again and again."""
    monkeypatch.setattr(_twin, "REFRESH", 0.0)
    lock = aio.Lock(counted, zk_path)
    with proxy.counting() as count:
        with proxy.hold("getChildren") as held:
            assert not lock.locked()
            await asyncio.to_thread(held.wait)
            for _ in range(3):
                assert not lock.locked()
        await idle(counted)
        assert count.requests["getChildren"] == 1
        assert not lock.locked()
        await until(lambda: count.requests["getChildren"] == 2)
