"""The contestants' processes of the benchmarks."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.helpers.eventually import eventually
from tests.helpers.processes import is_there

_BENCHMARK = """
import sys, time
from benchmarks.stage import Player
contestant, module, hosts = sys.argv[1:]
player = Player(contestant, [sys.executable, "-m", module, contestant])
player.ask("clock")
player.tell("open", hosts, 10)
print(player.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("contestant", "module"), [("ours", "benchmarks.player"), ("aio", "benchmarks.task_player")])
def test_a_killed_benchmark_leaves_no_player(contestant: str, module: str) -> None:
    """A player ends with the benchmark that has begun it, also while it waits for a server that never replies."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = "{}:{}".format(*silent.getsockname())
        command = [sys.executable, "-c", _BENCHMARK, contestant, module, hosts]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as benchmark:
            player = int(benchmark.stdout.readline())
            assert is_there(player)
            benchmark.kill()
        eventually(lambda: not is_there(player))
