"""Strikes of signals and cancellations at random moments of blocks of each kind: see `tests.faults.block_storm`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.block_storm import PACKAGES
from zkconcurrent.testing import Server

STRIKES = 300


@pytest.mark.long
@pytest.mark.fault(16, 155)
@pytest.mark.parametrize("package", PACKAGES)
def test_a_struck_block_lets_others_in(package: str, zookeeper: Server, zk_path: str) -> None:
    """Others get in after a block that was struck once, unless at the first instruction of `__exit__`; none hangs."""
    what = ["--strikes", str(STRIKES), "--on", package, "--hosts", zookeeper.hosts, "--path", zk_path]
    storm = subprocess.run(
        [sys.executable, "-m", "tests.faults.block_storm", *what],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert storm.returncode == 0, storm.stdout  # its watchdog ends it
    assert int(storm.stdout.splitlines()[-1].split()[3]) >= STRIKES, storm.stdout
