"""`cancel_waits()` under random faults: no wait that was ended goes on or leaves anything; bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.cancels import CancelRun, random_cancels
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(95)
def test_whatever_strikes() -> None:
    """A wait that was ended holds nothing, leaves nothing and does not go on; all others get their turns."""
    injected: set[str] = set()
    told = 0
    for run in runs(CancelRun, random_cancels, 100):
        injected.update(run.injected)
        told += run.told
    assert injected >= COMMON_FAULTS | {"cancel", "shut", "end_waits"}
    assert told > 100


MUTANTS = [
    bug("a wait that is ended is not woken", "_runtime.waiting:end_early", "call.wake()", "pass"),
    bug(
        "the steps of a wait that is ended do not clean up",
        "_runtime.waiting:_send_or_end",
        "return steps.throw(error)",
        "steps.close(); raise StopIteration(False)",
    ),
    bug(
        "a condition's wait has the lock no more",
        "_threads.base.condition_wait:ConditionWait.reacquire",
        "yield from outlast(lock.acquire_steps(",
        "calls.waits_for = (lock.queue_key,); yield from outlast(lock.acquire_steps(",
    ),
    bug(
        "an attempt is ended",
        "_threads.base.lock_core:LockCore.new_acquire",
        "cancellable=wait and restores is None",
        "cancellable=restores is None",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: CancelRun(random_cancels(seed)))
