"""A plain client that was started long before the library first saw it: its first hold, and what that may disturb."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.helpers.eventually import eventually
from tests.helpers.forwarder import Forwarder, SlowConnection
from tests.helpers.proxy import Proxy
from zkconcurrent import Lock
from zkconcurrent._engine.session import Session
from zkconcurrent._kazoo import leases
from zkconcurrent._protocol.lease import NEVER
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


def listens(client: KazooClient) -> None:
    """Listen for changes of the connection."""
    client.add_listener(lambda _: None)


def watches(client: KazooClient) -> None:
    """Watch a node's data."""
    client.exists("/zookeeper", watch=lambda _: None)


def watches_children(client: KazooClient) -> None:
    """Watch a node's children."""
    client.get_children("/zookeeper", watch=lambda _: None)


@pytest.mark.fault(252)
@pytest.mark.parametrize(
    ("options", "use"),
    [
        ({}, listens),
        ({}, watches),
        ({}, watches_children),
        ({"connection_retry": {"max_tries": 3}}, None),
        ({"connection_retry": {"max_tries": -1, "deadline": 60}}, None),
        ({"read_only": True}, None),
    ],
    ids=["a listener", "a watch", "a watch of children", "few tries", "a deadline", "read-only"],
)
def test_nobody_is_disturbed(
    options: dict[str, Any],
    use: Callable[[KazooClient], None] | None,
    old: Callable[..., KazooClient],
    zk_path: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The connection stays where the program would notice, or the next one may not come; the log names the wait."""
    client = old(timeout=4, **options)
    if use is not None:
        use(client)
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
def test_a_request_of_the_program(old: Callable[..., KazooClient], zk_path: str) -> None:
    """A request that is made as the connection is replaced does not fail: it goes out on the next one."""
    replies: list[Any] = []

    class Asks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "Connection dropped" in record.getMessage():
                replies.append(client.get_async("/"))

    logger = logging.Logger(zk_path)
    logger.addHandler(Asks())
    client = old(logger=logger)
    with Lock(client, zk_path):
        pass
    (reply,) = replies
    assert reply.get(timeout=20)


@pytest.mark.fault(244)
def test_amid_a_large_reply(zookeeper: Server, zk: KazooClient, zk_path: str) -> None:
    """Kazoo's thread reads a reply for a fourth of the session timeout and more: the first call waits."""
    zk.create(zk_path, bytes(900_000), makepath=True)
    with Forwarder(zookeeper.port) as link:
        link.RequestHandlerClass = type("Slower", (SlowConnection,), {"RATE": 300_000.0})
        client = KazooClient(f"localhost:{link.server_address[1]}", timeout=4)
        client.start()
        try:
            lengths: list[int] = []
            connection = client._connection
            read = connection._read

            def noted(length: int, timeout: float) -> Any:
                lengths.append(length)
                return read(length, timeout)

            connection._read = noted
            reply = client.get_async(zk_path)
            eventually(lambda: max(lengths, default=0) > 900_000)
            lock = Lock(client, f"{zk_path}-lock")
            assert lock.acquire(timeout=20)
            assert reply.ready()
            lock.release()
        finally:
            client.stop()
            client.close()
            link.shutdown()


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
