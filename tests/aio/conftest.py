"""A second client."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from tests.conftest import Connect


@pytest.fixture
def far(connect: Connect) -> KazooClient:
    """A client of another session, as another process would have it."""
    return connect()
