"""Semaphores under random faults: the invariants hold after every step, and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.resizing import ResizeRun, random_resizes
from tests.simulation.subjects.semaphore import SemaphoreRun, random_uses
from tests.simulation.world.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """No more permits are out than there are; nobody is forgotten; nothing is left, and nothing added twice."""
    injected = {kind for run in runs(SemaphoreRun, random_uses, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"remove", "reap", "lose"}


ACQUIRE, TAKE = "_recipes.semaphore:acquire", "_recipes.semaphore:take"
RUN = "_engine.driver:Call.run"
FIND = "_recipes.semaphore:find_leases"
WATCH = "out, node, added = yield op.Watch(ticket, reads(at, ticket)[1:])"

MUTANTS = [
    bug(
        "one watch for n permits",
        ACQUIRE,
        WATCH,
        "out, node, added = yield reads(at, ticket)[1:]\n"
        "                    first = (op.Get(f'{at.leases}/{name}', ticket) for name in sorted(out)[:1])\n"
        "                    yield op.Watch(ticket, (*first, *reads(at, ticket)[2:]))",
    ),
    bug(
        "added permits are not watched for",
        ACQUIRE,
        WATCH,
        "node, added = yield reads(at, ticket)[2:]\n"
        "                    out, = yield op.Watch(ticket, reads(at, ticket)[1:2])",
    ),
    bug(
        "the permits out when the watch is left are not looked at",
        ACQUIRE,
        "if free < permits:",
        "if True:",
    ),
    bug(
        "a multi whose answer was lost is sent again with fresh leases",
        TAKE,
        "except op.ConnectionLost:\n            pass",
        "except op.ConnectionLost:\n"
        "            leases[:] = []\n"
        "            for _ in range(permits):\n"
        "                leases.append((yield op.NewTicket(at.leases)))\n"
        "            step = op.Multi(leases[0], tuple(op.CreateEphemeral(x, PERMIT.role, data) for x in leases))\n"
        "            continue",
    ),
    bug(
        "the multi does not depend on the ticket's node",
        TAKE,
        "op.Delete(ticket.node, ticket), ",
        "*(), ",
        (
            TAKE,
            "for lease in leases:\n        while",
            "yield op.Discard(ticket)\n    for lease in leases:\n        while",
        ),
    ),
    bug(
        "a multi whose answer was lost is taken for done",
        FIND,
        "if ticket.name in queue and not any(found):\n        return False",
        "if not any(found):\n        return True",
    ),
    bug(
        "a permit is granted on another's lease",
        FIND,
        'found = [next((name for name in names if name.startswith(lease.prefix)), "") for lease in leases]',
        'found = [*names, *[""] * len(leases)][: len(leases)]',
        (FIND, " or node.session != ticket.session", ""),
    ),
    bug(
        "leases counted before being first",
        ACQUIRE,
        "sight = yield from look(at, ticket, seen=seen)",
        "sight = (yield from look(at, ticket, seen=seen))._replace(leases=sight.leases)",
        (ACQUIRE, "del sight  # as in `lock.acquire`", "pass"),
        (ACQUIRE, "del sight\n                    out, node", "out, node"),
    ),
    bug(
        "permits are taken without being first",
        ACQUIRE,
        "if ahead:\n                    del sight",
        "if ahead and sight.free < permits:\n                    del sight",
    ),
    bug(
        "a lost permit is turned into an added one",
        "_threads.semaphore:PermitCore._to_release",
        "(mine or alive or lost)[:n]",
        "alive[:n]",
    ),
    bug(
        "a lost permit is settled with another's",
        "_threads.semaphore:PermitCore._to_release",
        "(mine or alive or lost)[:n]",
        "(alive or lost)[:n]",
    ),
    bug(
        "a ticket is not discarded on a timeout",
        RUN,
        "self.tickets[begun:]",
        "self.tickets[begun + 1 :]",
    ),
    bug(
        "leases are not discarded on a timeout",
        RUN,
        "self.tickets[begun:]",
        "self.tickets[begun : begun + 1]",
    ),
    bug(
        "leases are not discarded when it starts again",
        ACQUIRE,
        "except op.Requeue:\n            for each in (ticket, *leases):",
        "except op.Requeue:\n            for each in (ticket,):",
    ),
    bug(
        "a release adds twice after a lost answer",
        "_engine.operations:_request",
        "replies.append(POLICIES[type(operations[i])].send(call, operations[i], wake, watcher))",
        "step = operations[i]\n"
        "                if type(step) is op.CreatePersistent:\n"
        "                    anew = f'permits/{next(call.session.registry._numbers):08x}'\n"
        "                    step = step._replace(path=__import__('re').sub('permits/.{8}', anew, step.path))\n"
        "                replies.append(POLICIES[type(step)].send(call, step, wake, watcher))",
    ),
    bug(
        "of several permits, one is given back",
        "_threads.semaphore:PermitCore._drop_all",
        "for hold in holds:",
        "for hold in holds[:1]:",
    ),
    bug(
        "an interrupted call leaves permits behind",
        RUN,
        "yield from self.discard(self.tickets[begun:])",
        "pass",
        ("_runtime.waiting:_end", "call.abandon()", "pass"),
    ),
    bug(
        "found: the patience of clean-ups adds up",
        "_engine.patience:Patience.cleaned_up_by",
        "(now if self.deadline is None else min(now, self.deadline))",
        "now",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: SemaphoreRun(random_uses(seed)))


@pytest.mark.fault(97, 98)
def test_whatever_strikes_a_resize() -> None:
    """No permit is granted that was not free; nobody waits for one that is; the last number that was set stays."""
    injected = {kind for run in runs(ResizeRun, random_resizes, 100) for kind in run.injected}
    assert injected >= COMMON_FAULTS | {"remove", "reap", "lose"}


RESIZE = "_recipes.semaphore:resize"
RESIZE_MUTANTS = [
    bug(
        "the first does not watch the number",
        ACQUIRE,
        WATCH,
        "(node,) = yield (op.Get(at.permits, ticket),)\n"
        "                    out, added = yield op.Watch(ticket, (*reads(at, ticket)[1:2], *reads(at, ticket)[3:]))",
    ),
    bug(
        "the number is not read again",
        ACQUIRE,
        "sight = yield from look(at, ticket, seen=seen)",
        "sight = (yield from look(at, ticket, seen=seen))._replace(size=sight.size)",
        (ACQUIRE, "del sight  # as in `lock.acquire`", "pass"),
        (ACQUIRE, "del sight\n                    out, node", "out, node"),
    ),
    bug("added permits come on top of the new number", RESIZE, "permits - count(added)", "permits"),
    bug(
        "a write whose answer was lost is taken for done",
        RESIZE,
        "if written or seen.version != node.version:",
        "if True:",
    ),
    bug(
        "a smaller number does not count while more are out",
        "_recipes.semaphore:look",
        "SemaphoreSnapshot(queue, leases, there)",
        "SemaphoreSnapshot(queue, leases, max(there, min(len(leases) + 1, 3)))",
    ),
]


@pytest.mark.parametrize("mutant", RESIZE_MUTANTS, ids=lambda mutant: mutant.name)
def test_seeded_bugs_of_a_resize_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: ResizeRun(random_resizes(seed)))
