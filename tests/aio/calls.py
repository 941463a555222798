"""The calls of `aio` that are cancelled: each with its surroundings, and the conditions that hold after its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from kazoo.client import KazooClient

import zkconcurrent
from tests.aio.loops import idle, left, nodes, soon, until
from zkconcurrent import aio
from zkconcurrent._engine.holds import all_holds

Make = Callable[[KazooClient, str], Any]


class Permits:
    """All permits of a semaphore, as a lock."""

    def __init__(self, client: KazooClient, path: str) -> None:
        self.semaphore = aio.Semaphore(client, path, 3)
        self._core = self.semaphore._core

    async def acquire(self, **options: Any) -> bool:
        """Take all permits."""
        return await self.semaphore.acquire(permits=3, **options)

    def release(self) -> aio.Completion:
        """Give all back."""
        return self.semaphore.release(3)


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
    "unfair RLock": partial(aio.RLock, fair=False),
    "read lock": read_lock,
    "write lock": write_lock,
    "Semaphore": aio.Semaphore,
    "BoundedSemaphore": aio.BoundedSemaphore,
    "three permits": Permits,
    "MultiLock": several,
}
AGAINST: dict[str, Make] = {"read lock": write_lock, "MultiLock": second_of_several}


class Scene:
    """One call, and its surroundings.

    Attributes:
        near: the client of the task that is cancelled.
        far: another process's.
    """

    def __init__(self, near: KazooClient, far: KazooClient, path: str) -> None:
        self.near, self.far, self.path = near, far, path
        self.here: list[Any] = []  # the objects of `near`, to be held by nobody

    async def begin(self) -> None:
        """Make what is to be there before."""

    async def call(self) -> object:
        """Do what is cancelled."""
        raise NotImplementedError

    async def let_in(self) -> None:
        """Have the call come to its end, once it waits for others."""

    async def undo(self) -> None:
        """Undo what the call has done; in its task, if it was not cancelled."""

    async def prove(self, *, cancelled: bool) -> None:
        """Show that nobody waits in vain."""

    def held(self) -> list[Any]:
        """Return what is held."""
        cores = [core for each in self.here for core in getattr(each._core, "locks", (each._core,))]
        return [hold for core in cores for hold in all_holds(core._path_state.holds)]


class Acquire(Scene):
    """To acquire a lock.

    Args:
        make: makes the lock.
        rival: the client of the one that holds, "near" or "far"; "" if it is free.
        stays: the rival releases only when the call has come to its end.
        options: of `acquire`.
    """

    def __init__(self, *place: Any, make: str, rival: str = "", stays: bool = False, **options: Any) -> None:
        super().__init__(*place)
        against = AGAINST.get(make, LOCKS[make])
        self.lock, self.elsewhere = LOCKS[make](self.near, self.path), LOCKS[make](self.far, self.path)
        self.rival = against(getattr(self, rival), self.path) if rival else None
        self.stays, self.options = stays, options
        self.here = [self.lock]

    async def begin(self) -> None:
        """Have the rival hold."""
        if self.rival is not None:
            assert await soon(self.rival.acquire())

    async def call(self) -> object:
        """Acquire."""
        return await self.lock.acquire(**self.options)

    async def let_in(self) -> None:
        """Have the rival release."""
        if self.rival is not None and not self.stays:
            await idle(self.near)
            await self.rival.release()

    async def undo(self) -> None:
        """Release."""
        await self.lock.release()

    async def prove(self, *, cancelled: bool) -> None:  # noqa: ARG002
        """Have others get in, here and elsewhere."""
        if self.rival is not None and self.stays:
            await self.rival.release()
        for lock in (self.lock, self.elsewhere):
            assert await soon(lock.acquire())
            await lock.release()


class Release(Acquire):
    """To acquire, and wait for the end of the release: that is sent in any case."""

    async def call(self) -> object:
        """Acquire and release."""
        await self.lock.acquire()
        await self.lock.release()
        return False


class Detach(Scene):
    """To acquire a detached lock, or to release it.

    Args:
        rival: the holder at first: "another", another object of the "owner", or nobody.
        stays: the rival releases only when the call has come to its end.
        releases: whether the call acquires before, and only its release is cancelled.
        options: of `acquire`.
    """

    def __init__(
        self, *place: Any, rival: str = "", stays: bool = False, releases: bool = False, **options: Any
    ) -> None:
        super().__init__(*place)
        self.lock = aio.DetachedLock(self.near, self.path, "owner")
        self.elsewhere = aio.DetachedLock(self.far, self.path, "elsewhere")
        self.rival = aio.DetachedLock(self.far, self.path, rival) if rival else None
        self.stays, self.releases, self.options = stays, releases, options

    async def begin(self) -> None:
        """Have the rival hold."""
        if self.rival is not None:
            assert await soon(self.rival.acquire())
        elif self.releases:
            assert await soon(self.lock.acquire())

    async def call(self) -> object:
        """Acquire, or release."""
        if self.releases:
            await self.lock.release()
            return False
        return await self.lock.acquire(**self.options)

    async def let_in(self) -> None:
        """Have another rival release."""
        if self.rival is not None and self.rival.name == "another" and not self.stays:
            await idle(self.near)
            await self.rival.release()

    async def undo(self) -> None:
        """Release."""
        self.releases = True
        await self.lock.release()

    def held(self) -> list[Any]:
        """Return what is held, as the object has it; a release goes on in the background."""
        return [] if self.releases or self.lock._core._held is None else [self.lock._core._held]

    async def prove(self, *, cancelled: bool) -> None:
        """Have others get in; a cancelled acquire of what the owner holds leaves that as it was."""
        if self.rival is not None and (self.stays or (self.rival.name == "owner" and cancelled and not self.releases)):
            await self.rival.release()
        for lock in (self.elsewhere, aio.DetachedLock(self.near, self.path, "other")):
            assert await soon(lock.acquire())
            await lock.release()


class Downgrade(Scene):
    """To read while writing, and to give up the one and then the other."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.pair, self.elsewhere = aio.ReadWriteLock(self.near, self.path), aio.ReadWriteLock(self.far, self.path)
        self.here = [self.pair.read_lock]

    async def call(self) -> object:
        """Write, then read."""
        await self.pair.write_lock.acquire()
        try:
            await self.pair.read_lock.acquire()
        finally:
            self.pair.write_lock.release()
        await self.pair.read_lock.release()
        return False

    async def prove(self, *, cancelled: bool) -> None:  # noqa: ARG002
        """Have others write."""
        for pair in (self.pair, self.elsewhere):
            async with pair.write_lock:
                pass


class ConditionWait(Scene):
    """To wait for a notification that is one of two waiters'.

    Args:
        make: makes the lock.
        contested: the notifier keeps the lock for a while.
    """

    def __init__(self, *place: Any, make: str = "RLock", contested: bool = False, by: str = "far") -> None:
        super().__init__(*place)
        self.contested = contested

        def condition(client: KazooClient) -> aio.Condition:
            return aio.Condition(client, f"{self.path}/condition", LOCKS[make](client, f"{self.path}/lock"))

        self.condition, self.elsewhere = condition(self.near), condition(self.far)
        self.notifier = condition(getattr(self, by))
        self.other: asyncio.Task[bool] | None = None
        self.here = [self.condition._lock]

    async def call(self) -> object:
        """Wait."""
        async with self.condition:
            held = len(self.held())
            try:
                assert await self.condition.wait()
            finally:
                assert len(self.held()) == held, "the wait has ended, and the lock is not held"
        return False

    async def _wait_too(self) -> bool:
        async with self.elsewhere:
            return await self.elsewhere.wait()

    async def let_in(self) -> None:
        """Have another wait, behind it, and notify one."""
        await idle(self.near)
        self.other = asyncio.create_task(self._wait_too())
        await idle(self.far, self.near)
        async with self.notifier:
            notified = self.notifier.notify()
            if self.contested:
                await notified
                await idle(self.near)

    async def prove(self, *, cancelled: bool) -> None:
        """Have the notification be the other's, if the first was cancelled."""
        assert self.other is not None
        if not cancelled:
            await idle(self.far)
            assert not self.other.done()
            async with self.notifier:
                self.notifier.notify()
        await soon(self.other)
        async with self.condition, asyncio.timeout(20) if hasattr(asyncio, "timeout") else Nothing():
            pass


class Nothing:
    """A context that does nothing."""

    async def __aenter__(self) -> None:
        """Begin."""

    async def __aexit__(self, *error: object) -> None:
        """End."""


class EventWait(Scene):
    """To wait for an event."""

    def __init__(self, *place: Any, is_set: bool = False) -> None:
        super().__init__(*place)
        self.event, self.elsewhere = aio.Event(self.near, self.path), aio.Event(self.far, self.path)
        self.is_set = is_set

    async def begin(self) -> None:
        """Set it, or not."""
        await (self.elsewhere.set() if self.is_set else self.elsewhere.clear())

    async def call(self) -> object:
        """Wait."""
        assert await self.event.wait()
        return False

    async def let_in(self) -> None:
        """Set it."""
        await idle(self.near)
        await self.elsewhere.set()

    async def prove(self, *, cancelled: bool) -> None:  # noqa: ARG002
        """Have all others wait no more; and wait again, once it is cleared."""
        assert await soon(self.event.wait())
        await self.elsewhere.clear()
        waiting = asyncio.create_task(self.event.wait())
        await idle(self.near)
        assert not waiting.done()
        await self.elsewhere.set()
        assert await soon(waiting)


class EventSet(Scene):
    """To wait until an event is set: it is, in any case."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.event, self.elsewhere = aio.Event(self.near, self.path), aio.Event(self.far, self.path)

    async def begin(self) -> None:
        """Clear it."""
        await self.elsewhere.clear()

    async def call(self) -> object:
        """Set it."""
        await self.event.set()
        return False

    async def prove(self, *, cancelled: bool) -> None:  # noqa: ARG002
        """Have others see it."""
        assert await soon(self.elsewhere.wait())


class DictPut(Scene):
    """To write an entry of a dictionary, or to take it out."""

    def __init__(self, *place: Any, pops: bool = False) -> None:
        super().__init__(*place)
        self.map, self.elsewhere = (aio.Dict[bytes](client, self.path) for client in (self.near, self.far))
        self.pops = pops

    async def begin(self) -> None:
        """Have an entry."""
        await self.elsewhere.put("k", b"old")
        await self.map.ready()

    async def call(self) -> object:
        """Write it."""
        if self.pops:
            assert await self.map.pop("k") == b"old"
        else:
            await self.map.put("k", b"new")
        return False

    async def prove(self, *, cancelled: bool) -> None:
        """It was written or not, and so the copies say; the next write goes on."""
        await self.map.put("next", b"1")
        await self.elsewhere.ready()
        after = None if self.pops else b"new"
        await until(lambda: "next" in self.elsewhere, "it is written")
        await until(lambda: self.map.get("k") == self.elsewhere.get("k"), "the copies agree")
        assert self.map.get("k") in ((after, b"old") if cancelled else (after,))
        await self.elsewhere.clear()


class LatchWait(Scene):
    """To wait for a latch."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.latch, self.elsewhere = (aio.CountDownLatch(client, self.path, 1) for client in (self.near, self.far))

    async def call(self) -> object:
        """Wait."""
        assert await self.latch.wait()
        return False

    async def let_in(self) -> None:
        """Open it."""
        await idle(self.near)
        await self.elsewhere.count_down()

    async def prove(self, *, cancelled: bool) -> None:  # noqa: ARG002
        """Have all others wait no more."""
        assert await soon(self.latch.wait())
        await self.elsewhere.destroy()


class ValueChange(Scene):
    """To add to a number, as the only one or while another task's change is under way."""

    def __init__(self, *place: Any, beside: bool = False) -> None:
        super().__init__(*place)
        self.number, self.elsewhere = (aio.AtomicLong(client, self.path) for client in (self.near, self.far))
        self.beside = beside
        self.other: asyncio.Task[int] | None = None

    async def begin(self) -> None:
        """Make the nodes."""
        await self.elsewhere.set(0)
        await self.number.set(0)

    async def call(self) -> object:
        """Add."""
        if self.beside:
            self.other = asyncio.ensure_future(self.number.add(100))
            await asyncio.sleep(0)
        assert await self.number.add() % 100 == 1
        return False

    async def prove(self, *, cancelled: bool) -> None:
        """Have it added once, or at most once; and the other's change made."""
        if self.other is not None:
            assert await soon(self.other) in (100, 101)
        await idle(self.near)
        added = await soon(self.elsewhere.get()) % 100
        assert added in ((0, 1) if cancelled else (1,))
        assert await soon(self.number.add(1000)) >= 1000
        await self.elsewhere.destroy()


class ValueWait(Scene):
    """To wait for a value."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.value, self.elsewhere = (
            aio.SharedValue(client, self.path, "", codec=zkconcurrent.TEXT) for client in (self.near, self.far)
        )

    async def call(self) -> object:
        """Wait."""
        assert await self.value.wait_for(lambda text: text == "go")
        return False

    async def let_in(self) -> None:
        """Set it."""
        await idle(self.near)
        await self.elsewhere.set("go")

    async def prove(self, *, cancelled: bool) -> None:  # noqa: ARG002
        """Have all others wait no more."""
        assert await soon(self.value.wait_for(bool))
        await self.elsewhere.destroy()


class DoubleBarrierEnter(Scene):
    """To enter a double barrier, and leave it."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.barrier, self.elsewhere = (aio.DoubleBarrier(client, self.path, 2) for client in (self.near, self.far))
        self.comes = False
        self.next: asyncio.Task[bool] | None = None

    async def call(self) -> object:
        """Enter, and leave; as it is cancelled, have the other party come at once, unless that has come already."""
        try:
            assert await self.barrier.enter()
            assert await self.barrier.leave()
        except asyncio.CancelledError:
            if not self.comes:
                self.next = asyncio.ensure_future(self.try_to_come())
            raise
        return False

    async def try_to_come(self) -> bool:
        """Have the other party enter if it need not wait."""
        return await self.elsewhere.enter(0)

    async def let_in(self) -> None:
        """Come, too, and leave."""
        await idle(self.near)
        if self.next is not None:
            return
        self.comes = True
        if await self.elsewhere.enter(0.05):
            await soon(self.elsewhere.leave())

    async def prove(self, *, cancelled: bool) -> None:  # noqa: ARG002
        """No node of it lets another in."""
        assert self.next is None or not await soon(self.next), "it was counted"
        assert not await soon(self.elsewhere.enter(0))
        await self.elsewhere.destroy()


class GroupJoin(Scene):
    """To join a group, and to leave it."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.group, self.elsewhere = (aio.Group(client, self.path) for client in (self.near, self.far))

    async def call(self) -> object:
        """Join, and leave."""
        async with self.group.join(b"", "id"):
            pass
        return False

    async def prove(self, *, cancelled: bool) -> None:  # noqa: ARG002
        """Its id is free, soon."""
        async with self.elsewhere.join(b"", "id", wait=20):
            assert list(await self.elsewhere.members()) == ["id"]


class BarrierWait(Scene):
    """To wait at a barrier.

    Args:
        last: it arrives last, so that it trips the barrier.
    """

    def __init__(self, *place: Any, last: bool = False) -> None:
        super().__init__(*place)
        self.barrier, self.elsewhere = (aio.Barrier(client, self.path, 2) for client in (self.near, self.far))
        self.last = last
        self.alone = False
        self.other: asyncio.Task[int] | None = None

    async def begin(self) -> None:
        """Have the other party come first, or make the nodes."""
        await self.elsewhere.reset()
        if self.last:
            await self._come()

    async def _come(self) -> None:
        self.other = asyncio.create_task(self.elsewhere.wait())
        await idle(self.far)

    async def call(self) -> object:
        """Wait; as it is cancelled, have the other party come at once, unless that has come already."""
        try:
            assert await self.barrier.wait() in (0, 1)
        except asyncio.CancelledError:
            if self.other is None:
                self.other = asyncio.create_task(self.elsewhere.wait())
                self.alone = True
            raise
        return False

    async def let_in(self) -> None:
        """Have the other party come."""
        await idle(self.near)
        if self.other is None:
            await self._come()

    async def prove(self, *, cancelled: bool) -> None:
        """Have a party come in the place of the one that has left, unless that was counted; and trip it again."""
        await until(lambda: not left(self.near), "it has left")
        assert self.other is not None
        if self.alone:
            await idle(self.far)
            assert not self.other.done(), "it was counted"
        state = json.loads((await asyncio.to_thread(self.far.get, self.path))[0])
        assert not state["failed"][1:], "it is broken"  # the first is that of `begin`
        if state["generation"] == 1:
            assert cancelled
            assert await soon(self.barrier.wait()) in (0, 1)
        assert await soon(self.other) in (0, 1)
        self.other = asyncio.create_task(self.elsewhere.wait())
        assert await soon(self.barrier.wait()) in (0, 1)
        await soon(self.other)
        await until(lambda: not nodes(self.far, self.path), "they have gone on")
        await self.elsewhere.destroy()


class Elect(Scene):
    """To use an election, in which another process leads at first.

    Args:
        what: "lead", "publish", "stand", "wait", "withdraw" or "observe".
    """

    def __init__(self, *place: Any, what: str) -> None:
        super().__init__(*place)
        self.election, self.rival = aio.Election(self.near, self.path), aio.Election(self.far, self.path)
        self.what = what
        self.here = [self.election]
        self.block: Any = None
        self.term: Any = None

    async def begin(self) -> None:
        """Have the rival stand, unless the call is a leader's; do what the call needs."""
        if self.what == "publish":
            self.block = self.election.lead()
            self.term = await self.block.__aenter__()
            return
        await self.rival.stand()
        assert await soon(self.rival.wait())
        if self.what in ("wait", "withdraw"):
            await self.election.stand()

    async def call(self) -> object:
        """Make the call."""
        if self.what == "publish":
            await self.term.publish(b"published")
        elif self.what == "lead":
            async with self.election.lead():
                assert self.election.is_leader()
        elif self.what == "wait":
            assert await self.election.wait() is not None
        elif self.what == "observe":
            leaders = self.election.observe()
            for _ in range(2):
                await anext(leaders)
        else:
            await getattr(self.election, self.what)()
        return False

    async def let_in(self) -> None:
        """Have the rival withdraw, once it is seen."""
        if self.what in ("lead", "wait", "observe"):
            await idle(self.near)
            await self.rival.withdraw()

    def held(self) -> list[Any]:
        """Return what a task holds: a candidacy's term is not the call's."""
        candidacy = self.election._core._path_state.candidacy
        return [each for each in super().held() if candidacy is None or each is not candidacy.hold]

    async def prove(self, *, cancelled: bool) -> None:  # noqa: ARG002
        """Have the rival lead, and all withdraw."""
        if self.block is not None:
            await self.block.__aexit__(None, None, None)
        await soon(self.election.withdraw())
        await soon(self.rival.stand())
        assert await soon(self.rival.wait())
        await until(lambda: len(nodes(self.far, self.path)) == 1, "one stands")  # a cancelled call's delete is late
        assert len(await self.rival.candidates()) == 1
        await self.rival.withdraw()


class Ask(Scene):
    """To ask of a lock that another holds: it is neither held nor waited for."""

    def __init__(self, *place: Any, what: str) -> None:
        super().__init__(*place)
        self.lock, self.rival, self.what = aio.Lock(self.near, self.path), aio.Lock(self.far, self.path), what

    async def begin(self) -> None:
        """Have the rival hold."""
        await self.rival.acquire()

    async def call(self) -> object:
        """Ask."""
        assert await getattr(self.lock, self.what)() is not None
        return False

    async def prove(self, *, cancelled: bool) -> None:  # noqa: ARG002
        """Go on."""
        await self.rival.release()
        assert not await self.lock.fetch_locked()


class Resize(Scene):
    """To resize a semaphore of one permit to two, and to ask how many are free: it has one or two, in any case."""

    def __init__(self, *place: Any) -> None:
        super().__init__(*place)
        self.semaphore, self.elsewhere = (aio.Semaphore(client, self.path, 1) for client in (self.near, self.far))
        self.here = [self.semaphore]

    async def begin(self) -> None:
        """Make it."""
        assert await self.elsewhere.available() == 1
        async with self.elsewhere:
            pass

    async def call(self) -> object:
        """Resize, and ask."""
        await self.semaphore.resize(2)
        assert await self.semaphore.available() == 2
        return False

    async def prove(self, *, cancelled: bool) -> None:
        """Have others take all."""
        n = await soon(self.elsewhere.available())
        assert n in ((1, 2) if cancelled else (2,))
        assert await soon(self.elsewhere.acquire(permits=n))
        self.elsewhere.release(n)
        await soon(self.semaphore.resize(1))


SCENES: dict[str, Callable[..., Scene]] = {
    **{f"{make}, free": partial(Acquire, make=make) for make in LOCKS},
    **{f"{make}, held by a task": partial(Acquire, make=make, rival="near") for make in LOCKS},
    **{f"{make}, held elsewhere": partial(Acquire, make=make, rival="far") for make in LOCKS},
    **{
        f"{make}, until a deadline": partial(Acquire, make=make, rival="far", stays=True, timeout=0.05)
        for make in LOCKS
    },
    **{f"{make}, a try": partial(Acquire, make=make, blocking=False) for make in LOCKS},
    **{f"{make}, released": partial(Release, make=make) for make in LOCKS},
    "detached lock": Detach,
    "detached lock, held elsewhere": partial(Detach, rival="another"),
    "detached lock, held by its owner": partial(Detach, rival="owner"),
    "detached lock, until a deadline": partial(Detach, rival="another", stays=True, timeout=0.05),
    "detached lock, a try": partial(Detach, blocking=False),
    "detached lock, to release it": partial(Detach, releases=True),
    "downgrade": Downgrade,
    "resize": Resize,
    "condition": ConditionWait,
    "condition, contested": partial(ConditionWait, contested=True),
    "condition, notified by a task": partial(ConditionWait, by="near"),
    "condition of a Lock, contested": partial(ConditionWait, make="Lock", contested=True),
    "condition of a write lock, contested": partial(ConditionWait, make="write lock", contested=True),
    "event": EventWait,
    "event that is set": partial(EventWait, is_set=True),
    "event, to set it": EventSet,
    "latch": LatchWait,
    "number": ValueChange,
    "number, beside another task's": partial(ValueChange, beside=True),
    "value": ValueWait,
    "dict, to put": DictPut,
    "dict, to pop": partial(DictPut, pops=True),
    "barrier": BarrierWait,
    "double barrier": DoubleBarrierEnter,
    "group": GroupJoin,
    "barrier, as the last": partial(BarrierWait, last=True),
    **{
        f"election, {what}": partial(Elect, what=what)
        for what in ("lead", "publish", "stand", "wait", "withdraw", "observe")
    },
    **{f"to ask {what}": partial(Ask, what=what) for what in ("fetch_locked", "owner", "waiters")},
}
