"""Elections under random faults: one leads, all changes are observed, and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.election import ElectionRun, random_acts
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(89, 109)
def test_whatever_strikes() -> None:
    """No two lead, terms that are lost are told, nobody waits in vain, and nothing is left."""
    injected = {kind for run in runs(ElectionRun, random_acts, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS


LOOK, FOLLOW, PUBLISH = (f"_recipes.election:{name}" for name in ("look", "follow", "publish"))
LEAD, LEADING = "_threads.base.candidacy:Candidacy._queue_and_lead", "_threads.base.candidacy:Candidacy._leading"
WATCHED = '(node,) = yield op.Watch(ticket, (op.Get(f"{path}/{first}", ticket),))'
MUTANTS = [
    # The waiter that does not look: see also `test_way.py`.
    bug(
        "a publication of the one ahead is taken for its end",
        "_protocol.way_to_grant:Way.change_ahead",
        "Stage.BLOCKED and deleted and",
        "Stage.BLOCKED and",
    ),
    bug(
        "the end of the one ahead is enough, though others are ahead",
        "_protocol.way_to_grant:Way.of",
        "if its == mine or ahead is not None:",
        "if its == mine:",
    ),
    bug(
        "the leader is asked of a server that lags",
        "_recipes.lock:list_queue",
        "_, names = yield op.Sync(path), op.Children(path)",
        "names = yield op.Children(path)",
    ),
    bug("the last in the queue is the leader", LOOK, "min(names", "max(names"),
    bug(
        "a leader that is gone is no leader",
        LOOK,
        "if node is not None:\n            return first, node",
        "return None if node is None else (first, node)",
    ),
    bug(
        "an observer that lags is told what was",
        FOLLOW,
        "_, names = yield op.Sync(path, ticket), listing",
        "names = yield listing",
    ),
    bug(
        "an observer leaves no watch on the leader",
        FOLLOW,
        WATCHED,
        'self = ticket\n                    node = yield op.Get(f"{path}/{first}", ticket)',
    ),
    bug(
        "an observer does not compare data",
        "_recipes.election:is_same",
        "(one[1].czxid, one[1].data) == (other[1].czxid, other[1].data)",
        "one[1].czxid == other[1].czxid",
    ),
    bug(
        "an observer compares data alone",
        "_recipes.election:is_same",
        "(one[1].czxid, one[1].data) == (other[1].czxid, other[1].data)",
        "one[1].data == other[1].data",
    ),
    bug(
        "the watch on an election that is not there sees no creation",
        FOLLOW,
        "op.Watch(ticket, (op.Exists(path, ticket), listing))",
        "op.Watch(ticket, (op.Get(path, ticket), listing))",
    ),
    bug("an observer waits although a candidate has come", FOLLOW, "if first is not None or not names:", "if True:"),
    bug(
        "an observer keeps its ticket",
        FOLLOW,
        "yield op.Discard(ticket)\n                    return leader",
        "return leader",
    ),
    bug(
        "an observer goes on in the next session",
        FOLLOW,
        "except op.Requeue:\n            yield op.Discard(ticket)",
        "except op.Requeue:\n            return None",
    ),
    bug(
        "published again after a lost answer",
        PUBLISH,
        "op.SetNode(ticket.node, data, node.version)",
        "op.SetNode(ticket.node, data, -1)",
        (PUBLISH, "if node.data == data:\n                return", "pass"),
    ),
    bug(
        "a publication whose answer was lost is given up",
        PUBLISH,
        "with suppress(op.Requeue):",
        "with suppress(op.Requeue, op.ConnectionLost):",
        (PUBLISH, "with suppress(op.ConnectionLost):", "with suppress():"),
    ),
    bug(
        "a publication that another version refuses is given up",
        PUBLISH,
        "if (yield op.SetNode(ticket.node, data, node.version)):\n                    return",
        "yield op.SetNode(ticket.node, data, node.version + 1)\n                return",
    ),
    bug(
        "a term without its node is not lost", PUBLISH, "yield op.MarkMissing(ticket)\n                return", "return"
    ),
    bug("a withdrawal does not wake the candidacy", "_threads.base.candidacy:Candidacy.withdraw", "self.set()", "pass"),
    bug(
        "a withdrawn candidate goes on waiting",
        "_threads.base.candidacy:Candidacy._why_stop",
        "CandidacyWithdrawn() if self.withdrawn else None",
        "None",
    ),
    bug("a withdrawn leader goes on leading", LEADING, "and not self.withdrawn", ""),
    bug("a lost term is not noticed", LEADING, "hold.alive and", ""),
    bug(
        "those who wait for the term are not woken", LEAD, "self.hold = hold\n        self._tell()", "self.hold = hold"
    ),
    bug(
        "the end of a term is not told",
        LEAD,
        "hold.loss.tell()",
        "pass",
        ("_threads.base.candidacy:LeaderLock._withdrawing", "hold.loss.tell()", "pass"),
    ),
    bug(
        "a lost term is not settled",
        LEAD,
        "with suppress(LockLostError):\n            if (ending := seat.begin_release(hold)) is not None:",
        "if hold.alive:\n            if (ending := seat.begin_release(hold)) is not None:",
    ),
    bug(
        "the candidacy ends with its term",
        "_threads.base.candidacy:Candidacy.run",
        "while not self.withdrawn:",
        "for _ in range(1):",
    ),
    bug(
        "a withdrawal is for those who have begun",
        "_threads.base.candidacy:Candidacy.run",
        "while not self.withdrawn:",
        "while True:",
        (LEADING, "while hold.alive and not self.withdrawn:", "while hold.alive:"),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: ElectionRun(random_acts(seed)))
