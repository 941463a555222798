"""The checker of data: the models judge what the calls of a run have told, but for what a fault excuses."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.models.history import Model
from tests.models.values import AtomicLong
from tests.soak.checks.data import check_data
from tests.soak.checks.history import SLOW, History
from tests.soak.events import KILLED, Event, Fault, What
from tests.soak.workload import words

PATH = "/data"
NOTHING = object()


class Thread:
    """One thread of one process, whose events are written by hand."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.events: list[Event] = []

    def says(self, at: float, what: What, note: Any = None) -> Thread:
        """Write down one event."""
        self.events.append(Event(at, self.process, 1, what, PATH, "role", note=json.dumps(note)))
        return self

    def calls(self, at: float, *call: Any, told: Any = NOTHING, took: float = 0.1) -> Thread:
        """Make a call, which returns at a time; or never, or with an outcome that is unknown."""
        self.says(at - took, What.ASKS, call)
        return self if told is NOTHING else self.says(at, What.UNKNOWN if told is None else What.ANSWERED, told)


def broken(model: Model, *threads: Thread, faults: Iterable[Fault] = ()) -> bool:
    """Return whether the checker finds that no order explains the calls."""
    events = [event for thread in threads for event in thread.events]
    return bool([*check_data(History(events, [*faults], {}, data={PATH: model}))])


def test_a_number() -> None:
    """Calls that overlap have an order; a change that is made twice, lost, or on the same number, has none."""
    one = Thread("1.1").calls(1, "add", 3, told=3).calls(2, "get", told=3).calls(5, "add", 2, told=9, took=2)
    assert not broken(AtomicLong(), one, Thread("2.1").calls(4, "add", 4, told=7, took=1.5).calls(6, "get", told=9))
    for told in (6, 0):
        assert broken(AtomicLong(), Thread("1.1").calls(1, "add", 3, told=3), Thread("2.1").calls(9, "get", told=told))
    two = [Thread(f"{n}.1").calls(1, "add", 3, told=3, took=0.5) for n in (1, 2)]
    assert broken(AtomicLong(), *two)


def test_a_change_that_may_have_been_made() -> None:
    """By one that was killed, or whose outcome is unknown: in its time, and no more than once."""
    after = Thread("2.1").calls(1, "add", 3, told=3).calls(4, "add", 4, told=9)
    late = Thread("2.1").calls(1, "add", 3, told=3).calls(4 + SLOW, "get", told=3).calls(5 + SLOW, "add", 4, told=9)
    for told, faults in ((NOTHING, [Fault(KILLED, 3, 3, "1.1")]), (None, [])):
        assert not broken(AtomicLong(), Thread("1.1").calls(2, "add", 2, told=told), after, faults=faults)
        assert broken(AtomicLong(), Thread("1.1").calls(2, "add", 1, told=told), after, faults=faults)
        assert broken(AtomicLong(), Thread("1.1").calls(2, "add", 2, told=told), late, faults=faults)


def test_an_old_answer() -> None:
    """A read may lie before what another had seen by then if a leader without followers may have given it."""
    one, other = Thread("1.1").calls(1, "add", 3, told=3), Thread("2.1").calls(2, "get", told=0)
    assert broken(AtomicLong(), one, other, faults=[Fault("follower frozen", 0.5, 1)])
    assert not broken(AtomicLong(), one, other, faults=[Fault("leader isolated", 0.5, 1)])
    assert broken(AtomicLong(), one, Thread("2.1").calls(3, "add", 2, told=2), faults=[Fault("leader isolated", 0, 9)])


def test_a_value() -> None:
    """Two that have replaced one value, and a value that nobody has set, have no order; one of two was refused."""
    one, other = (Thread(f"{n}.1").calls(1, "replace", "k", "", f"{n}", told=True) for n in (1, 2))
    refused = Thread("2.1").calls(1, "replace", "k", "", "2", told=False)
    assert broken(words("k"), one, other)
    read = Thread("3.1").calls(2, "setdefault", "k", "", told="1")
    assert not broken(words("k"), one, refused, read)
    assert broken(words("k"), refused, read)
