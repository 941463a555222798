"""Tasks under random faults, cancellations and closed loops: nobody is forgotten, nothing is left; bugs are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find, seeded
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
    with seeded(MUTANTS[0]):
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


WAITING, AIO = "_runtime.waiting:wait_async", "aio._condition:Condition"
CANCELLED = "call.leave_clean_up()\n                    pause = steps.throw(error)"

MUTANTS = [
    # Clean-up.
    bug(
        "a cancelled wait forgets its node",
        WAITING,
        CANCELLED,
        "raise",
        ("_runtime.waiting:_end", "call.abandon()", "pass"),
    ),
    bug(
        "a cancelled clean-up waits for the service",
        "_engine.driver:Call.leave_clean_up",
        "self._leaves_clean_up = True",
        "pass",
    ),
    bug(
        "a hand-off that meets a cancellation is lost",
        "_engine.session:Session.sweep",
        "for handoff in self.handoffs if not left.paths else ():",
        "for handoff in ():",
    ),
    # Wake-ups.
    bug(
        "a wake-up by another thread does not wake the loop",
        "_runtime.waiting:_Wakeup.wake",
        "call_soon(self.loop, self._rouse)",
        "self.loop.call_soon(self._rouse)",
    ),
    # Conditions.
    bug(
        "a cancelled wait keeps its notification",
        f"{AIO}.wait",
        "self._in_background(core._pass_on())",
        "pass",
    ),
    bug(
        "a notification is passed on only if the wait has said so",
        f"{AIO}.wait",
        "(notified or not self._is_withdrawn(call))",
        "notified",
    ),
    bug(
        "a cancelled wait leaves the lock free",
        f"{AIO}.wait",
        "await self._take_back(wait, error)\n            raise\n        await",
        "raise\n        await",
        (f"{AIO}.wait", "await self._take_back(wait, error)\n        finally:", "pass\n        finally:"),
    ),
    bug(
        "a second cancellation leaves the lock free",
        "_threads.base.condition_wait:ConditionWait.reacquire",
        "except (GeneratorExit, ZkConcurrentError):",
        "except BaseException:",
        ("_runtime.waiting:outlast", "strike(error)", "raise"),
        (f"{AIO}.wait", "await self._take_back(wait, error)\n        finally:", "pass\n        finally:"),
    ),
    bug(
        "a second cancellation has the wait queue for the lock anew",
        "_runtime.waiting:outlast",
        "strike(error)",
        "raise",
    ),
    # Loops that are closed.
    bug(
        "a closed loop keeps its calls",
        "_engine.keeper:Keeper._abandon_deserted_calls",
        "call.abandon_by_loop()",
        "pass",
    ),
    bug(
        "a closed loop keeps its nodes",
        "_engine.keeper:Keeper._abandon_deserted_calls",
        "call.abandon_by_loop()",
        "pass",
        ("_runtime.waiting:_end", "call.abandon()", "pass"),
    ),
    bug(
        "a task that is collected keeps its hold",
        "aio._tasks:forsake",
        "core.session.dropped.append(LeftTickets([], tickets))",
        "pass",
    ),
    bug(
        "a task that ends keeps what only it may release",
        "_engine.holds:PathState.end_owner",
        "self.session.dropped.append(LeftTickets([], held, why))",
        "pass",
    ),
    bug(
        "a wake-up of a closed loop ends the thread that wakes",
        "_runtime.waiting:call_soon",
        "if not loop.is_closed():",
        "if True:",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: TaskRun(random_tasks(seed)))


DATA_MUTANTS = [
    bug(
        "a cancelled get does not put the item back",
        "_threads.base.queue_base:QueueState._settling",
        "self.leave(item_call)",
        "item_call.finish()",
    ),
    bug(
        "a cancelled change is not settled",
        "_threads.base.value_base:ValueState.leave",
        "self._settle_later(batch)",
        "self._end(turn, batch)",
    ),
    bug(
        "a cancelled change keeps its turn",
        "_threads.base.value_base:ValueState.leave",
        "change.gone = True",
        "return",
    ),
    bug(
        "a closed loop keeps its memberships",
        "aio._group:Joining.__aexit__",
        "self._membership._give_up()",
        "pass",
    ),
    bug(
        "a cancelled join goes on",
        "_threads.group:Membership._joining",
        "except BaseException:\n        self._give_up()",
        "except BaseException:\n        pass",
        ("_threads.group:Membership.drop_tickets", "self._give_up()", "pass"),
    ),
]
ELECTION_MUTANTS = [
    bug(
        "a candidacy that leads wakes no task that waits for its term",
        "_threads.base.candidacy:Candidacy._tell",
        "call.wake()",
        "pass",
    ),
    bug(
        "found: a candidacy keeps the tasks of closed loops that wait for its term",
        "_threads.base.candidacy:Candidacy.__init__",
        "= LiveSet()",
        "= set()",
    ),
]


@pytest.mark.parametrize("mutant", DATA_MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_of_what_they_share_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: DataTaskRun(random_data_tasks(seed)))


@pytest.mark.parametrize("mutant", ELECTION_MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_of_elections_are_found(mutant: Mutant) -> None:
    """So do those of an election."""
    find(mutant, lambda seed: DataTaskRun(random_elections(seed)))


@pytest.mark.parametrize(
    ("mutant", "run"),
    [
        (
            bug(
                "found: a closed loop keeps the lock that its task gives up to wait",
                "_engine.driver:Call.abandon_by_loop",
                "if self.given_up is not None:",
                "if False:",
            ),
            closed_as_it_waits,
        ),
        (
            bug(
                "found: a task that is collected while another loop runs keeps its hold",
                "aio._twin:Acquirable.__aexit__",
                "(self._forsake() or asyncio._get_running_loop() is None)",
                "asyncio._get_running_loop() is None and self._forsake() is not None",
            ),
            collected_elsewhere,
        ),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_found_bugs_are_found_again(mutant: Mutant, run: Callable[[int], TaskRun]) -> None:
    """Runs of few tasks find the bugs that random runs have shown."""
    find(mutant, run)
