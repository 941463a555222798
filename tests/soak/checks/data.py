"""The checkers of all but locks and queues: values and maps, double barriers, groups.

A value here only goes on: each change adds to a number, or replaces a value by one that says how many came before it
and whose change it is. So all changes stand in a line, and each call that returned tells its place in it. Two that took
one place, a place that no call can have taken, or an answer that lies before what another call had seen by then, is an
error of the value. There are two excuses. A change whose process was killed, or whose outcome is unknown, may have been
made, soon. And a leader that has lost its followers answers reads with an old state, until it resigns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from tests.soak.checks.history import GRACE, SLOW, Call, History, Violation
from tests.soak.events import DELETED, Event, What

OUTCOMES = (What.ANSWERED, What.REFUSED, What.UNKNOWN, What.LOST, What.FAILED)
NODE_LASTS = 60.0  # seconds for which the nodes of a process that was killed may stay: each new leader extends sessions
GONE = "gone"  # the note of a leave: the member's node is gone


@dataclass
class Record:
    """The history's facts about one path."""

    history: History
    path: str

    @cached_property
    def calls(self) -> list[Call]:
        """Every call, in the order in which they began."""
        found: list[Call] = []
        last: dict[tuple[str, int], int] = {}
        for event in self.history.events:
            who = event.process, event.thread
            if event.path != self.path:
                continue
            if event.what is What.ASKS:
                last[who] = len(found)
                found.append(Call(event, None))
            elif event.what in OUTCOMES and who in last:
                found[last[who]] = Call(found[last[who]].asked, event)
        return sorted(found, key=lambda call: call.asked.at)

    def until(self, call: Call) -> float:
        """Return until when a call that told no outcome may still have an effect."""
        if call.outcome is not None:
            return call.outcome.at + SLOW
        return self.history.kills.get(call.asked.process, math.inf) + SLOW

    def stale(self, call: Call) -> bool:
        """Whether a leader without followers may have answered."""
        ended = math.inf if call.outcome is None else call.outcome.at
        return any(
            fault.kind.startswith("leader") and fault.at < ended and call.asked.at < fault.until + self.history.timeout
            for fault in self.history.faults
        )

    def found(self, rule: str, words: str, *events: Event | None) -> Violation:
        """Return a violation, told of with the threads of some events, at the time of the last."""
        known = [event for event in events if event is not None]
        threads = tuple((event.process, event.thread) for event in known)
        return Violation(rule, known[-1].at, f"{self.path}: {words}", self.path, threads, known[-1].item)


class Promise(ABC):
    """The promises of one path."""

    @abstractmethod
    def check(self, record: Record) -> Iterator[Violation]:
        """Yield what should never have happened there."""


def check_data(history: History) -> list[Violation]:
    """Return all that should never have happened to data, in the order of time."""
    found = [each for path, promise in history.data.items() for each in promise.check(Record(history, path))]
    return sorted(found, key=lambda each: each.at)


# -- values ------------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """One call of a line.

    Attributes:
        call: the call.
        size: how much a change adds; 0 of a read.
        value: the value after it; None if that was not told.
        cached: it is a read of a local copy.
    """

    call: Call
    size: int
    value: int | None
    cached: bool

    @classmethod
    def of(cls, call: Call) -> Step:
        """Make one of what was written down."""
        kind, outcome = call.asked.note, call.outcome
        value = int(outcome.note) if outcome is not None and outcome.what is What.ANSWERED else None
        return cls(call, int(kind) if kind.isdigit() else 0, value, kind == "cached")

    @property
    def start(self) -> int:
        """The value that a change was made on, or that a read returned."""
        assert self.value is not None
        return self.value - self.size

    @property
    def party(self) -> tuple[str, int]:
        """The process, and which of its clients."""
        return self.call.asked.process, self.call.asked.client

    @property
    def unknown(self) -> bool:
        """Whether it is a change that may have been made or not."""
        outcome = self.call.outcome
        return bool(self.size) and (outcome is None or outcome.what in (What.UNKNOWN, What.FAILED))

    def __str__(self) -> str:
        asked, what = self.call.asked, f"change by {self.size}" if self.size else "read"
        return f"{asked.process}/{asked.thread}'s {what}, asked at {asked.at:.3f}"


@dataclass(frozen=True)
class Line(Promise):
    """Values that only go on, one for each role of the path.

    Attributes:
        named: each value has the name of the change that has made it.
    """

    named: bool = True

    def check(self, record: Record) -> Iterator[Violation]:
        """Yield what breaks a rule."""
        lines = defaultdict(list)
        for call in record.calls:
            lines[call.asked.role].append(Step.of(call))
        for steps in lines.values():
            told = sorted((step for step in steps if step.value is not None), key=lambda step: (step.value, step.start))
            yield from _forks(record, [step for step in told if step.size])
            yield from _gaps(record, told, [step for step in steps if step.unknown])
            yield from _order(record, told)
            if self.named:
                yield from _names(record, steps)


def _forks(record: Record, changes: list[Step]) -> Iterator[Violation]:
    """No two changes were made on the same value."""
    for one, other in pairwise(changes):
        if other.start < (one.value or 0):
            words = f"{one} and {other} were both made on {other.start}: they ended at {one.value} and {other.value}"
            yield record.found("forks", words, one.call.outcome, other.call.outcome)


def _gaps(record: Record, told: list[Step], unknown: list[Step]) -> Iterator[Violation]:
    """The gap between two known changes is filled by changes that may have been made just then."""
    last, value = None, 0
    for step in [*(step for step in told if step.size), *told[-1:]]:
        if (gap := step.start - value) > 0:
            outcome = step.call.outcome
            assert outcome is not None
            since = -math.inf if last is None else last.call.asked.at
            may = [each for each in unknown if each.call.asked.at < outcome.at and record.until(each.call) > since]
            if gap > sum(each.size for each in may):
                words = f"{gap} more than was added, between {value} and {step.start}, as seen by {step}"
                yield record.found("gaps", words, outcome)
        if (step.value or 0) >= value:
            last, value = step, step.value or 0


def _order(record: Record, told: list[Step]) -> Iterator[Violation]:
    """No answer lies before one that was there when the call began; of a local copy, before one of its own client."""
    moments: list[tuple[float, bool, Step]] = []
    for step in told:
        assert step.call.outcome is not None
        moments += (step.call.asked.at, True, step), (step.call.outcome.at, False, step)
    moments.sort(key=lambda moment: moment[:2])
    highest: dict[object, Step] = {}
    before: dict[int, Step | None] = {}
    for _, asks, step in moments:
        if asks:
            before[id(step)] = highest.get(step.party if step.cached else "all")
            continue
        known, may_be_old = before.pop(id(step)), not (step.size or step.cached)
        back = known is not None and step.start < (known.value or 0)
        if known is not None and back and not (may_be_old and record.stale(step.call)):
            words = f"{step} was answered {step.start}, after {known} had been answered {known.value}"
            yield record.found("order", words, known.call.outcome, step.call.outcome)
        for scope in (step.party, "all"):
            if scope not in highest or (highest[scope].value or 0) < (step.value or 0):
                highest[scope] = step


def _names(record: Record, steps: list[Step]) -> Iterator[Violation]:
    """Each value is the one that its own change has made."""
    changes = {step.call.asked.item: step for step in steps if step.size}
    makers: dict[int, str] = {step.value: name for name, step in changes.items() if step.value is not None}
    for step in steps:
        outcome = step.call.outcome
        if step.size or outcome is None or step.value is None or step.value <= 0:
            continue
        name, change = outcome.item, changes.get(outcome.item)
        if change is None or change.call.asked.at > outcome.at:
            words = f"{step} was answered {name}, which comes from nowhere"
        elif change.call.outcome is not None and change.call.outcome.what is What.REFUSED:
            words = f"{step} was answered {name}, whose change was refused"
        elif makers.setdefault(step.value, name) != name:
            words = f"{step} was answered {name} for {step.value}, which {makers[step.value]} has made"
        else:
            continue
        yield record.found("names", words, outcome)


# -- double barriers ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Visit:
    """The visit of one party to a double barrier.

    Attributes:
        enter: how it entered.
        leave: how it left.
        until: when its node was surely gone.
    """

    enter: Call
    leave: Call | None = None
    until: float = math.inf

    @property
    def entered(self) -> float | None:
        """When it was told that it is inside."""
        outcome = self.enter.outcome
        return outcome.at if outcome is not None and outcome.what is What.ANSWERED else None

    @property
    def left(self) -> Event | None:
        """How it was told that all have left."""
        outcome = None if self.leave is None else self.leave.outcome
        return outcome if outcome is not None and outcome.what is What.ANSWERED else None

    def __str__(self) -> str:
        return f"{self.enter.asked.process}/{self.enter.asked.thread}"


@dataclass(frozen=True)
class Gate(Promise):
    """A double barrier.

    Attributes:
        parties: how many let each other in.
    """

    parties: int

    def check(self, record: Record) -> Iterator[Violation]:
        """Yield each party that entered without enough others, or was told that all had left, and one had not."""
        visits = self._visits(record)
        starts = [visit.enter.asked.at for visit in visits]
        earlier: list[Visit] = []
        for number, (start, visit) in enumerate(zip(starts, visits, strict=True), 1):
            there = [each for each in earlier if start < each.until]
            # A party that comes late is let in by one that is inside, and that others had let in.
            since = min((each.enter.asked.at for each in there), default=start)
            earlier = [*(each for each in earlier if since < each.until), visit]
            if (entered := visit.entered) is None:
                continue
            present = [*earlier, *visits[number : bisect_left(starts, entered)]]
            if len(present) < self.parties:
                words = f"{visit} has entered with {len(present) - 1} others: " + ", ".join(map(str, present))
                yield record.found("enters", words, visit.enter.outcome)
            if (left := visit.left) is None or visit.leave is None or record.stale(visit.leave):
                continue
            for other in [*there, *visits[number : bisect_left(starts, visit.leave.asked.at)]]:
                # The node of a party that was told so, too, was there until it asked to leave.
                if other.entered is None or other.left is None or other.leave is None:
                    continue
                if other.entered < visit.leave.asked.at and left.at < other.leave.asked.at:
                    words = f"{visit} has left, and was told that all had, while {other} was inside"
                    yield record.found("leaves", words, other.leave.asked, left)

    def _visits(self, record: Record) -> list[Visit]:
        visits: list[Visit] = []
        last: dict[tuple[str, int], Visit] = {}
        for call in record.calls:
            who = call.asked.process, call.asked.thread
            if call.asked.role == "enter":
                last[who] = Visit(call)
                visits.append(last[who])
            else:
                last[who].leave = call
        for visit in visits:
            outcome = (visit.leave or visit.enter).outcome
            if visit.leave is None and visit.entered is not None:
                outcome = None
            if outcome is not None:
                visit.until = outcome.at + NODE_LASTS * self._unanswered(record, visit.leave or visit.enter)
            else:
                visit.until = record.history.kills.get(visit.enter.asked.process, math.inf) + NODE_LASTS
        return visits

    def _unanswered(self, record: Record, call: Call) -> bool:
        """Whether a party had no reply when it gave up waiting for one: its node may stay, and be counted."""
        asked, outcome = call
        if outcome is None or outcome.what is not What.REFUSED or asked.limit is None:
            return False
        return outcome.at - asked.at > asked.limit - record.history.timeout / 3 - 0.1


# -- groups ------------------------------------------------------------------------------------------------------------


class Stay(NamedTuple):
    """A membership: from when until when it surely is one.

    A session is over some time before its client has the next. But if its own client looks, both go by one session.

    Attributes:
        party: the process, and which of its clients.
        start: when it had joined.
        end: until when others surely see it.
        own_end: until when its own client surely does.
    """

    party: tuple[str, int]
    start: float
    end: float
    own_end: float

    @classmethod
    def of(cls, record: Record, join: Call, leave: Call | None) -> Stay:
        """Return that of a member."""
        asked, outcome, history = join.asked, join.outcome, record.history
        party = asked.process, asked.client
        if outcome is None or outcome.what is not What.ANSWERED:
            return cls(party, math.inf, -math.inf, -math.inf)
        node = f"{record.path}/{asked.item}"
        ends = [] if leave is None else [leave.asked.at]
        ends += [fault.at for fault in history.faults if fault.kind == DELETED and fault.note == node]
        ends += [theft.at for theft in history.thefts.get(party, ()) if theft.until > asked.at]
        killed = history.kills.get(asked.process, math.inf)
        session = min((at for at in history.sessions.get(party, ()) if at > asked.at), default=math.inf)
        return cls(
            party, outcome.at, min([*ends, killed - SLOW, session - SLOW]), min([*ends, killed, session - GRACE])
        )


@dataclass(frozen=True)
class Crowd(Promise):
    """A group, in which each membership has an id of its own."""

    def check(self, record: Record) -> Iterator[Violation]:
        """Yield each look that misses a member, or shows one that is gone, or that never was."""
        joins = {call.asked.item: call for call in record.calls if call.asked.role == "join"}
        leaves = {call.asked.item: call for call in record.calls if call.asked.role == "leave"}
        there: dict[str, Stay] = {}  # those that have asked to join, and not to leave
        for look in record.calls:
            outcome = look.outcome
            if look.asked.role == "join":
                there[look.asked.item] = Stay.of(record, look, leaves.get(look.asked.item))
            elif look.asked.role == "leave":
                there.pop(look.asked.item, None)
            if look.asked.role != "members" or outcome is None or outcome.what is not What.ANSWERED:
                continue
            seen = set(outcome.note.split())
            for name in seen:
                left = leaves[name].outcome if name in leaves else None
                if name not in joins or joins[name].asked.at > outcome.at:
                    yield record.found("members", f"{name} was seen and comes from nowhere", outcome)
                elif left is not None and left.note == GONE and left.at < look.asked.at and not record.stale(look):
                    yield record.found("members", f"{name} was seen after it had left", left, outcome)
            for name in there.keys() - seen:
                stay = there[name]
                end = stay.own_end if stay.party == (look.asked.process, look.asked.client) else stay.end
                if stay.start < look.asked.at and outcome.at < end and not record.stale(look):
                    words = f"{name}, a member since {stay.start:.3f}, was not seen at {outcome.at:.3f}"
                    yield record.found("members", words, joins[name].outcome, outcome)
