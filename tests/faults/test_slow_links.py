"""Round trips that take longer than a call may: the first question is answered, the waiting is timed."""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from threading import BrokenBarrierError
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
import zkconcurrent.aio
from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.forwarder import Forwarder, SlowConnection, SlowToTheServer
from tests.helpers.over_tls import TLS, OverTls
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    Barrier,
    ClientError,
    Election,
    Empty,
    Full,
    Group,
    Lock,
    OutcomeUnknownError,
    Queue,
    SharedValue,
)
from zkconcurrent._engine.session import Session
from zkconcurrent._protocol.lease import MARGIN
from zkconcurrent.testing import Server

pytestmark = pytest.mark.fault(51)

IDLE = 12.0
TRIP = 0.1
TIMEOUT = 30.0  # of the sessions: a third of it, which the first question may take, is long for any machine


@pytest.mark.fault(221)
@pytest.mark.long
def test_a_hold_of_a_client_that_was_idle(zookeeper: Server, zk_path: str) -> None:
    """No hold is lost at once, though its requests are slow and their proof almost over at the acquire."""
    round_trip = IDLE / 20
    with Proxy(zookeeper.hosts) as proxy, zkconcurrent.connect(f"zk://{proxy.hosts}?timeout={IDLE}") as client:
        session, lock = Session.of(client), Lock(client, zk_path)
        with lock:  # once, so that the next acquire is one request
            pass
        idle_since = session.clock()
        proxy.delay(round_trip / 2)
        # Of its requests, one each third of the timeout, every other one is answered too late to count for the next.
        # So at the reply to the create, the proof is as old as the session timeout, less a part of a round trip.
        begin = IDLE / 3 - MARGIN * IDLE - 1.5 * round_trip
        eventually(lambda: session.clock() > idle_since + 1.5 * IDLE)
        before = session.heartbeat._last
        eventually(lambda: session.heartbeat._last > before)
        time.sleep(max(0.0, session.heartbeat._last + begin - session.clock()))
        assert lock.acquire()
        assert not lock.lost.wait(2 * round_trip)
        lock.release()


def elected(election: Election, timeout: float) -> bool:
    """Lead in time; return whether that was so."""
    try:
        with election.lead(timeout):
            return True
    except TimeoutError:
        return False


def taken(queue: Queue[bytes], timeout: float) -> bool:
    """Return whether an item comes in time."""
    try:
        queue.get(timeout=timeout)
    except Empty:
        return False
    return True


def first_value(shared: Any, timeout: float) -> list[bytes]:
    """Return what `watch` shows first."""
    if isinstance(shared, SharedValue):
        return [each.value for each in shared.watch(timeout)][:1]

    async def seen() -> list[bytes]:
        return [each.value async for each in shared.watch(timeout)][:1]

    return asyncio.run(seen())


def first_members(group: Any, timeout: float) -> list[str]:
    """Return the ids that `observe` shows first."""
    if isinstance(group, Group):
        return list(next(group.observe(timeout)))

    async def seen() -> list[str]:
        async for members in group.observe(timeout):
            return list(members)
        return []

    return asyncio.run(seen())


def done(made: Any) -> Any:
    """Return a call's result; that of a task's call is awaited."""

    async def awaited() -> Any:
        return await made

    return asyncio.run(awaited()) if inspect.isawaitable(made) else made


def set_flag(of: Any, client: KazooClient, path: str) -> None:
    """Set an event."""
    done(of.Event(client, path).set())


def count_down(of: Any, client: KazooClient, path: str) -> None:
    """Open a latch of one."""
    done(of.CountDownLatch(client, path, 1).count_down())


def put_item(of: Any, client: KazooClient, path: str) -> None:
    """Put an item."""
    done(of.Queue(client, path).put(b"x"))


def nothing(*_: object) -> None:
    """Leave the path as it is: no client has used it."""


def acquired(lock: Any, timeout: float) -> bool:
    """Acquire a lock or permit, and release it."""
    got = done(lock.acquire(timeout=timeout))
    if got:
        done(lock.release())
    return bool(got)


def led(of: Any, client: KazooClient, path: str, timeout: float) -> bool:
    """Lead, if that is possible in time."""
    election = of.Election(client, path)
    if of is zkconcurrent:
        return elected(election, timeout)

    async def lead() -> bool:
        async with election.lead(timeout):
            return True

    return asyncio.run(lead())


def passed(of: Any, client: KazooClient, path: str, timeout: float) -> bool:
    """Enter a double barrier of one, and leave it."""
    barrier = of.DoubleBarrier(client, path, 1)
    if of is zkconcurrent:
        return bool(barrier.enter(timeout) and barrier.leave(timeout))

    async def enter() -> bool:
        return bool(await barrier.enter(timeout) and await barrier.leave(timeout))

    return asyncio.run(enter())


def claimed(of: Any, client: KazooClient, path: str, timeout: float) -> bool:
    """Return whether an item is claimed in time."""
    queue = of.Queue(client, path)
    if of is zkconcurrent:
        with queue.claim(timeout=timeout) as claim:
            return bool(claim.item)

    async def claims() -> bool:
        async with queue.claim(timeout=timeout) as claim:
            return bool(claim.item)

    return asyncio.run(claims())


def joined(of: Any, client: KazooClient, path: str, timeout: float) -> bool:
    """Join a group, and leave it."""

    async def join() -> bool:
        member = await of.Group(client, path).join(b"", "id", wait=timeout)
        await member.leave()
        return True

    if of is zkconcurrent:
        of.Group(client, path).join(b"", "id", wait=timeout).leave()
        return True
    return asyncio.run(join())


# Each state holds at the service when the call begins: the function that makes it so, and the call that must see it.
TRUE: dict[str, tuple[Callable[[Any, KazooClient, str], None], Callable[[Any, KazooClient, str, float], Any]]] = {
    "the first value": (nothing, lambda of, zk, at, t: done(of.SharedValue(zk, at, b"x").wait_for(bool, t))),
    "the first value, watched": (nothing, lambda of, zk, at, t: first_value(of.SharedValue(zk, at, b"x"), t) == [b"x"]),
    "nobody is there": (nothing, lambda of, zk, at, t: first_members(of.Group(zk, at), t) == []),
    "a barrier of one": (nothing, lambda of, zk, at, t: done(of.Barrier(zk, at, 1).wait(t)) == 0),
    "a double barrier of one": (nothing, passed),
    "a latch of none": (nothing, lambda of, zk, at, t: done(of.CountDownLatch(zk, at, 0).wait(t))),
    "a place": (nothing, lambda of, zk, at, t: done(of.Queue(zk, at, 1).put(b"x", timeout=max(t, 0.0))) is None),
    "a free lock": (nothing, lambda of, zk, at, t: acquired(of.Lock(zk, at), max(t, 0.0))),
    "a free detached lock": (nothing, lambda of, zk, at, t: acquired(of.DetachedLock(zk, at, "me"), max(t, 0.0))),
    "several free locks": (
        nothing,
        lambda of, zk, at, t: acquired(of.MultiLock([of.Lock(zk, f"{at}/{n}") for n in "abc"]), max(t, 0.0)),
    ),
    "a free id": (nothing, lambda of, zk, at, t: joined(of, zk, at, max(t, 0.0))),
    "a permit": (nothing, lambda of, zk, at, t: acquired(of.Semaphore(zk, at), t)),
    "no leader": (nothing, led),
    "a flag": (set_flag, lambda of, zk, at, t: done(of.Event(zk, at).wait(t))),
    "an open latch": (count_down, lambda of, zk, at, t: done(of.CountDownLatch(zk, at, 1).wait(t))),
    "an item": (put_item, lambda of, zk, at, t: done(of.Queue(zk, at).get(timeout=max(t, 0.0))) == b"x"),
    "an item to claim": (put_item, lambda of, zk, at, t: claimed(of, zk, at, max(t, 0.0))),
}


@pytest.mark.fault(238)
@pytest.mark.parametrize("of", [zkconcurrent, zkconcurrent.aio], ids=["threads", "tasks"])
@pytest.mark.parametrize("what", TRUE)
def test_a_first_look(of: Any, what: str, connect: Connect, zk: KazooClient, proxy: Proxy, zk_path: str) -> None:
    """A call sees what is true when it begins, also at a path that its client, or any, has never used."""
    client = connect(hosts=proxy.hosts, timeout=TIMEOUT)
    make, sees = TRUE[what]
    proxy.delay(0.03)
    for n, timeout in enumerate((0, -1, 0.001)):
        path = f"{zk_path}/{n}"
        make(zkconcurrent, zk, path)
        assert sees(of, client, path, timeout), timeout
    proxy.resume()


@pytest.mark.fault(238)
@pytest.mark.parametrize("of", [zkconcurrent, zkconcurrent.aio], ids=["threads", "tasks"])
def test_a_look_at_a_value_makes_no_node(of: Any, zk: KazooClient, zk_path: str) -> None:
    """A wait sees the first value before any node is made."""
    shared = of.SharedValue(zk, zk_path, b"x")
    assert done(shared.wait_for(bool, 0))
    assert zk.exists(zk_path) is None
    assert first_value(shared, 0) == [b"x"]
    assert done(shared.compare_and_set((b"x", 0), b"y"))
    assert done(shared.get()) == (b"y", 1)


def told(barrier: Barrier, timeout: float | None, after: float = 0.0) -> bool:
    """Come after so many seconds; return whether we pass."""
    time.sleep(after)
    try:
        barrier.wait(timeout)
    except BrokenBarrierError:
        return False
    return True


@pytest.mark.fault(61)
@pytest.mark.parametrize("action", [None, 0.5], ids=["no action", "action"])
def test_all_parties_agree(
    action: float | None, zookeeper: Server, connect: Connect, zk_path: str, in_thread: InThread
) -> None:
    """With any timeouts of the parties, on time or late, all of them pass, or all are told of a broken barrier."""
    with ExitStack() as proxies:
        clients = []
        for factor in (0.5, 0.5, 0.0):  # two whose round trip is so long, and one that is near
            proxy = proxies.enter_context(Proxy(zookeeper.hosts))
            clients.append(connect(hosts=proxy.hosts, timeout=TIMEOUT))
            proxy.delay(TRIP * factor)
        act = None if action is None else lambda: time.sleep(action or 0.0)
        timeouts = [0.0, *(TRIP * n / 2 for n in range(1, 18)), action or 0.0, (action or 0.0) + 5.5 * TRIP]
        rounds = []
        for n, timeout in enumerate(timeouts):
            barriers = [Barrier(client, f"{zk_path}/{n}", 3, act) for client in clients]
            hurried, others = n % 3, [None, (None, 4 * TRIP, 20.0)[n % 3]]
            late = (0.0, TRIP, 3 * TRIP)[n // 3 % 3]
            rounds.append(
                [
                    in_thread(told, barrier, timeout if who == hurried else others.pop(), late if who == hurried else 0)
                    for who, barrier in enumerate(barriers)
                ]
            )
        passed = [{each.result(60) for each in verdicts} for verdicts in rounds]
        assert [len(verdicts) for verdicts in passed] == [1] * len(rounds), list(zip(timeouts, passed, strict=True))
        for n, verdicts in enumerate(passed):
            near = Barrier(clients[2], f"{zk_path}/{n}", 3, act)
            assert near.broken != verdicts.pop()


@pytest.mark.fault(407)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_large_message(what: str, tls: bool, zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """A value that passes for longer than a third of the session timeout does so once, on one connection."""
    SharedValue(zk, zk_path, b"").set(bytes(700_000))
    with Forwarder(zookeeper.port) as door, Forwarder(door.server_address[1] if tls else zookeeper.port) as link:
        door.RequestHandlerClass = OverTls
        link.RequestHandlerClass = SlowConnection if what == "reply" else SlowToTheServer
        # Bytes in this buffer have left the client, and so would not show that the link passes more.
        link.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        url = f"localhost:{link.server_address[1]}?timeout={7 if what == 'reply' else 9}"
        with zkconcurrent.connect(f"zks://{url}&ca={TLS / 'ca.pem'}" if tls else f"zk://{url}") as slow:
            shared, before = SharedValue(slow, zk_path, b""), Session.of(slow).link.connection
            if what == "reply":
                assert len(shared.get().value) == 700_000
            else:
                shared.set(bytes(900_000))
            assert Session.of(slow).link.connection is before
        link.shutdown()
        door.shutdown()


@pytest.mark.fault(407)
@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_large_message_that_takes_too_long(
    what: str, zookeeper: Server, zk: KazooClient, zk_path: str, in_thread: InThread, caplog: pytest.LogCaptureFixture
) -> None:
    """A value that passes for longer than a session timeout is sent again and again; the log says why."""
    SharedValue(zk, zk_path, b"").set(bytes(900_000))
    with Forwarder(zookeeper.port) as link:
        link.RequestHandlerClass = SlowConnection if what == "reply" else SlowToTheServer
        link.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        with zkconcurrent.connect(f"zk://localhost:{link.server_address[1]}?timeout=1") as slow:
            shared = SharedValue(slow, zk_path, b"")
            call = in_thread(shared.get if what == "reply" else lambda: shared.set(bytes(900_000)))
            (warning,) = eventually(lambda: [each for each in caplog.messages if "bytes" in each][:1])
            assert re.match(rf"a {what} of 900,\d\d\d bytes \(\w+ {zk_path}\) was under way for \d.\d s", warning)
        with pytest.raises(ClientError):
            call.result(20)
        link.shutdown()


@pytest.mark.fault(407)
@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_deadline_of_a_large_message(what: str, zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """A call whose value passes for too long ends by its deadline, and the log's advice is right."""
    if what == "reply":
        Queue(zk, zk_path).put(bytes(600_000))
    with Forwarder(zookeeper.port) as link:
        link.RequestHandlerClass = SlowConnection if what == "reply" else SlowToTheServer
        link.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        url = f"zk://localhost:{link.server_address[1]}"
        with zkconcurrent.connect(f"{url}?timeout=1") as hasty:
            if what == "reply":
                with pytest.raises(Empty):
                    Queue(hasty, zk_path).get(timeout=1.5)
            else:
                with pytest.raises((Full, OutcomeUnknownError)):
                    Queue(hasty, zk_path).put(bytes(600_000), timeout=1.5)
        with zkconcurrent.connect(f"{url}?timeout=10") as patient:
            queue = Queue(patient, zk_path)
            if what == "request":
                queue.put(bytes(600_000), timeout=8)
            else:
                assert len(queue.get(timeout=8)) == 600_000
        link.shutdown()
