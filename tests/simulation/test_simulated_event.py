"""Events under random faults: every call is right at some moment of its own, no set is missed, and bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.event import EventRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """No set is missed, none is doubled, nobody who is entitled to go on sleeps, and nothing is left."""
    injected = {kind for run in runs(EventRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"remove"}


TURN, WAIT = "_recipes.event:turn", "_recipes.event:wait"
MUTANTS = [
    bug(
        "a set and a clear between two looks are missed: no epoch",
        WAIT,
        "if flag.is_set or flag.epoch > since.epoch:",
        "if flag.is_set:",
    ),
    bug(
        "the epoch is forgotten with the session",
        WAIT,
        "ticket: Ticket = yield op.NewTicket(path)",
        "since, ticket = None, (yield op.NewTicket(path))",
    ),
    bug(
        "a node made anew counts from the epoch of the old one",
        "_recipes.event:Since.began",
        "before if before.made == node.czxid else Since(node.czxid, 0)",
        "before",
    ),
    bug("writes without condition", TURN, "node.version)", "-1)"),
    bug(
        "set and clear are repeated blindly",
        TURN,
        "if flag.is_set == wanted or flag.epoch > since.epoch:",
        "if flag.is_set == wanted:",
    ),
    bug(
        "a write whose answer was lost is taken for done",
        TURN,
        "with suppress(op.ConnectionLost):\n"
        "            if (yield op.SetNode(path, flag.turned(wanted).data, node.version)):\n"
        "                return flag.turned(wanted)",
        "try:\n            if (yield op.SetNode(path, flag.turned(wanted).data, node.version)):\n"
        "                return flag.turned(wanted)\n        except op.ConnectionLost:\n            return flag",
    ),
    bug(
        "set and clear ask a server that lags",
        TURN,
        "_, node = yield op.Sync(path), op.Get(path)",
        "node = yield op.Get(path)",
    ),
    bug(
        "is_set asks a server that lags",
        "_recipes.event:look",
        "_, node = yield op.Sync(path), op.Get(path)",
        "node = yield op.Get(path)",
    ),
    bug(
        "a wait begins with what a server that lags says",
        WAIT,
        "_, node = yield op.Sync(path, ticket), op.Get(path, ticket)",
        "node = yield op.Get(path, ticket)",
    ),
    bug("a node that is not there is watched", WAIT, "if node is None:\n", "if False:\n"),
    bug(
        "the watch is left after the look, and nobody looks again",
        WAIT,
        "(node,) = yield op.Watch(ticket, (op.Get(path, ticket),))",
        "yield op.Watch(ticket, (op.Get(path, ticket),))\n"
        "                yield op.Wait(ticket)\n"
        "                node = yield op.Get(path, ticket)",
        (WAIT, "elif watched:", "elif False:"),
    ),
    bug(
        "no watch after a reconnect",
        "_engine.registry:Registry.note_change",
        "list(self._awaiting) if node is None",
        "[] if node is None",
    ),
    bug(
        "a removal takes the watch of another waiter along",
        "_engine.watches:Watches._remove",
        "if registry.is_awaited(path):",
        "if False:",
    ),
    bug(
        "a ticket is kept when a wait ends",
        WAIT,
        "yield op.Discard(ticket)\n                    return flag",
        "return flag",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: EventRun(random_steps(seed)))
