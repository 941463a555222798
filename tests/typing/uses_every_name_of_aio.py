"""A user's program of tasks, for the type checker alone: it uses every public name of `aio`, and says what it gets."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import zkconcurrent.aio
from zkconcurrent import aio
from zkconcurrent.aio import Namespace, synchronized


def told(lock: object) -> None:
    """Hear of a loss."""


async def told_later(lock: object) -> None:
    """Hear of a loss in a task."""


async def warned(lock: object, left: float) -> None:
    """Hear in a task that a hold is suspect."""


async def locks(zk: zkconcurrent.Client) -> None:
    """Use all that can be held."""
    lock: aio.Lock = aio.Lock(zk, "/app/lock", fair=False, on_lost=told, on_revoke=told)
    rlock: aio.RLock = aio.RLock(zk, "/app/rlock", on_lost=told_later, on_suspect=warned)
    pair: aio.ReadWriteLock = aio.ReadWriteLock(zk, "/app/pair", on_lost=told, hold_limit=30.0, on_hold_limit="lose")
    read: aio.ReadLock = pair.read_lock
    write: aio.WriteLock = pair.write_lock
    where: str = pair.path + lock.path
    semaphore: aio.Semaphore = aio.Semaphore(zk, "/app/api", 5, on_lost=told, on_suspect=warned)
    bounded: aio.BoundedSemaphore = aio.BoundedSemaphore(zk, "/app/bounded")
    several: aio.MultiLock = aio.MultiLock([lock, rlock, read, write], on_lost=told, on_suspect=warned)
    detached: aio.DetachedLock = aio.DetachedLock(zk, "/app/detached", "job")
    async with detached, detached.hold(2.5):
        number: tuple[int, int, str] = detached.fencing_token, detached.hold_count(), detached.name
    holder: zkconcurrent.Contender | None = await detached.owner()
    forced: bool = holder is not None and await detached.force_release(holder.token)
    freed: bool = not await detached.fetch_locked() and not await detached.waiters() and detached.cancel_waits() == 0
    ended: aio.Completion = detached.release()
    last: float = lock.remaining() + several.remaining()
    condition: aio.Condition = aio.Condition(zk, "/app/condition", lock=rlock)
    for own in (lock, rlock, read, write):
        asked: int = await own.revoke()
    for each in (lock, rlock, read, write, semaphore, bounded):
        acquired: bool = await each.acquire(timeout=2.5) and await each.acquire(blocking=False)
        held: bool = each.locked() or await each.fetch_locked()
        released: aio.Completion = each.release()
        await released
        done: bool = released.done()
        owner: zkconcurrent.Contender | None = await each.owner()
        waiters: list[zkconcurrent.Contender] = await each.waiters()
        token: int = each.fencing_token
        suspect: bool = each.suspect
        remaining: float = each.remaining()
        async with each.hold(2.5), each.hold(timeout=None, blocking=False, cancel_on_loss=False) as handle:
            its: aio.Held = handle
            began: tuple[int, datetime.datetime, float] = (handle.fencing_token, handle.since, handle.remaining())
            over: bool = handle.lost.is_set() or await handle.lost.wait()
            await handle.release()
        count: int = each.hold_count() + each.cancel_waits()
        lost: aio.Lost = each.lost
        is_lost: bool = lost.is_set() or await lost.wait()
        async with each:
            pass
    both: bool = await several.acquire(timeout=2.5) and (several.locked() or await several.fetch_locked())
    first_lost: aio.Lost = several.lost
    locks: tuple[object, ...] = several.locks
    async with several.hold() as handles:
        tokens: list[int] = [each.fencing_token for each in handles]
    all_held_by: zkconcurrent.Contender | None = await several.owner()
    await several.release()
    await semaphore.acquire(permits=2)
    semaphore.release(2)
    await bounded.destroy()
    free: int = await aio.Semaphore(zk, "/app/api", None).available()
    await semaphore.resize(free)
    async with condition:
        woken: bool = await condition.wait(1.0)
        found: list[int] = await condition.wait_for(lambda: [1], timeout=1.0)
        condition.notify(2)
        await condition.notify_all()


async def waits(zk: zkconcurrent.Client) -> None:
    """Use all that can be waited for."""
    event: aio.Event = aio.Event(zk, "/app/event")
    await event.set()
    happened: bool = await event.wait(1.0) and event.is_set() and await event.fetch()
    event.clear()
    barrier: aio.Barrier = aio.Barrier(zk, "/app/barrier", 3)
    index: int = await barrier.wait(timeout=None) + barrier.parties + barrier.n_waiting
    broken: bool = barrier.broken or await barrier.fetch_broken() or await barrier.fetch_n_waiting() > 1
    async with barrier as number:
        same: int = number
    await barrier.reset()
    await barrier.abort()
    latch: aio.CountDownLatch = aio.CountDownLatch(zk, "/app/latch", 3)
    latch.count_down(2)
    left: int = await latch.fetch_count()
    opened: bool = await latch.wait()
    double: aio.DoubleBarrier = aio.DoubleBarrier(zk, "/app/double", 3)
    entered: bool = await double.enter(timeout=1.0) and await double.leave() and double.parties > 1
    async with double as inside:
        equal: bool = inside
    for each in (event, barrier, latch, double):
        await each.destroy()


async def elections(zk: zkconcurrent.Client) -> None:
    """Lead, stand and look."""
    election: aio.Election = aio.Election(zk, "/app/leader", id="one", layout="latch")
    async with election.lead(timeout=5.0, cancel_on_loss=False) as term:
        led: aio.Term = term
        token: int = term.fencing_token
        lost: bool = term.lost.is_set() or await term.lost.wait()
        lasts: float = term.remaining()
        await term.publish(b"address")

    async def length(of: list[int]) -> int:
        return len(of)

    counted: int = await election.run(length, [1])
    await election.stand()
    leads: bool = election.is_leader()
    job: int | None = await election.leader_only(length)([1])
    won: aio.Term | None = await election.wait(1.0)
    await election.withdraw()
    leader: zkconcurrent.Candidate | None = await election.leader()
    line: list[zkconcurrent.Candidate] = await election.candidates()
    async for each in election.observe():
        seen: zkconcurrent.Candidate | None = each


async def values(zk: zkconcurrent.Client) -> None:
    """Count, compare and watch."""
    number: aio.AtomicLong = aio.AtomicLong(zk, "/app/number")
    small: aio.AtomicInteger = aio.AtomicInteger(zk, "/app/small")
    total: int = await number.get() + await number.add() + await number.get_and_add(-3)
    total = await small.update(lambda old: old * 2)
    await number.set(5)
    done: bool = await number.compare_and_set(5, 6)
    shared: aio.SharedValue[str] = aio.SharedValue(zk, "/app/value", "", codec=zkconcurrent.TEXT)
    other: aio.AtomicReference[bytes] = aio.AtomicReference(zk, "/app/other", b"")
    seen: zkconcurrent.VersionedValue[str] = await shared.get()
    done = await shared.compare_and_set(seen, "a")
    await shared.set("c")
    word: str = await shared.update(str.upper)
    found: bool = await shared.wait_for(lambda text: text == "D", timeout=1.0)
    async for each in shared.watch(timeout=1.0):
        seen = each
    for every in (number, small, shared, other):
        await every.destroy()


async def maps(zk: zkconcurrent.Client) -> None:
    """Use a dictionary and a set."""
    config: aio.Dict[str] = aio.Dict(zk, "/app/config", codec=zkconcurrent.TEXT)
    await config.ready()
    await config.put("one", "1")
    one: str = config["one"]
    maybe: str | None = config.get("one")
    done: bool = await config.replace("one", "2") and await config.remove("one", "2")
    await config.update({"a": "b"})
    pair: tuple[str, str] = await config.popitem()
    there: tuple[bool, dict[str, str]] = (config.stale, config.copy())
    hosts: aio.Set = aio.Set(zk, "/app/hosts", ephemeral=True)
    await hosts.add("here")
    await hosts.discard("here")
    last: str = await hosts.pop()


async def groups(zk: zkconcurrent.Client) -> None:
    """Join a group, and see its members."""
    group: aio.Group = aio.Group(zk, "/app/workers")
    joining: aio.Joining = group.join(b"10.0.0.7:8000", id="worker-1", wait=30)
    async with joining as member:
        joined: aio.Membership = member
        name: str = member.id + member.path
        active: bool = member.active and not member.lost.is_set() and member.data == b""
    await (await group.join()).leave()
    async for members in group.observe(timeout=5):
        data: bytes = members[name] or (await group.members())[name]


async def queues(zk: zkconcurrent.Client) -> None:
    """Put, get and claim."""
    jobs: aio.Queue[bytes] = aio.Queue(zk, "/app/jobs", 100, codec=zkconcurrent.BYTES, max_attempts=3)
    last: aio.LifoQueue[str] = aio.LifoQueue(zk, "/app/last", codec=zkconcurrent.TEXT)
    first: aio.PriorityQueue[list[int]] = aio.PriorityQueue(
        zk, "/app/first", codec=zkconcurrent.JSON, priority=lambda item: item[0]
    )
    later: aio.DelayQueue[bytes] = aio.DelayQueue(zk, "/app/later", 100, max_attempts=3)
    await later.put(b"one", delay=1.5)
    await later.put_nowait(b"two", delay=2)
    try:
        await jobs.put(b"one", timeout=1.0)
        await jobs.put_nowait(b"two")
        async with jobs.claim(timeout=5.0) as claim:
            claimed: aio.Claim[bytes] = claim
            said: tuple[bytes, int, int] = (claim.item, claim.attempts, claim.fencing_token)
        item: bytes = await jobs.get(timeout=1.0) + await jobs.get_nowait()
        await jobs.task_done()
        await jobs.join()
    except (aio.QueueEmpty, aio.QueueFull, aio.QueueShutDown):
        await jobs.shutdown(immediate=True)
    sizes: tuple[int, int, bool, bool] = (jobs.maxsize, await jobs.qsize(), await jobs.empty(), await jobs.full())
    buried: list[bytes] = await jobs.dead()
    word: str = await last.get()
    best: list[int] = await first.get()
    await jobs.destroy()


async def program(tasks: Namespace) -> None:
    """Do the same on either namespace."""
    async with tasks.Lock("lock"), tasks.RLock("cart"), tasks.MultiLock(["cart", "stock"]):
        held: bool = tasks.Lock("lock").locked()
    async with tasks.Semaphore("api", 5), tasks.BoundedSemaphore("bounded", value=5), tasks.Condition("condition"):
        tasks.Event("go").set()
    latch = tasks.CountDownLatch("latch", 2)
    latch.count_down()
    left: int = await latch.fetch_count()
    total: int = await tasks.AtomicLong("number").add() + await tasks.AtomicInteger("small").get()
    done: bool = await tasks.SharedValue("value", b"").compare_and_set((b"", 0), b"x")
    async with tasks.DoubleBarrier("double", 1), tasks.Group("group").join(b"", id="me") as member:
        name: str = member.id
    base: str = tasks.path


def namespaces(zk: zkconcurrent.Client, config: dict[str, str]) -> Namespace:
    """Pick one by configuration."""
    shared: aio.Namespace = aio.namespace(zk, "/app")
    local: aio.Namespace = aio.namespace("local")
    several: aio.Namespace = aio.namespace({"one": zk}, "/app")
    assert several.clients == (zk,)
    token: int = local.RLock("cart", on_lost=told).fencing_token
    read: aio.ReadLock = local.ReadWriteLock("pair").read_lock
    return shared if config["locks"] == "zookeeper" else local


async def decorated(zk: zkconcurrent.Client, tasks: Namespace) -> None:
    """Use `synchronized` on what it is for; the types of the decorated functions stay."""

    @synchronized(zk, "/users/{user}")
    async def pay(user: int, amount: float = 1.0) -> str:
        return f"{user} {amount}"

    @synchronized(tasks, "rows/{name}")
    async def rows(name: str) -> AsyncIterator[int]:
        yield len(name)

    @asynccontextmanager
    @synchronized(lambda: zk, "/blocks/{name}")
    async def block(name: str) -> AsyncGenerator[int, None]:
        yield len(name)

    @synchronized(asyncio.Lock())
    async def alone() -> None: ...

    class Account:
        @synchronized(aio.RLock(zk, "/app/lock"))
        async def method(self, amount: int) -> int:
            return amount

    said: str = await pay(7, amount=2.0)
    kept: Callable[[int, float], Coroutine[Any, Any, str]] = pay
    total: int = sum([each async for each in rows("x")]) + await Account().method(1)
    async with block("x") as length, synchronized(zk, "/app/report"):
        same: int = length
    await alone()


async def jobs(zk: zkconcurrent.Client, tasks: Namespace) -> None:
    """Use `once_per`: a call that skips returns None."""

    @aio.once_per(zk, "/jobs/{city}", 3300)
    async def report(city: str) -> str:
        return city

    said: str | None = await report("Graz")
    async with aio.once_per(tasks, "jobs/daily", 86000.0, until_success=True) as turn:
        taken: zkconcurrent.Turn = turn


async def main() -> None:
    """Open a client and do it all."""
    async with aio.connect("zk://host1,host2/app?timeout=10", start_timeout=5.0, read_only=False) as zk:
        client: zkconcurrent.Client = zk
        await program(namespaces(client, {"locks": "zookeeper"}))
        await locks(zk)
        await waits(zk)
        await queues(zk)
        await decorated(zk, aio.namespace(zk))
        lock: zkconcurrent.aio.Lock = zkconcurrent.aio.Lock(zk, "/app/lock")
