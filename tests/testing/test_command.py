"""``python -m zkconcurrent.testing``."""

from __future__ import annotations

import re
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import zkconcurrent
from tests.helpers.processes import line_from, processes_of, python
from zkconcurrent.testing import Server
from zkconcurrent.testing.__main__ import PORTS, start_at_first_free
from zkconcurrent.testing._ports import PortTakenError, ReservedPorts

COMMAND = ["-m", "zkconcurrent.testing"]


@pytest.mark.parametrize(
    ("options", "how", "count"), [([], signal.SIGINT, 1), (["--ensemble"], signal.SIGTERM, 3)], ids=["one", "ensemble"]
)
def test_runs_until_it_is_told_to_end(options: list[str], how: signal.Signals, count: int, tmp_path: Path) -> None:
    """The command prints the line that connects to it once it serves, and ends cleanly by Ctrl-C or SIGTERM."""
    with python(*COMMAND, *options, folder=tmp_path) as process:
        line = line_from(process)
        pasted: dict[str, Any] = {"zkconcurrent": zkconcurrent}
        exec(line, pasted)
        with pasted["zk"] as zk:
            assert len(zk.hosts) == count
            assert zk.exists("/zookeeper")
        process.send_signal(how)
        output, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output == ""
    if options or f":{PORTS[0]}" in line:
        assert said == ""
    else:  # another test, or another program, has the port
        (port,) = re.findall(r"\d+(?=\"\))", line)
        assert said == f"Port {PORTS[0]} is in use, so this server has port {port}.\n"
    assert not any(tmp_path.iterdir())
    assert not processes_of(tmp_path)


def test_the_next_free_port(capsys: pytest.CaptureFixture[str]) -> None:
    """If the port is in use, the command takes the next free one, and says so; if all are, that is an error."""
    with Server() as one, Server() as two, closing(ReservedPorts(1)) as reserved:
        ports = [one.port, two.port, *reserved.numbers]
        three = start_at_first_free(ports)
        three.stop()
        assert three.port == ports[-1]
        assert capsys.readouterr() == ("", f"Port {one.port} is in use, so this server has port {ports[-1]}.\n")
        with pytest.raises(PortTakenError, match=f"port {two.port} "):
            start_at_first_free(ports[:-1])


def test_a_port_in_use_that_was_asked_for(tmp_path: Path) -> None:
    """The command says so in one line, and takes no other port."""
    with Server() as server, python(*COMMAND, "--port", str(server.port), folder=tmp_path) as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert output == ""
    assert re.fullmatch(rf"port {server.port} of 127\.0\.0\.1 is in use: .*\n", errors)
