"""Latches under random faults: every count counts once, nobody waits at an open latch, and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find, seeded
from tests.simulation.subjects.latch import LatchRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs
from tests.simulation.world.world import Violation


def test_whatever_strikes() -> None:
    """Each count is counted once, nobody who is entitled to go on sleeps, and nothing is left."""
    injected = {kind for run in runs(LatchRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS


DOWN, LOOK, WATCH = "_recipes.latch:count_down", "_recipes.latch:look", "_recipes.nodes:watch_until"
ANSWERED = "seen = yield op.Watch(ticket, reads)"
TOLD = (
    "_engine.operations:_request",
    "if not POLICIES[type(operations[i])].repeats:",
    'if not POLICIES[type(operations[i])].repeats or "count-" in getattr(operations[i], "path", ""):',
)
MUTANTS = [
    bug(
        "counted twice after a lost answer: a new name for each try",
        *TOLD,
        (
            DOWN,
            "except op.NoNode:\n            continue  # destroyed meanwhile",
            "except Exception:\n"
            "            ticket = yield op.NewTicket(path)\n"
            "            yield op.Discard(ticket)\n"
            '            mine = f"{path}/{ticket.prefix}{ROLE}{n}"\n'
            "            continue",
        ),
    ),
    bug(
        "a count whose answer was lost is given up",
        *TOLD,
        (DOWN, "except op.NoNode:\n            continue", "except Exception:\n            return 0"),
    ),
    bug("an open latch is counted down", DOWN, "if not left:", "if False:"),
    bug("each counts one", "_recipes.latch:remaining", "sum(int(said[1])", "sum(1"),
    bug(
        "only the node is watched",
        WATCH,
        ANSWERED,
        "seen = [(yield op.Watch(ticket, reads[:1]))[0], (yield reads[1])]",
    ),
    bug(
        "the watch is left after the look, and nobody looks again",
        WATCH,
        ANSWERED,
        "yield op.Watch(ticket, reads)\n                yield op.Wait(ticket)\n                seen = yield reads",
        (WATCH, "elif watched:", "elif False:"),
    ),
    bug("a node that is not there is watched", WATCH, "if absent:\n", "if False:\n"),
    bug(
        "no watch after a reconnect",
        "_engine.registry:Registry.note_change",
        "list(self._awaiting) if node is None",
        "[] if node is None",
    ),
    bug(
        "the count is asked of a server that lags",
        LOOK,
        "_, node, names = yield op.Sync(path), op.Get(path), op.Children(path)",
        "node, names = yield op.Get(path), op.Children(path)",
    ),
    bug(
        "a ticket is kept when a wait ends",
        WATCH,
        "yield op.Discard(ticket)\n            return accepted",
        "return accepted",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: LatchRun(random_steps(seed)))


def test_a_failure_says_how_to_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The error of a random run has its seed, its schedule and the command that tells of it."""
    with seeded(MUTANTS[3]), pytest.raises(Violation) as raised:
        list(runs(LatchRun, random_steps, 100))
    told = "".join(getattr(raised.value, "__notes__", [])) + capsys.readouterr().err  # Python 3.10 has no notes
    assert "python -m tests.simulation latch:LatchRun random_steps 0" in told
