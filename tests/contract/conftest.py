"""The two benches, and paths on them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.helpers.bench import Bench, Real, Simulated


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test of a bench within it: the simulated one has threads and a clock of its own."""
    given = pyfuncitem.funcargs
    if "bench" not in given:
        return None
    given["bench"].run(lambda: pyfuncitem.obj(**{name: given[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@pytest.fixture(params=[Real, Simulated], ids=["real", "simulated"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The real ZooKeeper, then the simulated one."""
    bench = Real(request.getfixturevalue("zookeeper")) if request.param is Real else Simulated()
    yield bench
    bench.close()


@pytest.fixture
def path() -> str:
    """A path that no other test uses."""
    return f"/{uuid.uuid4().hex}"
