"""The calls of `aio` that are cancelled: each with its surroundings, and what holds after its end.

A scene is an async generator. It makes what is there before, and yields the call. While the call runs, it goes on: once
the call waits for others, it has it come to its end, and yields again. It is sent how the call was ended: `CANCELLED`,
`CLOSED`, or "" if that was its own end. Then it shows that no waiter waits in vain.
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.loops import idle, left, nodes, remains, soon, until
from tests.helpers.contenders import children
from zkconcurrent import aio
from zkconcurrent._engine.holds import all_holds
from zkconcurrent._engine.session import Session

Make = Callable[[KazooClient, str], Any]
Scene: TypeAlias = AsyncGenerator[Callable[[], Awaitable[object]] | None, str]
CANCELLED, CLOSED = "cancelled", "its loop is closed"


def read_lock(client: KazooClient, path: str) -> aio.ReadLock:
    """Make a read lock."""
    return aio.ReadWriteLock(client, path).read_lock


def write_lock(client: KazooClient, path: str) -> aio.WriteLock:
    """Make a write lock."""
    return aio.ReadWriteLock(client, path).write_lock


def several(client: KazooClient, path: str) -> aio.MultiLock:
    """Make a MultiLock of two locks, one of which may be held while the other is waited for."""
    return aio.MultiLock([aio.Lock(client, f"{path}/a"), aio.RLock(client, f"{path}/b")])


def second_of_several(client: KazooClient, path: str) -> aio.RLock:
    """Make the lock that such a MultiLock acquires last."""
    return aio.RLock(client, f"{path}/b")


LOCKS: dict[str, Make] = {
    "Lock": aio.Lock,
    "RLock": aio.RLock,
    "unfair Lock": partial(aio.Lock, fair=False),
    "read lock": read_lock,
    "write lock": write_lock,
    "Semaphore": aio.Semaphore,
    "MultiLock": several,
}
AGAINST: dict[str, Make] = {"read lock": write_lock, "MultiLock": second_of_several}
APART = ("Lock", "unfair Lock", "read lock", "Semaphore", "MultiLock")
"""The kinds of lock whose `acquire` has awaits of its own: that of each other kind has those of one of these."""


BLOCKS: dict[str, Make] = {
    **{make: LOCKS[make] for make in ("Lock", "RLock", "write lock", "Semaphore", "MultiLock")},
    "hold()": lambda client, path: aio.Lock(client, path).hold(),
    "lead()": lambda client, path: aio.Election(client, path).lead(),
    "join()": lambda client, path: aio.Group(client, path).join(),
    "Condition": aio.Condition,
    "DetachedLock": lambda client, path: aio.DetachedLock(client, path, "owner"),
    "DoubleBarrier": lambda client, path: aio.DoubleBarrier(client, path, 1),
    "synchronized": aio.synchronized,
}
"""The blocks that a task enters, and what each keeps until its end."""


def held(client: KazooClient) -> list[Any]:
    """Return what the tasks of a client hold: a candidacy's term is no task's."""
    states = list(Session.of(client).directory.values())
    terms = [candidacy.hold for state in states if (candidacy := getattr(state, "candidacy", None)) is not None]
    return [hold for state in states for hold in all_holds(getattr(state, "holds", {})) if hold not in terms]


def under_way(client: KazooClient) -> dict[str, int]:
    """Return what a client has left but its nodes: a queue's member stays as long as the queue's object."""
    return {what: n for what, n in remains(client).items() if what != "tickets"}


async def get_in(*locks: Any) -> None:
    """Hold each lock for a moment."""
    for lock in locks:
        assert await soon(lock.acquire())
        await lock.release()


async def acquire(
    near: KazooClient, far: KazooClient, path: str, *, make: str, rival: str = "", stays: bool = False, **options: Any
) -> Scene:
    """Acquire a lock, and release it.

    Args:
        near: the client of the task that is cancelled, here as in all scenes.
        far: another process's.
        path: the path of the scene.
        make: the kind of lock.
        rival: the client of the one that holds, "near" or "far"; "" if it is free.
        stays: the rival releases only when the call has come to its end.
        options: of `acquire`.
    """
    lock, elsewhere = LOCKS[make](near, path), LOCKS[make](far, path)
    holder = AGAINST.get(make, LOCKS[make])(near if rival == "near" else far, path) if rival else None

    async def call() -> None:
        if await lock.acquire(**options):
            assert held(near), "acquired, and not held"
            await lock.release()

    if holder is not None:
        assert await soon(holder.acquire())
    yield call
    if holder is not None and not stays:
        await idle(near)
        await holder.release()
    yield None
    if holder is not None and stays:
        await holder.release()
    await get_in(lock, elsewhere)


async def acquire_detached(near: KazooClient, far: KazooClient, path: str, *, rival: str) -> Scene:
    """Acquire a detached lock, which "another" holds, or another object of its "owner"; and release it."""
    lock, elsewhere = aio.DetachedLock(near, path, "owner"), aio.DetachedLock(far, path, "elsewhere")
    holder = aio.DetachedLock(far, path, rival)
    releases = False

    async def call() -> None:
        nonlocal releases
        if await lock.acquire():
            releases = True
            await lock.release()

    assert await soon(holder.acquire())
    yield call
    if rival == "another":
        await idle(near)
        await holder.release()
    yield None
    if rival == "owner" and not releases:
        await holder.release()  # a cancelled acquire leaves what the owner holds as it was
    await get_in(elsewhere, aio.DetachedLock(near, path, "other"))


async def downgrade(near: KazooClient, far: KazooClient, path: str) -> Scene:
    """Read while writing, and give up the one and then the other."""
    pair, elsewhere = aio.ReadWriteLock(near, path), aio.ReadWriteLock(far, path)

    async def call() -> None:
        async with pair.write_lock:
            await pair.read_lock.acquire()
        await pair.read_lock.release()

    yield call
    yield None
    await get_in(pair.write_lock, elsewhere.write_lock)


async def wait_for_notification(
    near: KazooClient, far: KazooClient, path: str, *, contested: bool = False, by: str = "far"
) -> Scene:
    """Wait for a notification of one of two waiters.

    Args:
        near: the client of the first.
        far: that of the second.
        path: the path of the scene.
        contested: the notifier keeps the lock for a while.
        by: the client of the notifier.
    """

    def condition(client: KazooClient) -> aio.Condition:
        return aio.Condition(client, f"{path}/condition", aio.RLock(client, f"{path}/lock"))

    mine, elsewhere, notifier = condition(near), condition(far), condition(near if by == "near" else far)

    async def call() -> None:
        async with mine:
            before = len(held(near))
            try:
                assert await mine.wait()
            except asyncio.CancelledError:
                assert len(held(near)) == before, "the wait has ended, and the lock is not held"
                raise
            assert len(held(near)) == before

    async def wait_too() -> bool:
        async with elsewhere:
            return await elsewhere.wait()

    async def notify() -> None:
        async with notifier:
            notified = notifier.notify()
            if contested:
                await notified
                await idle(near)

    yield call
    await idle(near)
    other = asyncio.create_task(wait_too())
    await idle(far, near)
    await notify()
    struck = yield None
    if struck != CANCELLED:  # the notification may have been that of a task which is no more
        await idle(far)
        assert struck or not other.done()
        await notify()
    assert await soon(other), "the notification is lost"
    await get_in(mine)


async def wait_for_event(near: KazooClient, far: KazooClient, path: str) -> Scene:
    """Wait for an event."""
    event, elsewhere = aio.Event(near, path), aio.Event(far, path)
    await elsewhere.clear()
    yield event.wait
    await idle(near)
    await elsewhere.set()
    yield None
    assert await soon(event.wait())
    await elsewhere.clear()
    waiting = asyncio.create_task(event.wait())
    await idle(near)
    assert not waiting.done()
    await elsewhere.set()
    assert await soon(waiting)


async def set_event(near: KazooClient, far: KazooClient, path: str) -> Scene:
    """Wait until an event is set: it is, in any case."""
    event, elsewhere = aio.Event(near, path), aio.Event(far, path)
    await elsewhere.clear()
    yield event.set
    yield None
    assert await soon(elsewhere.wait())


async def wait_for_latch(near: KazooClient, far: KazooClient, path: str) -> Scene:
    """Wait for a latch."""
    latch, elsewhere = (aio.CountDownLatch(client, path, 1) for client in (near, far))
    yield latch.wait
    await idle(near)
    await elsewhere.count_down()
    yield None
    assert await soon(latch.wait())
    await elsewhere.destroy()


async def write_entry(near: KazooClient, far: KazooClient, path: str, *, pops: bool = False) -> Scene:
    """Write an entry of a dictionary, or take it out: it is done or not, and the copies agree."""
    entries, elsewhere = (aio.Dict[bytes](client, path) for client in (near, far))

    async def call() -> None:
        if pops:
            assert await entries.pop("k") == b"old"
        else:
            await entries.put("k", b"new")

    await elsewhere.put("k", b"old")
    await entries.ready()
    yield call
    struck = yield None
    await entries.put("next", b"1")
    await elsewhere.ready()
    after = None if pops else b"new"
    await until(lambda: "next" in elsewhere, "it is written")
    await until(lambda: entries.get("k") == elsewhere.get("k"), "the copies agree")
    assert entries.get("k") in ((after, b"old") if struck else (after,))
    await elsewhere.clear()


async def add(near: KazooClient, far: KazooClient, path: str) -> Scene:
    """Add to a number, while another task's change is under way: it is added once, or at most once."""
    number, elsewhere = (aio.AtomicLong(client, path) for client in (near, far))

    async def call() -> None:
        assert await number.add() % 100 == 1

    await elsewhere.set(0)
    await number.set(0)
    other = asyncio.create_task(number.add(100))
    await asyncio.sleep(0)
    yield call
    struck = yield None
    assert await soon(other) in (100, 101)
    await idle(near)
    assert await soon(elsewhere.get()) % 100 in ((0, 1) if struck else (1,))
    assert await soon(number.add(1000)) >= 1000
    await elsewhere.destroy()


async def wait_for_value(near: KazooClient, far: KazooClient, path: str) -> Scene:
    """Wait for a value."""
    value, elsewhere = (aio.SharedValue(client, path, "", codec=zkconcurrent.TEXT) for client in (near, far))
    yield lambda: value.wait_for(lambda text: text == "go")
    await idle(near)
    await elsewhere.set("go")
    yield None
    assert await soon(value.wait_for(bool))
    await elsewhere.destroy()


async def get(near: KazooClient, far: KazooClient, path: str, *, there: bool = False) -> Scene:
    """Take an item: the call returns it, or it is in its place."""
    queue, elsewhere = aio.Queue[bytes](near, path), aio.Queue[bytes](far, path)
    items = [b"one", b"two"]
    taken = list[bytes]()

    async def call() -> None:
        taken.append(await queue.get())

    if there:
        await elsewhere.put(items[0])
    yield call
    if not there:
        await idle(near)
        await elsewhere.put(items[0])
    struck = yield None
    assert bool(struck) != bool(taken)
    await until(lambda: not under_way(near), "it is in its place")
    # The request that takes the item may be on its way; the client of a closed loop puts the item back, too.
    await until(
        lambda: near.sync(path) and len(far.get_children(f"{path}/items")) == 1 - len(taken), "it is in its place"
    )
    await elsewhere.put(items[1])
    assert taken + [await soon(elsewhere.get()) for _ in items[len(taken) :]] == items


async def claim(near: KazooClient, far: KazooClient, path: str) -> Scene:
    """Claim an item, and be done with it: it is acknowledged, or in its place."""
    queue, elsewhere = aio.Queue[bytes](near, path), aio.Queue[bytes](far, path)

    async def call() -> None:
        async with queue.claim() as claimed:
            assert claimed.item == b"one"

    await elsewhere.put(b"one")
    yield call
    struck = yield None

    def ended() -> bool:
        gc.collect()  # the block of a closed loop ends when its task is collected
        return not under_way(near) and not children(far, f"{path}/claims")

    await until(ended, "the claim has ended")
    await elsewhere.put(b"two")
    found = [await soon(elsewhere.get())]
    if struck and found == [b"one"]:
        found = [await soon(elsewhere.get())]
    assert found == [b"two"]


async def put(near: KazooClient, far: KazooClient, path: str, *, full: bool = False) -> Scene:
    """Put an item, where the queue may be full: it is there once, or never."""
    queue, elsewhere = aio.Queue[bytes](near, path, 1), aio.Queue[bytes](far, path, 1)
    if full:
        await elsewhere.put(b"one")
    yield lambda: queue.put(b"two")
    if full:
        await idle(near)
        assert await elsewhere.get() == b"one"
    struck = yield None
    await until(lambda: not under_way(near), "it is settled")
    there = [] if await elsewhere.empty() else [await elsewhere.get()]
    assert there in (([], [b"two"]) if struck else ([b"two"],))
    await soon(queue.put(b"three"))
    assert await soon(elsewhere.get()) == b"three"


async def take_part(near: KazooClient, far: KazooClient, path: str) -> Scene:
    """Enter a double barrier, and leave it: no node of a party that has left lets another in."""
    barrier, elsewhere = (aio.DoubleBarrier(client, path, 2) for client in (near, far))
    comes, next_party = False, list["asyncio.Task[bool]"]()

    async def call() -> None:
        try:
            async with barrier:
                pass
        except asyncio.CancelledError:
            if not comes:
                next_party.append(asyncio.create_task(try_to_come()))
            raise

    async def try_to_come() -> bool:
        return await elsewhere.enter(0)

    yield call
    await idle(near)
    if not next_party:
        comes = True
        if await elsewhere.enter(0.05):
            await soon(elsewhere.leave())
    yield None
    assert not next_party or not await soon(next_party[0]), "it was counted"
    assert not await soon(elsewhere.enter(0))
    await elsewhere.destroy()


async def join(near: KazooClient, far: KazooClient, path: str) -> Scene:
    """Join a group, and leave it: the id is free, soon."""
    group, elsewhere = (aio.Group(client, path) for client in (near, far))

    async def call() -> None:
        async with group.join(b"", "id"):
            pass

    yield call
    yield None
    async with elsewhere.join(b"", "id", wait=20):
        assert list(await elsewhere.members()) == ["id"]


async def wait_at_barrier(near: KazooClient, far: KazooClient, path: str, *, last: bool = False) -> Scene:
    """Wait at a barrier; `last`: the party arrives last, so that it trips the barrier."""
    barrier, elsewhere = (aio.Barrier(client, path, 2) for client in (near, far))
    others, alone = list["asyncio.Task[int]"](), False

    async def call() -> None:
        nonlocal alone
        try:
            assert await barrier.wait() in (0, 1)
        except asyncio.CancelledError:
            if not others:  # the other party comes at once, as the first leaves
                others.append(asyncio.create_task(elsewhere.wait()))
                alone = True
            raise

    async def come() -> None:
        others.append(asyncio.create_task(elsewhere.wait()))
        await idle(far)

    await elsewhere.reset()
    if last:
        await come()
    yield call
    await idle(near)
    if not others:
        await come()
    struck = yield None
    await until(lambda: not left(near), "it has left")
    if alone:
        await idle(far)
        assert not others[0].done(), "it was counted"
    state = json.loads((await asyncio.to_thread(far.get, path))[0])
    assert not state["failed"][1:], "it is broken"  # the first is that of `reset`
    if state["generation"] == 1:  # a party comes in the place of the one that has left
        assert struck
        assert await soon(barrier.wait()) in (0, 1)
    assert await soon(others[0]) in (0, 1)
    assert sorted(await soon(asyncio.gather(elsewhere.wait(), barrier.wait()))) == [0, 1]
    await until(lambda: not nodes(far, path), "they have gone on")
    await elsewhere.destroy()


async def elect(near: KazooClient, far: KazooClient, path: str, *, what: str) -> Scene:
    """Use an election, in which another process leads at first."""
    election, rival = aio.Election(near, path), aio.Election(far, path)

    async def call() -> None:
        if what == "lead":
            async with election.lead():
                assert election.is_leader()
        elif what == "wait":
            assert await election.wait() is not None
        else:
            await getattr(election, what)()

    await rival.stand()
    assert await soon(rival.wait())
    if what in ("wait", "withdraw"):
        await election.stand()
    yield call
    if what in ("lead", "wait"):
        await idle(near)
        await rival.withdraw()
    yield None
    await soon(election.withdraw())
    await soon(rival.stand())
    assert await soon(rival.wait())
    await until(lambda: len(nodes(far, path)) == 1, "one stands")  # a cancelled call's delete is late
    assert len(await rival.candidates()) == 1
    await rival.withdraw()


SCENES: dict[str, Callable[[KazooClient, KazooClient, str], Scene]] = {
    **{f"{make}, free": partial(acquire, make=make) for make in (*APART, "RLock")},
    "unfair Lock, held by a task": partial(acquire, make="unfair Lock", rival="near"),
    **{f"{make}, held elsewhere": partial(acquire, make=make, rival="far") for make in APART},
    "Lock, until a deadline": partial(acquire, make="Lock", rival="far", stays=True, timeout=0.05),
    **{f"{make}, a try": partial(acquire, make=make, blocking=False) for make in ("Lock", "Semaphore")},
    "detached lock, held elsewhere": partial(acquire_detached, rival="another"),
    "detached lock, held by its owner": partial(acquire_detached, rival="owner"),
    "downgrade": downgrade,
    "condition": wait_for_notification,
    "condition, contested": partial(wait_for_notification, contested=True),
    "condition, notified by a task": partial(wait_for_notification, by="near"),
    "event": wait_for_event,
    "event, to set it": set_event,
    "latch": wait_for_latch,
    "number, beside another task's": add,
    "value": wait_for_value,
    "dict, to put": write_entry,
    "dict, to pop": partial(write_entry, pops=True),
    "queue, to get": get,
    "queue, to get what is there": partial(get, there=True),
    "queue, to claim": claim,
    "queue, to put": put,
    "queue that is full, to put": partial(put, full=True),
    "double barrier": take_part,
    "group": join,
    "barrier": wait_at_barrier,
    "barrier, as the last": partial(wait_at_barrier, last=True),
    **{f"election, {what}": partial(elect, what=what) for what in ("lead", "stand", "wait", "withdraw")},
}
"""Each call with its surroundings. `tests/unit/test_registry.py` looks for the classes' names in this file."""
