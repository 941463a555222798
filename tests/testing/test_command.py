"""``python -m zkconcurrent.testing``."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.helpers.processes import line_from, processes_of, python
from zkconcurrent.testing import Server

COMMAND = ["-m", "zkconcurrent.testing"]


@pytest.mark.parametrize(
    ("options", "how", "count"), [([], signal.SIGINT, 1), (["--ensemble"], signal.SIGTERM, 3)], ids=["one", "ensemble"]
)
def test_runs_until_it_is_told_to_end(options: list[str], how: signal.Signals, count: int, tmp_path: Path) -> None:
    """The command prints its hosts once they serve, and ends cleanly by Ctrl-C or SIGTERM."""
    with python(*COMMAND, *options, folder=tmp_path) as process:
        hosts = line_from(process)
        assert len(hosts.split(",")) == count
        client = KazooClient(hosts)
        client.start()
        client.stop()
        client.close()
        process.send_signal(how)
        output = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output == ("", "")
    assert not any(tmp_path.iterdir())
    assert not processes_of(tmp_path)


def test_what_cannot_start(tmp_path: Path) -> None:
    """A server that cannot start is a message and a failure, not a traceback."""
    with Server() as server, python(*COMMAND, "--port", str(server.port), folder=tmp_path) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "BindException" in errors
    assert "Traceback" not in errors
