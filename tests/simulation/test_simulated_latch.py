"""Latches under random faults: every count counts once, nobody waits at an open latch."""

from __future__ import annotations

import pytest

from tests.mutants.mutator import named, seeded
from tests.simulation.subjects.latch import LatchRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs
from tests.simulation.world.world import Violation


def test_whatever_strikes() -> None:
    """Each count is counted once, nobody who is entitled to go on sleeps, and nothing is left."""
    injected = {kind for run in runs(LatchRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS


def test_a_failure_says_how_to_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The error of a random run has its seed, its schedule and the command that tells of it."""
    with seeded(named("_recipes.latch:count_down drop-yield: yield op.Create")), pytest.raises(Violation) as raised:
        list(runs(LatchRun, random_steps, 100))
    told = "".join(getattr(raised.value, "__notes__", [])) + capsys.readouterr().err  # Python 3.10 has no notes
    assert "python -m tests.simulation latch:LatchRun random_steps 0" in told
