"""Unfair locks under random faults: the invariants hold after every step, and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.unfair import ClosedRun, UnfairRun, random_unfair
from tests.simulation.world.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """No two hold together, by one ticket or two; nobody waits at an open gate; nothing is left, there or in it."""
    injected: set[str] = set()
    handed_over = []
    for run in runs(UnfairRun, random_unfair, 100):
        injected.update(run.injected)
        handed_over.append(run.checks.handed_over)
    assert injected >= COMMON_FAULTS | {"remove", "close"}
    assert sum(handed_over) > len(handed_over) / 2


TAKE_KEPT, LEAVE, WAKE_NEXT = (
    "_engine.local_handoff:LocalHandoff._take_kept",
    "_engine.local_handoff:LocalHandoff.leave",
    "_engine.local_handoff:LocalHandoff.wake_next",
)


END_TURN = "_engine.local_handoff:LocalHandoff.end_turn"


KEPT = bug(
    "a kept hold counts, whatever became of it",
    TAKE_KEPT,
    "self._turn_lasts() and session.grant",
    "bool",
    (END_TURN, "not self._turn_lasts()", "False"),  # the keeper gives it up in time, too
)
MUTANTS = [
    bug(
        "a hold kept too long is forgotten",
        TAKE_KEPT,
        "session.discard(ticket)",
        "pass",
        (END_TURN, "self._session.discard(ticket)", "pass"),
    ),
    bug("a waiter that gave up is waited for", LEAVE, "call.finished = True", "pass"),
    bug("no waiter is let in", WAKE_NEXT, "call.wake()", "pass"),
    bug("it is left in there when nobody wants it any more", WAKE_NEXT, "self._session.discard(self._kept)", "pass"),
    bug("a lost hold keeps the gate closed", "_engine.local_handoff:LocalHandoff._is_open", "hold.alive", "True"),
    bug("an interrupted waiter is waited for", "_engine.driver:Call.abandon", "self.finished = True", "pass"),
    bug(
        "a releaser that has handed it over gives it up",
        "_threads.base.lock_core:LockCore.end_hold",
        "                self.path_state.drop(hold)\n    except",
        "                self.path_state.drop(hold)\n        session.discard(hold.ticket)\n    except",
    ),
    bug(
        "the hand-off is open while a thread holds",
        "_engine.local_handoff:LocalHandoff._is_open",
        "if hold.alive:",
        "if False:",
        ("_engine.local_handoff:LocalHandoff._is_open", "return True", "return bool(self._holds)"),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: UnfairRun(random_unfair(seed)))


def test_a_session_that_ends_while_something_is_kept() -> None:
    """No thread is given a ticket that was lost while it was kept for it; runs find the bug that does so."""
    closed = 0
    while (run := ClosedRun(closed)).to_the_end() and run.kept_for > closed:
        closed += 1
    assert closed > 20
    find(KEPT, ClosedRun)
