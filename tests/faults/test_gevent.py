"""Under gevent a greenlet is what a thread is elsewhere, patched or not, and the hub is never blocked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zkconcurrent.testing import Server

pytestmark = pytest.mark.long


@pytest.mark.parametrize("how", ["patched", "unpatched"])
def test_greenlets(how: str, zookeeper: Server, zk_path: str) -> None:
    """Greenlets exclude each other, own what they hold, wait with time-outs, are told of losses, and stall nobody."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.greens", zookeeper.hosts, zk_path, how],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
