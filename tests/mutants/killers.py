"""What may kill a mutant: each run of the simulation, each machine, each test without a server, as a call of a seed."""

from __future__ import annotations

import contextlib
import io
import os
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.properties import test_locks, test_others
from tests.properties.machine import Machine, explore
from tests.simulation import checks, subjects
from tests.simulation.checks.explore import Case, injected, points
from tests.simulation.checks.table import EVERYWHERE, Table
from tests.simulation.subjects import (
    barrier,
    cancels,
    condition,
    data_tasks,
    detached,
    dicts,
    double_barrier,
    election,
    event,
    group,
    latch,
    queues,
    resizing,
    rwlock,
    semaphore,
    tasks,
    unfair,
    values,
    way,
)
from tests.simulation.subjects import lease as leases
from tests.simulation.test_busy import busy
from tests.simulation.test_simulated_events import heard
from tests.simulation.test_simulated_limits import LosingRun
from tests.simulation.test_simulated_versions import worn
from tests.simulation.world.run import Run
from tests.simulation.world.schedule import lease_schedule, random_schedule

FOREVER = 1 << 30
TESTS = Path(__file__).parents[1]
TESTED_BY = (
    *("unit/test_rules.py", "unit/test_lease.py", "unit/test_deadlocks.py", "unit/test_registry.py"),
    *("unit/test_heartbeat.py", "unit/test_orders.py", "unit/test_seats.py", "unit/test_mirror.py"),
    *("unit/test_ensembles.py", "unit/test_posted.py", "unit/test_foreign_data.py", "unit/test_messages.py"),
    *("unit/test_once.py", "unit/test_sent_again.py", "unit/test_metrics.py", "unit/test_by_value.py"),
    *("unit/test_waiting.py", "simulation/test_divergence.py"),
    *("contract/test_driver.py", "costs/test_costs.py", "costs/test_queue_costs.py", "costs/test_dict_costs.py"),
    *("costs/test_value_costs.py", "costs/test_group_costs.py", "integration/test_receipts.py"),
    *("simulation/test_simulated_limits.py", "simulation/test_simulated_unfair.py"),
)
"""The tests about what mutants are made of that need no server, or go on the memory server; the narrowest first."""


class Killer(NamedTuple):
    """What may kill.

    Attributes:
        run: runs a seed; it raises an error if the library is wrong.
        seeds: how many seeds there are.
        measured: how many of these are looked at to know what they reach.
    """

    run: Callable[[int], object]
    seeds: int = FOREVER
    measured: int = 30


def random_locks(seed: int) -> Any:
    """Draw visits to locks."""
    return random_schedule(Random(seed))


RUNS: dict[str, tuple[Callable[[Any], Run], Callable[[int], Any]]] = {
    "locks": (Run, random_locks),
    "rwlock": (rwlock.RWRun, rwlock.random_passes),
    "semaphore": (semaphore.SemaphoreRun, semaphore.random_uses),
    "resizing": (resizing.ResizeRun, resizing.random_resizes),
    "condition": (condition.CondRun, condition.random_turns),
    "event": (event.EventRun, event.random_steps),
    "latch": (latch.LatchRun, latch.random_steps),
    "barrier": (barrier.BarrierRun, barrier.random_meetings),
    "double barrier": (double_barrier.DoubleBarrierRun, double_barrier.random_steps),
    "group": (group.GroupRun, group.random_steps),
    "election": (election.ElectionRun, election.random_acts),
    "detached": (detached.DetachedRun, detached.random_acts),
    "values": (values.ValueRun, values.random_steps),
    "maps": (dicts.DictRun, dicts.random_steps),
    "queues": (queues.QueueRun, queues.random_steps),
    "queues with delays": (queues.QueueRun, queues.random_delays),
    "queues destroyed": (queues.QueueRun, queues.random_destroys),
    "queues purged": (queues.QueueRun, queues.random_purges),
    "cancels": (cancels.CancelRun, cancels.random_cancels),
    "unfair": (unfair.UnfairRun, unfair.random_unfair),
    "limits": (LosingRun, random_locks),
    "locks and leases": (Run, lambda seed: lease_schedule(Random(seed))),
    "tasks": (tasks.TaskRun, tasks.random_tasks),
    "tasks with data": (data_tasks.DataTaskRun, data_tasks.random_data_tasks),
    "tasks in elections": (data_tasks.DataTaskRun, data_tasks.random_elections),
    "worn values": (worn("values"), values.random_steps),
    "worn maps": (worn("maps"), dicts.random_steps),
    "worn barriers": (worn("barriers"), barrier.random_meetings),
    "locks, told": (partial(heard, Run, Counter()), random_locks),
    "elections, told": (partial(heard, election.ElectionRun, Counter()), election.random_acts),
}
"""The runs of the simulation: what makes one, and what draws its schedule."""


def _run(name: str, seed: int) -> None:
    make, draw = RUNS[name]
    make(draw(seed)).to_the_end()


def _busy(seed: int) -> None:
    busy(semaphore.SemaphoreRun(semaphore.random_uses(seed)), seed).to_the_end()


# The faults at each operation: one case after the other.


def tables() -> list[Table]:
    """Return the tables of faults."""
    found = {
        id(each): each
        for folder in (checks, subjects)
        for module in iter_modules(folder.__path__)
        for each in vars(import_module(f"{folder.__name__}.{module.name}")).values()
        if isinstance(each, Table)
    }
    return list(found.values())


MOMENTS = "at each moment of a lock"


@cache
def cases(name: str) -> list[Case]:
    """Return the cases of a table in an order of no pattern; to be called while the library is as it is."""
    if name == MOMENTS:
        found = [case for way in EVERYWHERE for case in points(way)]
    else:
        (table,) = (table for table in tables() if table.name == name)
        found = list(injected(table))
    Random(7).shuffle(found)
    return found


def _inject(name: str, number: int) -> None:
    cases(name)[number].make().to_the_end()


def _explore(machine: type[Machine], number: int) -> None:
    explore(machine, examples=(10, 60)[number])


def _test(path: str, _: int) -> None:
    """Run the tests of a file, but for those of long.

    Raises:
        AssertionError: one has failed.
    """
    told = io.StringIO()
    os.environ["ZKCONCURRENT_SERVER"] = "memory"
    options = ["--maxfail=5", "-q", "--no-header", "--tb=line", "--assert=plain", "-p", "no:cacheprovider"]
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        code = pytest.main([*options, "-m", "not long", str(TESTS / path)])
    if code != pytest.ExitCode.OK:
        raise AssertionError(f"exit {code}: {told.getvalue()[-2000:]}")


@cache
def killers() -> dict[str, Killer]:
    """Return all that may kill, by name."""
    found = {name: Killer(partial(_run, name)) for name in RUNS}
    found["semaphores of busy servers"] = Killer(_busy)
    found["histories of a lease"] = Killer(leases.history, measured=10)
    found["histories of a way to a grant"] = Killer(way.history, measured=10)
    for name in (*(table.name for table in tables()), MOMENTS):
        found[f"faults: {name}"] = Killer(partial(_inject, name), len(cases(name)), 60)
    for machine in (*test_locks.LOCKS, *test_locks.OF_TASKS, *test_others.OTHERS):
        found[f"machine: {machine.__name__}"] = Killer(partial(_explore, machine), 2, 1)
    for path in TESTED_BY:
        found[f"tests: {path}"] = Killer(partial(_test, path), 1, 1)
    return found
