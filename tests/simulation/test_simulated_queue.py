"""Queues under random faults: none lost, none taken twice, in order, never too many; and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.queues import QueueRun, random_destroys, random_purges, random_steps
from tests.simulation.world.run import COMMON_FAULTS, runs


@pytest.mark.fault(80, 133)
def test_whatever_strikes() -> None:
    """No item is lost or acknowledged twice, in order and within the size; nobody who is entitled to go on sleeps."""
    injected = {kind for run in runs(QueueRun, random_steps, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"lose", "strike", "close"}


WRITE, MOVED, SEIZE, TAKE, LOOK, PUT, ACKNOWLEDGE, GIVE_BACK, KEPT = (
    "_recipes.receipts:write",
    "_recipes.receipts:moved",
    "_recipes.queue.take:seize",
    "_recipes.queue.take:take",
    "_recipes.queue.state:look",
    "_recipes.queue.put:put_when_first",
    "_recipes.queue.claim:acknowledge",
    "_recipes.queue.claim:give_back",
    "_recipes.queue.state:ItemCall.leave_name",
)
MUTANTS = [
    bug(
        "no receipt: a put that may have been applied is sent again",
        WRITE,
        'op.SetNode(receipt.path, b"", receipt.version)',
        'op.SetNode(receipt.path, b"", -1)',
        (MOVED, "if node.version == sent.version:", "if True:"),
    ),
    bug(
        "an earlier object's receipt is given to two calls",
        "_recipes.receipts:ReceiptPool.take_spare",
        "self.spares.remove(spare)",
        "pass",
    ),
    bug("a lost reply is taken for a success", MOVED, "if node.version == sent.version:", "if False:"),
    bug(
        "no member check, nor one of the session: an acknowledgement of a later session",
        WRITE,
        "(op.Check(member.node),)",
        "(op.Check(receipt.path),)",
        (ACKNOWLEDGE, "session=taken.session or -1", "session=0"),
        (
            "_recipes.queue.take:remove",
            "op.Delete(item, version=taken.version)",
            "op.Delete(item)",
        ),  # which each claim changes
    ),
    bug(
        "an error that a signal handler raises is taken for a refusal",
        WRITE,
        "except RefusedError:",
        "except Exception:",
    ),
    bug("found: a receipt that was used up is taken for a success", MOVED, "if node.data != BURNT:", "if True:"),
    bug("an item that is given back is another consumer's", GIVE_BACK, "session=taken.session or -1", "session=0"),
    bug(
        "the claim is not deleted with its item",
        ACKNOWLEDGE,
        'parts = op.Delete(f"{at.claims}/{taken.name}"), remove(at, taken)',
        "parts = (remove(at, taken),)",
    ),
    bug(
        "the item is not deleted with its claim",
        ACKNOWLEDGE,
        'parts = op.Delete(f"{at.claims}/{taken.name}"), remove(at, taken)',
        'parts = (op.Delete(f"{at.claims}/{taken.name}"),)',
    ),
    bug(
        "a claimed item is taken: get makes no claim",
        SEIZE,
        "parts = own, op.Delete(claim), remove(at, taken), *leaving",
        "parts = remove(at, taken), *leaving",
    ),
    bug("the first consumer does not watch the claims", LOOK, "if seen[1]:", "if False:"),
    bug(
        "the first consumer does not watch", LOOK, "seen = yield op.Watch(ticket, found[:2])", "seen = yield found[:2]"
    ),
    bug("a consumer that takes an item stays in the queue", SEIZE, "(op.Delete(ticket.node, ticket),)", "()"),
    bug(
        "maxsize is counted from a listing from before it was first",
        PUT,
        "queue, inside, node = seen or (yield reads)",
        "queue, _, node = seen or (yield reads)",
    ),
    bug(
        "a producer leaves its queue before it puts",
        PUT,
        "add(item_call, item, op.Delete(ticket.node, ticket), count=count)",
        "add(item_call, item, count=count)",
        (PUT, "elif there < at.maxsize:", "elif there < at.maxsize:\n                    yield op.Discard(ticket)"),
    ),
    bug("a producer does not wait for its turn", PUT, "if ahead:", "if False:"),
    bug(
        "an item taken for an interrupted get is lost",
        "_threads.base.queue_base:QueueState.leave",
        "if not item_call.left:",
        'if not item_call.left or item_call.purpose == "get":',
    ),
    bug(
        "an item claimed for an interrupted call stays claimed",
        "_threads.base.queue_base:QueueState.leave",
        "if not item_call.left:",
        'if not item_call.left or item_call.purpose == "claim":',
    ),
    bug(
        "an interrupted acknowledgement is given up",
        "_threads.base.queue_base:QueueState.leave",
        "if not item_call.left:",
        'if not item_call.left or item_call.purpose == "acknowledge":',
    ),
    bug(
        "an item that is put back has no place",
        "_recipes.queue.claim:restore",
        "if at.maxsize:",
        "if False:",
    ),
    bug(
        "the item that an interrupted call was about to take is forgotten",
        KEPT,
        "self.view.names.extendleft(self.names)",
        "pass",
    ),
    bug(
        "consumers do not queue: none is woken but the one that watches",
        "_recipes.lock:come_first",
        "while ahead := blocker(ticket.name, names, MUTEX):",
        "while ahead := blocker(ticket.name, names, MUTEX) and None:",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: QueueRun(random_steps(seed)))


@pytest.mark.fault(138, 146)
def test_destroyed_and_made_anew() -> None:
    """No item of a queue that was destroyed is taken, and none of the new one is lost in its place."""
    assert sum(bool(run.checks.destroyed) for run in runs(QueueRun, random_destroys, 30)) > 15


@pytest.mark.fault(139)
def test_an_operator_removes_the_items() -> None:
    """A consumer that waits makes their parent again, and sees what is put there."""
    assert all(run.injected["purge"] for run in runs(QueueRun, random_purges, 10))


def test_a_seeded_bug_is_found_by_an_operator() -> None:
    """One that waits although the parent of the items is gone."""
    mutant = bug(
        "purged: nothing is watched", LOOK, "if seen[0] is not None and op.NOWHERE not in seen[1:]:", "if True:"
    )
    find(mutant, lambda seed: QueueRun(random_purges(seed)))


DESTROYED = [
    bug("destroyed: items read ahead outlive it", "_recipes.receipts:destroy", "view.forget()", "pass"),
    bug(
        "destroyed by another: items read ahead outlive it",
        "_recipes.queue.state:QueueView.forget",
        "self.keep(())",
        "pass",
    ),
]


@pytest.mark.parametrize("mutant", DESTROYED, ids=lambda mutant: mutant.name)
def test_seeded_bugs_of_a_queue_made_anew_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: QueueRun(random_destroys(seed)))
