"""Quorums of locks under random faults of several services: one holds, losses are told; seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.quorum import QuorumRun, random_takes
from tests.simulation.world.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """No two threads hold a quorum, each loss is told once, nothing is left, and nobody waits while one is free."""
    injected: set[str] = set()
    held = partial = lost = 0
    for run in runs(QuorumRun, random_takes, 20):
        injected.update(run.injected)
        held += len(run.checks.past)
        partial += sum(len(section.parts) < run.services for section in run.checks.past)
        lost += sum(section.lost for section in run.checks.past)
    assert injected >= (COMMON_FAULTS | {"black_out"}) - {"kill", "expire", "lag"}
    assert held > 60
    assert partial > 10
    assert lost


LOCK = "_threads.quorum:QuorumLock"
# The lines that act between two of the schedule's turns are not told here: an interrupt as a quorum is noted, or a lock
# that is lost before the others have answered. `faults/test_interrupts.py` interrupts each line.
MUTANTS = [
    # The rules of a quorum.
    bug(
        "half of the locks are enough",
        f"{LOCK}._try_all",
        "if quorum.alive >= self._quorum:",
        "if quorum.alive >= self._quorum - 1:",
    ),
    bug(
        "a lost lock counts as held",
        "_threads.quorum_hold:QuorumHold.alive",
        "sum(hold.alive for _, hold in self.parts)",
        "len(self.parts)",
    ),
    # Tries.
    bug(
        "too few locks are kept",
        f"{LOCK}._give_back",
        "yield from together([Branch(call.give_up()) for call in mine], self._session.now)",
        "yield from ()",
    ),
    bug("a try that is not waited for goes on", f"{LOCK}._try_all", "each.call.abandon()", "pass"),
    bug("levels are not undone", "_threads.joint_lock:restore", "hold.depth = depth", "pass"),
    bug(
        "all services are waited for",
        f"{LOCK}._ending",
        "enough.append(now + max(GRACE, now - began))",
        "pass",
    ),
    bug(
        "the pauses grow for ever",
        f"{LOCK}._acquire",
        "longest = min(longest * 2, max(LONGEST_PAUSE, SLOW_TRIES * slowest))",
        "longest *= 4",
    ),
    # Losses.
    bug(
        "no loss is told",
        f"{LOCK}._take",
        "listen(quorum.losses, ((core.session, hold.loss) for core, hold in quorum.parts))",
        "pass",
    ),
    bug(
        "the loss of one lock is told as that of all",
        "_threads.quorum_hold:QuorumLosses.tell",
        ">= self._least",
        ">= len(self._tickets)",
    ),
    bug("a loss is told again and again", "_engine.loss:ReportsOnce._report", "self.reported = True", "pass"),
    bug(
        "a release does not tell a loss",
        f"{LOCK}._begin_release",
        "[quorum.error(owed)] if self._is_lost(quorum) else []",
        "[]",
    ),
    # Releases.
    bug("one lock is not released", f"{LOCK}._begin_release", "reversed(quorum.parts)", "quorum.parts[1:]"),
    bug(
        "a lock that an interrupt has left is not released",
        "_threads.joint_lock:give_up",
        "insist(lambda: _give_up_each(left, calls, errors))",
        "_give_up_each(left, calls, errors)",
    ),
    bug(
        "a release ends what the thread holds besides",
        "_threads.joint_lock:_give_up_each",
        "if there and hold.depth == depth and",
        "hold.depth = 1\n            if there and",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """The same runs find each bug."""
    find(mutant, lambda seed: QuorumRun(random_takes(seed)))
