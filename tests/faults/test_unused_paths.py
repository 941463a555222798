"""A call that ends early, or dies, at a new path leaves no container that no server would remove.

A server removes an empty container only if that once had a child. So a container comes with its first child, in one
request.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError

import zkconcurrent
from tests.conftest import Connect
from tests.helpers.eventually import eventually
from zkconcurrent import aio
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

pytestmark = [
    pytest.mark.fault(239),
    pytest.mark.filterwarnings("ignore:the last object of:ResourceWarning"),  # the dead let go of nothing
]
PATHS = 200

MAKES: dict[str, Callable[[KazooClient, str], object]] = {
    "lock": lambda zk, path: zkconcurrent.Lock(zk, path).acquire(),
    "read lock": lambda zk, path: zkconcurrent.ReadWriteLock(zk, path).read_lock.acquire(),
    "detached lock": lambda zk, path: zkconcurrent.DetachedLock(zk, path, "me").acquire(timeout=0.1),
    "semaphore": lambda zk, path: zkconcurrent.Semaphore(zk, path).acquire(),
    "added permit": lambda zk, path: zkconcurrent.Semaphore(zk, path, 0).release(),
    "resized": lambda zk, path: zkconcurrent.Semaphore(zk, path, 1).resize(2),
    "condition": lambda zk, path: _wait(zkconcurrent.Condition(zk, path)),
    "barrier": lambda zk, path: zkconcurrent.Barrier(zk, path, 2).wait(timeout=0.1),
    "double barrier": lambda zk, path: zkconcurrent.DoubleBarrier(zk, path, 2).enter(timeout=0.1),
    "candidate": lambda zk, path: zkconcurrent.Election(zk, path, id="me").stand(),
    "observer of an election": lambda zk, path: [*zkconcurrent.Election(zk, path, id="me").observe()],
    "member": lambda zk, path: zkconcurrent.Group(zk, path).join(b"", id="me"),
    "observer of a group": lambda zk, path: list(zkconcurrent.Group(zk, path).observe(timeout=0.1)),
    "event": lambda zk, path: zkconcurrent.Event(zk, path).set(),
    "latch": lambda zk, path: zkconcurrent.CountDownLatch(zk, path, 1).wait(0.1),
    "number": lambda zk, path: zkconcurrent.AtomicLong(zk, path).add(),
    "value": lambda zk, path: zkconcurrent.SharedValue(zk, path, b"").set(b"x"),
    "queue": lambda zk, path: zkconcurrent.Queue(zk, path).put(b""),
    "dict": lambda zk, path: zkconcurrent.Dict(zk, path).update(a=b""),
}
"""What makes the nodes of a path that was never used, by what it is."""


def _wait(condition: zkconcurrent.Condition) -> None:
    with condition:
        condition.wait(0.1)


@pytest.fixture(scope="module")
def tidy() -> Iterator[Server]:
    """A server that often looks for empty containers."""
    with Server(container_check_interval=0.3) as server:
        yield server


STATE = {"semaphore": "/permits", "added permit": "/permits", "resized": "/permits"}
STATE |= dict.fromkeys(("barrier", "event", "latch", "number", "value", "queue", "dict"), "")
"""The persistent node of each kind that has one, below its path: until `destroy()`, the path stays with it."""


def stay(zk: KazooClient, kind: str, folder: str) -> list[str]:
    """Return the paths in a folder that stay, and have neither the state of their kind nor a holder's node."""
    found = []
    for name in zk.get_children(folder) if zk.exists(folder) else ():
        path = f"{folder}/{name}/x"
        there = zk.exists(path)
        if not (there and (there.numChildren if kind == "detached lock" else kind in STATE)) or (
            kind in STATE and not zk.exists(path + STATE[kind])
        ):
            found.append(f"{folder}/{name}")
    return found


def empty(zk: KazooClient, paths: list[str]) -> list[str]:
    """Return those of the paths that are there."""
    return [path for path in paths if zk.exists(path)]


@pytest.mark.long
@pytest.mark.parametrize("kind", MAKES)
def test_a_process_that_dies_after_any_request(kind: str, tidy: Server, connect: Connect) -> None:
    """However many of its requests were sent before it died, the containers go; the table has all that make any."""
    zk = connect(tidy.hosts)
    folder = f"/{kind.replace(' ', '-')}"
    wrong: list[Exception] = []
    after, done = 0, False
    while not done:
        client = connect(tidy.hosts, timeout=2)
        transport = Session.of(client).link.transport
        zkconcurrent.Lock(client, "/warm").locked()
        sent, send, unsent, dead = 0, transport.send, list[Any](), threading.Event()

        def limited(
            request: Any, reply: Any, after: int = after, send: Any = send, unsent: Any = unsent, dead: Any = dead
        ) -> None:
            nonlocal sent
            if sent >= after:
                unsent.append(reply)
                dead.set()
                return
            sent += 1
            send(request, reply)

        transport.send = limited  # type: ignore[method-assign]
        caller = threading.Thread(target=_call, args=(MAKES[kind], client, f"{folder}/{after}/x", wrong))
        caller.start()
        until = time.monotonic() + 2.0  # longer than each of these takes; an observer waits on
        while caller.is_alive() and time.monotonic() < until and not dead.wait(0.01):
            pass
        done = not dead.is_set() or after > 20
        client.stop()
        for reply in unsent:  # as kazoo fails those that it has queued
            reply.set_exception(ConnectionClosedError())
        caller.join(30)
        assert not caller.is_alive()
        assert not wrong
        after += 1
    eventually(lambda: not stay(zk, kind, folder), f"of a {kind}, only what has its state stays")


def _call(make: Callable[[KazooClient, str], object], client: KazooClient, path: str, wrong: list[Exception]) -> None:
    try:
        make(client, path)
    except (TypeError, AttributeError, NameError, ValueError) as error:  # the scene's own
        wrong.append(error)
    except Exception:  # the client was stopped
        pass


def test_cancelled_at_any_moment(tidy: Server, connect: Connect) -> None:
    """An acquire of a new path that is cancelled, wherever it is, leaves nothing once the server has looked."""
    zk = connect(tidy.hosts)
    paths = [f"/cancelled-{n}" for n in range(PATHS)]

    async def main() -> None:
        for n, path in enumerate(paths):
            lock = aio.Lock(zk, path)
            acquiring = asyncio.ensure_future(lock.acquire())
            for _ in range(n % 20):
                await asyncio.sleep(0)
            await asyncio.sleep((n % 10) / 4000)
            acquiring.cancel()
            with suppress(asyncio.CancelledError):
                await acquiring
                await lock.release()

    asyncio.run(main())
    eventually(lambda: not empty(zk, paths), "the paths go")
