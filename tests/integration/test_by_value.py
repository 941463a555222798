"""Functions of a main program that other processes get by value, as from joblib and dask, exclude each other there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zkconcurrent.testing import Server

ROOT = Path(__file__).parents[2]


@pytest.mark.fault(237)
@pytest.mark.parametrize("how", ["cloudpickle", "loky", "spawn"])
def test_a_program(how: str, zookeeper: Server, zk_path: str, tmp_path: Path) -> None:
    """No two calls of functions of any kind overlap in two processes that got them by value, or by name."""
    program = str(ROOT / "tests" / "integration" / "by_value_party.py")
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            program,
            f"zk://{zookeeper.hosts}{zk_path}",
            str(tmp_path),
            how,
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.split()[1:] == ["0", "True"], done.stdout + done.stderr
    assert done.returncode == 0
