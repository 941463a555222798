"""Requests that are sent again after a lost reply, while the first is still to be applied: the recipes, reply by reply.

By default the leader holds up a session's reads for what that session has sent by way of a follower. With
`zookeeper.forward_learner_requests_to_commit_processor_disabled` it does not, so a look shows nothing of it.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from zkconcurrent._protocol.operations import (
    BadVersion,
    Check,
    ConnectionLost,
    Delete,
    Failure,
    Get,
    MarkDeleted,
    Multi,
    Node,
    NoNode,
    SetNode,
    Sync,
)
from zkconcurrent._protocol.session_lease import Lease
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent._recipes.detached import detach
from zkconcurrent._recipes.group import Member, stay
from zkconcurrent._recipes.map.mirror import MapLayout, Mirror
from zkconcurrent._recipes.map.write import MapWrite, OutcomeLost, replace, write
from zkconcurrent._recipes.receipts import BURNT, InDoubt, PendingWrite, Receipt, ReceiptPool, settle

OURS = Node(b"{}", 1, 0.0, 1)


def _map_write(*, ephemeral: bool = False) -> MapWrite:
    """Return a write of a client that has a writer."""
    mirror = Mirror(MapLayout("/map", "Dict", ephemeral), threading.RLock())
    mirror.laid_out = True
    map_write = MapWrite(mirror, b"{}")
    ticket = Ticket("/map/writers", "_c_x-", Lease(1))
    ticket.queued_as("_c_x-writer-0000000000", 1)
    map_write.receipt = Receipt()
    map_write.receipt.path, map_write.receipt.member = ticket.node, ticket
    return map_write


def _sent_twice() -> tuple[MapWrite, Any]:
    """Return a write whose first reply was lost, and that is sent again, as its writer shows nothing of the first."""
    map_write = _map_write()
    writing: Any = write(map_write, (Delete("/map/entries/a"),))
    first = next(writing)
    sync, _ = writing.throw(ConnectionLost())
    assert type(sync) is Sync
    again = writing.send((None, Node(b"", 1, 0.0, 1)))
    assert isinstance(first, Multi)
    assert again == first
    return map_write, writing


def _failed(error: Failure) -> Failure:
    error.part = 0
    return error


@pytest.mark.fault(152)
def test_applied_before_it_was_sent_again() -> None:
    """The second fails, as the first was applied just before: the write is not made once more."""
    map_write, writing = _sent_twice()
    sync, _ = writing.throw(_failed(BadVersion()))
    assert type(sync) is Sync
    with pytest.raises(StopIteration) as ended:
        writing.send((None, Node(b"", 1, 0.0, 1, version=1)))
    assert ended.value.value is None
    assert map_write.receipt is not None
    assert (map_write.doubt, map_write.receipt.version) == (False, 1)


def test_the_writer_is_gone_as_it_was_sent_again() -> None:
    """Nothing can tell any more whether the first was applied, so the write is not repeated."""
    _, writing = _sent_twice()
    writing.throw(_failed(NoNode()))
    writing.send((None, None))  # and discards the writer
    with pytest.raises(OutcomeLost):
        writing.send(None)


@pytest.mark.fault(152)
def test_a_hold_that_was_made_before_it_was_sent_again() -> None:
    """The second `multi` fails, as the first was applied just before: the lock is held, and stays so."""
    ticket, left = Ticket("/lock", "_c_x-", Lease(1)), Ticket("/lock", "_c_y-", Lease(1))
    ticket.queued_as("_c_x-lock-0000000000", 1)
    acquiring = detach(ticket, "me", "u", b"{}")
    next(acquiring)
    first = acquiring.send(left)
    acquiring.throw(ConnectionLost())
    again = acquiring.send((None, None))
    assert again == first
    assert isinstance(acquiring.throw(NoNode()), Get)
    assert acquiring.send(OURS) == MarkDeleted(ticket)
    assert acquiring.send(None) == MarkDeleted(left)
    with pytest.raises(StopIteration) as ended:
        acquiring.send(None)
    assert ended.value.value.name == "_c_u-lock-0000000000"


@pytest.mark.fault(152)
def test_a_leave_whose_reply_was_lost() -> None:
    """A write comes before the look at the node, so that the second delete meets no other member's."""
    member = Member("/group", "a", b"", lambda: 0.0, 0.0)
    member.ticket = Ticket("/group", "_c_x-", Lease(1))
    member.ticket.queued_as("a", 1)
    member.wanted = False
    leaving = stay(member, lambda: None)
    assert next(leaving).operations == (Delete("/group/a"),)  # type: ignore[union-attr]
    barrier = leaving.throw(ConnectionLost())
    assert isinstance(barrier, Multi)
    assert barrier.operations == (Check("/group"),)
    assert isinstance(leaving.send([None]), Get)
    assert isinstance(leaving.send(None), MarkDeleted)


@pytest.mark.fault(279)
def test_a_join_whose_reply_was_lost() -> None:
    """A deposed leader shows the node of a member who has left: the id is not taken, and the create comes again."""
    joining: Any = stay(Member("/group", "a", b"", lambda: 0.0, 0.0), lambda: None)
    next(joining)
    first = joining.send(Ticket("/group", "_c_x-", Lease(1)))
    look = joining.throw(ConnectionLost())
    assert [type(each) for each in look] == [Sync, Get]
    assert joining.send((None, Node(b"", 1, 0.0, session=2))) == first


def test_a_receipt_that_was_used_up() -> None:
    """The reply to the write that uses it up is lost: its next version is not taken for that of the change in doubt."""
    pending_write = PendingWrite(ReceiptPool("/queue/receipts"), b"{}")
    pending_write.receipt = receipt = Receipt()
    receipt.path, receipt.version = "/queue/receipts/a", 3
    pending_write.sent = InDoubt(version=3, unfinished=0, session=1)
    settling: Any = settle(pending_write)
    next(settling)
    assert settling.send((None, Node(b"", 1, 0.0, 0, version=3))) == SetNode(receipt.path, BURNT, 3)
    settling.throw(ConnectionLost())
    with pytest.raises(StopIteration):
        settling.send((None, Node(BURNT, 1, 0.0, 0, version=4)))
    assert not pending_write.applied
    assert receipt.version == 4


def test_in_doubt_as_its_session_ends() -> None:
    """Only the writer that went with it can settle a write: with another, it could be applied twice."""
    map_write, writing = _sent_twice()
    assert map_write.receipt is not None
    assert map_write.receipt.member is not None
    map_write.receipt.member.note_change()
    assert writing.throw(ConnectionLost())[1] == Get(map_write.receipt.path, map_write.receipt.member)


def test_a_replacement_names_the_map() -> None:
    """An entry that was deleted and made anew since may have the same version; the node above it has another."""
    replacing: Any = replace(_map_write(), "a", b"new", lambda _: True)
    next(replacing)
    step = replacing.send((None, Node(b"", 1, 0.0, 0, version=7), (Node(b"old", 2, 0.0, 0), 2)))
    assert Check("/map", 7) in step.operations
