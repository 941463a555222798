"""One Java process for all, and parties of a test's own: Java sessions and Python processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers.curator import CuratorClient, CuratorPeer
from tests.helpers.processes import spawning
from zkconcurrent.testing import Server

SESSION = 4.0  # seconds until a killed party's session is over

ConnectJava = Callable[[], CuratorClient]


@pytest.fixture(scope="session")
def peer() -> Iterator[CuratorPeer]:
    """The Java process."""
    with CuratorPeer() as peer:
        yield peer


@pytest.fixture
def connect_java(peer: CuratorPeer, zookeeper: Server) -> Iterator[ConnectJava]:
    """Open one more session of the Java process, which is closed after the test."""
    with ExitStack() as sessions:
        yield lambda: sessions.enter_context(peer.client(zookeeper.hosts, SESSION))


@pytest.fixture
def java(connect_java: ConnectJava) -> CuratorClient:
    """A session of the Java process."""
    return connect_java()


@pytest.fixture
def client(connect: Connect) -> KazooClient:
    """A session of this process; no test waits for its end."""
    return connect(timeout=10.0)


spawn = spawning("tests.interop.party", SESSION)
