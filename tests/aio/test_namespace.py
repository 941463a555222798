"""`aio.namespace`: one program runs on ZooKeeper and on asyncio's own objects alike; names keep the same rules."""

from __future__ import annotations

import asyncio
import gc
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect
from tests.helpers.kinds import make_named, named
from zkconcurrent import aio

PARTIES, ROUNDS = 4, 3


@pytest.fixture(params=["zookeeper", "local"])
def tasks(request: pytest.FixtureRequest) -> aio.Namespace:
    """A namespace of each kind."""
    if request.param == "local":
        return aio.namespace("local", "/app")
    return aio.namespace(request.getfixturevalue("zk"), request.getfixturevalue("zk_path"))


@pytest.fixture
def local() -> aio.LocalNamespace:
    """A namespace of asyncio's objects."""
    return aio.namespace("local", "/app")


def test_one_program(tasks: aio.Namespace) -> None:
    """Tasks count without losing any, take turns, and wait for each other."""
    counts = dict.fromkeys(["lock", "rlock", "bounded", "multi"], 0)
    inside = turn = most = 0

    async def add(lock: Any, what: str) -> None:
        async with lock:
            before = counts[what]
            await asyncio.sleep(0)
            counts[what] = before + 1

    async def party(number: int) -> None:
        nonlocal inside, turn, most
        latch, start = tasks.CountDownLatch("latch", PARTIES), tasks.Event("start")
        latch.count_down()
        if number == 0:
            assert await latch.wait()
            assert await latch.fetch_count() == 0
            start.set()
        assert await start.wait()
        for _ in range(ROUNDS):
            await add(tasks.Lock("lock"), "lock")
            async with tasks.RLock("rlock"):
                await add(tasks.RLock("rlock"), "rlock")
            await add(tasks.BoundedSemaphore("bounded"), "bounded")
            await add(tasks.MultiLock(["locks/x", "locks/y"]), "multi")
            async with tasks.Semaphore("semaphore", 2):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1
        if sys.version_info >= (3, 11) or isinstance(tasks, aio.SharedNamespace):
            async with tasks.Barrier("barrier", PARTIES):
                pass
        condition = tasks.Condition("condition")
        async with condition:  # each in turn, by number
            await condition.wait_for(lambda: turn == number)
            turn += 1
            condition.notify_all()

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(*(party(number) for number in range(PARTIES))), 60)

    asyncio.run(main())
    assert set(counts.values()) == {PARTIES * ROUNDS}
    assert most <= 2
    assert turn == PARTIES


BOTH = [kind for kind in named(aio.SharedNamespace) if hasattr(aio.LocalNamespace, kind)]
every = pytest.mark.parametrize("kind", [kind for kind in BOTH if kind != "Barrier" or sys.version_info >= (3, 11)])


@every
def test_no_name_leaves_the_base(tasks: aio.Namespace, kind: str) -> None:
    """A name that is empty, absolute, or would lead out of the base is a ValueError that shows it."""
    for name in ("", "/etc", "..", "a/../../x", "a//b", "a/", "a\0"):
        with pytest.raises(ValueError) as raised:  # noqa: PT011
            pytest.fail(f"{name!r} is allowed: {make_named(tasks, kind, name)}")
        assert repr(name) in str(raised.value)


@every
def test_a_name_is_text_of_one_kind(tasks: aio.Namespace, kind: str) -> None:
    """A name is a str; it belongs to one kind of object; a name below that of another is refused."""
    with pytest.raises(TypeError, match="name must be a str"):
        make_named(tasks, kind, 1)
    kept = tasks.Lock("lock")
    if kind != "Lock":
        with pytest.raises(ValueError, match=r"/lock' for Lock already|nest"):
            make_named(tasks, kind, "lock")
    with pytest.raises(ValueError, match=r"/lock' for Lock already; use another path for Lock\(fair=False\)"):
        tasks.Lock("lock", fair=False)
    with pytest.raises(ValueError, match="nest"):
        make_named(tasks, kind, "lock/below")
    assert kept


def test_what_a_multilock_is_of(tasks: aio.Namespace) -> None:
    """It is of several names, each once; one string is not several."""
    with pytest.raises(TypeError, match="several names"):
        tasks.MultiLock("cart")
    with pytest.raises(ValueError, match="twice"):
        tasks.MultiLock(["a", "a"])
    with pytest.raises(ValueError, match="at least one"):
        tasks.MultiLock([])


def test_a_condition_gives_up_all_levels(tasks: aio.Namespace) -> None:
    """A wait lets others in at any level of the lock, and has all levels again after it."""

    async def main() -> None:
        lock = tasks.RLock("lock")
        condition = tasks.Condition("condition", lock)  # type: ignore[arg-type]
        waits = asyncio.Event()

        async def waiter() -> None:
            async with lock, condition:
                waits.set()
                await condition.wait()
                lock.release()
                await lock.acquire()

        waiting = asyncio.create_task(waiter())
        await waits.wait()
        while not waiting.done():
            async with condition:
                condition.notify()
            await asyncio.sleep(0.01)
        await waiting
        with pytest.raises(RuntimeError):
            await condition.wait()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_the_paths(zk: KazooClient, connect: Connect, zk_path: str) -> None:
    """A name's path lies below the base; threads that have the same name share it."""
    tasks = aio.namespace(zk, zk_path)
    assert tasks.RLock("cart").path == f"{zk_path}/cart"
    assert aio.namespace(zk).Barrier("barrier", 2).path == "/barrier"
    assert tasks.ReadWriteLock("pair").read_lock.path == f"{zk_path}/pair"
    assert (tasks.client, tasks.path) == (zk, zk_path)
    assert repr(tasks) == f"<zkconcurrent.aio.SharedNamespace path={zk_path!r}>"
    threads = zkconcurrent.namespace(connect(), zk_path)

    async def main() -> None:
        async with tasks.RLock("cart"):
            assert not await asyncio.to_thread(threads.RLock("cart").acquire, False)

    asyncio.run(main())


def test_bad_bases_and_clients() -> None:
    """A base that is no path and a client that is no client are refused, as `zkconcurrent.namespace` refuses them."""
    for client, path in [("local", "app"), (KazooClient(), "/a/../b"), ("zk://u:secret@a", "/app"), (None, "/app")]:
        with pytest.raises((ValueError, TypeError)) as expected:
            zkconcurrent.namespace(client, path)
        with pytest.raises(expected.type) as told:
            aio.namespace(client, path)
        assert str(told.value) == str(expected.value)
        assert "secret" not in str(told.value)


# -- asyncio's own ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Lock", ()),
        ("Condition", ()),
        ("Semaphore", (3,)),
        ("BoundedSemaphore", (3,)),
        ("Event", ()),
        pytest.param("Barrier", (2,), marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="asyncio has none")),
    ],
)
def test_they_are_asyncios(local: aio.LocalNamespace, name: str, arguments: tuple[Any, ...]) -> None:
    """The names that `asyncio` has give its objects: the same for the same name, another for another."""
    make = getattr(local, name)
    one = make("one", *arguments)
    assert isinstance(one, getattr(asyncio, name))
    assert make("one", *arguments) is one
    assert make("other", *arguments) is not one
    assert getattr(aio.namespace("local"), name)("one", *arguments) is not one


@pytest.mark.parametrize(
    ("use", "error", "told"),
    [
        (lambda local: local.Condition("c", asyncio.Lock()), TypeError, "of this namespace, not Lock"),
        (lambda local: local.Condition("c", aio.namespace("local").RLock("x")), ValueError, "another namespace"),
        (lambda local: local.Semaphore("s", 1.5), TypeError, "value must be an int, not float"),
        (lambda local: local.Lock("l", on_lost=7), TypeError, "on_lost must be callable"),
        (lambda local: local.MultiLock(["l"], on_lost=7), TypeError, "on_lost must be callable"),
        (lambda local: local.CountDownLatch("l", -1), ValueError, "must not be negative"),
        (lambda local: local.ReadWriteLock("l"), AttributeError, "ReadWriteLock"),
        pytest.param(
            lambda local: local.Barrier("b", 0),
            ValueError if sys.version_info >= (3, 11) else NotImplementedError,
            "parties must be|3.11",
        ),
    ],
)
def test_what_is_wrong(
    use: Callable[[aio.LocalNamespace], Any], error: type[Exception], told: str, local: aio.LocalNamespace
) -> None:
    """The local namespace refuses at once all that the shared one would refuse, and the names that it lacks."""
    with pytest.raises(error, match=told):
        use(local)
    assert not local._objects


def test_terms_and_what_is_kept(local: aio.LocalNamespace) -> None:
    """Terms that all must agree on must be given alike; objects with a lasting state stay."""
    local.Event("event").set()
    local.Semaphore("semaphore", 0).release()
    local.CountDownLatch("latch", 2).count_down()
    gc.collect()
    assert local.Event("event").is_set()
    assert not local.Semaphore("semaphore", 0).locked()
    assert asyncio.run(local.CountDownLatch("latch", 2).fetch_count()) == 1
    with pytest.raises(ValueError, match="'/app/semaphore' was made with value=0, not 3"):
        local.Semaphore("semaphore", 3)
    assert repr(local) == "<zkconcurrent.aio.LocalNamespace path='/app'>"
    assert len(local._made_as) == 3


@pytest.mark.parametrize("kind", ["Lock", "RLock", "Condition", "MultiLock"])
def test_what_is_dropped_while_held(kind: str, local: aio.LocalNamespace) -> None:
    """A lock that is dropped while it is held is a ResourceWarning, and the next of its name is free."""

    async def main() -> None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            await make_named(local, kind, "lock").acquire()
            gc.collect()
            async with make_named(local, kind, "lock"):
                pass
            gc.collect()
        assert ["'/app/lock' was garbage collected while held" in str(each.message) for each in told].count(True) == 1

    asyncio.run(asyncio.wait_for(main(), 20))


def test_an_rlock_of_a_task(local: aio.LocalNamespace) -> None:
    """Its task may acquire it again; another one waits, and can't release it; a cancelled MultiLock holds nothing."""

    async def main() -> None:
        lock, both = local.RLock("b"), local.MultiLock(["a", "b"])
        with pytest.raises(RuntimeError, match="un-acquired"):
            lock.release()
        async with lock, lock:
            other = asyncio.create_task(both.acquire())
            await asyncio.sleep(0)
            assert local.RLock("a").locked()
            assert not other.done()
            assert both.locked()
            other.cancel()
            with pytest.raises(asyncio.CancelledError):
                await other
            assert not local.RLock("a").locked()

            async def release() -> None:
                lock.release()

            with pytest.raises(RuntimeError, match="un-acquired"):
                await asyncio.create_task(release())
        assert not lock.locked()

    asyncio.run(main())


def test_a_latch(local: aio.LocalNamespace) -> None:
    """A wait ends at its deadline, or when the count is zero."""

    async def main() -> None:
        latch = local.CountDownLatch("latch", 2)
        assert not await latch.wait(0)
        assert not await latch.wait(0.01)
        waiting = asyncio.create_task(latch.wait())
        latch.count_down()
        await asyncio.sleep(0)
        assert not waiting.done()
        latch.count_down(5)
        assert await waiting
        assert await latch.wait(0)
        assert await local.CountDownLatch("open", 0).wait()

    asyncio.run(main())


def test_a_candidate_that_gives_up(local: aio.LocalNamespace) -> None:
    """A task that is cancelled while it waits to lead, or gives a bad timeout, leaves no candidate."""

    async def main() -> None:
        election = local.Election("leader")

        async def lead(timeout: float | None = None) -> None:
            async with election.lead(timeout):
                pytest.fail("two lead")

        async with election.lead():
            waiting = asyncio.create_task(lead())
            while len(await election.candidates()) < 2:
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            with pytest.raises(ValueError, match="NaN"):
                await asyncio.create_task(lead(math.nan))
            with pytest.raises(TimeoutError, match="not elected"):
                await asyncio.create_task(lead(0))
            assert len(await election.candidates()) == 1
        assert await election.candidates() == []

    asyncio.run(main())
