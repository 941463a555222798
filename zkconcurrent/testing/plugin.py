"""Fixtures for tests that need a real ZooKeeper; pytest finds them wherever zkconcurrent is installed.

They start a server, and import kazoo, only when a test requests one. Without a ZooKeeper on the machine the test fails
with a message that says how to get one; it is never skipped.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from . import Server


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[Server]:
    """A running ZooKeeper server, one for each test run."""
    from . import Server

    with Server() as server:
        yield server


@pytest.fixture
def zk(zookeeper: Server) -> Iterator[KazooClient]:
    """A started client with its own session, stopped after the test."""
    with zookeeper.client() as client:
        yield client


@pytest.fixture
def azk(zk: KazooClient) -> KazooClient:
    """The client `zk`, for async tests of any plugin: it starts before their event loop, and stops after it."""
    return zk


@pytest.fixture
def zk_path(request: pytest.FixtureRequest) -> str:
    """A path that no other test uses, such as `"/test_transfer-5f0c8a12"`; its znode is not created."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name).strip("-")
    return f"/{name}-{uuid.uuid4().hex[:8]}"
