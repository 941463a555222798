"""A grant without a look in random histories: the rule is never wrong, and each weaker rule is found."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest

from tests.simulation.checks import found
from tests.simulation.checks.mutants import Mutant, bug, seeded
from tests.simulation.subjects.way import History, history
from tests.simulation.world.run import TIMES
from tests.simulation.world.world import Violation

pytestmark = pytest.mark.fault(293)

HISTORIES = 4000
FURTHEST = 40_000
HAPPENS = {
    "joins",
    "leaves",
    "publishes",
    "swaps",
    "downgrades",
    "deletes the waiter's node",
    "purges",
    "reaped",
    "moves",
    "granted by a look",
    "granted without a look",
}


def test_who_is_granted_without_a_look_is_first(simulated: list[str]) -> None:
    """Its node is there when the last one in its way goes, and nobody gets in front; and nobody waits for ever."""
    began = time.perf_counter()
    happened: Counter[str] = Counter()
    for seed in range(HISTORIES * TIMES):
        happened.update(history(seed).happened)
    speed = HISTORIES * TIMES / (time.perf_counter() - began)
    granted = happened["granted without a look"]
    simulated.append(f"{HISTORIES * TIMES:,} histories of a waiter, {speed:,.0f} a second: {granted:,} without a look")
    assert {what for what, times in happened.items() if times > HISTORIES / 100} >= HAPPENS
    assert granted > HISTORIES / 20


# Each weaker rule, by what it leaves out.
MUTANTS = [
    bug(
        "a node that a detached lock swaps is taken for gone",
        "_protocol.node_names:is_detached",
        'return name[:3] == "_c_" and',
        "return False and",
    ),
    bug(
        "several are ahead", "_protocol.way_to_grant:Way.of", "if its == mine or ahead is not None:", "if its == mine:"
    ),
    bug(
        "a writer behind a writer, which may downgrade",
        "_protocol.way_to_grant:Way.of",
        "(rule == WRITE and rule.alone in ahead) or ",
        "",
    ),
    bug(
        "any event of the node ahead is its end",
        "_protocol.way_to_grant:Way.change_ahead",
        "Stage.BLOCKED and deleted and",
        "Stage.BLOCKED and",
    ),
    bug(
        "an event of an older watch counts",
        "_protocol.way_to_grant:Way.change_ahead",
        "self.stage is Stage.BLOCKED and",
        "self.stage is not Stage.UNKNOWN and",
    ),
    bug("the own node is not watched", "_protocol.way_to_grant:Way.change_own", "self.stage = Stage.UNKNOWN", "pass"),
    bug("the own node may be missing", "_protocol.way_to_grant:Way.read_own", " and session == self._session", ""),
    bug(
        "reads of two connections count together",
        "_protocol.way_to_grant:Way.read_own",
        " and connection is self._connection",
        "",
        ("_protocol.way_to_grant:Way.read_ahead", " or connection is not self._connection", ""),
        ("_protocol.way_to_grant:Way.change_ahead", " and connection is self._connection", ""),
    ),
    bug(
        "an event of the next connection counts",
        "_protocol.way_to_grant:Way.change_ahead",
        " and connection is self._connection",
        "",
    ),
]
# Takes the two replies in the other order.
EITHER_ORDER = bug(
    "the own node is read behind the one ahead",
    "_protocol.way_to_grant:Way.read_own",
    "exists = self.stage is Stage.BEGUN and",
    "exists = self.stage is not Stage.UNKNOWN and",
    (
        "_protocol.way_to_grant:Way.read_own",
        "Stage.EXISTS if exists",
        "max(self.stage, Stage.EXISTS, key=[*Stage].index) if exists",
    ),
    ("_protocol.way_to_grant:Way.read_ahead", "self.stage is not Stage.EXISTS or", "self.stage is Stage.UNKNOWN or"),
)


class Behind(History):
    """A history whose waiter reads its own node last."""

    own_first = False


def run_behind(seed: int) -> None:
    """Run such a history."""
    Behind(seed).run()


def first_found(run: Callable[[int], object], noted: str | None = None) -> int:
    """Return the first seed whose history fails; a noted seed is tried before all others."""
    for seed in (*([] if noted is None else [int(noted)]), *range(FURTHEST)):
        try:
            run(seed)
        except Violation:
            return seed
    raise AssertionError(f"{FURTHEST} histories do not find it")


@pytest.mark.parametrize("mutant", [*MUTANTS, EITHER_ORDER], ids=lambda mutant: mutant.name)
def test_weaker_rules_are_found(mutant: Mutant, simulated: list[str]) -> None:
    """The same histories find each weaker rule."""
    bug, run = f"way: {mutant.name}", run_behind if mutant is EITHER_ORDER else history
    with seeded(mutant):
        seed = first_found(run, found.noted(bug))
    simulated.append(f"{mutant.name:75} {seed + 1:5} histories")
    run(seed)
    found.note(bug, seed)
