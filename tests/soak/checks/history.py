"""The checker: the proofs in a history of events and faults, and the violations in it.

All of it is functions of the written history, so each rule can be shown its good and its bad history.

A hold is a stretch of time in which a thread believed that it held. It ends when the thread leaves, when the process
learns that it is lost, or when the process is killed, whichever comes first. Two that must not be there at once and
are is the worst that can happen; a hold that is cut off is in the clear only if its process was told before another
was granted. There are two excuses, and both end soon: a process in which nothing ran cannot be told (its fencing token
stops its later actions, and its next `release` must say that the hold was lost); and a session that somebody closes is
gone for the server at once, for its owner when it hears of that.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tests.models.lock import Lock, Place, RLock
from tests.soak.events import EXPIRED, KILLED, STOPPED_LONG, STOPPED_SHORT, Event, Fault, What

if TYPE_CHECKING:
    from tests.models.history import Model
    from tests.soak.checks.items import Stock

SLOW = 20.0  # seconds after the last fault was healed in which each thread must have acquired
GRACE = 2.0  # seconds in which a process that runs again, or a client that was robbed, must have done what is due
MARGIN = 2.5  # seconds by which a call may come back late, on a machine that has much to do

DONE = (What.LEFT, What.SENT, What.ACKNOWLEDGED, What.ANSWERED)

Thread = tuple[str, int]
Outcome = tuple[float, float, What]  # of one release: before, after, and how it ended


@dataclass(frozen=True)
class Violation:
    """Something that should never have happened.

    Attributes:
        rule: the broken rule.
        at: when.
        words: the event, for a reader.
        path: of the lock.
        threads: the threads whose events tell more.
        item: the item of a queue whose story tells more.
    """

    rule: str
    at: float
    words: str
    path: str = ""
    threads: tuple[Thread, ...] = ()
    item: str = ""

    def __str__(self) -> str:
        return f"{self.rule}: {self.words}"


@dataclass(eq=False)
class Hold:
    """One hold, from its grant to its end.

    Attributes:
        who: the process and the thread.
        start: when its acquire had returned.
        depth: how many levels are not left yet.
        leaves: when its last level began to leave.
        told: when `lost` was set.
        killed: when its process was killed.
        releases: of each level, when and how it was left.
    """

    who: Thread
    client: int
    path: str
    role: str
    number: int
    token: int
    start: float
    depth: int = 1
    leaves: float | None = None
    told: float | None = None
    killed: float | None = None
    releases: list[Outcome] = field(default_factory=list)

    @property
    def party(self) -> tuple[str, int]:
        """The process, and which of its clients."""
        return self.who[0], self.client

    @property
    def place(self) -> Place:
        """The hold, as the model of its path sees it."""
        return Place(str(self.who), self.who[0], self.role if self.role in ("read", "write") else 1)

    @property
    def end(self) -> float:
        """When the thread no longer believed that it holds."""
        return min(at for at in (self.leaves, self.told, self.killed, math.inf) if at is not None)

    def __str__(self) -> str:
        process, thread = self.who
        return f"{process}/{thread} ({self.role}, token {self.token}, since {self.start:.3f})"


class Call(NamedTuple):
    """One acquire, or call of a queue: its arguments, and its outcome (None: nothing)."""

    asked: Event
    outcome: Event | None


class Pause(NamedTuple):
    """A stretch of time in which nothing of a process ran."""

    at: float
    until: float


@dataclass
class History:
    """The events that were written down, and the conclusions from them.

    Attributes:
        events: of all processes; those of one process in order.
        faults: the faults.
        models: the promises of each lock's path.
        timeout: of the sessions, in seconds.
        healed: when the last fault was healed; None if the run is not to be asked whether everybody went on.
        leftovers: the ephemeral nodes that were there when nobody wanted anything any more.
        queues: the promises of each queue's path.
        data: the models of the other paths.
    """

    events: Sequence[Event]
    faults: Sequence[Fault]
    models: Mapping[str, Lock]
    timeout: float = 4.0
    healed: float | None = None
    leftovers: Sequence[str] = ()
    queues: Mapping[str, Stock] = field(default_factory=dict)
    data: Mapping[str, Model] = field(default_factory=dict)

    @cached_property
    def threads(self) -> dict[Thread, list[Event]]:
        """The events of each thread."""
        threads = defaultdict(list)
        for event in self.events:
            if event.thread and event.what not in (What.TOLD, What.CALLED):
                threads[event.process, event.thread].append(event)
        return dict(threads)

    @cached_property
    def kills(self) -> dict[str, float]:
        """When each killed process was."""
        return {fault.process: fault.at for fault in self.faults if fault.kind == KILLED}

    @cached_property
    def pauses(self) -> dict[str, list[Pause]]:
        """When nothing of a process ran: it was stopped, or got no time from the machine."""
        pauses = defaultdict(list)
        for fault in self.faults:
            if fault.kind in (STOPPED_LONG, STOPPED_SHORT):
                pauses[fault.process].append(Pause(fault.at, fault.until))
        for event in self.events:
            if event.what is What.STARVED:
                pauses[event.process].append(Pause(event.at - (event.limit or 0), event.at))
        return dict(pauses)

    @cached_property
    def sessions(self) -> dict[tuple[str, int], list[float]]:
        """When each client got a session."""
        found = defaultdict(list)
        for event in self.events:
            if event.what is What.SESSION:
                found[event.process, event.client].append(event.at)
        return dict(found)

    @cached_property
    def thefts(self) -> dict[tuple[str, int], list[Pause]]:
        """When somebody closed a client's session, and until when its owner must have heard of it."""
        thefts = defaultdict(list)
        for fault in self.faults:
            if fault.kind == EXPIRED:
                # The last message that the owner has heard of the server lets it believe no longer than this.
                thefts[fault.process, fault.client].append(Pause(fault.at, fault.until + self.timeout))
        return dict(thefts)

    @cached_property
    def calls(self) -> list[Call]:
        """Every acquire, and every call of a queue."""
        calls = []
        for events in self.threads.values():
            for event, after in pairwise([*events, None]):
                if event is not None and event.what is What.ASKS:
                    calls.append(Call(event, after))
        return calls

    @cached_property
    def holds(self) -> list[Hold]:
        """Every hold, in the order in which they began."""
        told = {
            (event.process, event.thread, event.hold, event.role): event.at
            for event in self.events
            if event.what is What.TOLD
        }
        found = []
        for who, events in self.threads.items():
            for hold in self._holds(who, events):
                hold.told = told.get((*who, hold.number, hold.role))
                hold.killed = self.kills.get(who[0])
                if hold.killed is None or hold.start < hold.killed:
                    found.append(hold)
        return sorted(found, key=lambda hold: hold.start)

    def _holds(self, who: Thread, events: Iterable[Event]) -> Iterator[Hold]:
        standing: dict[tuple[str, str], list[Hold]] = defaultdict(list)
        leaving: tuple[Hold, float] | None = None
        for event in events:
            mine = standing[event.path, event.role]
            if event.what is What.GRANTED:
                if mine and isinstance(self.models[event.path], RLock):
                    mine[-1].depth += 1
                else:
                    mine.append(Hold(who, event.client, event.path, event.role, event.hold, event.token, event.at))
                    yield mine[-1]
            elif event.what is What.LEAVES and mine:
                hold = mine[-1]
                hold.depth -= 1
                leaving = hold, event.at
                if not hold.depth:
                    hold.leaves = event.at
                    mine.pop()
            elif event.what in (What.LEFT, What.SENT, What.LOST, What.FAILED) and leaving is not None:
                hold, at = leaving
                hold.releases.append((at, event.at, event.what))
                leaving = None

    def paused(self, process: str, start: float, end: float) -> float:
        """Return for how many seconds of a stretch nothing of the process ran."""
        return sum(max(0.0, min(end, p.until) - max(start, p.at)) for p in self.pauses.get(process, ()))

    def asleep(self, hold: Hold, at: float) -> bool:
        """Whether the process could not be told by then: it was stopped, and heard of it soon after."""
        return _covered(self.pauses.get(hold.who[0], ()), hold, at)

    def robbed(self, hold: Hold, at: float) -> bool:
        """Whether the server was made to give the hold away, and its owner heard of it soon after."""
        return _covered(self.thefts.get((hold.who[0], hold.client), ()), hold, at)

    def around(self, violation: Violation, seconds: float = 1.0, most: int = 40) -> list[str]:
        """Return what happened around a violation: the events of its threads and its path, and the faults."""
        processes = {process for process, _ in violation.threads}
        lines: list[tuple[float, str]] = []
        for event in self.events:
            mine = (event.process, event.thread) in violation.threads or (event.process in processes and not event.path)
            near = event.what in (What.GRANTED, What.LEAVES, What.TOLD) and event.path == violation.path
            if (abs(event.at - violation.at) < seconds and (mine or near)) or (
                event.item and event.item == violation.item
            ):
                lines.append((event.at, str(event)))
        lines.sort(key=lambda line: abs(line[0] - violation.at))
        lines = lines[:most]
        for fault in self.faults:
            if fault.at - seconds < violation.at < fault.until + self.timeout:
                lines.append((fault.at, f"{fault}"))
        return [words for _, words in sorted(lines)]


def _covered(pauses: Iterable[Pause], hold: Hold, at: float) -> bool:
    return any(pause.at <= at and hold.end <= pause.until + GRACE for pause in pauses if at <= pause.until + GRACE)


def check(history: History) -> list[Violation]:
    """Return all that should never have happened, in the order of time."""
    rules = (exclusion, tokens, releases, callbacks, punctuality, progress, leftovers, failures)
    return sorted((violation for rule in rules for violation in rule(history)), key=lambda found: found.at)


def exclusion(history: History) -> Iterator[Violation]:
    """No contender is let in that excludes a holder, unless the holder was told that its hold is lost."""
    for path, holds in _by_path(history).items():
        model = history.models[path]
        inside: list[Hold] = []
        excused: set[Hold] = set()
        for hold in holds:
            inside = [each for each in inside if each.end > hold.start]
            if hold.end <= hold.start:
                continue  # it was lost before its thread knew that it had it
            present = [*inside, hold]
            inside.append(hold)
            if _together(model, present):
                continue
            awake = []
            for each in present:
                if history.asleep(each, hold.start):
                    if each not in excused:
                        yield from _released_unaware(each, hold)
                    excused.add(each)
                elif not history.robbed(each, hold.start):
                    awake.append(each)
            if not _together(model, awake):
                others = [each for each in awake if each is not hold]
                words = f"{path} was granted to {hold} while " + ", ".join(f"{each} was inside" for each in others)
                words += "".join(_until(each) for each in others)
                yield Violation("exclusion", hold.start, words, path, tuple(each.who for each in awake))
                inside = [each for each in inside if each not in others]  # they were told of, once


def _together(model: Lock, holds: Iterable[Hold]) -> bool:
    """Whether these holds may be there at once."""
    return model.together([hold.place for hold in holds])


def _until(hold: Hold) -> str:
    if hold.told is not None and hold.told == hold.end:
        return f"; {hold.who[0]}/{hold.who[1]} was told of its loss only at {hold.told:.3f}"
    return f"; {hold.who[0]}/{hold.who[1]} was inside until {hold.end:.3f}"


def _released_unaware(asleep: Hold, other: Hold) -> Iterator[Violation]:
    """A stopped process must learn of the loss by its next release at the latest."""
    if other.token <= asleep.token:
        return  # it is the other that comes late
    for leaves, _, outcome in asleep.releases:
        if leaves > other.start and outcome in (What.LEFT, What.SENT):
            words = f"{asleep} was given away to {other}, and its release said nothing of that"
            yield Violation("told by release", leaves, words, asleep.path, (asleep.who, other.who))


def tokens(history: History) -> Iterator[Violation]:
    """Fencing tokens grow from holder to holder."""
    for path, holds in _by_path(history).items():
        model = history.models[path]
        highest: dict[str, Hold] = {}
        for hold in holds:
            if not hold.token:
                continue  # lost before it could be asked for
            late = _excused(history, hold, hold.start)
            for before in highest.values():
                if before.token >= hold.token and model.orders(before.place, hold.place) and not late:
                    words = f"of {path}, {hold} came after {before}"
                    yield Violation("tokens", hold.start, words, path, (before.who, hold.who))
            if hold.role not in highest or highest[hold.role].token <= hold.token:
                highest[hold.role] = hold


def releases(history: History) -> Iterator[Violation]:
    """`release` raises LockLostError if the hold was lost, and only then; so does acquiring again."""
    losses: dict[tuple[Thread, str], list[float]] = defaultdict(list)
    for hold in history.holds:
        if hold.told is not None:
            losses[hold.who, hold.path].append(hold.told)
        for leaves, outcome_at, outcome in hold.releases:
            told = math.inf if hold.told is None else hold.told
            if outcome in (What.LEFT, What.SENT) and told < leaves:
                words = f"{hold} was lost at {told:.3f}, and its release at {leaves:.3f} did not say so"
            elif outcome is What.LOST and told > outcome_at + GRACE:
                words = f"the release of {hold} raised LockLostError, but `lost` was not set"
            else:
                continue
            yield Violation("told by release", leaves, words, hold.path, (hold.who,))
    for _, answer in history.calls:
        if answer is not None and answer.what is What.LOST and answer.path in history.models:
            who = answer.process, answer.thread
            known = losses.get((who, answer.path), ())
            if not any(told < answer.at + GRACE for told in known):
                words = f"acquire of {answer.process}/{answer.thread} raised LockLostError, but nothing was lost"
                yield Violation("told by acquire", answer.at, words, answer.path, (who,))


def callbacks(history: History) -> Iterator[Violation]:
    """`on_lost` runs once for each hold that is lost."""
    counts: dict[What, Counter[tuple[str, int, str, str]]] = {What.TOLD: Counter(), What.CALLED: Counter()}
    last = 0.0
    for event in history.events:
        if event.what in counts and event.process not in history.kills:
            counts[event.what][event.process, event.client, event.path, event.role] += 1
            last = max(last, event.at)
    for key in counts[What.TOLD].keys() | counts[What.CALLED].keys():
        lost, called = counts[What.TOLD][key], counts[What.CALLED][key]
        if lost != called:
            process, client, path, role = key
            words = f"client {client} of {process} lost {lost} holds ({role}), and on_lost was called {called} times"
            yield Violation("on_lost", last, words, path)


def punctuality(history: History) -> Iterator[Violation]:
    """A call with a deadline comes back in time, not counting the time in which its process was stopped."""
    for asked, outcome in history.calls:
        if outcome is not None and lateness(Call(asked, outcome), history) > MARGIN:
            words = f"{asked.role} of {asked.process}/{asked.thread} was to return within {asked.limit:.2f} s"
            words += f", and took {outcome.at - asked.at:.2f} s"
            yield Violation("punctuality", outcome.at, words, asked.path, ((asked.process, asked.thread),))


def progress(history: History) -> Iterator[Violation]:
    """After all is healed each thread ends its call, acquires and releases once more, and is done."""
    if history.healed is None:
        return
    for who, events in history.threads.items():
        if who[0] in history.kills:
            continue
        last = events[-1]
        if last.what is not What.DONE:
            words = f"{who[0]}/{who[1]} is stuck: the last of it is '{last}'"
            yield Violation("progress", last.at, words, last.path, (who,))
        elif (late := recovery(history, who)) > SLOW:
            words = f"{who[0]}/{who[1]} has acquired for the first time only {late:.1f} s after all was healed"
            yield Violation("progress", history.healed + late, words, threads=(who,))
        elif not any(event.what in DONE and event.at > history.healed for event in events):
            words = f"{who[0]}/{who[1]} has acquired nothing since all was healed"
            yield Violation("progress", last.at, words, threads=(who,))


def recovery(history: History, who: Thread) -> float:
    """Return how many seconds after all was healed a thread that waited then was granted, or gave up."""
    if history.healed is None:
        return 0.0
    for asked, outcome in history.calls:
        if (asked.process, asked.thread) == who and outcome is not None and asked.at < history.healed < outcome.at:
            return outcome.at - history.healed
    return 0.0


def leftovers(history: History) -> Iterator[Violation]:
    """No ephemeral node is left when nobody waits or holds."""
    for node in history.leftovers:
        paths = (*history.models, *history.queues, *history.data)
        path = next((path for path in paths if node.startswith(f"{path}/")), "")
        yield Violation("leftovers", history.events[-1].at, f"left on the server: {node}", path)


def failures(history: History) -> Iterator[Violation]:
    """Nothing raises what it should not."""
    for event in history.events:
        if event.what is What.FAILED:
            words = f"{event.process}/{event.thread}: {event.note}"
            yield Violation("failures", event.at, words, event.path, ((event.process, event.thread),))


def lateness(call: Call, history: History) -> float:
    """Return how many seconds after its deadline a call came back, not counting those in which nothing of it ran."""
    asked, outcome = call
    if asked.limit is None or outcome is None:
        return 0.0
    idle = history.paused(asked.process, asked.at, outcome.at)
    return outcome.at - asked.at - idle - asked.limit


def _excused(history: History, hold: Hold, at: float) -> bool:
    """Whether the thread could not know by then that others may be inside; its token fences it."""
    return history.asleep(hold, at) or history.robbed(hold, at)


def _by_path(history: History) -> dict[str, list[Hold]]:
    paths = defaultdict(list)
    for hold in history.holds:
        paths[hold.path].append(hold)
    return dict(paths)
