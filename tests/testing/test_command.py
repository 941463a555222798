"""``python -m zkconcurrent.testing``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.testing.processes import processes_of
from zkconcurrent.testing import Server

COMMAND = [sys.executable, "-m", "zkconcurrent.testing"]


@pytest.mark.parametrize(
    ("options", "how", "count"), [([], signal.SIGINT, 1), (["--ensemble"], signal.SIGTERM, 3)], ids=["one", "ensemble"]
)
def test_runs_until_it_is_told_to_end(options: list[str], how: signal.Signals, count: int, tmp_path: Path) -> None:
    """The command prints its hosts once they serve, and ends cleanly by Ctrl-C or SIGTERM."""
    with subprocess.Popen(
        [*COMMAND, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        hosts = process.stdout.readline().strip()
        assert len(hosts.split(",")) == count
        client = KazooClient(hosts)
        client.start()
        client.stop()
        client.close()
        process.send_signal(how)
        output = process.communicate(timeout=20)
    assert process.returncode == 0
    assert output == ("", "")
    assert not any(tmp_path.iterdir())
    assert not processes_of(tmp_path)


def test_what_cannot_start() -> None:
    """A server that cannot start is a message and a failure, not a traceback."""
    with Server() as server:
        ended = subprocess.run([*COMMAND, "--port", str(server.port)], capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert "BindException" in ended.stderr
    assert "Traceback" not in ended.stderr
