"""The proof that each machine can fail: a defect of the library, put there for the test, is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from tests.properties import test_locks as locks
from tests.properties import test_others as others
from tests.properties.machine import Machine, explore
from zkconcurrent import Dict
from zkconcurrent._engine.session import Session
from zkconcurrent._protocol import operations
from zkconcurrent._protocol.operations import Recipe, SetNode
from zkconcurrent._protocol.rules import Rule, blocker
from zkconcurrent._protocol.ticket import State, Ticket
from zkconcurrent._recipes import event, latch, lock, semaphore
from zkconcurrent._recipes.barrier_state import ArrivalIndexes
from zkconcurrent._recipes.map import mirror
from zkconcurrent._recipes.map import write as map_write
from zkconcurrent._recipes.queue import claim, order, state
from zkconcurrent._recipes.semaphore import SemaphoreSnapshot
from zkconcurrent._threads import barrier as barrier_class
from zkconcurrent._threads import event as event_class
from zkconcurrent._threads.base.candidacy import Candidacy
from zkconcurrent._threads.base.reentrant_core import ReentrantCore

discard, seat = Session.discard, ArrivalIndexes.seat
take, queue_and_lead = mirror.Mirror.take, Candidacy._queue_and_lead


class Defect(NamedTuple):
    """A replacement of a function of the library, and the machines that must find it."""

    name: str
    owner: Any
    attribute: str
    replacement: Any
    machines: Sequence[type[Machine]]


def nothing(*_: Any) -> Recipe[Any]:
    """Do nothing, as a recipe."""
    return
    yield


def is_room(_at: Any, _ahead: Any, free: int, permits: int) -> Recipe[bool]:
    """Look at the permits only."""
    yield from nothing()
    return free >= permits


def keeps(kept: State) -> Any:
    """Return a `discard` that leaves the nodes of tickets in that state."""

    def discard_others(session: Session, ticket: Ticket) -> bool:
        return ticket.state is not kept and discard(session, ticket)

    return discard_others


def one_each(_path: str, count: int, _node: Any, names: Sequence[str]) -> int:
    """Each child counts one."""
    return max(0, count - len(names))


def behind_writers(me: str, queue: Sequence[str], rule: Rule) -> str | None:
    """Readers wait for no writer."""
    return blocker(me, queue, rule) if rule.exclusive else None


def stand_once(candidacy: Candidacy, leader_lock: Any) -> None:
    """End the candidacy with its first term."""
    queue_and_lead(candidacy, leader_lock)
    candidacy.withdrawn = True


def take_nothing_away(mirror_: Any, key: str, node: Any, zxid: int) -> None:
    """Keep an entry that another client has removed, or whose session has ended."""
    if node is not None:
        take(mirror_, key, node, zxid)


DEFECTS = [
    Defect("a lock is granted always", lock, "blocker", lambda *_: None, [locks.LockMachine, others.ElectionMachine]),
    Defect("readers pass writers", lock, "blocker", behind_writers, [locks.ReadWriteLockMachine]),
    Defect("a release is lost", Session, "discard", keeps(State.HELD), [locks.RLockMachine, locks.SemaphoreMachine]),
    Defect(
        "a waiter's node stays", Session, "discard", keeps(State.QUEUED), [locks.LockMachine, locks.TaskRLockMachine]
    ),
    Defect("one level", ReentrantCore, "reenter_or_check", lambda core: core.mine() is not None, [locks.RLockMachine]),
    Defect(
        *("a permit too many", SemaphoreSnapshot, "free"),
        property(lambda sight: sight.size - max(0, len(sight.leases) - 1)),
        [locks.SemaphoreMachine, locks.TaskSemaphoreMachine],
    ),
    Defect("tries overtake", semaphore, "is_room", is_room, [locks.BoundedSemaphoreMachine]),
    Defect("each count is one", latch, "remaining", one_each, [others.LatchMachine]),
    Defect("a set is missed", event.Flag, "turned", lambda flag, on: event.Flag(flag.epoch, on), [others.EventMachine]),
    Defect("a wait only looks", event_class, "wait", event.look, [others.EventMachine]),
    Defect(
        *("two have one index", ArrivalIndexes, "seat"),
        lambda indexes, number: min(1, seat(indexes, number) or 0),
        [others.BarrierMachine],
    ),
    Defect("a reset breaks nothing", barrier_class, "reset", nothing, [others.BarrierMachine]),
    Defect("a candidate stands once", Candidacy, "_queue_and_lead", stand_once, [others.ElectionMachine]),
    Defect(
        *("the last is first", state, "items"),
        lambda path, names, by: order.items(path, names, by)[::-1],
        [others.QueueMachine],
    ),
    Defect("a claim is never given back", claim, "give_back", nothing, [others.QueueMachine]),
    Defect(
        *("a change names no version", operations, "SetNode"),
        lambda path, data, _: SetNode(path, data, -1),
        [others.AtomicLongMachine, others.SharedValueMachine],
    ),
    Defect("a default replaces", map_write, "put_if_absent", map_write.put, [others.DictMachine]),
    Defect("any value matches", Dict, "_equals", lambda *_: lambda _data: True, [others.DictMachine]),
    Defect("copies keep what is gone", mirror.Mirror, "take", take_nothing_away, [others.EphemeralDictMachine]),
]
FOUND_BY = [
    pytest.param(defect, machine, id=f"{defect.name}-{machine.__name__}")
    for defect in DEFECTS
    for machine in defect.machines
]


@pytest.mark.parametrize(("defect", "machine"), FOUND_BY)
def test_a_defect_is_found(defect: Defect, machine: type[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine says that the library and the model differ, and each time in the same way."""
    monkeypatch.setattr(defect.owner, defect.attribute, defect.replacement)
    with pytest.raises(AssertionError) as found:
        explore(machine, examples=300)
    # No call has failed for want of a name: the seeded code runs.
    assert not any(f"class '{each}Error'" in str(found.value) for each in ("Attribute", "Name", "Type"))


def test_each_machine_finds_one() -> None:
    """No machine of threads is without a defect that it finds."""
    assert {each for defect in DEFECTS for each in defect.machines} >= {*locks.LOCKS, *others.OTHERS}
