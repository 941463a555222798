"""Replies that hardly any random run brings: the recipes, reply by reply."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.unit.test_once import in_part, sent
from zkconcurrent import ForeignNodeError, RefusedError
from zkconcurrent._engine.ticket_registry import Registry
from zkconcurrent._protocol.blocking_rules import MUTEX
from zkconcurrent._protocol.node_names import unique_prefix
from zkconcurrent._protocol.operations import (
    BadVersion,
    Check,
    Children,
    ConnectionLost,
    Create,
    CreatePersistent,
    DeadlinePassed,
    Delete,
    DetachTicket,
    Discard,
    Get,
    Grant,
    Multi,
    NewTicket,
    Node,
    NodeGone,
    NoNode,
    ProveLease,
    SessionExpired,
    SetNode,
    Sync,
)
from zkconcurrent._protocol.session_lease import Lease
from zkconcurrent._protocol.ticket import State, Ticket
from zkconcurrent._protocol.way_to_grant import Way
from zkconcurrent._recipes import (
    barrier,
    condition,
    destroy,
    detached,
    latch,
    receipts,
    semaphore,
    value,
)
from zkconcurrent._recipes.barrier_state import ArrivalIndexes, BarrierContent, BarrierView, Party
from zkconcurrent._recipes.group import Member, members, stay
from zkconcurrent._recipes.map import mirror, write
from zkconcurrent._recipes.nodes import PathCheck
from zkconcurrent._recipes.queue import manage, put, take
from zkconcurrent._recipes.queue.order import FIFO, frame, unframe
from zkconcurrent._recipes.queue.state import ClaimedItem, ItemCall, QueueLayout, QueueView
from zkconcurrent._recipes.receipts import InDoubt, PendingWrite, Receipt, ReceiptPool


def queued(path: str, name: str, session: int = 1) -> Ticket:
    """Return a ticket whose node was made."""
    ticket = Ticket(path, f"_c_{name}-", Lease(session))
    ticket.sent = True
    ticket.queued_as(f"_c_{name}-0000000000", 1)
    return ticket


def receipt(pool: ReceiptPool, path: str, members: str) -> Receipt:
    """Return a receipt of a pool, with a member, so that no call has to make one."""
    pool.laid_out = True
    made = pool.take_receipt()
    made.path, made.member = path, queued(members, "x")
    pool.idle.append(made)
    return made


SEMAPHORE = semaphore.SemaphoreLayout("/s", 3, PathCheck("/s", "Semaphore"))


def test_permits_whose_lease_must_be_proved() -> None:
    """A permit is not held before the lease was proved, and then it is asked for again."""
    ticket, lease = queued("/s/locks", "a"), Ticket("/s/leases", "_c_b-", Lease(1))
    lease.lease = ticket.lease
    taking: Any = semaphore.take_permits(ticket, [], SEMAPHORE, 1, b"{}")
    next(taking)
    assert isinstance(sent(taking, lease), Multi)
    assert isinstance(sent(taking, []), Grant)
    assert isinstance(sent(taking, False), ProveLease)
    assert isinstance(sent(taking, None), Grant)
    lease.become(State.HELD)
    assert sent(taking, True) == (None,)


@pytest.mark.parametrize("found", [None, Node(b"3", 9, 0.0, 0, 1)])
def test_a_resize_of_a_semaphore_that_was_destroyed_meanwhile(found: Node | None) -> None:
    """The new semaphore has no such write, or never had, so the client writes it there, whatever the version is."""
    resizing: Any = semaphore.resize(SEMAPHORE, 5)
    look = next(resizing)
    step = sent(resizing, (None, Node(b"3", 1, 0.0, 0, 0), []))
    assert step[0] == SetNode("/s/permits", b"5 resized", 0)
    assert sent(resizing, (False, found)) == look


@pytest.mark.parametrize("writes", [write.put, write.put_if_absent])
def test_an_ephemeral_entry_that_may_have_ended_with_its_session(writes: Any) -> None:
    """Its reply is lost, and the session ends: it is written again, as one that was made is gone by now."""
    copy = mirror.Mirror(mirror.MapLayout("/map", "Dict", ephemeral=True), threading.RLock())
    writer = receipt(copy, "/map/writers/w", "/map/writers")
    putting: Any = writes(write.MapWrite(copy, b"{}"), "a", b"1")
    member = writer.member
    next(putting)
    assert type(sent(putting, ConnectionLost())[0]) is Sync
    assert sent(putting, SessionExpired()) == Discard(member)
    assert isinstance(sent(putting, None), NewTicket)


def test_a_value_that_others_change_all_the_time() -> None:
    """A change that came too late some times waits for its turn, also if nobody waits for one."""
    view = value.ValueView(value.ValueLayout("/v", "AtomicLong", b"0"))
    receipt(view, "/v/receipts/r", "")
    adding: Any = value.apply(value.ValueBatch(view, b"{}", [value.Change(lambda *_: (b"1", None), alone=False)]))
    step = next(adding)
    for version in range(value.PATIENCE + 1):
        assert Children("/v/lock") in step
        step = sent(adding, (None, Node(b"0", 1, 0.0, 0, version), []))
        if not isinstance(step, Multi):
            break
        step = sent(adding, in_part(BadVersion(), 0))
    assert isinstance(step, NewTicket)
    assert step.path == "/v/lock"


def test_the_node_of_a_member_goes_with_the_program() -> None:
    """A member's node, once made, is among those that the end of the program deletes."""
    registry, lease = Registry("00000000-0000-0000-0000"), Lease(1)
    lease.note_opened(0.0, 6.0)
    registry.begin_session(lease)
    ticket = registry.new_ticket("/group", [])
    member = Member("/group", "a", b"", lambda: 0.0, 0.0)
    joining: Any = stay(member, lambda: None)
    next(joining)
    sent(joining, ticket)
    assert isinstance(sent(joining, ([("/group/a", Node(b"", 5, 0.0, 1))], [])), DetachTicket)
    sent(joining, None)
    assert registry.discard(ticket)
    assert ticket.node == "/group/a"


def test_a_task_done_counts_until_it_is_applied() -> None:
    """Another call of the client's takes one that is under way for an item less, until the number itself is less."""
    calls = [ItemCall(QueueView(QueueLayout("/q", FIFO), float), "count", b"{}") for _ in range(3)]
    calls[1].applied = True
    calls[2].finish()
    assert [each.counts_yet for each in calls] == [True, False, False]


def test_a_first_party_that_misses_one_which_it_has_never_seen() -> None:
    """A party that came and died between two reads shows by the number of nodes ever made: the barrier breaks."""
    party = Party(BarrierView("/b", 3), BarrierContent(3), queued("/b/0000000000", "x-party"), acts=False)
    party.note_line([party.ticket.name or ""])
    waiting: Any = barrier._wait(party)
    next(waiting)
    names = [party.ticket.name]
    state, seats = Node(BarrierContent(3).data, 0, 0.0, 0), Node(ArrivalIndexes(3).data, 1, 0.0, 0, created=2)
    assert isinstance(sent(waiting, [state, seats, names])[0], Children)
    assert isinstance(sent(waiting, (names, seats))[0], SetNode)


@pytest.mark.parametrize("tripped", [False, True])
def test_a_trip_whose_next_generation_is_refused(tripped: bool) -> None:
    """If the trip itself was done, the party goes on; otherwise it is told of the refusal."""
    party = Party(BarrierView("/b", 1), BarrierContent(1), queued("/b/0000000000", "x-party"), acts=False)
    party.note_line([party.ticket.name or ""])
    tripping: Any = barrier._trip(party)
    next(tripping)
    tripping.throw(RefusedError("/b", "NoAuth"))
    state = party.state.trip() if tripped else party.state
    with pytest.raises(StopIteration if tripped else RefusedError):
        tripping.send((None, Node(state.data, 1, 0.0, 0)))


def test_a_queue_whose_items_have_lost_their_parent() -> None:
    """An operator has deleted it: the nodes of the queue are laid out again, and the item is put once more."""
    view = QueueView(QueueLayout("/q", FIFO), float)
    view.version = 0
    receipt(view, "/q/receipts/r", "/q/members")
    putting: Any = put.put(ItemCall(view, "put", b"{}"), b"1", "queue-", wait=True)
    step = next(putting)
    assert [type(each) for each in step.operations] == [Check, Check, Create, SetNode]
    assert isinstance(sent(putting, in_part(NoNode(), 2))[0], Sync)


def test_items_that_were_taken_in_a_session_that_is_over() -> None:
    """If it turns out only then that they were taken, the new member does not count them: others take them as done."""
    taken = Receipt()
    taken.session = 2
    PendingWrite(ReceiptPool("/q/receipts"), b"{}").note_applied(taken, InDoubt(version=3, unfinished=2, session=1))
    assert (taken.unfinished, taken.before, taken.version) == (2, 2, 4)


def test_a_party_whose_time_is_up_as_it_comes_again() -> None:
    """It has missed its generation; it is late, whatever comes next, and may break no other."""
    waiting: Any = barrier.wait(BarrierView("/b", 2), b"{}", acts=False)
    next(waiting)
    sent(waiting, (None, Node(BarrierContent(2).data, 1, 0.0, 0)))
    sent(waiting, Ticket("/b/0000000000", "_c_x-", Lease(1)))
    sent(waiting, in_part(BadVersion(), 0))
    assert isinstance(sent(waiting, None), Discard)
    assert isinstance(sent(waiting, None)[0], Sync)
    with pytest.raises(StopIteration) as ended:
        waiting.throw(DeadlinePassed())
    assert ended.value.value.late


def test_the_end_of_another_s_hold_whose_reply_is_lost() -> None:
    """The node is gone: this call may have ended the hold, and says so."""
    node = Node(b'{"owner": "job", "token": 7}', 7, 0.0, 0)
    ending: Any = detached.force_release("/l", 7)
    look = next(ending)
    sent(ending, (None, ["_c_x-lock-0000000000"]))
    assert isinstance(sent(ending, node), Delete)
    assert sent(ending, None) == look
    assert sent(ending, (None, [])) == (True,)


def test_a_latch_that_is_destroyed_as_it_counts() -> None:
    """The latch is made again, and counted down."""
    counting: Any = latch.count_down("/c", 2, 1)
    next(counting)
    sent(counting, Ticket("/c", "_c_x-", Lease(1)))
    look = sent(counting, None)
    step = sent(counting, (None, Node(b"2 count", 1, 0.0, 0), []))
    assert isinstance(step, CreatePersistent)
    assert sent(counting, NoNode()) == look


@pytest.mark.parametrize("found", [None, Node(b"", 5, 0.0, session=2)])
def test_permits_that_are_not_of_the_session(found: Node | None) -> None:
    """They were made, and went with their session: the acquire begins anew."""
    ticket, lease = queued("/s/locks", "a"), Ticket("/s/leases", "_c_b-", Lease(1))
    finding: Any = semaphore.find_leases(ticket, [lease])
    next(finding)
    sent(finding, (None, [], ["_c_b-lease-0000000001"]))
    with pytest.raises(NodeGone):
        finding.send((found,))


def test_a_batch_counts_its_changes() -> None:
    """Each change is decided on what the one before it leaves, with that one's version."""
    versions: list[int] = []
    view = value.ValueView(value.ValueLayout("/v", "AtomicLong", b"0"))
    changes = [value.Change(lambda data, version: versions.append(version) or (data, None), alone=False)] * 3
    assert value.ValueBatch(view, b"{}", changes).decide(value.Seen(b"1", 7)) == b"1"
    assert versions == [7, 8, 9]


def test_an_item_that_was_put_together_with_others() -> None:
    """Only it leaves its node, for good or for the dead."""
    taken = ClaimedItem("queue-0000000001", [b"1", b"2"], 4)
    part = take.remove(QueueLayout("/q", FIFO), taken)
    assert isinstance(part, SetNode)
    assert (unframe("/q", part.data), part.version) == (([b"2"], 5), 4)
    burying: Any = take.bury(QueueLayout("/q", FIFO), taken)
    next(burying)
    assert sent(burying, None)[0].data == frame([b"1"])


def test_a_way_is_clear_only_if_all_is_known() -> None:
    """Of the connection, of the own node before, and of the node ahead."""
    for own, other, gone, clear in (
        (1, 1, True, True),
        (1, 2, True, False),
        (None, 1, True, False),
        (1, 1, None, False),
    ):
        way = Way(1, 1)
        way.read_own(1, own)
        way.read_ahead(other, gone=gone)
        assert way.is_clear == clear
    way = Way(1, 1)
    way.read_own(1, 1)
    way.read_ahead(1, gone=True)
    way.change_own()
    assert not way.is_clear


@pytest.mark.parametrize("detached", [False, True])
def test_a_way_behind_a_detached_lock(detached: bool) -> None:
    """Another node may take the place of its node, so only a listing tells; behind any other, the wait is enough."""
    prefix = unique_prefix("00000000-0000-0000-0000", 1, marked=False, detached=detached)
    names = [f"{prefix}lock-0000000001", "_c_x-lock-0000000002"]
    assert (Way.of(names[1], names, MUTEX, 1, 1) is None) == detached


def test_permits_added_to_a_semaphore_that_is_destroyed_meanwhile() -> None:
    """They are added to the new one."""
    adding: Any = semaphore.add(SEMAPHORE, 1, "u")
    look = next(adding)
    assert isinstance(sent(adding, (Node(b"3", 1, 0.0, 0), [])), CreatePersistent)
    assert sent(adding, NoNode()) == look


def test_what_a_server_that_lags_does_not_show() -> None:
    """Whether others use a primitive, or wait at a condition, is read behind a `sync`."""
    using: Any = destroy.users("/q", ["/q/members"])
    assert isinstance(next(using)[0], Sync)
    assert isinstance(next(condition.pass_on("/c")), Sync)


def test_a_contender_is_no_member_of_a_group() -> None:
    """A path that a lock uses is refused, not read as a group's."""
    reading: Any = members("/group")
    next(reading)
    with pytest.raises(ForeignNodeError):
        reading.send((None, ["_c_00000000-0000-4000-8000-000000000001-lock-0000000001"]))


def test_members_that_have_unfinished_items() -> None:
    """Those are watched by whoever waits for the last item; one that has gone is none."""
    nodes = [None, Node(b'{"unfinished": 1}', 1, 0.0, 5), Node(b'{"unfinished": 0}', 1, 0.0, 6)]
    assert manage._counting(["a", "b", "c"], nodes) == ["b"]
    assert json.loads(receipts.member_data(b'{"pid": 1}', 2)) == {"pid": 1, "unfinished": 2}


def test_a_claim_that_has_ended_with_its_session() -> None:
    """Its reply was lost: the item is not this consumer's, which begins anew."""
    view = QueueView(QueueLayout("/q", FIFO), float)
    receipt(view, "/q/receipts/r", "/q/members")
    claiming, name = ItemCall(view, "claim", b"{}"), "queue-0000000001"
    view.names.append(name)
    taking: Any = take.take(claiming, wait=False)
    look = next(taking)
    step = sent(taking, (Node(frame([b"1"]), 1, 0.0, 0),))
    assert isinstance(step, Multi)
    assert isinstance(sent(taking, ConnectionLost())[0], Sync)
    moved = Node(b"", 1, 0.0, 0, version=1)
    assert sent(taking, (None, moved)) == Get(f"/q/claims/{name}")
    assert sent(taking, None) == look
    assert not claiming.applied
