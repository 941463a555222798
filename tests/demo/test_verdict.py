"""The demo's verdict: it must find every way in which a lock could have failed."""

from __future__ import annotations

from dataclasses import replace

from journal import Entry, Step
from verdict import Fault, judge


def turn(at: float, worker: int, token: int, number: int, *, seconds: float = 0.5) -> list[Entry]:
    """A turn in which all went well: it read `number`, and wrote the next."""
    return [
        Entry(at, worker, 1, Step.ENTERS, token),
        Entry(at, worker, 1, Step.READS, token, number, token - 1),
        Entry(at + seconds, worker, 1, Step.WRITES, token, number + 1),
        Entry(at + seconds, worker, 1, Step.LEAVES, token),
    ]


def paused(at: float, worker: int, token: int, number: int) -> list[Entry]:
    """A turn that goes no further than the pause."""
    return [*turn(at, worker, token, number)[:2], Entry(at, worker, 1, Step.PAUSES, token)]


def lost(at: float, worker: int, token: int, number: int, *, resumed: float) -> list[Entry]:
    """A turn paused until its hold was lost, and its write refused."""
    return [
        *paused(at, worker, token, number),
        Entry(resumed, worker, 1, Step.REFUSED, token, number + 1),
        Entry(resumed, worker, 1, Step.LEAVES, token),
        Entry(resumed, worker, 1, Step.LOST, token),
    ]


KILLED = Fault("killed", worker=2, thread=1, pid=0, token=11, at=2.5, next_grant=4.0)
FROZEN = replace(KILLED, kind="frozen", woken=5.0)
CALM = [*turn(1.0, 1, 10, 0), *turn(2.0, 2, 11, 1), *turn(4.0, 3, 12, 2)]


def wrong(entries: list[Entry], *faults: Fault, number: int, writer: int) -> list[str]:
    """The faults that the verdict finds."""
    return judge(entries, faults, number, writer, now=9.0).wrong


def test_all_well() -> None:
    """Turns one after another, with growing tokens, and a counter that says how many they were, are all well."""
    assert wrong(CALM, number=3, writer=12) == []


def test_lost_increment() -> None:
    """A counter that says less than the journals prove is wrong."""
    assert wrong(CALM, number=2, writer=12) == ["3 increments were made, but the counter says 2"]


def test_overlap() -> None:
    """A thread that comes in while another is inside is seen, also when a third came and went in between."""
    entries = [*turn(1.0, 1, 10, 0, seconds=3), *turn(2.0, 2, 11, 1, seconds=0.1), *turn(3.0, 3, 12, 2)]
    assert wrong(entries, number=3, writer=12) == ["2 times a thread came in while another was inside"]


def test_token_that_does_not_grow() -> None:
    """A token that is the same as the one before is wrong."""
    entries = [*turn(1.0, 1, 10, 0), *turn(2.0, 2, 10, 1)]
    assert wrong(entries, number=2, writer=10) == ["1 times the fencing token did not grow from one holder to the next"]


def test_killed_before_its_write() -> None:
    """A killed worker's increment is not counted when the store never had its write."""
    entries = [*turn(1.0, 1, 10, 0), *paused(2.0, 2, 11, 1), *turn(4.0, 3, 13, 1)]
    assert wrong(entries, KILLED, number=2, writer=13) == []


def test_killed_after_its_write() -> None:
    """It is counted when the store had it, though its journal does not say so; but it was to be killed before."""
    entries = [*turn(1.0, 1, 10, 0), *paused(2.0, 2, 11, 1), *turn(4.0, 3, 12, 2)]
    assert wrong(entries, KILLED, number=3, writer=12) == [
        "worker 2 was killed, but its unfinished increment was counted"
    ]


def test_killed_outside() -> None:
    """A worker that was killed without holding the lock has shown nothing."""
    assert wrong(CALM, replace(KILLED, at=3.0), number=3, writer=12) == [
        "worker 2 was killed, but it did not hold the lock at that time"
    ]


def test_frozen_and_fenced() -> None:
    """A frozen worker may still be inside when others come in, if its write is refused and it is told of the loss."""
    entries = [*turn(1.0, 1, 10, 0), *lost(2.0, 2, 11, 1, resumed=5.0), *turn(4.0, 3, 12, 1, seconds=2)]
    assert wrong(entries, FROZEN, number=2, writer=12) == []


def test_frozen_and_not_fenced() -> None:
    """A frozen worker's late write that is taken, and a loss that it is not told of, are wrong."""
    late = [*paused(2.0, 2, 11, 1), Entry(5.0, 2, 1, Step.WRITES, 11, 2), Entry(5.0, 2, 1, Step.LEAVES, 11)]
    entries = [*turn(1.0, 1, 10, 0), *late, *turn(4.0, 3, 12, 1)]
    assert wrong(entries, FROZEN, number=2, writer=11) == [
        "3 increments were made, but the counter says 2",
        "worker 2 was frozen, but the store took its late write",
        "worker 2 was frozen, but it got no LockLostError",
    ]
