"""Events under random faults: every call is right at some moment of its own, no set is missed, and bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.event import EventRun, random_steps
from tests.simulation.mutants import Edit, Mutant, find
from tests.simulation.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """No set is missed, none is doubled, nobody who is entitled to go on sleeps, and nothing is left."""
    injected = {kind for run in runs(EventRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"remove"}


TURN, WAIT = "_recipes.event:turn", "_recipes.event:wait"
MUTANTS = [
    Mutant(
        "a set and a clear between two looks are missed: no epoch",
        (Edit(WAIT, "if flag.is_set or flag.epoch > since.epoch:", "if flag.is_set:"),),
    ),
    Mutant(
        "the epoch is forgotten with the session",
        (Edit(WAIT, "ticket: Ticket = yield NewTicket(path)", "since, ticket = None, (yield NewTicket(path))"),),
    ),
    Mutant(
        "a node made anew counts from the epoch of the old one",
        (
            Edit(
                "_recipes.event:Since.began",
                "before if before.made == node.czxid else Since(node.czxid, 0)",
                "before",
            ),
        ),
    ),
    Mutant("writes without condition", (Edit(TURN, "node.version)", "-1)"),)),
    Mutant(
        "set and clear are repeated blindly",
        (Edit(TURN, "if flag.is_set == wanted or flag.epoch > since.epoch:", "if flag.is_set == wanted:"),),
    ),
    Mutant(
        "a write whose answer was lost is taken for done",
        (
            Edit(
                TURN,
                "with suppress(ConnectionLost):\n"
                "            if (yield Set(path, flag.turned(wanted).data, node.version)):\n"
                "                return flag.turned(wanted)",
                "try:\n            if (yield Set(path, flag.turned(wanted).data, node.version)):\n"
                "                return flag.turned(wanted)\n        except ConnectionLost:\n            return flag",
            ),
        ),
    ),
    Mutant(
        "set and clear ask a server that lags",
        (Edit(TURN, "_, node = yield Sync(path), Get(path)", "node = yield Get(path)"),),
    ),
    Mutant(
        "is_set asks a server that lags",
        (Edit("_recipes.event:look", "_, node = yield Sync(path), Get(path)", "node = yield Get(path)"),),
    ),
    Mutant(
        "a wait begins with what a server that lags says",
        (Edit(WAIT, "_, node = yield Sync(path, ticket), Get(path, ticket)", "node = yield Get(path, ticket)"),),
    ),
    Mutant(
        "what is not there is watched",
        (Edit(WAIT, "if node is None:\n", "if False:\n"),),
    ),
    Mutant(
        "the watch is left after the look, and nobody looks again",
        (
            Edit(
                WAIT,
                "(node,) = yield Watch(ticket, (Get(path, ticket),))",
                "yield Watch(ticket, (Get(path, ticket),))\n"
                "                yield Wait(ticket)\n"
                "                node = yield Get(path, ticket)",
            ),
            Edit(WAIT, "elif watched:", "elif False:"),
        ),
    ),
    Mutant(
        "no watch after a reconnect",
        (Edit("_engine.registry:Registry.note_change", "list(self._awaiting) if node is None", "[] if node is None"),),
    ),
    Mutant(
        "a ticket is kept when a wait ends",
        (Edit(WAIT, "yield Discard(ticket)\n                    return flag", "return flag"),),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: EventRun(random_steps(seed)))
