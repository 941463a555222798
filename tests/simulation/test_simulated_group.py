"""Groups under random faults: a member has its node, or joins again; no client deletes another's; bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.group import GroupRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """Each id has one member, who is there as long as it may, and nothing is left."""
    injected = {kind for run in runs(GroupRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS


JOIN, CREATE, OUTLAST, LEAVE = (f"_recipes.group:{name}" for name in ("_join", "_create", "_outlast", "_leave"))
MUTANTS = [
    bug("another member's node is taken for ours", JOIN, "if ours:", "if True:"),
    bug(
        "a create whose answer was lost is taken for another member's",
        CREATE,
        "return found.czxid, found.session, ours",
        "return found.czxid, found.session, False",
    ),
    bug(
        "a create whose answer was lost is taken for done",
        CREATE,
        "except op.ConnectionLost:\n            told, doubt = False, True",
        "except op.ConnectionLost:\n            return 1, ticket.session, True",
    ),
    bug(
        "a request of an older session is sent in the next",
        "_kazoo.requests:refuse_of_other_sessions",
        "while queue and",
        "while False and",
    ),
    bug(
        "a node that a former leader shows has the id",
        CREATE,
        "if found is not None and (told or ours):",
        "if found is not None:",
    ),
    bug(
        "nobody waits for an id",
        JOIN,
        "left = member.left_for_own if own_of_old else member.left",
        "left = member.left_for_own if own_of_old else (lambda: 0.0)",
    ),
    bug(
        "a member whose session has expired is gone for good",
        OUTLAST,
        "member.ticket = None\n        yield op.Discard(ticket)",
        "member.wanted = False\n        yield op.Discard(ticket)",
    ),
    bug(
        "a member does not watch its node",
        OUTLAST,
        "(found,) = yield op.Watch(ticket, (op.Get(member.node, ticket),))",
        "found = yield op.Get(member.node, ticket)\n        ticket.changed = False",
    ),
    bug("a node that was deleted is not made again", OUTLAST, "if found is None or", "if found is not None and"),
    bug(
        "a node that replaced a deleted one is deleted, too",
        OUTLAST,
        "yield op.MarkDeleted(ticket)",
        "yield op.Discard(ticket)",
    ),
    bug("a leave whose answer was lost is taken for done", LEAVE, "            continue\n", "            pass\n"),
    bug(
        "a leave whose answer was lost is sent again, whose node it may be",
        LEAVE,
        "            sure = False\n",
        "            pass\n",
    ),
    bug("an interrupted join goes on", "_threads.group:Membership._give_up", "member.wanted = False", "pass"),
    bug(
        "no watch after a reconnect",
        "_engine.registry:Registry.note_change",
        "list(self._awaiting) if node is None",
        "[] if node is None",
    ),
]


@pytest.mark.fault(278, 279)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: GroupRun(random_steps(seed)))
