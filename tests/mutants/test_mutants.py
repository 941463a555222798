"""The mutator: each operator makes its change, and the runs of a primitive kill what it makes of the recipe."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.mutator import ENGINE, OPERATORS, Mutant, changed, modules, mutants_of, named, sample, seeded
from tests.simulation.subjects.latch import LatchRun
from tests.simulation.subjects.latch import random_steps as latch_steps
from tests.simulation.subjects.values import ValueRun
from tests.simulation.subjects.values import random_steps as value_steps
from tests.simulation.world.world import Violation
from zkconcurrent._protocol.operations import ConnectionLost
from zkconcurrent._recipes import latch

SOURCE = '''
def recipe(path, n):
    """Say 1 < 2 of no change."""
    try:
        node = yield op.Get(path)
        _, names = yield op.Sync(path), op.Children(path)
        if node is None and n < 3:
            raise LookupError(n < 4)
        yield op.Multi((op.Check(path), op.Delete(path)))
        n += len(names[:2])
    except op.NoNode:
        forget(n)
'''
OF_EACH = {
    "drop-yield": [
        "node = yield op.Get(path)|node = (yield) if False else None",
        "yield op.Multi((op.Check(path), op.Delete(path)))|(yield) if False else None",
    ],
    "drop-sync": ["op.Sync(path)|_, names = (None, *(yield (op.Children(path),)))"],
    "drop-part": [
        "op.Check(path)|yield op.Multi((op.Delete(path),))",
        "op.Delete(path)|yield op.Multi((op.Check(path),))",
    ],
    "swap-parts": ["(op.Check(path), op.Delete(path))|yield op.Multi((op.Delete(path), op.Check(path)))"],
    "negate-test": ["node is None and n < 3|if not (node is None and n < 3):"],
    "drop-check": ["node is None and n < 3|if (node is None and n < 3) and False:"],
    "off-by-one": ["n < 3|if node is None and n <= 3:", "3|if node is None and n < 4:", "2|n += len(names[:3])"],
    "and-or": ["node is None and n < 3|if node is None or n < 3:"],
    "drop-call": ["forget(n)|pass"],
    "drop-set": ["n += len(names[:2])|pass"],
    "drop-except": ["except op.NoNode|raise"],
}


def plain(code: str) -> str:
    """Return code without parentheses, which `unparse` sets by its own rules."""
    return code.replace("(", "").replace(")", "").strip()


def lines(tree: ast.AST) -> list[str]:
    """Return the lines of a tree's code."""
    return [plain(line) for line in ast.unparse(tree).splitlines()]


@pytest.mark.parametrize("operator", OPERATORS)
def test_an_operator(operator: str) -> None:
    """It changes one place, wherever it can, and nothing else."""
    made = [each for each in mutants_of("_recipes.latch", SOURCE) if each.operator == operator]
    assert [plain(each.text) for each in made] == [plain(each.partition("|")[0]) for each in OF_EACH[operator]]
    before = lines(ast.parse(SOURCE))
    for mutant, told in zip(made, OF_EACH[operator], strict=True):
        after = lines(changed(mutant, SOURCE))
        (n,) = [n for n, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        assert after[n] == plain(told.partition("|")[2])


def test_the_sample() -> None:
    """Each mutant has a name of its own, and most modules and all operators are in it."""
    drawn = sample(400)
    assert len({each.id for each in drawn}) == 400
    assert {each.operator for each in drawn} == set(OPERATORS)
    assert len({each.module for each in drawn}) > 0.9 * len(modules())
    assert {f"_engine.{name}" for name in ENGINE} <= {each.module for each in drawn}
    assert named(drawn[0].id) == drawn[0]


def test_it_runs_in_place_of_the_library() -> None:
    """A function is changed wherever it is known, and only while the block runs."""
    read, code = latch.read, latch.read.__code__
    with seeded(named("_recipes.latch:read drop-check")), pytest.raises(TypeError):
        read("/latch", latch.op.Node(b"no count", 1, 0.0, 0))
    assert read.__code__ is code
    with pytest.raises(LookupError):
        named("_recipes.latch:read drop-nothing")


# One of each operator.
KILLED = [
    "_recipes.latch:count_down drop-yield",
    "_recipes.latch:look drop-sync",
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


def run(mutant: Mutant, seed: int) -> None:
    """Run a latch or a value, for mutants of their recipes."""
    of_latches = mutant.module == "_recipes.latch"
    (LatchRun(latch_steps(seed)) if of_latches else ValueRun(value_steps(seed))).to_the_end()


@pytest.mark.parametrize("name", KILLED)
def test_a_mutant_is_killed(name: str) -> None:
    """One of the first hundred random runs of its primitive fails."""
    mutant = named(name)
    with seeded(mutant), pytest.raises((Violation, ConnectionLost)):
        for seed in range(100):
            run(mutant, seed)


def test_a_mutant_of_each_operator_is_killed() -> None:
    """None is left out."""
    assert {name.split()[1].rstrip(":") for name in KILLED} == set(OPERATORS)
