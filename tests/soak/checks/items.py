"""The checker of queues: the fate of each item, and the violations in it.

Each item has a name of its own, so each can be followed. One that was put ends once: by an acknowledgement, by `get`,
among the dead, or in the hands of the keeper, who takes the remaining items. There are few excuses: a put whose outcome
is unknown is there once or not at all; a process that was killed in `get`, or before the item of an abandoned `get` was
put back, may have taken one item along; one that was killed in an acknowledgement may have acknowledged.

A claim is given away only with its session. Nobody is told of that before the end of the block, so there is no other
excuse, and no other limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from tests.soak.callers.queue_caller import SETTLING
from tests.soak.checks.history import GRACE, SLOW, History, Hold, Violation
from tests.soak.events import Event, What
from zkconcurrent import Queue

ENDS = (What.TAKEN, What.ACKNOWLEDGED, What.BURIED)
CLAIM_ENDS = (What.ACKNOWLEDGED, What.GAVE_BACK, What.LOST, What.FAILED)


@dataclass(frozen=True)
class Stock:
    """The promises of a queue.

    Attributes:
        maxsize: how many items it may have; 0 for any number.
        max_attempts: how often an item may be claimed; None for any number.
    """

    maxsize: int = 0
    max_attempts: int | None = None

    def open(self, client: Any, path: str) -> Queue[bytes]:
        """Return the queue."""
        return Queue(client, path, self.maxsize, max_attempts=self.max_attempts)

    def left(self, queue: Queue[bytes]) -> bool:
        """Whether any item is there, if only claimed by a process that died."""
        return bool(queue.client.get_children(f"{queue.path}/items"))


@dataclass(eq=False)
class Claim(Hold):
    """One claim; as a hold, from the begin of its block to that of its end.

    Attributes:
        item: the claimed item.
        asked: when it was asked for.
        attempts: how often the item was claimed by then.
        acknowledges: whether it has begun to be acknowledged.
        outcome: how the block ended; None if it did not.
    """

    item: str = ""
    asked: float = 0.0
    attempts: int = 1
    acknowledges: bool = False
    outcome: Event | None = None

    @property
    def acknowledged(self) -> bool:
        """Whether its acknowledgement has returned."""
        return self.outcome is not None and self.outcome.what is What.ACKNOWLEDGED

    @property
    def doubtful(self) -> bool:
        """Whether it may have been acknowledged without a word: its process was killed meanwhile."""
        return self.acknowledges and (self.outcome is None or self.outcome.what is What.FAILED)


@dataclass
class Item:
    """All that is known of one item.

    Attributes:
        name: its name.
        put: the outcome of its put: PUT, UNKNOWN, REFUSED or FAILED; None if the process was killed in it.
        asked: when that began; None of an item from nowhere.
        since: when it had returned.
        claims: the claims, in the order of their tokens.
        ends: the events that end it.
    """

    name: str
    put: What | None = None
    asked: float | None = None
    since: float = math.inf
    claims: list[Claim] = field(default_factory=list)
    ends: list[Event] = field(default_factory=list)

    @property
    def doubtful(self) -> bool:
        """Whether it may have ended without a word."""
        return any(claim.doubtful for claim in self.claims)


@dataclass
class Ledger:
    """The history's facts about one queue."""

    history: History
    path: str
    stock: Stock

    @cached_property
    def events(self) -> list[Event]:
        """Those of the queue, in the order of time."""
        return sorted((event for event in self.history.events if event.path == self.path), key=lambda each: each.at)

    @cached_property
    def items(self) -> dict[str, Item]:
        """Every item, by its name."""
        items: dict[str, Item] = {}
        for event in self.events:
            if not event.item:
                continue
            item = items.setdefault(event.item, Item(event.item))
            if event.role == "put" and event.what is What.ASKS:
                item.asked = event.at
            elif event.role == "put":
                item.put, item.since = event.what, event.at
            elif event.what in ENDS:
                item.ends.append(event)
        for claim in self.claims:
            items[claim.item].claims.append(claim)
        return items

    @cached_property
    def claims(self) -> list[Claim]:
        """Every claim, in the order of their tokens."""
        found, standing = [], dict[tuple[str, int], Claim]()
        asked: dict[tuple[str, int], float] = {}
        for event in (event for event in self.events if event.role == "claim"):
            who = event.process, event.thread
            if event.what is What.ASKS:
                asked[who] = event.at
            elif event.what is What.CLAIMED:
                claim = Claim(who, event.client, self.path, event.role, 0, event.token, event.at)
                claim.item, claim.asked, claim.attempts = event.item, asked.get(who, event.at), int(event.note)
                claim.killed = self.history.kills.get(event.process)
                standing[who] = claim
                found.append(claim)
            elif event.what in (What.ACKNOWLEDGES, What.GIVES_BACK) and who in standing:
                standing[who].leaves, standing[who].acknowledges = event.at, event.what is What.ACKNOWLEDGES
            elif event.what in CLAIM_ENDS and (ended := standing.pop(who, None)) is not None:
                ended.outcome = event
        return sorted(found, key=lambda each: each.token)

    @cached_property
    def gets(self) -> list[tuple[float, Event]]:
        """The outcome of each `get`, and when that was called."""
        found, asked = [], dict[tuple[str, int], float]()
        for event in (event for event in self.events if event.role == "get"):
            if event.what is What.ASKS:
                asked[event.process, event.thread] = event.at
            else:
                found.append((asked.get((event.process, event.thread), event.at), event))
        return found

    @cached_property
    def taking(self) -> dict[str, float]:
        """When each `get` that has returned an item was called, by the item."""
        return {event.item: asked for asked, event in self.gets if event.what is What.TAKEN}

    @cached_property
    def excuses(self) -> list[Event]:
        """The `get`s that may have taken an item along: of processes that were killed in them, or soon after."""
        found, last = [], dict[tuple[str, int], Event]()
        for event in self.events:
            if event.role in ("put", "get", "claim") and event.process in self.history.kills:
                last[event.process, event.thread] = event
                if event.note == SETTLING and self.history.kills[event.process] < event.at + SLOW:
                    found.append(event)
        return found + [event for event in last.values() if event.what is What.ASKS and event.role == "get"]

    @property
    def missing(self) -> list[Item]:
        """The items that were put and did not end, and whose end nobody may have kept to itself."""
        return [item for item in self.items.values() if item.put is What.PUT and not item.ends and not item.doubtful]

    def given_away(self, claim: Claim) -> bool:
        """Whether the claim may have ended before its block did, as its session was over."""
        until = math.inf if claim.outcome is None else claim.outcome.at + GRACE
        return any(claim.asked < at < until for at in self.history.sessions.get(claim.party, ()))

    def found(self, rule: str, at: float, words: str, item: str = "", *claims: Claim) -> Violation:
        """Return a violation."""
        return Violation(rule, at, f"{self.path}: {words}", self.path, tuple(claim.who for claim in claims), item)


def check_items(history: History) -> list[Violation]:
    """Return all that should never have happened to items, in the order of time."""
    ledgers = [Ledger(history, path, stock) for path, stock in history.queues.items()]
    rules = (origins, ends, losses, claims, attempts, sizes)
    return sorted((found for each in ledgers for rule in rules for found in rule(each)), key=lambda found: found.at)


def origins(ledger: Ledger) -> Iterator[Violation]:
    """No item comes from nowhere: each was put, by a call that did not say that it had put nothing."""
    for item in ledger.items.values():
        there = [claim.start for claim in item.claims] + [event.at for event in item.ends]
        if there and item.asked is None:
            yield ledger.found("origins", min(there), f"{item.name} comes from nowhere", item.name)
        elif there and item.put is What.REFUSED:
            words = f"{item.name} is there, although its put raised Full"
            yield ledger.found("origins", min(there), words, item.name)


def ends(ledger: Ledger) -> Iterator[Violation]:
    """Each item ends once, and does not come again after that."""
    for item in ledger.items.values():
        if len(item.ends) > 1:
            words = f"{item.name} has ended more than once: " + "; ".join(map(str, item.ends))
            yield ledger.found("ends", item.ends[-1].at, words, item.name)
        for claim, after in pairwise(item.claims):
            if claim.acknowledged:
                words = f"{item.name} was acknowledged by {claim}, and claimed by {after}"
                yield ledger.found("ends", after.start, words, item.name, claim, after)


def losses(ledger: Ledger) -> Iterator[Violation]:
    """Each item whose put has returned ends; only so many may be missing as were taken by those that died with them."""
    if ledger.history.healed is None or len(ledger.missing) <= len(ledger.excuses):
        return
    for item in ledger.missing:
        words = f"{item.name} is lost: {len(ledger.missing)} are missing, and {len(ledger.excuses)} were taken along"
        yield ledger.found("losses", item.since, words, item.name, *item.claims)


def claims(ledger: Ledger) -> Iterator[Violation]:
    """A claim is given away only with its session."""
    for item in ledger.items.values():
        for claim, after in zip(item.claims, [*item.claims[1:], None], strict=False):
            taken_over = after is not None and after.start < claim.end
            lost = claim.outcome is not None and claim.outcome.what is What.LOST
            if not (taken_over or lost) or ledger.given_away(claim):
                continue
            if after is not None and taken_over:
                words = f"{item.name} was claimed by {after} while {claim} had it, until {claim.end:.3f}"
                yield ledger.found("claims", after.start, words, item.name, claim, after)
            elif claim.outcome is not None:
                words = f"{claim} has lost {item.name}, in a session that goes on"
                yield ledger.found("claims", claim.outcome.at, words, item.name, claim)


def attempts(ledger: Ledger) -> Iterator[Violation]:
    """Each claim of an item counts one more attempt, up to the most."""
    most = ledger.stock.max_attempts
    for item in ledger.items.values():
        counts = [claim.attempts for claim in item.claims]
        good = all(one < next_one for one, next_one in pairwise(counts))
        if not good or (most and max(counts, default=1) > most):
            words = f"the attempts at {item.name} are {counts}"
            yield ledger.found("attempts", item.claims[-1].start, words, item.name, *item.claims)


def sizes(ledger: Ledger) -> Iterator[Violation]:
    """There are never more items than `maxsize`; counted are those that surely are there."""
    if not ledger.stock.maxsize:
        return
    changes: list[tuple[float, int, str]] = []
    for item in ledger.items.values():
        until = _surely_until(ledger, item)
        if item.put is What.PUT and item.since < until:
            changes += (item.since, 1, item.name), (until, -1, item.name)
    settling = [(asked, event.at) for asked, event in ledger.gets if event.note == SETTLING]
    there, too_many = 0, False
    for at, change, name in sorted(changes):
        there += change
        # An item that an abandoned `get` has taken is out of the queue until it is put back.
        out = sum(asked < at < abandoned + SLOW for asked, abandoned in settling)
        if not (too_many := too_many and change > 0) and there > ledger.stock.maxsize + out:
            too_many = True
            yield ledger.found("sizes", at, f"{name} is one of {there} items", name)


def _surely_until(ledger: Ledger, item: Item) -> float:
    """Return until when an item surely was in the queue, as far as is known."""
    left = [claim.end for claim in item.claims if claim.acknowledged or claim.doubtful]
    for event in item.ends:
        if event.what is What.BURIED:
            left.append(min((claim.start for claim in item.claims), default=0.0))
        elif event.what is What.TAKEN:
            left.append(ledger.taking[item.name])
    return min(left, default=0.0)
