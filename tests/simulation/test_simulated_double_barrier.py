"""Double barriers under random faults: parties enter together and leave together, and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.double_barrier import DoubleBarrierRun, random_steps
from tests.simulation.mutants import Edit, Mutant, find
from tests.simulation.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """Parties enter and leave together, nobody who is entitled to go on sleeps, and nothing is left."""
    injected = {kind for run in runs(DoubleBarrierRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS


ENTER, OPEN, STALE, WITHDRAW, LEAVE, OUTWAIT = (
    f"_recipes.double_barrier:{name}"
    for name in ("enter", "_open", "_close_if_left_open", "withdraw", "leave", "_outwait")
)
MUTANTS = [
    Mutant("it opens for one too few", (Edit(ENTER, ">= parties", ">= parties - 1"),)),
    Mutant("it opens for one too many", (Edit(ENTER, ">= parties", "> parties"),)),
    Mutant(
        "a party gives up without a look",
        (Edit(WITHDRAW, "if sight.open:\n                return True", "if False:\n                return True"),),
    ),
    Mutant(
        "a party gives up while another opens: the version is not checked",
        (Edit(WITHDRAW, "sight.data, sight.version)", "sight.data, -1)"),),
    ),
    Mutant(
        "to open is no decision: it does not write the barrier's node",
        (Edit(OPEN, "(Check(ticket.node), decide, Create(", "(Check(ticket.node), Create("),),
    ),
    Mutant(
        "what dead parties left lets all in",
        (
            Edit(
                ENTER,
                "yield from _close_if_left_open(ticket, (yield from _arrive(ticket, data)))",
                "yield from _arrive(ticket, data)",
            ),
        ),
    ),
    Mutant(
        "the barrier is taken for one left open whoever is inside",
        (
            Edit(STALE, "if ticket.token < found.czxid:", "if False:"),
            Edit(STALE, "if inside:", "if False:"),
        ),
    ),
    Mutant(
        "any party counts as one that was let in",
        (Edit(STALE, "node is not None and node.czxid < found.czxid", "node is not None"),),
    ),
    Mutant(
        "a party that comes late does not check that one is inside still",
        (Edit(STALE, "(Check(inside[0]), *close, ", "(*close, "),),
    ),
    Mutant(
        "the last party leaves it open",
        (
            Edit(LEAVE, ', Delete(f"{path}/{READY}")]', "]"),
            Edit(
                ENTER,
                "yield from _close_if_left_open(ticket, (yield from _arrive(ticket, data)))",
                "yield from _arrive(ticket, data)",
            ),
        ),
    ),
    Mutant(
        "the first party closes the barrier whoever is inside",
        (
            Edit(LEAVE, "if wait and others and sight.open", "if False and others and sight.open"),
            Edit(LEAVE, "if others:  # the first", "if False:  # the first"),
        ),
    ),
    Mutant(
        "two that leave at once leave the barrier's end to each other",
        (Edit(LEAVE, 'duty = [Check(f"{path}/{min(others)}")]', "duty = []"),),
    ),
    Mutant(
        "at its deadline, the first party leaves the barrier's end to nobody",
        (Edit("_double_barrier:DoubleBarrier._leaving", "ticket.state is State.QUEUED", "False"),),
    ),
    Mutant(
        "the others do not wait for the first",
        (Edit(LEAVE, "return (yield from _outlast(path, others, wait=wait))", "return True"),),
    ),
    Mutant(
        "no look after the watch",
        (
            Edit(
                OUTWAIT,
                "if node is not None:\n        if not node.session:",
                "if node is None:\n        yield Wait(ticket)\n    else:\n        if not node.session:",
            ),
        ),
    ),
    Mutant(
        "a party that gave up leaves its node",
        (Edit(WITHDRAW, "yield Discard(ticket)\n    return False", "return False"),),
    ),
    Mutant(
        "a party that was let in twice is in once: its first node stays",
        (Edit(ENTER, "except Requeue:\n            yield Discard(ticket)", "except Requeue:\n            pass"),),
    ),
    Mutant(
        "a lost answer of the opening is taken for its success",
        (
            Edit(
                OPEN,
                "except (NoNode, NodeExists, BadVersion, ConnectionLost):",
                "except ConnectionLost:\n        pass\n    except (NoNode, NodeExists, BadVersion):",
            ),
        ),
    ),
    Mutant(
        "an interrupted leave keeps the node",
        (
            Edit(
                "_double_barrier:DoubleBarrier._forsake_party", "session.dropped.append(Dropped([], [ticket]))", "pass"
            ),
        ),
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: DoubleBarrierRun(random_steps(seed)))
