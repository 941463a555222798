"""Every example runs, as its first lines say, and tells what it should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from zkconcurrent.testing import Server

EXAMPLES = Path(__file__).parents[2] / "examples"
TELLS = {
    "map_reduce": r"4 processes agree: 400 words, 160 of them fish\n",
    "report": r"200 questions were answered from \d+ builds of the report, all whole\n",
}


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_it_runs(name: str, zookeeper: Server, zk_path: str) -> None:
    """It ends well, and its last word is what its text promises."""
    command = [sys.executable, EXAMPLES / f"{name}.py", zookeeper.hosts, zk_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(TELLS[name] + r"\Z", done.stdout)
