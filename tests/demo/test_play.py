"""The demo as users run it, but shorter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from .conftest import DEMO

SHORT = ["--workers=3", "--threads=2", "--seconds=0.5", "--session-timeout=2"]


def play(timeline: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the demo to its end."""
    command = [sys.executable, str(DEMO), *SHORT, f"--timeline={timeline}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def timeline(tmp_path: Path) -> Path:
    """Where to draw the picture."""
    return tmp_path / "timeline.svg"


@pytest.mark.long
def test_the_count_is_exact(timeline: Path) -> None:
    """With the lock all is well, though one worker is killed and another loses its session; the picture shows both."""
    outcome = play(timeline)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "WRONG" not in outcome.stdout
    assert "the store refused its late write" in outcome.stdout
    words = {element.text for element in ElementTree.parse(timeline).iter() if element.text}
    assert {"worker 2 is killed (SIGKILL) inside", "worker 3 is frozen (SIGSTOP) inside"} <= words


def test_the_count_is_wrong_without_the_lock(timeline: Path) -> None:
    """Without the lock the same demo finds lost increments and crowds: its checks are not idle."""
    outcome = play(timeline, "--without-lock")
    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    assert "increments were made, but the counter says" in outcome.stdout
    assert "times a thread came in while another was inside" in outcome.stdout
    ElementTree.parse(timeline)
