"""Queues of delayed items under random faults, and clocks that are set: none early, none slept past."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.queues import QueueRun, random_delays
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(86)
def test_whatever_strikes() -> None:
    """No item is taken before its consumer's clock says that it is due, lost or taken twice; no consumer oversleeps."""
    injected = {kind for run in runs(QueueRun, random_delays, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"lose", "strike", "set_clock"}


TAKE, TAKEABLE, UNTIL_DUE, LOOK = (
    "_recipes.queue.take:take",
    "_recipes.queue.take:takeable",
    "_recipes.queue.take:until_due",
    "_recipes.queue.state:look",
)
MUTANTS = [
    bug("an item is taken before it is due", TAKEABLE, "if not view.at.order.timed:", "if True:"),
    bug(
        "an item is taken a little before it is due",
        TAKEABLE,
        "milliseconds(view.clock())",
        "milliseconds(view.clock()) + 250",
    ),
    bug(
        "a consumer sleeps until something changes",
        TAKE,
        "yield op.Wait(ticket, left)",
        "yield op.Wait(ticket)",
    ),
    bug("a consumer sleeps until the last item is due", UNTIL_DUE, "due(sight.free[0])", "due(sight.free[-1])"),
    bug(
        "a consumer sleeps past an earlier item that came later",
        "_engine.driver:Call.await_change",
        "while not ticket.changed:",
        "while not ticket.changed or left is not None:",
    ),
    bug(
        "a consumer does not watch while it sleeps",
        LOOK,
        "seen = yield op.Watch(ticket, found[:2])",
        "seen = yield found[:2]",
    ),
    bug(
        "a consumer that sleeps does not look at the clock again",
        "_engine.driver:Call.await_change",
        "min(pause, CLOCK_POLL_INTERVAL)",
        "pause",
    ),
    bug(
        "the order is that of the puts",
        "_recipes.queue.order:items",
        "sorted(sorted(found), key=len)",
        "sorted(found, key=number)",
    ),
    bug(
        "no item is due before all earlier puts are",
        TAKEABLE,
        "sight.free[: bisect(",
        "sorted(sight.free, key=lambda name: name[-10:])[: bisect(",
    ),
    bug("the delay is forgotten", "_threads.queue:DelayQueue.put", "check_delay(delay)", "0.0"),
    bug(
        "an item that is put back is due at once",
        "_recipes.queue.claim:restore",
        "create = op.Create(item, data)",
        'create = op.Create(f"{at.items}/queue-|00000001|{taken.name[-10:]}", data)',
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: QueueRun(random_delays(seed)))
