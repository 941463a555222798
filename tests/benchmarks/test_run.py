"""A run works, and ends what it started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.helpers.eventually import eventually

ROOT = Path(__file__).parents[2]
MARK = "ZKCONCURRENT_BENCHMARK_TEST"


def start(*arguments: object) -> tuple[subprocess.Popen[str], str]:
    """Start a quick run whose processes can be found by a mark in their environment."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "benchmarks", "--quick", *map(str, arguments)]
    run = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, MARK: mark}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return run, mark


def marked(mark: str) -> list[bytes]:
    """Return the commands of the processes that carry a mark."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes())
        except OSError:
            continue
    return found


@pytest.mark.long
def test_a_quick_run(tmp_path: Path) -> None:
    """Two parts, with Java and without, end well and leave JSON and charts, and no process."""
    run, mark = start("import", "reentrant", "--json", tmp_path / "run.json", "--charts", tmp_path / "charts")
    with run:
        said = run.communicate(timeout=240)[0]
    assert run.returncode == 0, said
    assert "zkconcurrent" in said
    written = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    assert {figure["part"] for figure in written["figures"]} == {"import", "reentrant"}
    assert all(len(figure["rounds"]) == 3 for figure in written["figures"])
    requests = next(figure for figure in written["figures"] if figure["quantity"] == "requests")
    assert min(requests["rounds"]) <= 0  # a heartbeat may have been among the others
    charts = list((tmp_path / "charts").glob("*.svg"))
    assert [chart.name for chart in charts] == ["reentrant.svg"]
    assert ElementTree.parse(charts[0]).getroot().tag.endswith("svg")
    eventually(lambda: not marked(mark), "the end of all it started")


def test_a_revision_that_is_none() -> None:
    """A run against it ends at once, and says why."""
    run, _ = start("--against", "no such revision")
    with run:
        said = run.communicate(timeout=60)[0]
    assert run.returncode == 2
    assert "git has no package in revision no such revision" in said


def test_an_interrupted_run() -> None:
    """Ctrl-C ends a run, and its server and its contestants with it."""
    run, mark = start("threads")
    try:
        eventually(lambda: any(b"benchmarks.player" in command for command in marked(mark)), patience=60)
        run.send_signal(signal.SIGINT)
        assert run.wait(40) == 130
    finally:
        run.kill()
        run.communicate()
        eventually(lambda: not marked(mark), "the end of all it started")
