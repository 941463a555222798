"""Atomic numbers and shared values under random faults: every change is applied once; and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.values import ValueRun, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(92, 93, 133)
def test_whatever_strikes() -> None:
    """An answered change was applied once, a refused one never; no turn is left, and no waiter misses its value."""
    injected = {kind for run in runs(ValueRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"lose", "strike"}


WRITE, MOVED, ATTEMPT, APPLY, TURN, WATCH, DECIDE, LEAVE, END, LEAD = (
    "_recipes.receipts:write",
    "_recipes.receipts:moved",
    "_recipes.value:attempt",
    "_recipes.value:apply",
    "_recipes.value:apply_in_turn",
    "_recipes.nodes:watch_until",
    "_recipes.value:ValueBatch.decide",
    "_threads.base.value_base:ValueState.leave",
    "_threads.base.value_base:ValueState._end",
    "_threads.base.value_base:ValueState._lead",
)
MUTANTS = [
    bug(
        "values: a write that may have been applied is sent again",
        WRITE,
        "doubt = True\n        except op.Failure",
        "pass\n        except op.Failure",
    ),
    bug("values: a lost reply is taken for a success", MOVED, "if node.version == sent.version:", "if False:"),
    bug(
        "values: a lost reply is taken for a failure",
        MOVED,
        "if node.version == sent.version:",
        "if True:",
        (WRITE, "if doubt and not (yield from burn(receipt)):", "if False:"),
    ),
    bug(
        "values: a write names no version",
        ATTEMPT,
        "op.SetNode(batch.view.at.path, data, seen.version)",
        "op.SetNode(batch.view.at.path, data, -1)",
    ),
    bug(
        "values: a refused write is remembered",
        ATTEMPT,
        "receipt.seen = None  # until the outcome is known",
        "pass",
        (
            ATTEMPT,
            "return False\n    receipt.seen",
            "receipt.seen = Seen(data, seen.version + 1)\n        return False\n    receipt.seen",
        ),
    ),
    bug(
        "values: a comparison trusts what is remembered",
        ATTEMPT,
        "return looked",
        "return True",
        (ATTEMPT, "batch.applied = looked", "batch.applied = True"),
    ),
    bug(
        "values: each change is decided on the same",
        DECIDE,
        "data, changed = new, changed + 1",
        "data, changed = data, changed + 1",
        (DECIDE, "return data if changed else None", "return new if changed else None"),
    ),
    bug("values: the place in the queue is kept", TURN, "op.Delete(ticket.node, ticket), looked=True", "looked=True"),
    bug(
        "values: the first in the queue decides on what it knew",
        TURN,
        "receipt.seen = Seen(node.data, node.version)",
        "receipt.seen = receipt.seen or Seen(node.data, node.version)",
        (ATTEMPT, "receipt.seen = None  # until the outcome is known", "pass"),
    ),
    bug(
        "values: the value is read from a server that lags",
        "_recipes.value:look",
        "_, node = yield op.Sync(at.path), op.Get(at.path)",
        "node = yield op.Get(at.path)",
    ),
    bug(
        "values: a wait begins at a server that lags, and does not look again",
        WATCH,
        "elif watched:",
        "elif True:",
        (WATCH, "seen = []  # as in `lock.acquire`", "pass"),
        (WATCH, "seen = yield op.Watch(ticket, reads)", "yield op.Watch(ticket, reads)"),
    ),
    bug(
        "values: the write of an interrupted call is forgotten",
        LEAVE,
        "if batch is not None and batch.left:",
        "if False:",
    ),
    bug(
        "values: the turn of an interrupted call is never passed on",
        LEAVE,
        "elif batch is not None:",
        "elif False:",
    ),
    bug("values: a waiter that was woken for its turn is gone, and wakes nobody", LEAVE, "self._pass_on(turn)", "pass"),
    bug("values: the next is not woken", END, "(*batch.changes[1:], *list(turn.pending)[:1])", "batch.changes[1:]"),
    bug(
        "values: the others of a batch are not woken",
        END,
        "(*batch.changes[1:], *list(turn.pending)[:1])",
        "list(turn.pending)[:1]",
    ),
    bug(
        "values: a change is made again with the next batch",
        END,
        "if each.done or each.gone]",
        "if each.gone]",
        (END, "batch.deliver()", "batch.deliver(), setattr(batch.leader, 'done', len(batch.changes) < 2)"),
    ),
    bug(
        "values: an earlier object's receipt is taken for a new one",
        "_threads.base.settling:_leave",
        "spares.append((receipt.path, receipt.version))",
        "spares.append((receipt.path, 0))",
    ),
    bug(
        "values: a settled batch counts as applied",
        "_recipes.receipts:settle",
        "pending_write.sent = None",
        "pending_write.sent, pending_write.applied = None, True",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: ValueRun(random_steps(seed)))
