"""A plain client that was started long before the library first saw it: its first hold, and what that may disturb."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import WatchedEvent

from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock
from zkconcurrent._engine.session import Session
from zkconcurrent._kazoo import leases
from zkconcurrent._protocol.session_lease import NEVER
from zkconcurrent.testing import Server


@pytest.fixture
def old(zookeeper: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., KazooClient]]:
    """Open a client whose connection is too old to prove anything."""
    monkeypatch.setattr(leases, "connected_since", lambda _: NEVER)
    clients = []

    def start(hosts: str = zookeeper.hosts, **options: Any) -> KazooClient:
        clients.append(KazooClient(hosts, **{"timeout": 20, **options}))
        clients[-1].start()
        return clients[-1]

    yield start
    for client in clients:
        client.stop()
        client.close()


@pytest.mark.fault(252)
def test_the_first_hold(old: Callable[..., KazooClient], zk_path: str) -> None:
    """The connection is replaced once, whose begin proves the lease, and the session stays the same."""
    client = old()
    session = client.client_id
    lock = Lock(client, zk_path)
    assert Session.of(client).link.connection is None
    with lock:
        lease = Session.of(client).registry.lease
        assert lease.heard == lease._connected  # no request had to become old enough
        assert client.client_id == session
        connection = Session.of(client).link.connection
        assert connection is not None
    with Lock(client, f"{zk_path}-more"):
        assert Session.of(client).link.connection is connection


class Watching:
    """A client's listener and watches of each kind, the nodes that they watch, and what they have seen."""

    def __init__(self, client: KazooClient, other: KazooClient, path: str) -> None:
        self._other, self._path = other, path
        for name in ("data", "gone", "children/one"):
            other.create(f"{path}/{name}", b"", makepath=True)
        self.states: list[str] = []
        self.events: list[tuple[str, str]] = []
        client.add_listener(self.states.append)
        client.get(f"{path}/data", watch=self.note)
        client.exists(f"{path}/gone", watch=self.note)
        client.exists(f"{path}/made", watch=self.note)
        client.get_children(f"{path}/children", watch=self.note)

    def note(self, event: WatchedEvent) -> None:
        """Note an event."""
        self.events.append((event.type, event.path.removeprefix(self._path)))

    def change(self) -> None:
        """Change each node that is watched."""
        self._other.set(f"{self._path}/data", b"changed")
        self._other.delete(f"{self._path}/gone")
        self._other.create(f"{self._path}/made")
        self._other.create(f"{self._path}/children/two")

    def check(self) -> None:
        """Wait until each watch has seen its change, once, and the listener nothing."""
        seen = [("CHANGED", "/data"), ("CHILD", "/children"), ("CREATED", "/made"), ("DELETED", "/gone")]
        eventually(lambda: sorted(self.events) == seen, str(self.events))
        assert not self.states


@pytest.mark.fault(252)
@pytest.mark.parametrize("meanwhile", [False, True], ids=["later", "meanwhile"])
def test_nobody_is_disturbed(meanwhile: bool, old: Callable[..., KazooClient], zk: KazooClient, zk_path: str) -> None:
    """Another connection takes the place of the old one: listeners see nothing, and watches each change, once."""
    client = old(connection_retry={"max_tries": 1})
    program = Watching(client, zk, f"{zk_path}-watched")
    lock = Lock(client, zk_path)
    if meanwhile:
        connection = client._connection
        connect = connection._connect

        def connected(*address: Any) -> Any:
            program.change()
            return connect(*address)

        connection._connect = connected
    with lock:
        assert Session.of(client).link.connection is not None
    if not meanwhile:
        assert not program.events
        program.change()
    program.check()


@pytest.mark.fault(252)
def test_what_can_not_be_replaced(
    old: Callable[..., KazooClient], zk_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection stays, and the log names the wait for the proof."""
    client = old(timeout=4, read_only=True)
    with caplog.at_level(logging.INFO, "zkconcurrent.waits"):
        lock = Lock(client, zk_path)
        assert lock.acquire(timeout=20)
        acquired = time.time()
    (told,) = [each for each in caplog.records if each.name == "zkconcurrent.waits"]
    assert "make the locks when the program starts, not at their first use" in told.getMessage()
    assert told.created < acquired
    assert Session.of(client).link.connection is None
    assert Session.of(client).registry.lease.renewed
    lock.release()


@pytest.mark.fault(252)
@pytest.mark.parametrize("how", ["refused", "closed"])
def test_no_other_connection(
    how: str, old: Callable[..., KazooClient], zk: KazooClient, proxy: Proxy, zk_path: str
) -> None:
    """Where the server takes no other one, the old one stays, with all watches, and the lock is acquired later."""
    client = old(proxy.hosts, timeout=4)
    program = Watching(client, zk, f"{zk_path}-watched")
    if how == "refused":
        proxy.refuse()
    else:
        proxy.lose_request("connect")
    with Lock(client, zk_path):
        assert Session.of(client).link.connection is None
    program.change()
    program.check()


@pytest.mark.fault(252)
def test_another_connection_that_is_lost(old: Callable[..., KazooClient], proxy: Proxy, zk_path: str) -> None:
    """If the server has ended the old one for it, the client connects anew, in the same session."""
    client = old(proxy.hosts)
    session = client.client_id
    with proxy.lose_answer("connect") as fault, Lock(client, zk_path):
        assert fault.injected.is_set()
        assert client.client_id == session


@pytest.mark.fault(252)
def test_a_request_of_the_program(old: Callable[..., KazooClient], zk_path: str) -> None:
    """A request that is made as the connection is replaced does not fail: it goes out on the next one."""
    replies: list[Any] = []

    class Asks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("Connecting to"):
                replies.append(client.get_async("/"))

    logger = logging.Logger(zk_path)
    client = old(logger=logger)
    logger.addHandler(Asks())
    with Lock(client, zk_path):
        pass
    (reply,) = replies
    assert reply.get(timeout=20)


@pytest.mark.fault(252)
def test_a_reply_that_is_due(old: Callable[..., KazooClient], proxy: Proxy, zk_path: str) -> None:
    """The connection is replaced once the replies are there that requests still waited for."""
    client = old(proxy.hosts)
    Lock(client, zk_path)
    session = Session.of(client)
    eventually(lambda: session.registry.session is not None and not client._pending and not client._queue)
    proxy.stall(to_server=False)
    replies = [client.get_async("/")]
    session.link.transport.renew()
    for n in range(2, 20):
        replies.append(client.get_async("/"))
        eventually(lambda n=n: len(client._pending) >= n)
    assert session.link.connection is None
    proxy.resume()
    for each in replies:
        each.get(timeout=20)
    eventually(lambda: session.link.connection is not None)
