"""Tasks under random faults, cancellations and closed loops: nobody is forgotten, nothing is left; bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.run import COMMON_FAULTS, runs
from tests.simulation.schedule import Deviation, Schedule
from tests.simulation.tasks import OF_AN_RLOCK, RLOCK, RW, SEMAPHORE, Act, TaskRun, random_tasks


def test_whatever_strikes() -> None:
    """What is cancelled holds nothing, and leaves nothing; who waits gets its turn; no notification is lost."""
    injected: set[str] = set()
    cancels = 0
    for run in runs(TaskRun, random_tasks, 300):
        injected.update(run.injected)
        cancels += run.cancels
    assert injected >= COMMON_FAULTS | {"cancel", "shut", "lose"}
    assert cancels > 600


@pytest.mark.parametrize("way", [4, 5], ids=["kept", "thrown away"])
def test_a_loop_closed_at_any_moment_of_a_wait(way: int) -> None:
    """A loop is closed as its task gives up the lock to wait: another thread gets it."""
    for after in range(60, 140):
        threads = [[(0.0, [Act(OF_AN_RLOCK, "wait", 1)]), (0.0, [Act(OF_AN_RLOCK, "wait")])]]
        TaskRun(Schedule(threads, [Deviation(after, "shut", 0, way)])).to_the_end()


@pytest.mark.parametrize("visit", [Act(RLOCK), Act(RW, "write"), Act(SEMAPHORE)], ids=str)
def test_a_task_that_is_collected_while_another_loop_runs(visit: Act) -> None:
    """A loop is closed while its task holds, and another loop of the thread collects the task: its hold is given up."""
    tasks = [(0.0, [visit._replace(loop=loop, stay=stay)]) for loop, stay in ((1, 1.0), (1, 0.0), (2, 5.0))]
    for after in range(120, 160, 4):
        TaskRun(Schedule([tasks, [(0.1, [visit])]], [Deviation(after, "shut", 4, 5)])).to_the_end()
