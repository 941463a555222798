"""Round trips that take longer than a call may: the first question is answered, the waiting is timed."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from functools import partial

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.conftest import Connect, InThread
from tests.helpers.eventually import eventually
from tests.helpers.forwarder import Forwarder, SlowConnection, SlowToTheServer
from tests.helpers.kinds import KINDS
from tests.helpers.over_tls import TLS, OverTls
from tests.helpers.proxy import Proxy
from zkconcurrent import (
    Barrier,
    ClientError,
    CountDownLatch,
    DoubleBarrier,
    Group,
    Queue,
    SharedValue,
)
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

pytestmark = pytest.mark.fault(51)

Call = Callable[[KazooClient, str, float], object]


def passed(zk: KazooClient, path: str, timeout: float) -> bool:
    """Enter a double barrier of one, and leave it."""
    barrier = DoubleBarrier(zk, path, 1)
    return barrier.enter(timeout) and barrier.leave(timeout)


def claimed(zk: KazooClient, path: str, timeout: float) -> bytes:
    """Put an item, and claim it."""
    (queue := Queue[bytes](zk, path)).put(b"x")
    with queue.claim(timeout=timeout) as claim:
        return claim.item


# What holds at a path that nobody has used, and the call that must see it.
TRUE: dict[str, Call] = {
    **{kind: partial(KINDS[kind].wait, zkconcurrent) for kind in ("Lock", "DetachedLock", "Semaphore", "Election")},
    "the first value": lambda zk, at, t: SharedValue(zk, at, b"x").wait_for(bool, t),
    "nobody is there": lambda zk, at, t: next(Group(zk, at).observe(t)) == {},
    "a barrier of one": lambda zk, at, t: Barrier(zk, at, 1).wait(t) == 0,
    "a double barrier of one": passed,
    "an open latch": lambda zk, at, t: CountDownLatch(zk, at, 0).wait(t),
    "a place": lambda zk, at, t: Queue(zk, at, 1).put(b"x", timeout=t) is None,
    "an item to claim": claimed,
}


@pytest.mark.fault(238)
@pytest.mark.parametrize("what", TRUE)
def test_a_first_look(what: str, connect: Connect, proxy: Proxy, zk_path: str) -> None:
    """A call sees what is true when it begins, however short its time is."""
    # A third of the session timeout, which the first question may take, is long for any machine.
    client = connect(hosts=proxy.hosts, timeout=30)
    proxy.delay(0.03)
    for timeout in (0, 0.001):
        assert TRUE[what](client, f"{zk_path}/{timeout}", timeout), timeout
    proxy.resume()


@pytest.mark.fault(407)
@pytest.mark.parametrize(("what", "tls"), [("reply", True), ("request", False)])
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
            assert re.search(rf"with a {what} of 900,\d\d\d bytes \(\w+ {zk_path}\) under way", warning)
        with pytest.raises(ClientError):
            call.result(20)
        link.shutdown()
