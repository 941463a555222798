"""Loops that are closed while their tasks wait or hold: nobody is forgotten, nothing is left."""

from __future__ import annotations

import pytest

from tests.simulation.subjects.tasks import OF_AN_RLOCK, RLOCK, RW, SEMAPHORE, Act, TaskRun
from tests.simulation.world.schedule import Deviation, Schedule

HOLDS = (Act(RLOCK), Act(RW, "write"), Act(SEMAPHORE))


def closed_as_it_waits(seed: int) -> TaskRun:
    """Close a loop at some moment, as its task gives up the lock of a condition to wait; a thread wants that lock."""
    threads = [[(0.0, [Act(OF_AN_RLOCK, "wait", 1)]), (0.0, [Act(OF_AN_RLOCK, "wait")])]]
    return TaskRun(Schedule(threads, [Deviation(60 + seed // 2, "shut", 0, 4 + seed % 2)]))


def collected_elsewhere(seed: int, visit: Act = HOLDS[0]) -> TaskRun:
    """Close a loop at some moment, as its task holds; another loop of the thread runs as that task is collected."""
    tasks = [(0.0, [visit._replace(loop=loop, stay=stay)]) for loop, stay in ((1, 1.0), (1, 0.0), (2, 5.0))]
    return TaskRun(Schedule([tasks, [(0.1, [visit])]], [Deviation(120 + 4 * seed, "shut", 4, 5)]))


def test_a_loop_closed_at_any_moment_of_a_wait() -> None:
    """A loop is closed as its task gives up the lock to wait, and the task is kept or collected: another gets it."""
    for seed in range(160):
        closed_as_it_waits(seed).to_the_end()


@pytest.mark.parametrize("visit", HOLDS, ids=str)
def test_a_task_that_is_collected_while_another_loop_runs(visit: Act) -> None:
    """A loop is closed while its task holds, and another loop runs as the task is collected: the hold is given up."""
    for seed in range(10):
        collected_elsewhere(seed, visit).to_the_end()
