"""Detached locks under random faults: one owner holds, until that is ended on purpose; seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.detached import DetachedRun, random_acts
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(114, 115, 116, 117, 129, 130, 131)
def test_whatever_strikes() -> None:
    """No two hold, only the owner or an operator ends a hold, failed acquires leave none, and nobody waits in vain."""
    injected: set[str] = set()
    confirmed = adopted = 0
    for run in runs(DetachedRun, random_acts, 100):
        injected.update(run.injected)
        confirmed += len(run.checks.confirmed)
        adopted += len(run.checks.adopted)
    assert injected >= COMMON_FAULTS | {"lose", "strike", "remove", "end_waits"}
    assert confirmed > 60
    assert adopted > 10


ACQUIRE, ADOPT, DETACH, FIRST, HELD, RELEASE, FORCE = (
    f"_recipes.detached:{name}"
    for name in ("acquire", "adopt", "detach", "first", "held_by", "release", "force_release")
)
MUTANTS = [
    # The waiter behind it.
    bug(
        "a node that is replaced is taken for gone, by a waiter that does not look",
        "_protocol.node_names:is_detached",
        'return name[:3] == "_c_" and',
        "return False and",
    ),
    # The node that stays.
    bug(
        "the waiter's node stays beside the holder's",
        DETACH,
        "(op.Delete(ticket.node, ticket), detached)",
        "(detached,)",
    ),
    bug("the holder's node has a number of its own", DETACH, "{MUTEX.key(ticket.name)}", "9999999999"),
    bug(
        "the token is that of the node that stays",
        "_recipes.detached:read",
        "return Detached(name, token, owner)",
        "return Detached(name, node.czxid, owner)",
    ),
    # Lost answers.
    bug(
        "a multi whose answer was lost is taken for done",
        DETACH,
        "if found is not None:",
        "if True:",
    ),
    bug(
        "a node that a lost multi has made is left to another",
        ADOPT,
        "held is None or held.name == mine or",
        "True or held is None or",
    ),
    # Calls that are given up.
    bug("a call that is given up leaves the holder's node", DETACH, "left.sent = left.lasting = True", "pass"),
    bug("found: its delete ends with the session", DETACH, "left.sent = left.lasting = True", "left.sent = True"),
    bug(
        "a waiter of the owner leaves its node",
        ACQUIRE,
        "yield op.Discard(ticket)\n                    return held",
        "return held",
    ),
    # The owner's own hold.
    bug(
        "found: a node that was replaced is taken for gone",
        FIRST,
        "if all(MUTEX.key(other) != MUTEX.key(name) for other in names):",
        "if True:",
    ),
    bug(
        "an owner that waits does not look for its own hold",
        ACQUIRE,
        "held = (yield from adopt(path, names, owner, unique, data, mine))[0]",
        "held = None",
    ),
    bug("every holder is the owner", HELD, "held.owner == owner", "True"),
    bug(
        "a queue is listed at a server that lags",
        "_recipes.lock:list_queue",
        "_, names = yield op.Sync(path), op.Children(path)",
        "names = yield op.Children(path)",
    ),
    # The end.
    bug(
        "a release does not follow the hold to its new node",
        RELEASE,
        "if there is None or there.token != held.token:",
        "if True:",
    ),
    bug(
        "a release ends a later hold of the owner",
        RELEASE,
        "if there is None or there.token != held.token:",
        "if there is None:",
    ),
    bug(
        "found: an interrupted release counts as another's",
        "_threads.detached:DetachedLock.release",
        "in_doubt = held is not None and held is self._releasing",
        "in_doubt = False",
    ),
    bug(
        "a release ends the hold of the first, whoever that is",
        RELEASE,
        "held, _ = yield from held_by(path, names, owner)",
        "name, node, _ = yield from first(path, names)\n        held = node and read(name, node)",
    ),
    bug(
        "a forced release does not compare tokens", FORCE, "if held is None or held.token != token:", "if held is None:"
    ),
    bug(
        "found: a forced release gives up on a node that was replaced",
        FORCE,
        "name, node, _ = yield from first(path, names)",
        "name = min(names, key=MUTEX.key, default=None)\n        node = None if name is None else "
        "(yield op.Get(f'{path}/{name}'))",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """The same runs find each bug."""
    find(mutant, lambda seed: DetachedRun(random_acts(seed)))
