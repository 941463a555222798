"""What may kill a mutant: each run of the simulation, and each test without a server, as a call of a seed."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.simulation.checks.explore import Case, injected, points
from tests.simulation.checks.table import EVERYWHERE
from tests.simulation.subjects import lease, way
from tests.simulation.test_random_runs import RUNS, made
from tests.simulation.test_recipes import TABLES, shuffled

FOREVER = 1 << 30
TESTS = Path(__file__).parents[1]
UNIT = (
    *("rules", "lease", "deadlocks", "registry", "heartbeat", "orders", "seats", "mirror", "ensembles", "posted"),
    *("foreign_data", "messages", "once", "sent_again", "rare_replies", "due_work", "metrics", "by_value", "waiting"),
    "paths",
)
# Those that take seconds; the others' mutants are few.
INTEGRATION = (
    *("receipts", "barrier", "cancel_waits", "condition", "detached", "dict", "double_barrier", "events", "held"),
    *("hold", "hold_limit", "inspection", "locks", "loss_advice", "multilock", "node_data", "old_connections"),
    *("resize", "revocation", "rwlock", "semaphore", "shared_value", "synchronized", "unfair"),
)
TESTED_BY = [
    *(f"unit/test_{name}.py" for name in UNIT),
    *("simulation/test_divergence.py", "simulation/test_limits.py", "contract/test_driver.py"),
    *(f"costs/test_{name}costs.py" for name in ("", "queue_", "dict_", "value_", "group_")),
    *(f"integration/test_{name}.py" for name in INTEGRATION),
    *("contract/test_hand_over.py", "contract/test_link.py", "every_primitive/test_refusals.py"),
    *("aio/test_groups.py", "aio/test_locks.py", "aio/test_ended_tasks.py", "aio/test_synchronized.py"),
]
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


def _run(name: str, seed: int) -> None:
    made(name, RUNS[name].draw(seed)).to_the_end()


# The faults at each operation: one case after the other.

MOMENTS = "at each moment of a lock"


@cache
def cases(name: str) -> list[Case]:
    """Return the cases of a table in an order of no pattern; to be called while the library is as it is."""
    if name == MOMENTS:
        return shuffled(case for way in EVERYWHERE for case in points(way))
    return shuffled(injected(next(table for table in TABLES if table.name == name)))


def _inject(name: str, number: int) -> None:
    cases(name)[number].make().to_the_end()


def _test(path: str, _: int) -> None:
    """Run the tests of a file, but for those of long.

    Raises:
        AssertionError: one has failed.
    """
    told = io.StringIO()
    os.environ["ZKCONCURRENT_SERVER"] = "memory"
    options = ["-x", "-q", "--no-header", "--tb=line", "--assert=plain", "-p", "no:cacheprovider"]
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        code = pytest.main([*options, "-m", "not long", str(TESTS / path)])
    if code != pytest.ExitCode.OK:
        raise AssertionError(f"exit {code}: {told.getvalue()[-2000:]}")


@cache
def killers() -> dict[str, Killer]:
    """Return all that may kill, by name."""
    found = {name: Killer(partial(_run, name)) for name in RUNS}
    found["histories of a lease"] = Killer(lease.history, measured=10)
    found["histories of a way to a grant"] = Killer(way.history, measured=10)
    for name in (*(table.name for table in TABLES), MOMENTS):
        found[f"faults: {name}"] = Killer(partial(_inject, name), len(cases(name)), 60)
    for path in filter(lambda path: (TESTS / path).exists(), TESTED_BY):
        found[f"tests: {path}"] = Killer(partial(_test, path), 1, 1)
    return found
