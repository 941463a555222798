"""The locks of tasks: asyncio's interface, mutual exclusion, losses, and queries."""

from __future__ import annotations

import asyncio
import math
import pickle
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.calls import AGAINST, LOCKS, Permits
from tests.aio.loops import idle, nodes, run, soon, until
from tests.conftest import FAST, Connect
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import LockLostError, WaitCancelledError, aio
from zkconcurrent._engine.holds import PathState
from zkconcurrent._protocol.operations import Recipe
from zkconcurrent._recipes.event import Flag, turn
from zkconcurrent._threads.base.cancel import waits
from zkconcurrent.aio import _event, _twin
from zkconcurrent.testing import Server

every = pytest.mark.parametrize("make", LOCKS)
OWNED = ("RLock", "unfair RLock", "read lock", "write lock", "MultiLock")
owned = pytest.mark.parametrize("make", OWNED)
TWINS = {
    "Lock": zkconcurrent.Lock,
    "RLock": zkconcurrent.RLock,
    "write lock": lambda client, path: zkconcurrent.ReadWriteLock(client, path).write_lock,
    "Semaphore": zkconcurrent.Semaphore,
}


@every
async def test_asyncios_interface(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Acquire returns True; a try and a deadline return False; release returns at once; `async with` does both."""
    lock, other = LOCKS[make](zk, zk_path), AGAINST.get(make, LOCKS[make])(far, zk_path)
    assert await lock.acquire() is True
    assert await other.acquire(blocking=False) is False
    assert await other.acquire(timeout=0.05) is False
    assert await other.acquire(timeout=0) is False
    released = lock.release()
    assert isinstance(released, aio.Completion)
    assert await released is None
    assert released.done()
    assert await other.acquire(timeout=10) is True
    await other.release()
    if not isinstance(lock, Permits):
        async with lock as nothing:
            assert nothing is None
            assert lock.locked()
            assert await lock.fetch_locked()
            assert not await other.acquire(blocking=False)
    await until(lambda: not nodes(far, zk_path))
    for wrong in ({"blocking": False, "timeout": 1}, {"timeout": float("nan")}):
        with pytest.raises(ValueError):  # noqa: PT011 - `threading` says it in several ways
            await lock.acquire(**wrong)


@every
def test_released_too_often(make: str, zk: KazooClient, zk_path: str) -> None:
    """A lock that is not held is not released; only a semaphore adds a permit instead, unless it is bounded."""
    lock = LOCKS[make](zk, zk_path)

    async def main() -> None:
        if make in ("Semaphore", "three permits"):
            await lock.release()
            assert await lock.acquire(timeout=10)
            await lock.release()
            return
        with pytest.raises(ValueError if make == "BoundedSemaphore" else RuntimeError):
            lock.release()

    run(main())


@every
def test_its_text(make: str, zk: KazooClient, zk_path: str) -> None:
    """It says what it is and where, and can't be pickled."""
    lock = LOCKS[make](zk, zk_path)
    if isinstance(lock, Permits):
        lock = lock.semaphore
    assert f"zkconcurrent.aio.{type(lock).__name__}" in repr(lock)
    assert zk_path in repr(lock)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(lock)


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


@pytest.mark.parametrize("make", [make for make in LOCKS if make != "read lock"])
def test_one_at_a_time(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Many tasks of two processes: never two of them are inside, and all get in."""
    locks = [LOCKS[make](client, zk_path) for client in (zk, far)]
    inside, count = 0, 0

    async def work(lock: Any) -> None:
        nonlocal inside, count
        for _ in range(3):
            assert await lock.acquire()
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1
            count += 1
            lock.release()

    async def main() -> None:
        await soon(asyncio.gather(*(work(lock) for lock in locks for _ in range(6))))
        await until(lambda: not nodes(far, zk_path))

    run(main())
    assert count == 36


@pytest.mark.parametrize("make", OWNED[:-1])
async def test_the_owner_is_the_task(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Its task alone releases it, and, where that may be, acquires it again; another task waits."""
    lock = LOCKS[make](zk, zk_path)
    await lock.acquire()

    async def other() -> bool:
        with pytest.raises(RuntimeError):
            lock.release()
        return await lock.acquire(blocking=False) and bool(lock.release())

    got = await asyncio.create_task(other())
    assert bool(got) == (make == "read lock")
    async with lock:
        assert len(await asyncio.to_thread(nodes, far, zk_path)) == 1
    await lock.release()
    await until(lambda: not nodes(far, zk_path))


@pytest.mark.parametrize("make", ["Lock", "unfair Lock", "Semaphore"])
async def test_any_task_releases(make: str, zk: KazooClient, zk_path: str) -> None:
    """A Lock and a permit may be released by another task, as in asyncio."""
    lock = LOCKS[make](zk, zk_path)

    async def acquire() -> None:
        await lock.acquire()

    await asyncio.create_task(acquire())
    await lock.release()
    assert await lock.acquire(timeout=10)
    await asyncio.to_thread(lambda: None)
    await lock.release()


@owned
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


@pytest.mark.parametrize("make", ["Lock", "Semaphore"])
async def test_wait_for(make: str, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A lock that any task may release may be acquired by `wait_for`, which leaves nothing after its timeout."""
    lock, other = LOCKS[make](zk, zk_path), LOCKS[make](far, zk_path)
    assert await asyncio.wait_for(lock.acquire(), 10)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(other.acquire(), 0.1)
    await until(lambda: len(nodes(far, zk_path)) == 1)
    await lock.release()


@pytest.mark.parametrize("make", [make for make in LOCKS if make not in ("MultiLock", "three permits")])
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
@pytest.mark.parametrize("make", ["Lock", "Semaphore", *OWNED])
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
@pytest.mark.parametrize("make", ["Lock", "RLock", "Semaphore", "MultiLock"])
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


async def test_a_loss_of_one_of_several(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A MultiLock is lost with the first of its locks; the others are released by the call that acknowledges that."""
    told: list[aio.MultiLock] = []
    lock = aio.MultiLock([aio.Lock(zk, f"{zk_path}/{name}") for name in "ab"], on_lost=told.append)
    for name in "ab":
        await lock.acquire()
        assert lock.locked()
        lost = lock.lost
        (node,) = await asyncio.to_thread(nodes, far, f"{zk_path}/{name}")
        await asyncio.to_thread(far.delete, node)
        assert await soon(lost.wait())
        assert lost.is_set()
        with pytest.raises(LockLostError):
            lock.release()
        await until(lambda: not nodes(far, zk_path))
        assert not lock.lost.is_set()
    await until(lambda: len(told) == 2)


@pytest.mark.fault(186)
def test_a_loss_that_a_release_of_several_finds(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """An awaited release raises no error of it; so `lost` is set, and `on_lost` called, once."""
    told: list[object] = []
    lock = aio.MultiLock([aio.Lock(zk, f"{zk_path}/{name}") for name in "ab"], on_lost=told.append)
    theirs = connect()

    async def main() -> None:
        await lock.acquire()
        lost = lock.lost
        theirs.delete(f"{zk_path}/a/{theirs.get_children(f'{zk_path}/a')[0]}")
        await lock.release()
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
        theirs.delete(f"{zk_path}/a/{theirs.get_children(f'{zk_path}/a')[0]}")
        monkeypatch.setattr(core, "_begin_release", begun)
        lock.release()
        await until(lambda: told)
        assert lost.is_set()
        assert told == [lock]

    run(main())


async def test_a_loss_at_the_end_of_the_block(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """`async with` raises LockLostError at its end, also in the place of an Exception, but not of a cancel."""
    lock = aio.Lock(zk, zk_path)

    async def lose() -> None:
        (node,) = await asyncio.to_thread(nodes, far, zk_path)
        lost = lock.lost
        await asyncio.to_thread(far.delete, node)
        await soon(lost.wait())

    for error in (None, KeyError, asyncio.CancelledError):
        with pytest.raises(asyncio.CancelledError if error is asyncio.CancelledError else LockLostError):
            async with lock:
                await lose()
                if error is not None:
                    raise error
        assert not await lock.fetch_locked()


def test_fencing_tokens(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """They grow from holder to holder, in any process, task or thread."""
    locks = [aio.Lock(zk, zk_path), aio.Lock(far, zk_path)]
    tokens = []

    def in_thread() -> None:
        with zkconcurrent.Lock(zk, zk_path) as _:
            tokens.append(zkconcurrent.Lock(zk, zk_path).fencing_token)

    async def main() -> None:
        for _ in range(3):
            for lock in locks:
                async with lock:
                    tokens.append(lock.fencing_token)
                    assert lock.guard(lock.client.transaction())
            await asyncio.to_thread(in_thread)
        with pytest.raises(RuntimeError):
            _ = locks[0].fencing_token

    run(main())
    assert tokens == sorted(set(tokens))


async def test_a_semaphore_that_others_resize(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """A loop that asks again and again sees the new number, also while it holds all permits that there were."""
    semaphore, other = aio.Semaphore(zk, zk_path, 1), aio.Semaphore(far, zk_path, None)
    async with semaphore:
        assert semaphore.locked()
        await other.resize(2)
        end = asyncio.get_running_loop().time() + 20
        while semaphore.locked():
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.05)
        assert await semaphore.available() == 1
    assert not semaphore.locked()
    assert await other.acquire(permits=2, timeout=20)
    other.release(2)


@pytest.mark.parametrize("make", ["Lock", "RLock", "read lock", "write lock", "Semaphore"])
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
    loop = asyncio.get_running_loop()
    end = loop.time() + 20
    while lock.locked():
        assert loop.time() < end
        await asyncio.sleep(0.01)
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


async def test_a_condition(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Tasks and threads of two processes wait in one line; `wait_for` and deadlines are as in threading."""
    mine, theirs, twin = aio.Condition(zk, zk_path), aio.Condition(far, zk_path), zkconcurrent.Condition(far, zk_path)
    woken: list[int] = []

    async def wait(n: int, condition: aio.Condition) -> None:
        async with condition:
            assert await condition.wait()
            woken.append(n)

    def wait_in_thread(n: int) -> None:
        with twin:
            assert twin.wait(20)
            woken.append(n)

    waiting = []
    for n, call in enumerate([wait(0, mine), asyncio.to_thread(wait_in_thread, 1), wait(2, theirs), wait(3, mine)]):
        waiting.append(asyncio.create_task(call))
        await until(lambda n=n: len(nodes(far, f"{zk_path}/waiters")) == n + 1)
    async with mine:
        await mine.notify(2)
    await until(lambda: len(woken) == 2)
    assert sorted(woken) == [0, 1]  # the longest waiters; each then takes the lock when it can
    async with theirs:
        theirs.notify_all()
    await soon(asyncio.gather(*waiting))
    async with mine:
        assert await mine.wait(0.05) is False
        assert await mine.wait_for(lambda: 7) == 7
        for timeout in (0.05, 0, -1):
            assert await mine.wait_for(lambda: "", timeout) == ""
    with pytest.raises(RuntimeError):
        await mine.wait()
    with pytest.raises(RuntimeError):
        mine.notify()
    await until(lambda: not nodes(far, zk_path))


@pytest.mark.fault(382)
@pytest.mark.parametrize("timeout", [0, -1])
async def test_a_poll_lets_others_in(timeout: float, zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """`wait_for` without time releases the lock once: who makes it true gets in."""
    condition, other = aio.Condition(zk, zk_path), aio.Condition(far, zk_path)
    done: list[bool] = []

    async def make_true() -> None:
        async with other:
            done.append(True)

    async with condition:
        making = asyncio.create_task(make_true())
        await until(lambda: len(nodes(far, f"{zk_path}/lock")) == 2)
        assert await condition.wait_for(lambda: done, timeout) == [True]
    await soon(making)
    with pytest.raises(RuntimeError):
        await condition.wait_for(lambda: False, timeout)


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


async def test_an_event_and_a_latch(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Tasks and threads wait for one flag and one count; own changes are seen at once, others' by asking again."""
    event, elsewhere = aio.Event(zk, zk_path), aio.Event(far, zk_path)
    latch, twin = aio.CountDownLatch(zk, f"{zk_path}-l", 2), zkconcurrent.CountDownLatch(far, f"{zk_path}-l", 2)
    assert not event.is_set()
    assert not await event.fetch()
    assert await event.wait(0.05) is False
    waiting = asyncio.create_task(event.wait())
    twins = asyncio.create_task(asyncio.to_thread(zkconcurrent.Event(far, zk_path).wait, 20))
    await idle(zk, far)
    done = event.set()
    assert event.is_set()
    await done
    assert await soon(waiting)
    assert await twins
    await elsewhere.clear()
    async with asyncio.timeout(20) if sys.version_info >= (3, 11) else aio.Lock(zk, f"{zk_path}-x"):
        while event.is_set():
            await asyncio.sleep(0.01)
    assert await latch.wait(0.05) is False
    opens = asyncio.create_task(latch.wait())
    latch.count_down()
    await asyncio.to_thread(twin.count_down)
    assert await soon(opens)
    assert await latch.fetch_count() == 0
    await event.destroy()
    await latch.destroy()


async def test_permits(zk: KazooClient, far: KazooClient, zk_path: str) -> None:
    """Permits are taken all or none; a release beyond what is held adds them for everybody."""
    mine, theirs = aio.Semaphore(zk, zk_path, 3), aio.Semaphore(far, zk_path, 3)
    assert await mine.acquire(permits=2)
    assert not await theirs.acquire(permits=2, blocking=False)
    waiting = asyncio.create_task(theirs.acquire(permits=2))
    await idle(far)
    mine.release()
    assert await soon(waiting)
    assert await theirs.fetch_locked()
    await theirs.release(3)  # one is added
    assert await theirs.acquire(permits=3, blocking=False)
    with pytest.raises(ValueError, match="more"):
        mine.release(0)
    theirs.release(3)
    mine.release()
    await until(lambda: not nodes(far, zk_path))


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


@pytest.mark.parametrize("make", ["Lock", "RLock", "read lock", "write lock", "MultiLock"])
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
    """Also where another object of the path has released it, a semaphore was resized, or a clear follows a set."""
    one, other = (aio.Lock(zk, f"{zk_path}/lock") for _ in range(2))
    async with one:
        assert await other.fetch_locked()
    assert not other.locked()
    taken = aio.Semaphore(far, f"{zk_path}/semaphore")
    await taken.acquire()
    semaphore = aio.Semaphore(zk, f"{zk_path}/semaphore")
    assert await semaphore.fetch_locked()
    await semaphore.resize(5)
    assert not semaphore.locked()
    await taken.release()
    event = aio.Event(zk, f"{zk_path}/event")
    event.set()
    cleared = event.clear()
    while not cleared.done():
        assert not event.is_set()
        await asyncio.sleep(0)
    assert not event.is_set()


def test_queries_do_not_queue_up(zk: KazooClient, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the server does not answer, a plain query is not asked again and again."""
    lock, go_on, asked = aio.Lock(zk, zk_path), threading.Event(), []
    note = PathState.note_holders

    def late(state: PathState, role: str, nodes: Sequence[str], grants: int) -> None:
        asked.append(1)
        go_on.wait()
        note(state, role, nodes, grants)

    async def main() -> None:
        for _ in range(3):
            assert not lock.locked()
            await until(lambda: asked)
        assert len(asked) == 1
        go_on.set()
        await idle(zk)
        assert not lock.locked()
        await until(lambda: len(asked) == 2)

    monkeypatch.setattr(_twin, "REFRESH", 0.0)
    monkeypatch.setattr(PathState, "note_holders", late)
    run(main())
