"""A client whose requests are counted, behind a proxy that delays."""

from __future__ import annotations

import pytest

from tests.helpers.proxy import Proxy


@pytest.fixture
def proxy(proxy: Proxy) -> Proxy:
    """The shared one, with 20 ms of delay each way, so that pipelined requests are seen to be pipelined."""
    proxy.delay(0.02)
    return proxy
