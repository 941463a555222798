"""The tools under test, on the server that all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tools.curator import CuratorClient, CuratorPeer
from tests.tools.proxy import Proxy
from zkconcurrent.testing import Server


@pytest.fixture
def proxy(zookeeper: Server) -> Iterator[Proxy]:
    """A proxy before the server."""
    with Proxy(zookeeper.hosts) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def peer() -> Iterator[CuratorPeer]:
    """One Java process for all."""
    with CuratorPeer() as peer:
        yield peer


@pytest.fixture
def java(peer: CuratorPeer, zookeeper: Server) -> Iterator[CuratorClient]:
    """A session of the Java process."""
    with peer.client(zookeeper.hosts) as java:
        yield java
