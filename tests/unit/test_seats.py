"""The seats of a barrier's generation, and an order of reads whose reverse the simulation hardly ever finds wrong."""

from __future__ import annotations

import pytest

from zkconcurrent._protocol.operations import Children, Get, Node, Wait, Watch
from zkconcurrent._protocol.session_lease import Lease
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent._recipes import barrier
from zkconcurrent._recipes.barrier_state import ArrivalIndexes, BarrierContent, BarrierView, Party


def _node(seats: ArrivalIndexes, version: int = 1) -> Node:
    return Node(seats.data, 1, 0.0, 0, version)


def _party(number: int) -> Party:
    ticket = Ticket("/b/0000000000", "_c_x-", Lease(1))
    ticket.name, ticket.sent = f"_c_x-party-{number:010d}", True
    return Party(BarrierView("/b", 2), BarrierContent(2), ticket, acts=False)


def test_a_party_whose_time_is_up_reads_the_seats_last() -> None:
    """If the last party leaves between the two reads, its seat is already another's, so it is not taken for dead."""
    party = _party(3)
    reading = barrier._await_last(party)
    assert next(reading) == Watch(party.ticket, (Get("/b"), Children("/b/0000000000"), Get("/b/0000000000")))
    names = [f"_c_x-party-{number:010d}" for number in range(4)]
    seats = ArrivalIndexes(2).withdraw(1, acting=False)
    state = Node(BarrierContent(2).data, 0, 0.0, 0)
    assert reading.send([state, names, _node(seats)]) == Wait(party.ticket)


def test_a_party_that_gets_a_seat_late() -> None:
    """One whose time is up, and that another's leave has given a seat, waits no longer: it has to break the barrier."""
    party = _party(2)
    reading = barrier._await_last(party)
    next(reading)
    names = [f"_c_x-party-{number:010d}" for number in (0, 2)]
    seats = ArrivalIndexes(2).withdraw(1, acting=False)
    with pytest.raises(StopIteration) as ended:
        reading.send([Node(BarrierContent(2).data, 0, 0.0, 0), names, _node(seats)])
    assert ended.value.value is party
