"""The parts of kazoo that the library leans on are there, as it knows them; another kazoo is refused by name.

Also the behaviour of servers that differ from the newest ZooKeeper: other session timeouts, and unknown opcodes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import kazoo
import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler

import zkconcurrent
from tests.helpers.eventually import eventually
from tests.helpers.processes import run_python
from zkconcurrent import Lock, Queue, RefusedError
from zkconcurrent._engine.session import Session
from zkconcurrent._kazoo.reply import Reply
from zkconcurrent._memory import wire
from zkconcurrent.testing import Server

REQUESTED, GRANTED = 30.0, 4.0


def session_timeout(client: KazooClient) -> float:
    """Return the session timeout that leases are reckoned with."""
    return Session.of(client).timeout


# -- the negotiated session timeout ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict() -> Iterator[Server]:
    """A server that grants no long sessions."""
    with Server(max_session_timeout=GRANTED) as server:
        yield server


@pytest.fixture
def opened(strict: Server, zk_path: str) -> Iterator[Callable[[bool], KazooClient]]:
    """Open a client that asks for a long session; the library sees it before it is started, or after."""
    clients = []

    def open_client(first: bool) -> KazooClient:
        client = KazooClient(strict.hosts, timeout=REQUESTED)
        clients.append(client)
        if first:
            Lock(client, zk_path)
        client.start()
        return client

    yield open_client
    for client in clients:
        client.stop()
        client.close()


seen = pytest.mark.parametrize("first", [True, False], ids=["seen before it is started", "seen when connected"])


@pytest.mark.fault(76)
@seen
def test_the_negotiated_timeout(first: bool, opened: Callable[[bool], KazooClient], zk_path: str) -> None:
    """It is the one of the connect reply, also after a reconnect."""
    client = opened(first)
    lock = Lock(client, zk_path)
    # kazoo lets `start` return before it calls its listeners.
    eventually(lambda: session_timeout(client) == GRANTED)
    with lock:
        states: list[str] = []
        client.add_listener(states.append)
        client._connection._socket.shutdown(2)
        eventually(lambda: "CONNECTED" in states)
        eventually(lambda: session_timeout(client) == GRANTED)


# -- kazoo's private parts -------------------------------------------------------------------------------------------


def without(kind: type[Any], name: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Return how a kazoo is had that lacks a part."""

    def have(monkeypatch: pytest.MonkeyPatch) -> None:
        if hasattr(kind, name):
            monkeypatch.delattr(kind, name)
            return
        # `client._connection` and the like are made by __init__.
        made = kind.__init__

        def init(self: Any, *args: Any, **options: Any) -> None:
            made(self, *args, **options)
            vars(self)[f"{name}_of_another_kazoo"] = vars(self).pop(name)

        monkeypatch.setattr(kind, "__init__", init)

    return have


def has_one_less(self: Any, read_timeout: float) -> None:
    """Stand for a `_send_request` that is called with one argument less."""


@pytest.mark.fault(76)
@pytest.mark.parametrize(
    "have",
    [
        without(KazooClient, "_pending"),
        without(ConnectionHandler, "_socket"),
        without(ConnectionHandler, "_read_response"),
        without(SequentialThreadingHandler, "_workers"),
        lambda monkeypatch: monkeypatch.setattr(ConnectionHandler, "_send_request", has_one_less),
    ],
    ids=["_pending", "_socket", "_read_response", "_workers", "one argument less"],
)
def test_another_kazoo(have: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """A kazoo that lacks a part, or has it otherwise, is refused with its version when the library is first used."""
    have(monkeypatch)
    client = KazooClient()
    with pytest.raises(Exception, match=re.escape(kazoo.__version__)) as caught:
        Lock(client, "/path")
    assert "kazoo" in str(caught.value)


# -- opcodes that a server does not know -----------------------------------------------------------------------------

CREATE2, CREATE_CONTAINER = 15, 19


@pytest.mark.fault(245)
def test_zookeeper_3_4(zk_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first container is refused, by an error that says which version it needs."""
    for opcode in (CREATE2, CREATE_CONTAINER):
        monkeypatch.delitem(wire.WRITES, opcode)
    with zkconcurrent.connect("memory:3.4") as client:
        for call in (Lock(client, zk_path).acquire, partial(Queue(client, f"{zk_path}-queue").put, b"item")):
            with pytest.raises(RefusedError, match=r"needs ZooKeeper 3\.5\.3 or newer"):
                call()


# -- kazoo's thread --------------------------------------------------------------------------------------------------


def fails(*_: object) -> None:
    """Stand for what has an error of its own."""
    raise ZeroDivisionError("an error of ours")


@pytest.mark.fault(49)
def test_an_error_of_ours_on_kazoo_s_thread(zookeeper: Server, zk_path: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, and the client goes on in the same session, with a new connection at most."""
    retry = {"max_tries": -1, "delay": 0.05, "max_delay": 0.2}
    client = KazooClient(zookeeper.hosts, timeout=6, connection_retry=retry)
    client.start()
    try:
        with Lock(client, zk_path):
            pass
        link, session, routine = Session.of(client).link, client.client_id, client._connection._connection_routine
        link.send(link.get(zk_path, Reply(None, fails)))
        eventually(lambda: "an error of ours" in caplog.text)
        eventually(lambda: client.connected)
        with Lock(client, zk_path) as got:
            assert got
        assert client._connection._connection_routine is routine
        assert routine.is_alive()
        assert client.client_id == session
    finally:
        client.stop()
        client.close()


# -- the clock of leases ---------------------------------------------------------------------------------------------

MACOS = """
import time
del time.CLOCK_BOOTTIME
asked, clock_gettime = [], time.clock_gettime
time.clock_gettime = lambda clock: asked.append(clock) or clock_gettime(clock)
from kazoo.client import KazooClient
from zkconcurrent._engine.session import Session
asked.clear()
Session.of(KazooClient()).clock()
assert set(asked) == {time.CLOCK_MONOTONIC}, asked
"""


@pytest.mark.fault(28, 78)
@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="where it is missing, the other tests show it")
def test_the_clock_where_there_is_no_boot_time() -> None:
    """On macOS `time.monotonic` stands still while the machine sleeps, CLOCK_MONOTONIC does not."""
    run_python("-c", MACOS)
