"""One real server and one Java process for the tests of the tools, and clients of a test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient

from tests.tools.curator import CuratorClient, CuratorPeer
from tests.tools.proxy import Proxy
from zkconcurrent.testing import Server

Connect = Callable[..., KazooClient]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A server of its own for this folder."""
    with Server() as server:
        yield server


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy before the server, and no thread of it left afterwards."""
    with Proxy(server.hosts) as proxy:
        yield proxy


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Start a client of these hosts; it is closed at the end."""
    with ExitStack() as clients:

        def connect(hosts: str, timeout: float = 10) -> KazooClient:
            client = KazooClient(hosts, timeout=timeout, connection_retry={"max_tries": -1, "delay": 0.05})
            client.start(timeout=20)
            clients.callback(client.close)
            clients.callback(client.stop)
            return client

        yield connect


@pytest.fixture(scope="session")
def peer() -> Iterator[CuratorPeer]:
    """One Java process for all."""
    with CuratorPeer() as peer:
        yield peer


@pytest.fixture
def java(peer: CuratorPeer, server: Server) -> Iterator[CuratorClient]:
    """A session of the Java process."""
    with peer.client(server.hosts) as java:
        yield java
