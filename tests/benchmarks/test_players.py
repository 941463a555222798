"""The contestants' processes of the benchmarks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.helpers.eventually import eventually

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
            assert benchmark.stdout is not None
            player = int(benchmark.stdout.readline())
            benchmark.kill()
        eventually(lambda: not _is_alive(player))


def _is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    return False
