"""Servers that lose a delete: one whose copy has diverged goes on showing the node, or, once elected, all show it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.subjects.semaphore import SemaphoreRun, Use
from tests.simulation.world.run import Run
from tests.simulation.world.schedule import TIMEOUT, Schedule
from tests.simulation.world.workload import Visit
from zkconcurrent._memory.tree import Node

HOLD = 3.0
LOCKS = [Visit("/app/l", stay=HOLD)], [Visit("/app/l")]
PERMITS = [Use(3, -1, HOLD, "all")], [Use(3, -1, 0.0, "all")]
KINDS = [pytest.param(Run, LOCKS, id="lock"), pytest.param(SemaphoreRun, PERMITS, id="semaphore")]


def lose(kind: type[Run], visits: tuple[list[Any], list[Any]]) -> None:
    """Have all servers lose the delete with which the first client leaves, once it knows of it; the other comes twice.

    Raises:
        Violation: it waits for ever.
    """
    run = kind(Schedule([[(0.0, visits[0])], [(1.0, visits[1] * 2)]], []))
    ensemble, registry = run.ensemble, run.processes[0].session.registry
    there: dict[str, Node] = {}
    lost: list[str] = []

    def step() -> None:
        nodes = ensemble.leader.nodes
        there.update((path, node) for path, node in nodes.items() if node.owner == registry.session)
        if not lost and not registry.tickets and not registry.deletes and (gone := there.keys() - nodes):
            lost.append(max(gone, key=ensemble.gone.__getitem__))
            ensemble.lose_delete(lost[0], there[lost[0]])
        checks()

    checks, run.world.check = run.world.check, step
    began = run.world.now
    run.to_the_end()
    assert len(lost) == 1
    assert run.world.now - began < HOLD + TIMEOUT


@pytest.mark.fault(159)
@pytest.mark.parametrize(("kind", "visits"), KINDS)
def test_a_node_that_comes_back_is_deleted_again(kind: type[Run], visits: tuple[list[Any], list[Any]]) -> None:
    """Its client looks for it, as the leader is new, and the others go on."""
    lose(kind, visits)


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
    assert run.world.now - began < HOLD + 2 * TIMEOUT


@pytest.mark.fault(79)
@pytest.mark.parametrize(("kind", "visits"), KINDS)
def test_a_waiter_leaves_the_server(kind: type[Run], visits: tuple[list[Any], list[Any]]) -> None:
    """It asks the leader, and goes on at another server."""
    finish(kind, visits)
