"""A proxy before the server, for networks that fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tools.proxy import Proxy
from zkconcurrent.testing import Server


@pytest.fixture
def proxy(zookeeper: Server) -> Iterator[Proxy]:
    """A proxy that does no harm until it is told to."""
    with Proxy(zookeeper.hosts) as proxy:
        yield proxy
