"""The seats of a barrier's generation, and an order of reads whose reverse the simulation hardly ever finds wrong."""

from __future__ import annotations

import pytest

from zkconcurrent import ForeignNodeError
from zkconcurrent._protocol.lease import Lease
from zkconcurrent._protocol.operations import Children, Get, Node, Wait, Watch
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent._recipes import barrier
from zkconcurrent._recipes.barrier_state import ArrivalIndexes, BarrierContent, Party, View


def _node(seats: ArrivalIndexes, version: int = 1) -> Node:
    return Node(seats.data, 1, 0.0, 0, version)


def _party(number: int) -> Party:
    ticket = Ticket("/b/0000000000", "_c_x-", Lease(1))
    ticket.name, ticket.sent = f"_c_x-party-{number:010d}", True
    return Party(View("/b", 2), BarrierContent(2), ticket, acts=False)


def test_a_seat_is_passed_on() -> None:
    """The lowest number without a seat gets it; one that has gone before that is passed over."""
    seats = ArrivalIndexes(3)
    assert (seats.counted(), seats.top, seats.seat(3)) == ([0, 1, 2], 2, None)
    seats = seats.withdraw(1, acting=False)
    assert (seats.counted(), seats.top) == ([0, 3, 2], 3)
    assert [seats.seat(number) for number in range(5)] == [0, None, 2, 1, None]
    seats = seats.withdraw(4, acting=False).withdraw(3, acting=False)
    assert (seats.counted(), seats.top, seats.gone) == ([0, 5, 2], 5, frozenset())
    assert [seats.seat(number) for number in range(6)] == [0, None, 2, None, None, 1]


def test_a_seat_is_kept_during_the_action() -> None:
    """A party that withdraws then keeps its seat; no node of it is counted on."""
    seats = ArrivalIndexes(2).withdraw(0, acting=True)
    assert (seats.seat(0), seats.top, seats.counted()) == (0, 1, [1])


@pytest.mark.fault(234)
def test_a_newer_count_stays() -> None:
    """Of two looks at the parties, the view keeps the later one, in whatever order they are recorded."""
    view, state = View("/b", 3), BarrierContent(3)
    began = view.notes
    view.note(state)  # a party has seen the state, and nothing of the others
    view.keep(state, {0: "a", 1: "b"}, began)
    assert view.waiting == 2
    view.note(state, {0: "a"}, 0)  # a party that had listed before the second one came
    assert view.waiting == 2
    view.note(state, {0: "a"}, 1)  # the second one has left
    assert view.waiting == 1
    view.keep(state, {0: "a", 1: "b"}, began)  # an older query, whose reply comes late
    assert view.waiting == 1
    view.keep(state, {0: "a", 2: "c"}, view.notes)
    assert view.waiting == 2
    view.note(state.trip())
    assert view.waiting == 0
    view.keep(state, {0: "a", 1: "b", 2: "c", 3: "d"}, began)  # of the generation before
    assert view.waiting == 0


def test_what_is_written_is_read() -> None:
    """The node's data keep everything; other data are refused."""
    seats = ArrivalIndexes(3).withdraw(1, acting=False).withdraw(7, acting=False)
    again = ArrivalIndexes.read("/b", 3, _node(seats))
    assert (again.passed, again.gone, again.version) == (seats.passed, seats.gone, 1)
    assert ArrivalIndexes.read("/b", 3, Node(b"", 1, 0.0, 0)).counted() == [0, 1, 2]
    for data in (b"x", b"[]", b"{}", b'{"seats": {"a": 1}, "gone": []}', b'{"seats": [], "gone": []}'):
        with pytest.raises(ForeignNodeError, match="not a barrier's"):
            ArrivalIndexes.read("/b", 3, Node(data, 1, 0.0, 0))


def test_a_party_whose_time_is_up_reads_the_seats_last() -> None:
    """If the last party leaves between the two reads, its seat is already another's, so it is not taken for dead."""
    party = _party(3)
    reading = barrier._look_on(party)
    assert next(reading) == Watch(party.ticket, (Get("/b"), Children("/b/0000000000"), Get("/b/0000000000")))
    names = [f"_c_x-party-{number:010d}" for number in range(4)]
    seats = ArrivalIndexes(2).withdraw(1, acting=False)
    state = Node(BarrierContent(2).data, 0, 0.0, 0)
    assert reading.send([state, names, _node(seats)]) == Wait(party.ticket)


def test_a_party_that_gets_a_seat_late() -> None:
    """One whose time is up, and that another's leave has given a seat, waits no longer: it has to break the barrier."""
    party = _party(2)
    reading = barrier._look_on(party)
    next(reading)
    names = [f"_c_x-party-{number:010d}" for number in (0, 2)]
    seats = ArrivalIndexes(2).withdraw(1, acting=False)
    with pytest.raises(StopIteration) as ended:
        reading.send([Node(BarrierContent(2).data, 0, 0.0, 0), names, _node(seats)])
    assert ended.value.value is party


def test_a_party_that_came_and_went() -> None:
    """The count of those that have arrived shows one that was in no listing."""
    party = _party(0)
    party.note_line(["_c_x-party-0000000000"], 1)
    assert party.misses_nobody()
    party.note_line(["_c_x-party-0000000000"], 2)
    assert not party.misses_nobody()
