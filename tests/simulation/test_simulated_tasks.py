"""Tasks under random faults, cancellations and closed loops: nobody is forgotten, nothing is left."""

from __future__ import annotations

import pytest

from tests.mutants.mutator import named, seeded
from tests.simulation.subjects.data_tasks import DataTaskRun, random_data_tasks, random_elections
from tests.simulation.subjects.tasks import OF_AN_RLOCK, RLOCK, RW, SEMAPHORE, Act, TaskRun, random_tasks
from tests.simulation.world.run import COMMON_FAULTS, runs
from tests.simulation.world.schedule import Deviation, Schedule
from tests.simulation.world.shrink import shrink
from tests.simulation.world.world import Violation

HOLDS = (Act(RLOCK), Act(RW, "write"), Act(SEMAPHORE))


def test_whatever_strikes() -> None:
    """A cancelled call holds nothing and leaves nothing; waiters get their turns; no notification is lost."""
    injected: set[str] = set()
    cancels = 0
    for run in runs(TaskRun, random_tasks, 200):
        injected.update(run.injected)
        cancels += run.cancels
    assert injected >= COMMON_FAULTS | {"cancel", "shut", "lose"}
    assert cancels > 600


def test_whatever_strikes_what_they_share() -> None:
    """Changes, items, members and parties of tasks: once or not at all, with any cancellation; nothing is left."""
    cancels = sum(run.cancels for run in runs(DataTaskRun, random_data_tasks, 72))
    assert cancels > 150


@pytest.mark.fault(136)
def test_whatever_strikes_an_election() -> None:
    """Of tasks and threads one leads; nobody waits for a term that is there, and no closed loop keeps anything."""
    cancels = sum(run.cancels for run in runs(DataTaskRun, random_elections, 30))
    assert cancels > 50


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


def test_shrinking() -> None:
    """The least schedule that fails as a longer one is found for tasks, too."""
    with seeded(named("_engine.driver:Call.abandon drop-call: self.end")):
        run = next(run for run in map(TaskRun, map(random_tasks, range(50))) if fails(run))
        least = shrink(run.schedule, lambda schedule: fails(TaskRun(schedule)))
        assert fails(TaskRun(least))
    assert not fails(TaskRun(least))
    assert len(least.deviations) <= 2
    assert sum(map(len, least.threads)) <= 3


def fails(run: TaskRun) -> bool:
    """Run to the end; return whether that finds something."""
    try:
        run.to_the_end()
    except Violation:
        return True
    return False
