"""Conditions under random faults: no notification is lost, the lock is as it was; and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.condition import CondRun, random_turns
from tests.simulation.world.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """No two hold together; a notified waiter wakes and says so; a waiter has all its levels again; nothing is left."""
    injected = {kind for run in runs(CondRun, random_turns, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"lose"}


QUEUE = "_recipes.condition:release_and_queue"
OUTWAIT = "_recipes.condition:outwait"
WITHDRAW = "_recipes.condition:withdraw"
NOTIFY = "_recipes.condition:notify"
WAIT = "_threads.condition:Condition.wait"
TAKE_BACK, GIVEN_UP = (
    "_threads.base.condition_wait:ConditionWait.reacquire",
    "_threads.base.condition_wait:ConditionWait.end",
)
MULTI = "yield op.Multi(ticket, (*lacking, op.Delete(held.node, held), own))"
RELEASE = "yield op.Delete(held.node, held)"
ENQUEUE = "yield op.Multi(ticket, (*lacking, own))"
AGAIN = WAIT, "self._take_back(wait, error)\n        raise", "pass\n        raise"


MUTANTS = [
    # Giving the lock up and queueing.
    bug("a waiter goes on before the multi's answer", QUEUE, "in_doubt = True", "return ticket"),
    bug("the lock is given up, then the waiter queues", QUEUE, MULTI, f"{RELEASE}\n                {ENQUEUE}"),
    bug("the waiter queues, then the lock is given up", QUEUE, MULTI, f"{ENQUEUE}\n                {RELEASE}"),
    bug("a lost multi is sent again without a look", QUEUE, "in_doubt = True", "continue"),
    bug("after a lost answer, that the lock's node is gone is a loss", QUEUE, "in_doubt = True", "pass"),
    bug("a lost multi counts as applied", QUEUE, "if node is None:", "if node is None or in_doubt:"),
    bug("that the lock's node goes is taken for a loss", QUEUE, "not (yield op.SuspendHold(held))", "False"),
    # Waiting.
    bug(
        "any wake-up is a notification",
        OUTWAIT,
        "yield op.Wait(ticket)",
        "yield op.Wait(ticket)\n            return True",
    ),
    bug("a waiter that was notified before it looks sleeps", OUTWAIT, "if node is None:", "if False:"),
    bug(
        "it looks once",
        OUTWAIT,
        "yield op.Wait(ticket)",
        "while (yield op.Wait(ticket)) is None:\n                continue",
    ),
    bug("notified as its time is up, it says that it was not", WITHDRAW, "is not True", "is None"),
    bug("where that can't be known, it says that it was not", WITHDRAW, "is not True", "is False"),
    bug(
        "its time is up, and its node is left to the keeper",
        WITHDRAW,
        "return (yield op.Delete(ticket.node, ticket)) is not True",
        "yield op.Discard(ticket)\n        return True",
    ),
    # Taking the lock again.
    bug("one level of the lock is taken again", TAKE_BACK, "hold.depth)", "1)"),
    bug(
        "interrupted as it takes the lock again, it leaves it free",
        TAKE_BACK,
        "except (GeneratorExit, ZkConcurrentError):",
        "except BaseException:",
        ("_runtime.waiting:outlast", "strike(error)", "raise"),
        ("_threads.condition:Condition._take_back", "late = struck = error", "raise"),
        AGAIN,
    ),
    bug(
        "interrupted while it waits, it leaves the lock free",
        WAIT,
        "except BaseException as error:\n            self._take_back(wait, error)\n            raise",
        "except Exception as error:\n            self._take_back(wait, error)\n            raise",
        AGAIN,
    ),
    bug("interrupted, it forgets the lock's node", GIVEN_UP, "self._lock.session.discard(hold.ticket)", "pass"),
    bug(
        "interrupted, it forgets the waiter's node",
        GIVEN_UP,
        "self.call.abandon()",
        "pass",
        ("_runtime.waiting:_end", "call.abandon()", "pass"),
    ),
    bug("interrupted, it forgets a hold that it has", GIVEN_UP, "path_state.put_back(hold)\n        return", "return"),
    # Notifying.
    bug("a node that is gone already counts", NOTIFY, "each is True", "each is not None"),
    bug("a node that others may have deleted counts", NOTIFY, "each is True", "each is not False"),
    bug("the waiter that came last is notified", NOTIFY, "WAITER)[:n]", "WAITER)[::-1][:n]"),
    bug("one too many is notified", NOTIFY, "WAITER)[:n]", "WAITER)[: n and n + 1]"),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: CondRun(random_turns(seed)))
