"""A second client."""

from __future__ import annotations

import inspect

import pytest
from kazoo.client import KazooClient

from tests.aio.loops import run
from tests.conftest import Connect


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function on a loop of its own, in which a callback that takes long fails it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@pytest.fixture
def far(connect: Connect) -> KazooClient:
    """A client of another session, as another process would have it."""
    return connect()
