"""Events under random faults: every call is right at some moment of its own, no set is missed, and bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.event import EventRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs

pytestmark = pytest.mark.fault(240)


def test_whatever_strikes() -> None:
    """No set is missed, none is doubled, nobody who is entitled to go on sleeps, and nothing is left."""
    injected = {kind for run in runs(EventRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"remove"}


TURN, WAIT, WATCH = "_recipes.event:turn", "_recipes.event:wait", "_recipes.nodes:watch_until"
MUTANTS = [
    bug(
        "a set and a clear between two looks are missed: no epoch",
        WAIT,
        "flag.is_set or flag.epoch > since.epoch",
        "flag.is_set",
    ),
    bug(
        "the epoch is forgotten with the session",
        WATCH,
        "ticket: Ticket = yield op.NewTicket(path)",
        "ticket: Ticket = yield op.NewTicket(path)\n"
        "        cells = dict(zip(accepts.__code__.co_freevars, accepts.__closure__, strict=True))\n"
        "        cells['since'].cell_contents = None",
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
        WATCH,
        "_, *seen = yield op.Sync(path, ticket), *reads",
        "seen = yield reads",
    ),
    bug("a node that is not there is watched", WATCH, "if absent:\n", "if False:\n"),
    bug(
        "the watch is left after the look, and nobody looks again",
        WATCH,
        "seen = yield op.Watch(ticket, reads)",
        "yield op.Watch(ticket, reads)\n                yield op.Wait(ticket)\n                seen = yield reads",
        (WATCH, "elif watched:", "elif False:"),
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
        WATCH,
        "yield op.Discard(ticket)\n            return accepted",
        "return accepted",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: EventRun(random_steps(seed)))
