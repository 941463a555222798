"""Queues under random faults: none lost, none taken twice, in order, never too many."""

from __future__ import annotations

import pytest

from tests.simulation.subjects.queues import QueueRun, random_destroys, random_purges, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(80, 133)
def test_whatever_strikes() -> None:
    """No item is lost or acknowledged twice, in order and within the size; nobody who is entitled to go on sleeps."""
    injected = {kind for run in runs(QueueRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"lose", "strike", "close"}


@pytest.mark.fault(138, 146)
def test_destroyed_and_made_anew() -> None:
    """No item of a queue that was destroyed is taken, and none of the new one is lost in its place."""
    assert sum(bool(run.checks.destroyed) for run in runs(QueueRun, random_destroys, 30)) > 15


@pytest.mark.fault(139)
def test_an_operator_removes_the_items() -> None:
    """A consumer that waits makes their parent again, and sees what is put there."""
    assert all(run.injected["purge"] for run in runs(QueueRun, random_purges, 10))
