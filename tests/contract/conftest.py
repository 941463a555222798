"""The two benches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.bench import Bench, Real, Simulated
from zkconcurrent.testing import Server


@pytest.fixture(params=[Real, Simulated], ids=["real", "simulated"])
def bench(request: pytest.FixtureRequest, zookeeper: Server) -> Iterator[Bench]:
    """The real ZooKeeper, then the simulated one."""
    bench = Real(zookeeper) if request.param is Real else Simulated()
    yield bench
    bench.close()
