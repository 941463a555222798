"""Every example runs, as its first lines say, and tells what it should."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.processes import run_python
from zkconcurrent.testing import Server

EXAMPLES = Path(__file__).parents[2] / "examples"
TELLS = {
    "nightly_job": r"3 jobs, started by 5 machines, were each done once\n",
    "report": r"200 questions were answered from \d+ builds of the report, all whole\n",
    "hit_counter": r"300 pages were served and counted, each once, although a process was killed as it counted\n",
    "rolling_restart": r"4 services have restarted, one at a time\n",
    "leader": r"the leader was killed, another one leads, and no write came out of order\n",
    "transfer": r"160 transfers, and the sum is still 300\n",
    "api_limit": r"96 calls were made, never more than 3 at a time, although a process died with all the permits\n",
    "bounded_queue": r"60 items went through a queue with room for 3, each once\n",
    "worker_pool": r"40 jobs are done, although a worker was killed: job 13 was begun again\n",
    "shared_config": r"3 workers saw the new limit, and 2 are alive after one was killed\n",
    "fastapi_app": r"200 requests to 2 processes: no two of one user overlapped, and nothing was lost\n",
    "map_reduce": r"4 processes agree: 400 words, 160 of them fish\n",
}


FILES = [*EXAMPLES.glob("*.py"), EXAMPLES / "fastapi_app"]  # the demo has tests of its own


@pytest.mark.parametrize("file", sorted(FILES), ids=lambda file: str(file.stem))
def test_it_runs(file: Path, zookeeper: Server, zk_path: str) -> None:
    """It ends well, and its last word is what its text promises."""
    done = run_python(file, zookeeper.hosts, zk_path, timeout=300)  # a machine may be busy
    assert re.search(TELLS[file.stem] + r"\Z", done.stdout)
