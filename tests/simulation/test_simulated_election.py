"""Elections under random faults: one leads, all changes are observed, and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.election import ElectionRun, random_acts
from tests.simulation.mutants import Edit, Mutant, find
from tests.simulation.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """No two lead, terms that are lost are told, nobody waits in vain, and nothing is left."""
    injected = {kind for run in runs(ElectionRun, random_acts, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS


LOOK, FOLLOW, PUBLISH = (f"_recipes.election:{name}" for name in ("look", "follow", "publish"))
LEAD, LEADING = "_candidacy:Candidacy._queue_and_lead", "_candidacy:Candidacy._leading"
WATCHED = '(node,) = yield Watch(ticket, (Get(f"{path}/{first}", ticket),))'
MUTANTS = [
    Mutant(
        "the leader is asked of a server that lags",
        (
            Edit(
                "_recipes.queue:list_queue",
                "_, names = yield Sync(path), Children(path)",
                "names = yield Children(path)",
            ),
        ),
    ),
    Mutant("the last in the queue is the leader", (Edit(LOOK, "min(names", "max(names"),)),
    Mutant(
        "a leader that is gone is no leader",
        (
            Edit(
                LOOK,
                "if node is not None:\n            return first, node",
                "return None if node is None else (first, node)",
            ),
        ),
    ),
    Mutant(
        "an observer that lags is told what was",
        (Edit(FOLLOW, "_, names = yield Sync(path, ticket), listing", "names = yield listing"),),
    ),
    Mutant(
        "an observer leaves no watch on the leader",
        (Edit(FOLLOW, WATCHED, 'self = ticket\n                    node = yield Get(f"{path}/{first}", ticket)'),),
    ),
    Mutant(
        "an observer does not compare data",
        (
            Edit(
                "_recipes.election:is_same",
                "(one[1].czxid, one[1].data) == (other[1].czxid, other[1].data)",
                "one[1].czxid == other[1].czxid",
            ),
        ),
    ),
    Mutant(
        "an observer compares data alone",
        (
            Edit(
                "_recipes.election:is_same",
                "(one[1].czxid, one[1].data) == (other[1].czxid, other[1].data)",
                "one[1].data == other[1].data",
            ),
        ),
    ),
    Mutant(
        "what is not there is watched",
        (
            Edit(FOLLOW, "yield tuple(EnsureContainer(above) for above in [*ancestors(path), path])", "pass"),
            Edit(FOLLOW, "there is not None and not names", "not names"),
        ),
    ),
    Mutant(
        "an observer waits although a candidate has come", (Edit(FOLLOW, "there is not None and not names", "True"),)
    ),
    Mutant(
        "an observer keeps its ticket",
        (Edit(FOLLOW, "yield Discard(ticket)\n                    return leader", "return leader"),),
    ),
    Mutant(
        "an observer goes on in the next session",
        (
            Edit(
                FOLLOW, "except Requeue:\n            yield Discard(ticket)", "except Requeue:\n            return None"
            ),
        ),
    ),
    Mutant(
        "published again after a lost answer",
        (
            Edit(PUBLISH, "Set(ticket.node, data, node.version)", "Set(ticket.node, data, -1)"),
            Edit(PUBLISH, "if node.data == data:\n                return", "pass"),
        ),
    ),
    Mutant(
        "a publication whose answer was lost is given up",
        (Edit(PUBLISH, "pass  # it is unknown whether it was written: look", "return"),),
    ),
    Mutant(
        "a publication that another version refuses is given up",
        (
            Edit(
                PUBLISH,
                "if (yield Set(ticket.node, data, node.version)):\n                    return",
                "yield Set(ticket.node, data, node.version + 1)\n                return",
            ),
        ),
    ),
    Mutant(
        "a term without its node is not lost",
        (Edit(PUBLISH, "yield MarkMissing(ticket)\n                return", "return"),),
    ),
    Mutant("a withdrawal does not wake the candidacy", (Edit("_candidacy:Candidacy.withdraw", "self.set()", "pass"),)),
    Mutant(
        "a withdrawn candidate goes on waiting",
        (Edit("_candidacy:Candidacy._why_stop", "Withdrawn() if self.withdrawn else None", "None"),),
    ),
    Mutant("a withdrawn leader goes on leading", (Edit(LEADING, "and not self.withdrawn", ""),)),
    Mutant("a lost term is not noticed", (Edit(LEADING, "hold.alive and", ""),)),
    Mutant(
        "those who wait for the term are not woken",
        (Edit(LEAD, "self.hold = hold\n        self._tell()", "self.hold = hold"),),
    ),
    Mutant(
        "the end of a term is not told",
        (
            Edit(
                LEAD,
                "hold.loss.tell()  # before another candidate can lead: the term is over for all who work for it",
                "pass",
            ),
            Edit("_candidacy:Seat._withdrawing", "hold.loss.tell()", "pass"),
        ),
    ),
    Mutant(
        "a lost term is not settled",
        (
            Edit(
                LEAD,
                "with suppress(LockLostError):\n            if (ending := seat._begin_release(hold)) is not None:",
                "if hold.alive:\n            if (ending := seat._begin_release(hold)) is not None:",
            ),
        ),
    ),
    Mutant(
        "the candidacy ends with its term",
        (
            Edit(
                "_candidacy:Candidacy.run",
                "while not self.withdrawn:\n            self._queue_and_lead(seat)",
                "self._queue_and_lead(seat)",
            ),
        ),
    ),
    Mutant(
        "a withdrawal is for those who have begun",
        (
            Edit("_candidacy:Candidacy.run", "while not self.withdrawn:", "while True:"),
            Edit(LEADING, "while hold.alive and not self.withdrawn:", "while hold.alive:"),
        ),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: ElectionRun(random_acts(seed)))
