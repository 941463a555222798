"""Namespaces of several ensembles: who shares which path, lists that differ, and lists that grow."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from kazoo.client import KazooClient

import zkconcurrent.prometheus
from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import ClientError, Lock, Namespace, RLock, aio, namespace
from zkconcurrent._engine import telling
from zkconcurrent._protocol.ensembles import RECORD, Plan, Record
from zkconcurrent._threads import ensembles as _ensembles
from zkconcurrent.testing import Server

Clients = Callable[..., list[KazooClient]]


@pytest.fixture
def clients(services: list[Server]) -> Iterator[Clients]:
    """Open a client of each of some services, as one more process would; all are stopped after the test."""
    opened: list[KazooClient] = []

    def of(*which: int) -> list[KazooClient]:
        new = [zkconcurrent.connect(f"zk://{services[each].hosts}?timeout=10") for each in which]
        opened.extend(new)
        return new

    yield of
    stop(*opened)


def stop(*them: KazooClient) -> None:
    """End the processes of these clients."""
    for client in them:
        client.stop()
        client.close()


def grow(clients: Clients, path: str) -> Namespace:
    """Return the namespace of a process that takes part in the move from two ensembles to three."""
    *old, new = clients(0, 1, 2)
    return namespace(old, path, joining=[new])


def names(threads: Namespace, moving: bool) -> list[str]:
    """Return first parts whose places change, or whose places stay, of a process that takes part in a move."""
    return [f"{n}" for n in range(60) if (len(threads._spread.places(f"{threads.path}/{n}")) == 2) is moving]  # type: ignore[union-attr]


# -- places ----------------------------------------------------------------------------------------------------------


def test_which_ensemble_has_a_path(clients: Clients, zk_path: str) -> None:
    """All processes find a name on one ensemble, in whichever order they give them; its first part decides which."""
    one, two = namespace(clients(0, 1), zk_path), namespace(clients(1, 0), zk_path)
    assert len(one.clients) == 2
    for n in range(8):
        lock = one.RLock(f"{n}/cart")
        assert lock.client is one.Queue(f"{n}/jobs").client
        with lock:
            assert not two.RLock(f"{n}/cart").acquire(blocking=False)
    assert {one.Lock(f"{n}/lock").client for n in range(20)} == set(one.clients)
    with one.MultiLock([f"m{n}" for n in range(8)]) as held:
        assert held
        assert not two.MultiLock(["m7", "m0"]).acquire(blocking=False)


def test_what_a_namespace_of_several_has(clients: Clients, zk_path: str) -> None:
    """Its listeners hear of all clients; it has no single client, and neither it nor its locks can be pickled."""
    threads = namespace(clients(0, 1), zk_path)
    told: list[str] = []
    remove = threads.add_listener(lambda event: told.append(event.path))
    locks = [threads.Lock(f"{n}") for n in range(8)]
    for lock in locks:
        with lock:
            pass
    assert set(told) == {lock.path for lock in locks}
    remove()
    told.clear()
    with locks[0]:
        assert not told
    with pytest.raises(ValueError, match="clients"):
        _ = threads.client
    for each in (threads, locks[0]):
        with pytest.raises(TypeError, match=r"clients|2 ensembles"):
            pickle.dumps(each)
    with pytest.raises(ValueError, match=RECORD):
        threads.Lock(f"{RECORD}/x")


@pytest.mark.parametrize("of_tasks", [False, True])
def test_the_metrics_of_a_namespace_of_several(clients: Clients, zk_path: str, of_tasks: bool) -> None:
    """Fault 379: they measure all its clients, and nothing that is not below its path, or of another client."""
    several, registry = clients(0, 1), prometheus_client.CollectorRegistry()
    made = aio.namespace(several, zk_path) if of_tasks else namespace(several, zk_path)
    remove = zkconcurrent.prometheus.instrument(made, registry=registry)

    def active(name: str, label: str) -> list[str]:
        samples = [each for metric in registry.collect() for each in metric.samples if each.name == name]
        return sorted(each.labels[label] for each in samples if each.value)

    letters = list("abcdefgh")
    locks = [namespace(several, zk_path).Lock(letter) for letter in letters]
    others = [Lock(clients(0)[0], f"{zk_path}/i"), Lock(several[0], f"{zk_path}-others")]
    for lock in (*locks, *others):
        lock.acquire()
    assert {lock.client for lock in locks} == set(several)
    assert active("zkconcurrent_lock_hold_active", "zkconcurrent_name") == letters
    assert len(active("zkconcurrent_session_state", "zkconcurrent_client")) == 2
    for lock in (*locks, *others):
        lock.release()
    assert active("zkconcurrent_lock_hold_active", "zkconcurrent_name") == []
    assert active("zkconcurrent_lock_acquisitions_total", "zkconcurrent_name") == letters
    remove()
    assert not telling.registered


def test_what_is_no_list(clients: Clients, zk_path: str, services: list[Server]) -> None:
    """An empty list, one ensemble twice, and an ensemble that joins no list are refused; so is a base path within."""
    one, two = clients(0, 1)
    (again,) = clients(0)
    with pytest.raises(ValueError, match="at least one client"):
        namespace([], zk_path)
    with pytest.raises(ValueError, match="one ensemble"):
        namespace([one, again], zk_path)
    with pytest.raises(ValueError, match="as a list"):
        namespace(one, zk_path, joining=[two])
    with pytest.raises(TypeError, match="joining must be a list"):
        namespace([one], zk_path, joining=two)  # type: ignore[arg-type]
    namespace([one], zk_path)
    with pytest.raises(zkconcurrent.ForeignNodeError, match="names below its path"):
        namespace([one, two], f"{zk_path}/below")
    assert services


def test_a_base_path_above(clients: Clients, zk_path: str) -> None:
    """Fault 339: a namespace that begins above another one gets no lock that the other has in another place."""
    below, above = namespace(clients(0, 1), f"{zk_path}/a/b"), namespace(clients(0, 1), zk_path)
    with below.MultiLock([f"{n}" for n in range(8)]):
        for n in range(8):
            for lock in (above.Lock(f"a/b/{n}"), above.ReadWriteLock(f"a/b/c/{n}").read_lock):
                with pytest.raises(zkconcurrent.ForeignNodeError, match=f"another namespace has '{zk_path}/a/b'"):
                    lock.acquire(timeout=20)
        with above.Lock("a/c/0"), above.Lock("b/b"), above.Lock("c"):
            pass
    assert not any(client.exists(f"{zk_path}/a/b/c") for client in above.clients)


def test_a_stranger_s_member(clients: Clients, zk_path: str) -> None:
    """Fault 338: a list does not grow past a membership that can't be read, and the error shows it."""
    (old,) = namespace(clients(0), zk_path).clients
    old.create(f"{zk_path}/{RECORD}/member-x", b"junk")
    moving, _ = namespace(clients(0), zk_path, joining=clients(1)).clients
    stop(old)
    with pytest.raises(ClientError, match=r"1 processes use a list without .* b'junk'"):
        namespace(clients(0, 1), zk_path)
    moving.delete(f"{zk_path}/{RECORD}/member-x")
    with namespace(clients(0, 1), zk_path).MultiLock(["0", "1"]):
        pass


def test_a_list_that_begins_anew(services: list[Server], zk_path: str) -> None:
    """Once all processes have ended and the records are deleted, any list begins; here below the root of chroots."""
    one, two = them = [zkconcurrent.connect(f"zk://{each.hosts}{zk_path}") for each in services[:2]]
    try:
        threads = namespace(them)
        with threads.MultiLock([f"{n}" for n in range(8)]):
            assert threads.path == "/"
        for each in them:
            each.stop()
        one, two = them = [zkconcurrent.connect(f"zk://{each.hosts}{zk_path}") for each in services[:2]]
        with pytest.raises(ClientError, match="agreed on"):
            namespace([two])
        for each in them:
            each.delete(f"/{RECORD}", recursive=True)
        with namespace([two]).Lock("0"):
            pass
        assert one.get_children("/") is not None
    finally:
        stop(*them)


def test_tasks(clients: Clients, zk_path: str) -> None:
    """Tasks share the places with threads, also of a path that moves."""
    old = namespace(clients(0, 1), zk_path)
    *two, new = clients(0, 1, 2)

    async def main() -> None:
        tasks = await asyncio.to_thread(aio.namespace, two, zk_path, joining=[new])
        moving, staying = (f"{names(tasks, each)[0]}/lock" for each in (True, False))  # type: ignore[arg-type]

        def try_on_thread(name: str, timeout: float = 0.0) -> int:
            with old.RLock(name).hold(timeout):
                return old.RLock(name).fencing_token

        for name in (moving, staying):
            lock = tasks.RLock(name)
            async with lock:
                with pytest.raises(TimeoutError):
                    await asyncio.to_thread(try_on_thread, name)
                first = lock.fencing_token
            # The end of a task's block does not wait until the lock is free.
            assert await asyncio.to_thread(try_on_thread, name, 20) > first
            async with lock.hold(timeout=20):
                pass
        async with tasks.MultiLock([moving, staying]):
            with pytest.raises(TimeoutError):
                await asyncio.to_thread(try_on_thread, moving)
        pair = tasks.ReadWriteLock(f"{moving}-pair")
        async with pair.write_lock, pair.read_lock:
            assert not await asyncio.to_thread(old.ReadWriteLock(f"{moving}-pair").read_lock.acquire, False)
        with pytest.raises(ClientError, match="moves from"):
            tasks.Semaphore(f"{moving}-semaphore", 1)

    asyncio.run(main())


# -- lists that differ -------------------------------------------------------------------------------------------------


def test_another_list(clients: Clients, zk_path: str) -> None:
    """Fault 318: a process whose list is not that of the others gets an error, and the others go on."""
    threads = namespace(clients(0, 1), zk_path)
    with threads.Lock("here"):
        for which in ((0,), (1,), (0, 2), (2, 1)):
            with pytest.raises(ClientError, match="have agreed on"):
                namespace(clients(*which), zk_path)
        with pytest.raises(ClientError, match=r"1 processes use a list without .* pid \d+"):
            namespace(clients(0, 1, 2), zk_path)
        assert not namespace(clients(0, 1), zk_path).Lock("here").acquire(blocking=False)
    # A list that an ensemble was given to join by stands, too.
    moving = grow(clients, zk_path)
    for which in ((2,), (0, 2)):
        with pytest.raises(ClientError, match="agree"):
            namespace(clients(*which), zk_path)
    with moving.Lock("here"):
        assert not threads.Lock("here").acquire(blocking=False)


def test_a_deleted_record(clients: Clients, zk_path: str, services: list[Server]) -> None:
    """Fault 318: a process whose record is gone, as from an ensemble that was set up anew, gets an error."""
    threads = namespace(clients(0), zk_path)
    (client,) = threads.clients
    with threads.Lock("here"):
        pass
    client.delete(f"{zk_path}/{RECORD}", recursive=True)
    services[0].expire(client)
    with pytest.raises(ClientError, match="record"):
        threads.Lock("here").acquire()


def test_a_record_made_anew(clients: Clients, zk_path: str, services: list[Server]) -> None:
    """Fault 318: so does one that was away while other processes began anew, with a list of the same length."""
    away = namespace(clients(0, 1), zk_path)
    locks = [away.RLock(f"{n}") for n in range(8)]
    for which, client in enumerate(away.clients):
        services[which].expire(client)
    for client in clients(0, 1):
        client.delete(f"{zk_path}/{RECORD}", recursive=True)
    other = namespace(clients(0, 2), zk_path)
    for n, lock in enumerate(locks):
        with other.RLock(f"{n}"), pytest.raises(ClientError, match=r"agreed on|was deleted"):
            lock.acquire(timeout=20)


# -- lists that grow ---------------------------------------------------------------------------------------------------


def test_tokens_of_a_move(clients: Clients, zk_path: str) -> None:
    """Fault 321: no holder, before, during or after a move, has a lower token than one before."""
    (zk,) = clients(0)
    for n in range(30):
        zk.create(f"/higher-{n}", ephemeral=True)  # the zxids of the old ensemble are above those of the new
    old = namespace(clients(0), zk_path)
    one, new = clients(0, 2)
    moving = namespace([one], zk_path, joining=[new])
    name = f"{names(moving, True)[0]}/lock"
    tokens: list[int] = []

    def take(threads: Namespace, *others: Namespace) -> None:
        lock, pair = threads.RLock(name), threads.ReadWriteLock(f"{name}-pair")
        with lock, lock:
            tokens.append(lock.fencing_token)
            for other in others:
                assert not other.RLock(name).acquire(blocking=False)
        for each in (pair.read_lock, pair.write_lock):
            with each:
                pairs.append(each.fencing_token)

    pairs: list[int] = []
    for _ in range(2):
        take(old, moving)
        take(moving, old)
    with old.Election(f"{name}-leader").lead() as term:
        led = term.token
    stop(*old.clients)
    grown = namespace(clients(2, 0), zk_path)
    for _ in range(2):
        take(moving, grown)
        take(grown, moving)
    assert tokens == sorted(set(tokens))
    assert pairs == sorted(set(pairs))
    with grown.Election(f"{name}-leader").lead() as term:
        assert term.token > led
    stop(*moving.clients, *grown.clients)
    last = namespace(clients(2, 0, 1), zk_path)
    with last.RLock(name):
        assert last.RLock(name).fencing_token > max(tokens)


def test_whether_a_moving_lock_is_held(clients: Clients, zk_path: str) -> None:
    """A lock that moves is held if a process of the old list, or of the new one, holds it at one of its places."""
    old, moving = namespace(clients(0, 1), zk_path), grow(clients, zk_path)
    name = names(moving, True)[0]
    lock = moving.RLock(name)
    assert not lock.locked()
    assert lock.owner() is None

    async def seen_by_tasks() -> bool:
        tasks = await asyncio.to_thread(aio.namespace, moving.clients[:2], zk_path, joining=moving.clients[2:])
        theirs = tasks.RLock(name)
        found = await theirs.fetch_locked()
        while theirs.locked() is not found:
            await asyncio.sleep(0.1)
        return found

    def check(threads: Namespace) -> None:
        with threads.RLock(name):
            owner = lock.owner()
            assert owner is not None
            assert owner.thread == "MainThread"
            assert lock.locked()
            assert asyncio.run(seen_by_tasks())
        assert not lock.locked()
        assert not asyncio.run(seen_by_tasks())

    check(old)
    check(moving)
    stop(*old.clients)
    check(namespace(clients(0, 1, 2), zk_path))
    with pytest.raises(TypeError, match="is of a namespace of 3 ensembles"):
        pickle.dumps(lock)


def test_tokens_of_one_process(clients: Clients, zk_path: str) -> None:
    """Fault 321: nor if a process makes the namespaces of both steps of the same clients, or opens one of them anew."""
    (zk,) = clients(0)
    for n in range(30):
        zk.create(f"/high-{n}", ephemeral=True)  # as above
    one, new = clients(0, 2)
    stop(*namespace(clients(0), zk_path).clients)
    moving = namespace([one], zk_path, joining=[new])
    name = names(moving, True)[0]
    tokens: list[int] = []

    def take(threads: Namespace) -> None:
        with threads.RLock(name):
            tokens.append(threads.RLock(name).fencing_token)

    take(moving)
    stop(one)
    moving = namespace(clients(0), zk_path, joining=[new])
    take(moving)
    grown = namespace(moving.clients, zk_path)
    for threads in (grown, moving, grown):
        take(threads)
    assert tokens == sorted(set(tokens))


def test_the_token_of_one_half(clients: Clients, zk_path: str) -> None:
    """A path that moves has no token at one of its ensembles alone; it has one once both are held."""
    namespace(clients(0, 1), zk_path)
    moving = grow(clients, zk_path)
    lock = moving.RLock(names(moving, True)[0])
    half: Any = lock.locks[1]  # type: ignore[attr-defined]
    with half, pytest.raises(RuntimeError, match="moving"):
        _ = half.fencing_token
    with moving.MultiLock([names(moving, True)[0]]) as _, lock.hold(wait_release=False):
        assert half.fencing_token == lock.fencing_token
    with pytest.raises(RuntimeError, match="not held"):
        _ = lock.fencing_token


def test_what_cannot_move_in_use(clients: Clients, zk_path: str) -> None:
    """At a path that moves there are only locks; values, items and those who wait would be at one of the two places."""
    moving = grow(clients, zk_path)
    here, there = names(moving, True)[0], names(moving, False)[0]
    for make in (
        *(moving.Condition, moving.Event, moving.Queue, moving.Dict, moving.Group, moving.AtomicLong),
        *(lambda name: moving.Semaphore(name, 1), lambda name: moving.RLock(name, on_revoke=print)),
    ):
        with pytest.raises(ClientError, match="start them with the new one"):
            make(f"{here}/x")  # type: ignore[operator]
    moving.Queue(there).put(b"1")
    assert moving.Queue(there).get() == b"1"


def test_what_would_be_left_behind(clients: Clients, zk_path: str, services: list[Server]) -> None:
    """A list does not grow while values at paths that move are there, or clients without the list use such a path."""
    old = namespace(clients(0, 1), zk_path)
    probe = grow(clients, zk_path)
    name, idle = names(probe, True)[:2]
    stop(*probe.clients)
    value = old.SharedValue(name, b"1")
    value.set(b"2")
    with old.RLock(idle):
        pass
    stop(*old.clients)
    grown = clients(0, 1, 2)
    with pytest.raises(ClientError, match=f"1 nodes would be left behind, such as {zk_path}/{name}:"):
        namespace(grown, zk_path)
    # Nothing has changed for processes of the old list.
    old = namespace(clients(0, 1), zk_path)
    again = old.SharedValue(name, b"1")
    assert again.get().value == b"2"
    again.destroy()
    where = services.index(next(each for each in services if each.hosts == host_of(again.client)))
    stop(*old.clients)
    (stranger,) = clients(where)
    with RLock(stranger, f"{zk_path}/{name}"), pytest.raises(ClientError, match=f"hold or wait for {zk_path}/{name}/"):
        namespace(grown, zk_path)
    threads = namespace(grown, zk_path)
    assert threads.SharedValue(name, b"1").client is grown[2]


def host_of(client: KazooClient) -> str:
    """Return the address of a client's server."""
    ((host, port),) = client.hosts
    return f"{host}:{port}"


def test_it_comes_back(clients: Clients, zk_path: str, services: list[Server], in_thread: InThread) -> None:
    """Fault 319: a process of the old list whose sessions ended, and that missed the move, gets an error, no lock."""
    old = namespace(clients(0, 1), zk_path)
    moving = grow(clients, zk_path)
    name = names(moving, True)[0]
    locks = [old.RLock(name), *(old.RLock(each) for each in names(moving, False)[:6])]
    event, value = old.Event(names(moving, True)[1]), old.SharedValue(names(moving, True)[2], b"1")
    with locks[0]:
        pass
    away = list(old.clients)
    for each, client in enumerate(away):
        services[each].expire(client)
    grown = namespace(clients(0, 1, 2), zk_path)
    with grown.RLock(name):
        for lock in locks:
            with pytest.raises(ClientError, match="have agreed on"):
                lock.acquire(timeout=20)
        for call in (event.set, event.is_set, value.get):
            with pytest.raises(ClientError, match="have agreed on"):
                call()
        assert not in_thread(moving.RLock(name).acquire, blocking=False).result(20)
    with moving.RLock(name).hold(timeout=20):
        pass


def test_a_waiter_is_a_member(clients: Clients, zk_path: str, services: list[Server], in_thread: InThread) -> None:
    """Fault 319: a thread that waits through the end of its session keeps the old list in use, as a holder would."""
    old, other = namespace(clients(0, 1), zk_path), namespace(clients(0, 1), zk_path)
    name = names(grow(clients, zk_path), True)[0]
    lock = other.RLock(name)
    with old.RLock(name):
        waiting = in_thread(lock.acquire)
        eventually(old.RLock(name).waiters)
        next(each for each in services if each.hosts == host_of(lock.client)).expire(lock.client)
        eventually(old.RLock(name).waiters)
    assert waiting.result(20)
    stop(*old.clients)
    with pytest.raises(ClientError, match="1 processes use a list without"):
        namespace(clients(0, 1, 2), zk_path)
    for hold in list(lock._lock_core.all()):
        lock._lock_core.drop(hold)


def test_a_move_that_is_cut_off(clients: Clients, zk_path: str, services: list[Server]) -> None:
    """Fault 320: a process is killed between the moves of two ensembles: the lists never meet, and the next ends it."""
    old = namespace(clients(0, 1), zk_path)
    moving = grow(clients, zk_path)
    locks = [old.RLock(f"{each}/lock") for each in (*names(moving, True)[:4], *names(moving, False)[:4])]
    for which, client in enumerate(old.clients):
        services[which].expire(client)
    # What that process has written: both have closed the old list, and one has moved.
    at, both = f"{zk_path}/{RECORD}", clients(0, 1)
    one, two = records = [Record.load(client.get(at)[0]) for client in both]
    assert one is not None
    assert two is not None
    three = moving._spread.plan.ends  # type: ignore[union-attr]
    both[0].set(at, Record(one.name, (*one.lists, three)).dump())
    both[0].create(f"{at}/move-1")
    both[1].set(at, two._replace(next=three).dump())
    for lock in locks:
        with pytest.raises(ClientError, match="agree"):
            lock.acquire(timeout=20)
    for which in ((0, 1), (1,)):
        with pytest.raises(ClientError, match="agree"):
            namespace(clients(*which), zk_path)
    another = grow(clients, zk_path)
    name = f"{names(moving, True)[0]}/lock"
    with another.RLock(name):
        assert not moving.RLock(name).acquire(blocking=False)
        last = another.RLock(name).fencing_token
    grown = namespace(clients(0, 1, 2), zk_path)
    with grown.RLock(name):
        assert grown.RLock(name).fencing_token > last
        assert not moving.RLock(name).acquire(blocking=False)
    records = [Record.load(client.get(at)[0]) for client in grown.clients]
    assert [each and each[1:] for each in records] == [((one.lists[0], three), None)] * 3


def test_a_list_that_was_open_meanwhile(clients: Clients, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 320: a process looks for members; before it moves, others open the list, let one in, and close it again."""
    name = names(grow(clients, zk_path), True)[0]
    olds: list[Namespace] = []
    locks: list[RLock] = []
    move = _ensembles.move

    def late_move(at: str, plan: Plan, *version: int) -> Any:
        if not olds:
            both = clients(0, 1)
            for client in both:
                record = Record.load(client.get(at)[0])
                assert record is not None
                client.set(at, record._replace(next=None).dump())
            olds.append(namespace(clients(0, 1), zk_path))
            locks.append(olds[0].RLock(name))
            locks[0].acquire()
            for client in both:
                record = Record.load(client.get(at)[0])
                assert record is not None
                client.set(at, record._replace(next=plan.ends).dump())
        return move(at, plan, *version)

    monkeypatch.setattr(_ensembles, "move", late_move)
    with pytest.raises(ClientError, match="1 processes use a list without"):
        namespace(clients(0, 1, 2), zk_path)
    locks[0].release()
    stop(*olds[0].clients)
    with namespace(clients(0, 1, 2), zk_path).RLock(name):
        pass


def test_two_lists_that_follow(clients: Clients, zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 318: of two processes that let one list grow by different ensembles at once, one gets an error."""
    stop(*namespace(clients(0), zk_path).clients)
    first: list[Namespace] = []
    close = _ensembles.close

    def late_close(*args: Any) -> Any:
        if not first:
            monkeypatch.setattr(_ensembles, "close", close)
            first.append(namespace(clients(0, 1), zk_path))
            # It goes on with its locks on the other ensemble.
            first[0].clients[0].stop()
        return close(*args)

    monkeypatch.setattr(_ensembles, "close", late_close)
    with pytest.raises(ClientError, match="have agreed on"):
        namespace(clients(0, 2), zk_path)
    stop(*first[0].clients)
    assert namespace(clients(0, 1), zk_path).clients


@pytest.mark.parametrize(
    ("what", "nth"),
    [(what, nth) for what, most in (("create", 2), ("multi", 4), ("setData", 3)) for nth in range(1, most + 1)],
)
def test_lost_replies(proxy: Proxy, connect: Connect, zk: KazooClient, zk_path: str, what: str, nth: int) -> None:
    """Fault 320: the reply to a write is lost, as a list begins or grows: it begins, and grows, all the same."""
    zk.ensure_path(f"{zk_path}/two")
    path = f"{zk_path}/base"
    with proxy.lose_answer(what, nth=nth, where=lambda message: RECORD in message.path) as fault:
        old = namespace([connect(proxy.hosts)], path)
        with old.Lock("x"):
            pass
        stop(*old.clients)
        pair = connect(proxy.hosts), connect(f"{proxy.hosts}{zk_path}/two")
        threads = namespace(pair[::-1], path)
        assert fault.injected.is_set()
    for n in range(8):
        with threads.Lock(f"{n}"):
            assert threads.Lock(f"{n}").fencing_token
    records = [Record.load(each.get(f"{path}/{RECORD}")[0]) for each in pair]
    one, two = records
    assert one is not None
    assert two is not None
    assert one.lists == two.lists == ((one.name,), tuple(sorted([one.name, two.name])))
    assert one.next is two.next is None
    assert [name for name in pair[0].get_children(f"{path}/{RECORD}") if name.startswith("move")] == ["move-1"]


@pytest.mark.long
def test_processes_roll_from_two_ensembles_to_three(
    clients: Clients, services: list[Server], zk_path: str, tmp_path: Path
) -> None:
    """Fault 321: while each process is replaced, twice, nobody is inside with another, and no token falls."""
    hosts = [each.hosts for each in services]
    first = namespace(clients(0, 1), zk_path)
    probe = grow(clients, zk_path)
    used = [f"{names(probe, moving)[0]}/lock" for moving in (True, False)]
    stop(*probe.clients, *first.clients)
    running: list[subprocess.Popen[bytes]] = []
    ended: list[subprocess.Popen[bytes]] = []

    def start(old: list[str], joining: list[str]) -> None:
        command = ["-m", "tests.integration.ensembles_party", str(tmp_path), zk_path, ",".join(old), ",".join(joining)]
        running.append(subprocess.Popen([sys.executable, *command, *used]))

    def cycles(process: subprocess.Popen[bytes]) -> int:
        file = tmp_path / f"{process.pid}.cycles"
        return int(file.read_text() or 0) if file.exists() else 0

    def all_work() -> None:
        """Wait until each process has gone through some cycles more."""
        before = {each.pid: cycles(each) for each in running}
        for each in running:
            eventually(lambda each=each: each.poll() is not None or cycles(each) > before[each.pid])
            assert each.poll() is None, "a process has failed"

    def replace(old: list[str], joining: list[str]) -> None:
        for _ in range(len(running)):
            last = running.pop(0)
            ended.append(last)
            start(old, joining)
            (tmp_path / f"{last.pid}.end").touch()
            assert last.wait(60) == 0
            all_work()

    try:
        for _ in range(3):
            start(hosts[:2], [])
        all_work()
        replace(hosts[:2], hosts[2:])
        replace(hosts, [])
        for each in running:
            (tmp_path / f"{each.pid}.end").touch()
            assert each.wait(60) == 0
    finally:
        for each in (*running, *ended):
            each.kill()
            each.wait()
