"""The mark of a job, reply by reply: which call is to run it, and what lost replies and other clocks change."""

from __future__ import annotations

from typing import Any

import pytest

from zkconcurrent import ForeignNodeError
from zkconcurrent._protocol.operations import (
    BadVersion,
    ConnectionLost,
    Create,
    Failure,
    MarkMissing,
    Node,
    NodeExists,
    NodeGone,
    NoNode,
    SessionExpired,
)
from zkconcurrent._protocol.session_lease import Lease
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent._recipes.once import take_turn, while_held, write

PATH, HOUR = "/job.once", 3600.0


def held() -> Ticket:
    """Return a hold."""
    ticket = Ticket("/job", "_c_x-", Lease(1))
    ticket.queued_as("_c_x-lock-0000000007", 70)
    return ticket


def own(*, version: int = 0, at: float = 0.0) -> Node:
    """Return the node of the hold, as it was written at some time."""
    return Node(b"{}", 70, 0.0, 1, version, mtime=at)


def mark(*, at: float, waited: float, zxid: int = 50, data: bytes = b'{"waited": %f}') -> Node:
    """Return the mark of a call that had waited so long when it wrote it."""
    return Node(data % waited if b"%" in data else data, 10, 0.0, 0, 3, mtime=at, mzxid=zxid)


def sent(steps: Any, reply: Any) -> Any:
    """Give a recipe a reply, or a failure; return what it asks for next, or in a tuple what it returns."""
    try:
        return steps.throw(reply) if isinstance(reply, Failure) else steps.send(reply)
    except StopIteration as end:
        return (end.value,)


def in_part(failure: Failure, part: int) -> Failure:
    """Return the failure of a part of a `Multi`."""
    failure.part = part
    return failure


def outcome(found: Node, *, now: float, waited: float) -> bool:
    """Return whether a call runs that has waited so long now, by the leader's clock, and finds a mark."""
    steps: Any = take_turn(held(), PATH, HOUR, lambda: waited, None)
    next(steps)
    sent(steps, (None, own(), found))
    ((runs, _),) = sent(steps, (None, own(version=1, at=now)))
    return bool(runs)


@pytest.mark.fault(330)
@pytest.mark.parametrize(
    ("written", "waited", "runs"),
    [(0.0, 0.0, True), (10.0, 0.0, False), (10.0, 10.0, True), (3590.0, 3590.0, True), (3590.0, 3580.0, False)],
)
def test_periods_count_from_the_calls(written: float, waited: float, runs: bool) -> None:
    """A call runs a period after the call that ran last was made, however late that began its job."""
    assert outcome(mark(at=written, waited=waited), now=HOUR, waited=0.0) is runs


@pytest.mark.fault(430)
@pytest.mark.parametrize(("waited", "runs"), [(0.0, True), (400.0, True), (401.0, False), (4000.0, False)])
def test_a_wait_counts_in_whichever_session(waited: float, runs: bool) -> None:
    """A call that waited counts from when it was made; its node, of a second session, is as young as may be."""
    assert outcome(mark(at=0.0, waited=0.0), now=HOUR + 400, waited=waited) is runs


def test_a_run_while_it_was_in_the_queue() -> None:
    """A call skips without a write if the mark is younger than its node, even if the clock was set back by days."""
    steps: Any = take_turn(held(), PATH, HOUR, lambda: 0.0, lambda: b"mark")
    next(steps)
    ((runs, _),) = sent(steps, (None, own(), mark(at=1e6, waited=0.0, zxid=71)))
    assert runs is False


@pytest.mark.parametrize(("ahead", "runs"), [(HOUR + 1, True), (HOUR / 2, False)])
def test_a_clock_that_was_set_back(ahead: float, runs: bool) -> None:
    """A mark that is ahead by more than a period counts no more."""
    assert outcome(mark(at=1e6 + ahead, waited=0.0), now=1e6, waited=0.0) is runs


@pytest.mark.parametrize("failure", [ConnectionLost, BadVersion])
def test_the_time_is_read_anew(failure: type[Failure]) -> None:
    """If the reply to the write that tells the time is lost, or the node has changed, the call looks once more."""
    steps: Any = take_turn(held(), PATH, HOUR, lambda: 0.0, None)
    first = next(steps)
    sent(steps, (None, own(), mark(at=0.0, waited=0.0)))
    assert sent(steps, failure()) == first
    touch, _ = sent(steps, (None, own(version=1), mark(at=0.0, waited=0.0)))
    assert touch.operations[0].version == 1
    ((runs, _),) = sent(steps, (None, own(version=2, at=HOUR)))
    assert runs is True


@pytest.mark.fault(304)
@pytest.mark.parametrize("failure", [ConnectionLost, NodeExists])
def test_the_reply_to_the_mark_is_lost(failure: type[Failure]) -> None:
    """The mark itself, read behind a `sync`, shows that it is written: it is written once."""
    steps: Any = write(held(), PATH, b"mark")
    look = next(steps)
    step = sent(steps, (None, None))
    assert isinstance(step.operations[1], Create)
    assert sent(steps, in_part(failure(), 1)) == look
    assert sent(steps, (None, mark(at=0.0, waited=0.0, data=b"mark"))) == (True,)


def test_a_hold_that_is_gone_at_the_first_look() -> None:
    """If the lock's node is gone as the mark is read, the job does not run, with a mark or without."""
    for found in (None, mark(at=0.0, waited=0.0)):
        steps: Any = take_turn(held(), PATH, HOUR, lambda: 0.0, None)
        next(steps)
        with pytest.raises(NodeGone):
            sent(steps, (None, None, found))


@pytest.mark.parametrize("failure", [NoNode, SessionExpired, NodeGone])
def test_a_hold_that_is_gone(failure: type[Failure]) -> None:
    """If the lock's node is gone as the mark is written, nothing is: the hold is lost."""
    ticket = held()
    for recipe, reads in (
        (take_turn(held(), PATH, HOUR, lambda: 0.0, lambda: b"mark"), [(None, own(), None), (None, None)]),
        (take_turn(held(), PATH, HOUR, lambda: 0.0, None), [(None, own(), mark(at=0.0, waited=0.0))]),
        (write(held(), PATH, b"mark"), [(None, None)]),
    ):
        steps: Any = while_held(ticket, recipe)
        next(steps)
        for read in reads:
            sent(steps, read)
        assert isinstance(sent(steps, failure()), MarkMissing)
        assert not sent(steps, None)[0]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"queued": 1}', b'{"waited": "1"}', b"[" * 100_000, b"7 set"])
def test_another_programs_node(data: bytes) -> None:
    """Data that are no mark's are refused, with the path; nothing is written."""
    steps: Any = take_turn(held(), PATH, HOUR, lambda: 0.0, lambda: b"mark")
    next(steps)
    with pytest.raises(ForeignNodeError, match=r"no mark|waited") as refused:
        steps.send((None, own(), mark(at=0.0, waited=0.0, data=data)))
    assert refused.value.path == PATH
