"""Read-write locks under random faults: the invariants hold after every step, and seeded bugs are found."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import pytest

from tests.simulation.checks.mutants import FURTHEST
from tests.simulation.subjects.rwlock import RWRun, random_passes
from tests.simulation.world.run import COMMON_FAULTS, runs
from tests.simulation.world.world import Violation
from zkconcurrent._protocol import rules
from zkconcurrent._protocol import way_to_grant as way
from zkconcurrent._protocol.operations import CreateEphemeral, Multi
from zkconcurrent._protocol.rules import READ, WRITE
from zkconcurrent._recipes.lock import acquire, downgrade
from zkconcurrent._threads import rwlock as _rwlock


def test_whatever_strikes() -> None:
    """No reader and writer, and no two writers, hold together; nobody is forgotten; nothing is left."""
    injected = {kind for run in runs(RWRun, random_passes, 120) for kind in run.injected}
    assert injected >= COMMON_FAULTS


def _hands_over() -> list[object]:
    return [
        patch.object(_rwlock.ReadLock, "_rule", READ._replace(hands_over=True)),
        patch.object(_rwlock.WriteLock, "_rule", WRITE._replace(hands_over=True)),
    ]


def _without_check(*arguments: object) -> object:
    recipe = downgrade(*arguments)  # type: ignore[arg-type]
    step = next(recipe)
    while True:
        if isinstance(step, Multi):
            step = Multi(step.ticket, tuple(each for each in step.operations if isinstance(each, CreateEphemeral)))
        try:
            answer = yield step
        except BaseException as error:
            step = recipe.throw(error)
        else:
            try:
                step = recipe.send(answer)
            except StopIteration as end:
                return end.value


MUTANTS: dict[str, Callable[[], list[object]]] = {
    "a hand-over between threads": _hands_over,
    "a writer does not wait for readers": lambda: [
        patch.object(_rwlock.WriteLock, "_rule", WRITE._replace(alone="__NONE__")),
    ],
    "a reader waits for nobody": lambda: [patch.object(_rwlock.ReadLock, "_rule", READ._replace(alone="__NONE__"))],
    "roles have orders of their own": lambda: [
        patch.object(_rwlock.ReadLock, "_rule", READ._replace(roles=("__READ__",))),
        patch.object(_rwlock.WriteLock, "_rule", WRITE._replace(roles=("__WRIT__",))),
        patch.object(rules, "KINDS", {}),  # else each refuses the other's nodes
    ],
    "a downgrade queues at the tail": lambda: [
        patch.object(_rwlock, "downgrade", lambda writer, rule, data: acquire(writer.path, rule, data)),
    ],
    "a writer does not look, though the writer ahead may leave a read lock": lambda: [patch.object(way, "WRITE", None)],
    "a downgrade does not check the writer's node": lambda: [patch.object(_rwlock, "downgrade", _without_check)],
}


@pytest.mark.parametrize("name", MUTANTS)
def test_seeded_bugs_are_found(name: str) -> None:
    """The same runs find each bug."""
    patches = MUTANTS[name]()
    for each in patches:
        each.start()  # type: ignore[attr-defined]
    try:
        with pytest.raises(Violation):
            for seed in range(FURTHEST):
                RWRun(random_passes(seed)).to_the_end()
    finally:
        for each in patches:
            each.stop()  # type: ignore[attr-defined]
