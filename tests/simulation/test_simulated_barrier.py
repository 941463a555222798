"""Barriers under random faults: the invariants hold after every step, and seeded bugs are found."""

from __future__ import annotations

import pytest

from tests.simulation.checks.mutants import Mutant, bug, find
from tests.simulation.subjects.barrier import BarrierRun, random_meetings
from tests.simulation.world.run import COMMON_FAULTS, runs


def test_whatever_strikes() -> None:
    """All living parties of a generation pass or none does; nobody is forgotten; nothing is left."""
    injected: set[str] = set()
    trips = failures = actions = meetings = leaves = 0
    for run in runs(BarrierRun, random_meetings, 120):
        injected.update(run.injected)
        meetings += 1
        trips, failures = trips + len(run.checks.trips), failures + len(run.checks.failed)
        actions += len(run.checks.acted)
        leaves += run.checks.withdrawn > 0
    assert injected >= COMMON_FAULTS | {"remove", "close", "slow", "leave"}
    assert min(trips, failures) > meetings
    assert leaves > meetings / 4
    assert actions > meetings / 4  # in three of ten schedules a trip has one


def _one(name: str, where: str, old: str, new: str) -> Mutant:
    where = where if ":" in where else f"_recipes.barrier:{where}"
    return bug(name, where, old, new)


MUTANTS = [
    _one(
        "a wait that is not armed anew",
        "_wait",
        "node, there, *names = yield op.Watch(ticket, (op.Get(view.path, ticket), *others))\n        watching = True",
        "reads = (op.Get(view.path, ticket), *others)\n"
        "        node, there, *names = yield reads if watching else op.Watch(ticket, reads)\n"
        "        watching, ticket.changed = True, False",
    ),
    _one(
        "a trip that does not check that all are there",
        "_release",
        'there = (op.Check(f"{ticket.path}/{party.line[number]}") for number in party.seats.counted())',
        "there = ()",
    ),
    _one(
        "a trip, whatever has become of the state",
        "_release",
        "op.SetNode(view.path, changed.data, party.state.version)",
        "op.SetNode(view.path, changed.data, -1)",
    ),
    _one(
        "a trip whose answer was lost is taken for done",
        "_release",
        "yield op.Sync(view.path, ticket)\n        return None",
        "return party.number",
    ),
    _one("a time-out that ignores the trip", "_break", "return (yield from _outcome(party))", "return None"),
    _one(
        "a time-out that breaks nothing",
        "leave",
        "return (yield from _to_the_end(party, _break(party, patient=True), struck))",
        "yield op.Discard(party.ticket)",
    ),
    _one(
        "a time-out that breaks the barrier while the action runs",
        "_recipes.barrier_state:Party.others_decide",
        "(self.state.acting and not self.is_last)",
        "False",
    ),
    _one("a time-out of one that comes again and again breaks nothing", "wait", "if party is None:", "if True:"),
    _one("an abort, whatever has become of the state", "_break", "party.state.version), op.Get", "-1), op.Get"),
    _one(
        "an action is waited for although its party has gone",
        "_look_on",
        "decides = party.seats.top in line_of(names)",
        "decides = True",
    ),
    _one(
        "a reset is told as a trip",
        "_recipes.barrier_state:BarrierContent.has_tripped",
        "and generation not in self.failed",
        "",
    ),
    _one(
        "nobody watches over the others",
        "_wait",
        "node, there, *names = yield op.Watch(ticket, (op.Get(view.path, ticket), *others))",
        "(node,), (there, *names) = (yield op.Watch(ticket, (op.Get(view.path, ticket),))), (yield others)",
    ),
    _one(
        "a party that came and went is not missed",
        "_recipes.barrier_state:Party.misses_nobody",
        "or all(there)",
        "or (bool(self.line) and self.number == min(self.line) and not self.is_last) or all(there)",
    ),
    bug(
        "an action that is not announced",
        "_recipes.barrier:_release",
        "if party.acts and party.state.acting:",
        "if party.acts:",
        ("_threads.barrier:Barrier._conclude", "if party.is_to_act:", "if party.acts and party.is_last:"),
    ),
    _one(
        "a party that comes when all are there acts too",
        "_wait",
        "if party.is_last:\n            outcome",
        "if party.number >= view.parties - 1 and party.line.keys() >= set(party.seats.counted()):\n            outcome",
    ),
    _one(
        "a failed action breaks nothing",
        "_threads.barrier:Barrier._departing",
        "call.outlast(partial(leave, party, struck=True), now, now, late.append)",
        "call.run(read_state(self._view))",
    ),
    _one(
        "the node of a party that goes is left",
        "_to_the_end",
        "if outcome is not party:\n            yield op.Discard(party.ticket)",
        "pass",
    ),
    _one(
        "a party that comes late is counted in a generation that is over",
        "_outcome",
        "if not party.counts:",
        "if False:",
    ),
    _one(
        "a party that leaves is counted still",
        "_recipes.barrier_state:ArrivalIndexes.withdraw",
        "if seat is None or acting:",
        "if True:",
    ),
    _one(
        "a party that leaves during the action is not counted",
        "_recipes.barrier_state:ArrivalIndexes.withdraw",
        "or acting:",
        "or False:",
    ),
    _one(
        "a party that leaves breaks the barrier",
        "_threads.barrier:Barrier._departing",
        "if self._withdraw is None or isinstance(error, Exception):",
        "if True:",
    ),
    _one("the node of a party that leaves stays", "withdraw", "op.Delete(ticket.node),", ""),
    _one(
        "a party leaves, whatever has become of the state", "withdraw", "op.Check(view.path, party.state.version),", ""
    ),
    _one(
        "a party leaves, whatever others have left",
        "withdraw",
        "op.SetNode(ticket.path, seats.data, party.seats.version)",
        "op.SetNode(ticket.path, seats.data, -1)",
    ),
    _one(
        "a party that could not leave at once does no more than go",
        "withdraw",
        "yield op.MarkDeleted(ticket)\n                break",
        "yield op.MarkDeleted(ticket)\n            break",
    ),
    _one(
        "a trip that counts a party that has left",
        "_release",
        'there = (op.Check(f"{ticket.path}/{party.line[number]}") for number in party.seats.counted())',
        'there = (op.Check(f"{ticket.path}/{party.line[number]}") for number in (party.number,))',
    ),
    _one(
        "the next in line does not watch over the others",
        "_wait",
        "watching = False\n        if party.is_last:",
        "pass\n        if party.is_last:",
    ),
    _one(
        "a party that came late does not see that it got a seat",
        "_wait",
        "if not party.watches_all:",
        "if party.seat is None or not party.watches_all:",
    ),
    _one(
        "a party that misses another reads who has left before it reads who is there",
        "_look_around",
        "names, there = yield op.Children(ticket.path, ticket), op.Get(ticket.path, ticket)",
        "there, names = yield op.Get(ticket.path, ticket), op.Children(ticket.path, ticket)",
    ),
    _one(
        "a party that came late does not look for its seat at the end",
        "_outcome",
        "if party.ticket.sent and not party.counts:",
        "if False:",
    ),
    _one(
        "a leave that ends after a session timeout, although a server is in reach",
        "_threads.barrier:Barrier._depart",
        "call.run(withdraw(party))",
        "call.run(withdraw(party), self._session.now() + self._session.timeout)",
    ),
    _one(
        "a seat goes to a party that has left",
        "_recipes.barrier_state:ArrivalIndexes.withdraw",
        "while heir in self.gone:",
        "while False:",
    ),
    _one(
        "a party that does not know whether it came breaks the barrier as its session ends",
        "_break",
        "if lost and party.seat is None:",
        "if lost and not party.counts:",
    ),
    _one(
        "a party that came too late breaks the barrier as its session ends",
        "_break",
        "if lost and party.seat is None:",
        "if lost and party.ticket.name is None:",
    ),
    # If the trip wrote a list of the parties that pass, that had to outlive the generation's node and later trips.
    _one(
        "a party learns its index from a list in the state, which has the last trip's only",
        "_outcome",
        "if party.state.has_tripped(party.generation)",
        "if party.state.has_tripped(party.generation) and party.state.generation == party.generation + 1",
    ),
    _one(
        "a party learns its index from a list in the generation's node, which the next generation removes",
        "_outcome",
        "if party.ticket.sent and not party.counts:",
        "if party.ticket.sent and party.state.has_tripped(party.generation):",
    ),
]


@pytest.mark.fault(262)
@pytest.mark.parametrize("mutant", MUTANTS, ids=[each.name for each in MUTANTS])
def test_seeded_bugs_are_found(mutant: Mutant) -> None:
    """Runs that the library passes find each bug."""
    find(mutant, lambda seed: BarrierRun(random_meetings(seed)))
