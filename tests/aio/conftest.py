"""A second client, and a proxy before the server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.tools.proxy import Proxy
from zkconcurrent.testing import Server


@pytest.fixture
def far(connect: Connect) -> KazooClient:
    """A client of another session, as another process would have it."""
    return connect()


@pytest.fixture
def proxy(zookeeper: Server) -> Iterator[Proxy]:
    """A proxy that does no harm until it is told to."""
    with Proxy(zookeeper.hosts) as proxy:
        yield proxy
