"""A client whose requests are counted, behind a proxy that delays."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent._engine.session import Session


@pytest.fixture
def proxy(proxy: Proxy) -> Proxy:
    """The shared one, with 20 ms of delay each way, so that pipelined requests are seen to be pipelined."""
    proxy.delay(0.02)
    return proxy


@pytest.fixture
def counted(connect: Connect, proxy: Proxy) -> KazooClient:
    """A client whose requests are counted; its probe for containers was before."""
    client = connect(hosts=proxy.hosts)
    link = Session.of(client).link
    eventually(lambda: link.containers)
    return client
