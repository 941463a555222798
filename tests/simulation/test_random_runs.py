"""Random runs of each primitive: whatever strikes, its invariants hold after every step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from tests.mutants.mutator import named, seeded
from tests.simulation.checks.told import hear
from tests.simulation.subjects import (
    barrier,
    detached,
    dicts,
    double_barrier,
    election,
    event,
    group,
    latch,
    queues,
    resizing,
    semaphore,
    tasks,
    unfair,
    values,
)
from tests.simulation.test_limits import LimitedRun, LosingRun
from tests.simulation.world.ensemble import LAST
from tests.simulation.world.run import COMMON_FAULTS, Run, runs
from tests.simulation.world.schedule import LEASE_KINDS, Schedule, lease_schedule, random_schedule
from tests.simulation.world.world import Violation
from zkconcurrent import Lock, RLock

STRIKES = frozenset(COMMON_FAULTS)


class Runs(NamedTuple):
    """Random runs.

    Attributes:
        kind: makes a run of a schedule.
        draw: draws the schedule of a seed.
        seeds: how many there are.
        strikes: the kinds of deviations that take effect.
        prepare: changes a run before it begins.
        happens: returns how often a run came to what it must come to, now and then.
        marks: the faults that they show.
    """

    kind: Callable[[Any], Run]
    draw: Callable[[int], Any]
    seeds: int = 80
    strikes: frozenset[str] | set[str] = STRIKES
    prepare: Callable[[Any], object] = lambda _: None
    happens: Callable[[Any], float] = lambda _: 1
    marks: Any = ()


def _visits(seed: int) -> Schedule:
    return random_schedule(Random(seed))


def _leases(seed: int) -> Schedule:
    return lease_schedule(Random(seed))


def wear(run: Run) -> None:
    """Have the versions of all nodes that several clients write be about to begin anew."""
    run.ensemble.worn = LAST - 1


def hurry(run: Run) -> None:
    """Have releases wait for nothing."""
    to_the_end = run.to_the_end

    def run_in_a_hurry() -> int:
        with (
            patch.object(Lock, "release", partialmethod(Lock.release, wait=False)),
            patch.object(RLock, "release", partialmethod(RLock.release, wait=False)),
        ):
            return to_the_end()

    run.to_the_end = run_in_a_hurry  # type: ignore[method-assign]


WORN = pytest.mark.fault(172)
RUNS = {
    "locks": Runs(Run, _visits, 120, prepare=hear, marks=pytest.mark.fault(17, 18)),
    "locks in a hurry": Runs(Run, _visits, 60, prepare=hurry),
    "locks and leases": Runs(Run, _leases, 120, set(LEASE_KINDS), marks=pytest.mark.fault(44, 45)),
    "locks with limits": Runs(LimitedRun, _visits, marks=pytest.mark.fault(285, 286)),
    "locks lost at limits": Runs(LosingRun, _visits, marks=pytest.mark.fault(286)),
    "locks, unfair": Runs(
        unfair.UnfairRun,
        unfair.random_unfair,
        strikes=STRIKES | {"remove", "close"},
        prepare=hear,
        happens=lambda run: run.checks.handed_over,
    ),
    "rwlocks": Runs(tasks.TaskRun, tasks.random_passes, prepare=hear),
    "rwlocks in a hurry": Runs(tasks.TaskRun, tasks.random_passes, 40, prepare=hurry),
    "semaphores": Runs(
        semaphore.SemaphoreRun,
        semaphore.random_uses,
        strikes=STRIKES | {"remove", "reap", "lose"},
        prepare=hear,
        marks=pytest.mark.fault(37),
    ),
    "semaphores, resized": Runs(
        resizing.ResizeRun,
        resizing.random_resizes,
        strikes=STRIKES | {"remove", "reap", "lose"},
        marks=pytest.mark.fault(97, 98),
    ),
    "conditions": Runs(tasks.TaskRun, tasks.random_turns, strikes=STRIKES | {"lose"}, prepare=hear),
    "detached locks": Runs(
        detached.DetachedRun,
        detached.random_acts,
        strikes=STRIKES | {"lose", "strike", "remove", "end_waits"},
        prepare=hear,
        happens=lambda run: 3 * len(run.checks.adopted),
        marks=pytest.mark.fault(114, 115, 116, 117, 129, 130, 131),
    ),
    "elections": Runs(election.ElectionRun, election.random_acts, prepare=hear, marks=pytest.mark.fault(89, 109)),
    "tasks": Runs(
        tasks.TaskRun,
        tasks.random_tasks,
        200,
        STRIKES | {"cancel", "shut", "lose", "end_waits"},
        prepare=hear,
        happens=lambda run: min(run.cancels / 3, 2 * run.ended),
        marks=pytest.mark.fault(95),
    ),
    "events": Runs(event.EventRun, event.random_steps, strikes=STRIKES | {"remove"}, marks=pytest.mark.fault(240)),
    "latches": Runs(latch.LatchRun, latch.random_steps),
    "barriers": Runs(
        barrier.BarrierRun,
        barrier.random_meetings,
        120,
        STRIKES | {"remove", "close", "slow", "leave"},
        happens=lambda run: 2 * len(run.checks.acted),
    ),
    "double barriers": Runs(
        double_barrier.DoubleBarrierRun, double_barrier.random_steps, marks=pytest.mark.fault(104, 127)
    ),
    "groups": Runs(group.GroupRun, group.random_steps, marks=pytest.mark.fault(108, 278)),
    "values": Runs(
        values.ValueRun,
        values.random_steps,
        strikes=STRIKES | {"lose", "strike"},
        marks=pytest.mark.fault(92, 93, 94, 133),
    ),
    "maps": Runs(
        dicts.DictRun, dicts.random_steps, strikes=STRIKES - {"late"} | {"lose"}, marks=pytest.mark.fault(99, 100, 150)
    ),
    "queues": Runs(
        queues.QueueRun,
        queues.random_steps,
        100,
        STRIKES | {"lose", "strike", "close"},
        marks=pytest.mark.fault(80, 133),
    ),
    "queues with delays": Runs(
        queues.QueueRun, queues.random_delays, strikes=STRIKES | {"lose", "set_clock"}, marks=pytest.mark.fault(86, 87)
    ),
    "queues, destroyed": Runs(
        queues.QueueRun,
        queues.random_destroys,
        30,
        frozenset(),
        happens=lambda run: 2 * bool(run.checks.destroyed),
        marks=pytest.mark.fault(138, 146),
    ),
    "queues, purged": Runs(queues.QueueRun, queues.random_purges, 10, {"purge"}, marks=pytest.mark.fault(139)),
    "worn barriers": Runs(barrier.BarrierRun, barrier.random_meetings, 20, frozenset(), wear, marks=WORN),
    "worn double barriers": Runs(
        double_barrier.DoubleBarrierRun, double_barrier.random_steps, 20, frozenset(), wear, marks=WORN
    ),
    "worn values": Runs(values.ValueRun, values.random_steps, 20, frozenset(), wear, marks=WORN),
    "worn maps": Runs(dicts.DictRun, dicts.random_steps, 20, frozenset(), wear, marks=WORN),
}
"""All random runs, by name. `python -m tests.simulation` reads a failing one aloud, and mutants are tried with them."""


def made(name: str, schedule: Any) -> Run:
    """Return a run of a schedule, prepared."""
    run = RUNS[name].kind(schedule)
    RUNS[name].prepare(run)
    return run


@pytest.mark.filterwarnings("ignore:acquire.. waits for 4 permits:RuntimeWarning")
@pytest.mark.parametrize("name", [pytest.param(name, marks=each.marks) for name, each in RUNS.items()])
def test_whatever_strikes(name: str) -> None:
    """No run breaks an invariant; all that may strike does, and what the runs are for happens often."""
    injected: set[str] = set()
    happened, tried = 0.0, 0
    for run in runs(lambda schedule: made(name, schedule), RUNS[name].draw, RUNS[name].seeds, name):
        injected.update(run.injected)
        happened += RUNS[name].happens(run)
        tried += 1
    assert injected >= RUNS[name].strikes
    assert happened > tried / 2


def test_a_session_that_ends_while_something_is_kept() -> None:
    """No thread is given a ticket that was lost while it was kept for it."""
    closed = 0
    while (run := unfair.ClosedRun(closed)).to_the_end() and run.kept_for > closed:
        closed += 1
    assert closed > 20


def test_a_failure_says_how_to_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The error of a random run has its seed, its schedule and the command that tells of it."""
    latches = RUNS["latches"]
    with seeded(named("_recipes.latch:count_down drop-yield: yield op.Create")), pytest.raises(Violation) as raised:
        list(runs(latches.kind, latches.draw, 100, "latches"))
    told = "".join(getattr(raised.value, "__notes__", [])) + capsys.readouterr().err  # Python 3.10 has no notes
    assert "python -m tests.simulation 'latches' 0" in told
