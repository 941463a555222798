"""Fixtures for tests that need a ZooKeeper; pytest finds them wherever zkconcurrent is installed.

They start a server, and import the library, only when a test requests one: every run of pytest loads this module, and
before a `conftest.py` may have gevent patch the process. So it lies beside the package, whose modules would load all.

The server is a real one where ZooKeeper and Java are installed, else one in memory. `--zookeeper=real` or
`--zookeeper=memory` decides; what pytest prints of the tests collected says which.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from os import urandom
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from zkconcurrent.testing import Server


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--zookeeper",
        choices=["real", "memory"],
        help="the server of the fixtures zookeeper, zk and azk; by default real where it is installed, else memory",
    )


def _server(config: pytest.Config) -> Server:
    from zkconcurrent.testing import MemoryServer, Server, any_server

    if config.getoption("--zookeeper") == "real" and os.environ.get("ZKCONCURRENT_SERVER") == "memory":
        raise pytest.UsageError("--zookeeper=real, but ZKCONCURRENT_SERVER is 'memory': leave one of them out")
    return {None: any_server, "real": Server, "memory": MemoryServer}[config.getoption("--zookeeper")]()


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> str | None:
    """Return which server the fixtures start, if a test requests one."""
    if not any("zookeeper" in getattr(item, "fixturenames", ()) for item in items):
        return None
    from zkconcurrent.testing import NoServerError

    try:
        return f"zookeeper: {_server(config).kind}"
    except NoServerError:
        # The error comes with the first test that needs a server.
        return None


@pytest.fixture(scope="session")
def zookeeper(pytestconfig: pytest.Config) -> Iterator[Server]:
    """A running ZooKeeper server, one for each test run."""
    with _server(pytestconfig) as server:
        yield server


@pytest.fixture
def zk(zookeeper: Server) -> Iterator[KazooClient]:
    """A started client with its own session, stopped after the test."""
    with zookeeper.client() as client:
        yield client


@pytest.fixture
def azk(zk: KazooClient, request: pytest.FixtureRequest) -> Iterator[KazooClient]:
    """The client `zk`, for tests of `zkconcurrent.aio`, run by pytest-asyncio, by anyio or by `asyncio.run`.

    It is started before the test's event loop runs. After the test, it waits for background work that the tasks have
    begun, such as an `Event.set()` that no task awaits, for up to a third of the session timeout; then it stops.
    """
    if "anyio_backend" in request.fixturenames:
        backend = request.getfixturevalue("anyio_backend")
        name = backend if isinstance(backend, str) else backend[0]
        if name != "asyncio":
            pytest.fail(
                f"the fixture azk is for asyncio, not for {name}: let the fixture anyio_backend return 'asyncio'"
            )
    yield zk
    import asyncio

    from zkconcurrent.aio._connect import await_background_calls

    # On a thread of its own: the loop of this one belongs to the plugin that runs the tests.
    finishing = threading.Thread(target=lambda: asyncio.run(await_background_calls(zk)))
    finishing.start()
    finishing.join()


@pytest.fixture
def zk_path(request: pytest.FixtureRequest) -> str:
    """A path that no other test uses, such as `"/test_transfer-5f0c8a12"`; its znode is not created."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", request.node.name).strip("-")
    return f"/{name}-{urandom(4).hex()}"
