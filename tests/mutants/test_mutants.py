"""The mutator: what each operator makes of a recipe, the runs of its primitive kill."""

from __future__ import annotations

import pytest

from tests.mutants.mutator import ENGINE, OPERATORS, modules, named, sample, seeded
from tests.simulation.test_random_runs import RUNS
from tests.simulation.world.world import Violation
from zkconcurrent._protocol.operations import ConnectionLost
from zkconcurrent._recipes import latch


def test_the_sample() -> None:
    """Each mutant has a name of its own; all operators are in it, and most modules among the first 400."""
    drawn = sample(1000)
    assert len({each.id for each in drawn}) == 1000
    assert {each.operator for each in drawn} == set(OPERATORS)
    assert len({each.module for each in drawn[:400]}) > 0.9 * len(modules())
    assert {f"_engine.{name}" for name in ENGINE} <= {each.module for each in drawn[:400]}
    assert named(drawn[0].id) == drawn[0]


def test_it_runs_in_place_of_the_library() -> None:
    """A function is changed wherever it is known, and only while the block runs."""
    parse, code = latch.parse, latch.parse.__code__
    with seeded(named("_recipes.latch:parse drop-check")), pytest.raises(TypeError):
        parse("/latch", latch.op.Node(b"no count", 1, 0.0, 0))
    assert parse.__code__ is code
    with pytest.raises(LookupError):
        named("_recipes.latch:read drop-nothing")


# One of each operator.
KILLED = [
    "_recipes.latch:count_down drop-yield",
    "_recipes.latch:read_remaining drop-sync",
    "_recipes.value:parts drop-part: op.Container(at.receipts)",
    "_recipes.receipts:write swap-parts: (*parts",
    "_recipes.latch:count_down negate-test",
    "_recipes.latch:count_down drop-check",
    "_recipes.latch:remaining off-by-one",
    "_recipes.latch:count_down and-or",
    "_recipes.receipts:write drop-call: pending_write.note_applied",
    "_recipes.value:apply drop-set: batch.applied",
    "_recipes.receipts:write drop-except: except (op.ConnectionLost",
]


@pytest.mark.parametrize("name", KILLED)
def test_a_mutant_is_killed(name: str) -> None:
    """One of the first hundred random runs of its primitive fails."""
    mutant = named(name)
    runs = RUNS["latches" if mutant.module == "_recipes.latch" else "values"]
    with seeded(mutant), pytest.raises((Violation, ConnectionLost)):
        for seed in range(100):
            runs.kind(runs.draw(seed)).to_the_end()
