"""The two benches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.bench import Bench, Real, Simulated


@pytest.fixture(params=[Real, Simulated], ids=["real", "simulated"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The real ZooKeeper, then the simulated one."""
    bench = Real(request.getfixturevalue("zookeeper")) if request.param is Real else Simulated()
    yield bench
    bench.close()
