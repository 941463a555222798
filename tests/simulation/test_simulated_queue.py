"""Queues under random faults: none lost, none taken twice, in their order, never too many, and nobody sleeps on."""

from __future__ import annotations

from tests.simulation.queues import QueueRun, random_steps
from tests.simulation.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """No item is lost or acknowledged twice, in order and within the size; nobody who is entitled to go on sleeps."""
    injected = {kind for run in runs(QueueRun, random_steps, 150) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"lose"}
