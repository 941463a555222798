"""A grant without a look in random histories: the rule is never wrong."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.subjects.way import history
from tests.simulation.world.run import TIMES

pytestmark = pytest.mark.fault(293)

HISTORIES = 4000
HAPPENS = {
    "joins",
    "leaves",
    "publishes",
    "swaps",
    "downgrades",
    "deletes the waiter's node",
    "purges",
    "reaped",
    "moves",
    "granted by a look",
    "granted without a look",
}


def test_who_is_granted_without_a_look_is_first() -> None:
    """Its node is there when the last one in its way goes, and nobody gets in front; and nobody waits for ever."""
    happened: Counter[str] = Counter()
    for seed in range(HISTORIES * TIMES):
        happened.update(history(seed).happened)
    granted = happened["granted without a look"]
    assert {what for what, times in happened.items() if times > HISTORIES / 100} >= HAPPENS
    assert granted > HISTORIES / 20
