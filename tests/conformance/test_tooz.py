"""tooz's own tests of its drivers pass with ours, on a real ZooKeeper; they come with tooz.

They run in a process of their own: many leave their clients open, which is an error here.
"""

from __future__ import annotations

import json
import os

import pytest

from tests.helpers.processes import run_python
from zkconcurrent.testing import Server

# What tooz's tests skip by themselves.
SKIPPED = {
    "test_timeout",  # for drivers whose locks end by a timeout of other clients
    "test_watch_join_group_disappear",  # for three drivers, by their names
}
_RUN = """
import json, sys, unittest

suites = ["tooz.tests.test_coordination.TestAPI", "tooz.tests.test_partitioner.TestPartitioner"]
found = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromNames(suites))
print(json.dumps([found.testsRun, [test.id().rpartition(".")[2] for test, _ in found.skipped]]))
sys.exit(not found.wasSuccessful())
"""


@pytest.mark.long
def test_the_tests_of_tooz(zookeeper: Server, zk_path: str) -> None:
    """All tests of locks, groups, elections and partitioners pass, but for those that do not apply."""
    done = run_python(
        "-W",
        "ignore",
        "-c",
        _RUN,
        timeout=300,
        env={**os.environ, "TOOZ_TEST_URL": f"zkconcurrent://{zookeeper.hosts}{zk_path}"},
    )
    run, skipped = json.loads(done.stdout)
    assert set(skipped) == SKIPPED
    assert run >= 70
