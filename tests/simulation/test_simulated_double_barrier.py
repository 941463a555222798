"""Double barriers under random faults: parties enter together and leave together, and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.double_barrier import DoubleBarrierRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(104, 127)
def test_whatever_strikes() -> None:
    """Parties enter and leave together, nobody who is entitled to go on sleeps, and nothing is left."""
    injected = {kind for run in runs(DoubleBarrierRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS


ENTER, OPEN, STALE, WITHDRAW, LEAVE, OUTWAIT = (
    f"_recipes.double_barrier:{name}"
    for name in ("enter", "_open", "_close_if_left_open", "withdraw", "leave", "_outwait")
)
MUTANTS = [
    bug("it opens for one too few", ENTER, ">= parties", ">= parties - 1"),
    bug("it opens for one too many", ENTER, ">= parties", "> parties"),
    bug(
        "a party gives up without a look",
        WITHDRAW,
        "if sight.open:\n                return True",
        "if False:\n                return True",
    ),
    bug(
        "a party gives up while another opens: the version is not checked",
        WITHDRAW,
        "sight.data, sight.version)",
        "sight.data, -1)",
    ),
    bug(
        "to open is no decision: it does not write the barrier's node",
        OPEN,
        "(op.Check(ticket.node), decide, op.Create(",
        "(op.Check(ticket.node), op.Create(",
    ),
    bug(
        "the leftovers of dead parties let all in",
        ENTER,
        "yield from _close_if_left_open(ticket, (yield from _arrive(ticket, data)))",
        "yield from _arrive(ticket, data)",
    ),
    bug(
        "the barrier is taken for one left open whoever is inside",
        STALE,
        "if ticket.token < found.czxid:",
        "if False:",
        (STALE, "if inside:", "if False:"),
    ),
    bug(
        "any party counts as one that was let in",
        STALE,
        "node is not None and node.czxid < found.czxid",
        "node is not None",
    ),
    bug(
        "a party that comes late does not check that one is inside still",
        STALE,
        "(op.Check(inside[0]), *close, ",
        "(*close, ",
    ),
    bug(
        "the last party leaves it open",
        LEAVE,
        ', op.Delete(f"{path}/{READY}")]',
        "]",
        (
            ENTER,
            "yield from _close_if_left_open(ticket, (yield from _arrive(ticket, data)))",
            "yield from _arrive(ticket, data)",
        ),
    ),
    bug(
        "the first party closes the barrier whoever is inside",
        LEAVE,
        "if wait and others and sight.open",
        "if False and others and sight.open",
        (LEAVE, "if others:", "if False:"),
    ),
    bug(
        "two that leave at once leave the barrier's end to each other",
        LEAVE,
        'duty = [op.Check(f"{path}/{min(others)}")]',
        "duty = []",
    ),
    bug(
        "at its deadline, the first party leaves the barrier's end to nobody",
        "_threads.double_barrier:DoubleBarrier._leaving",
        "ticket.state is State.QUEUED",
        "False",
    ),
    bug(
        "the others do not wait for the first",
        LEAVE,
        "return (yield from _outlast(path, others, wait=wait))",
        "return True",
    ),
    bug(
        "no look after the watch",
        OUTWAIT,
        "if node is not None:\n        if not node.session:",
        "if node is None:\n        yield op.Wait(ticket)\n    else:\n        if not node.session:",
    ),
    bug("a party that gave up leaves its node", WITHDRAW, "yield op.Discard(ticket)\n    return False", "return False"),
    bug(
        "a party that was let in twice is in once: its first node stays",
        ENTER,
        "except op.Requeue:\n            yield op.Discard(ticket)",
        "except op.Requeue:\n            pass",
    ),
    bug(
        "a lost answer of the opening is taken for its success",
        OPEN,
        "except (op.NoNode, op.NodeExists, op.BadVersion, op.ConnectionLost):",
        "except op.ConnectionLost:\n        pass\n    except (op.NoNode, op.NodeExists, op.BadVersion):",
    ),
    bug(
        "an interrupted party deletes its node, and does not wait for that",
        ENTER,
        "except (ZkConcurrentError, GeneratorExit):",
        "except BaseException:",
        ("_engine.driver:Call.gone", "if self._leaves_clean_up or", "if True or"),
    ),
    bug(
        "an interrupted party leaves its node to the keeper",
        "_threads.double_barrier:DoubleBarrier._leaving",
        "strikes.append(error)",
        "raise",
    ),
    bug(
        "an interrupted leave keeps the node",
        "_threads.double_barrier:DoubleBarrierState.forsake",
        "self.session.dropped.append(LeftTickets([], [ticket]))",
        "pass",
    ),
]


@pytest.mark.fault(254)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: DoubleBarrierRun(random_steps(seed)))
