"""The demo's verdict: it must find every way in which a lock could have failed."""

from __future__ import annotations

from dataclasses import replace

import pytest
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


CROWDED = [*turn(1.0, 1, 10, 0, seconds=3), *turn(2.0, 2, 11, 1, seconds=0.1), *turn(3.0, 3, 12, 2)]
KILLED_INSIDE = [*turn(1.0, 1, 10, 0), *paused(2.0, 2, 11, 1)]
FENCED = [*turn(1.0, 1, 10, 0), *lost(2.0, 2, 11, 1, resumed=5.0), *turn(4.0, 3, 12, 1, seconds=2)]
LATE = [Entry(5.0, 2, 1, Step.WRITES, 11, 2), Entry(5.0, 2, 1, Step.LEAVES, 11)]
# What the journals say, what was done to a worker, the number and the writer in the store, and what the verdict finds.
CASES: dict[str, tuple[list[Entry], list[Fault], int, int, list[str]]] = {
    "all well": (CALM, [], 3, 12, []),
    "a lost increment": (CALM, [], 2, 12, ["3 increments were made, but the counter says 2"]),
    # Also when a third came and went in between.
    "an overlap": (CROWDED, [], 3, 12, ["2 times a thread came in while another was inside"]),
    "a token that does not grow": (
        *([*turn(1.0, 1, 10, 0), *turn(2.0, 2, 10, 1)], [], 2, 10),
        ["1 times the fencing token did not grow from one holder to the next"],
    ),
    # The store never had its write.
    "killed before its write": ([*KILLED_INSIDE, *turn(4.0, 3, 13, 1)], [KILLED], 2, 13, []),
    # The store had it, though its journal does not say so; but it was to be killed before.
    "killed after its write": (
        *([*KILLED_INSIDE, *turn(4.0, 3, 12, 2)], [KILLED], 3, 12),
        ["worker 2 was killed, but its unfinished increment was counted"],
    ),
    "killed outside": (
        *(CALM, [replace(KILLED, at=3.0)], 3, 12),
        ["worker 2 was killed, but it did not hold the lock at that time"],
    ),
    # It may still be inside when others come in, if its write is refused and it learns of the loss.
    "frozen and fenced": (FENCED, [FROZEN], 2, 12, []),
    "frozen and not fenced": (
        *([*KILLED_INSIDE, *LATE, *turn(4.0, 3, 12, 1)], [FROZEN], 2, 11),
        [
            "3 increments were made, but the counter says 2",
            "worker 2 was frozen, but the store took its late write",
            "worker 2 was frozen, but it got no LockLostError",
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_verdict(case: str) -> None:
    """The verdict finds what is wrong, and nothing else."""
    entries, faults, number, writer, wrong = CASES[case]
    assert judge(entries, faults, number, writer, now=9.0).wrong == wrong
