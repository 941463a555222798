"""A server whose copy has diverged: it has lost a delete, and goes on showing a node that its leader does not have."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.mutants import Mutant, one, seeded
from tests.simulation.run import Run
from tests.simulation.schedule import TIMEOUT, Schedule
from tests.simulation.semaphore import SemaphoreRun, Use
from tests.simulation.workload import Visit
from tests.simulation.world import Violation

HOLD = 3.0
LOCKS = [Visit("/app/l", stay=HOLD)], [Visit("/app/l")]
PERMITS = [Use(3, -1, HOLD, "all")], [Use(3, -1, 0.0, "all")]
KINDS = [pytest.param(Run, LOCKS, id="lock"), pytest.param(SemaphoreRun, PERMITS, id="semaphore")]


def finish(kind: type[Run], visits: tuple[list[Any], list[Any]]) -> None:
    """Have the client of a follower wait for that of the leader, whose delete the follower loses.

    Raises:
        Violation: it waits for ever.
    """
    run = kind(Schedule([[(0.0, visits[0])], [(1.0, visits[1])]], []))
    run.ensemble.follower.forgets = True
    began = run.world.now
    run.to_the_end()
    assert run.ensemble.follower.diverged
    assert run.world.now - began < HOLD + 3 * TIMEOUT


@pytest.mark.parametrize(("kind", "visits"), KINDS)
def test_a_waiter_leaves_the_server(kind: type[Run], visits: tuple[list[Any], list[Any]]) -> None:
    """Fault 79: it asks the leader, and goes on at another server."""
    finish(kind, visits)


ASK, DOUBT = "_engine.heartbeat:Heartbeat._ask_leader", "_engine.heartbeat:Heartbeat._doubt_server"


@pytest.mark.parametrize(("kind", "visits"), KINDS)
@pytest.mark.parametrize(
    "mutant",
    [
        one("the leader is not asked", ASK, "registry.shown()[:MOST_ASKED]", "[]"),
        one("a waiter only looks again", DOUBT, "client.link.transport.drop()", "pass"),
    ],
    ids=lambda mutant: mutant.name,
)
def test_seeded_bugs_are_found(mutant: Mutant, kind: type[Run], visits: tuple[list[Any], list[Any]]) -> None:
    """The run finds what would leave a waiter there."""
    with seeded(mutant), pytest.raises(Violation, match="not finished"):
        finish(kind, visits)
