"""Unfair locks under random faults: what must hold after every step does, and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import Edit, Mutant, find
from tests.simulation.run import STRIKES, runs
from tests.simulation.unfair import UnfairRun, random_unfair


def test_whatever_strikes() -> None:
    """No two hold together, by one ticket or two; nobody waits at an open gate; nothing is left, there or in it."""
    struck: set[str] = set()
    handed_over = []
    for run in runs(UnfairRun, random_unfair, 150):
        struck.update(run.struck)
        handed_over.append(run.checks.handed_over)
    assert struck >= STRIKES | {"strike", "close"}
    assert sum(handed_over) > len(handed_over) / 2


TAKE_KEPT, LEAVE, LOOK = (
    "_engine.local_handoff:LocalHandoff._take",
    "_engine.local_handoff:LocalHandoff.leave",
    "_engine.local_handoff:LocalHandoff.look",
)


END_TURN = "_engine.local_handoff:LocalHandoff.end_turn"


def _mutant(name: str, *edits: tuple[str, str, str]) -> Mutant:
    return Mutant(name, tuple(Edit(*each) for each in edits))


MUTANTS = [
    _mutant(
        "what was kept counts, whatever became of it",
        (TAKE_KEPT, "self._is_early() and session.grant", "bool"),
        (
            "_engine.local_handoff:LocalHandoff.end_turn",
            "not self._is_early()",
            "False",
        ),  # the keeper gives it up in time, too
    ),
    _mutant(
        "what was kept too long is forgotten",
        (TAKE_KEPT, "session.discard(ticket)", "pass"),
        (END_TURN, "self._session.discard(ticket)", "pass"),
    ),
    _mutant("who gives up waiting is waited for", (LEAVE, "call.over = True", "pass")),
    _mutant("nobody is let in", (LOOK, "call.wake()", "pass")),
    _mutant("it is left in there when nobody wants it any more", (LOOK, "self._session.discard(self._kept)", "pass")),
    _mutant("a lost hold keeps the gate closed", ("_engine.local_handoff:LocalHandoff._open", "hold.alive", "True")),
    _mutant(
        "who is interrupted is waited for", ("_engine.driver:Call.abandon", "self.over = self.settled = True", "pass")
    ),
    _mutant(
        "who has handed_over it on gives it up",
        ("_lock_base:LockBase._give_up", " and self._path_state.has(hold)", ""),
    ),
    _mutant(
        "the gate is open while somebody holds",
        ("_engine.local_handoff:LocalHandoff._open", "not any(hold.alive", "any(True"),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: UnfairRun(random_unfair(seed)))
