"""The checker of queues: each rule is shown a history that keeps it, and one that does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.soak.callers.queue_caller import SETTLING
from tests.soak.checks.history import GRACE, History, Violation
from tests.soak.checks.items import Stock, check_items
from tests.soak.events import KILLED, STOPPED_LONG, Event, Fault, What

PATH, ANY = "/queue", Stock()


class Thread:
    """One thread of one process, whose events are written by hand."""

    def __init__(self, process: str, number: int = 1) -> None:
        self.process, self.number = process, number
        self.events: list[Event] = []

    def add(self, at: float, what: What, role: str = "", item: str = "", **details: Any) -> Thread:
        """Write down one event."""
        self.events.append(Event(at, self.process, self.number, what, PATH, role, item=item, **details))
        return self

    def puts(self, at: float, *items: str, outcome: What | None = What.PUT) -> Thread:
        """Put items, one after the other; return just after `at`."""
        for item in items:
            self.add(at, What.ASKS, "put", item)
            if outcome:
                self.add(at + 0.01, outcome, "put", item)
        return self

    def gets(self, at: float, item: str = "", asked: float | None = None, note: str = "") -> Thread:
        """Get an item, or none."""
        self.add(at - 0.1 if asked is None else asked, What.ASKS, "get")
        return self.add(at, What.TAKEN if item else What.REFUSED, "get", item, note=note)

    def claims(self, at: float, item: str, token: int, attempts: int | None = None) -> Thread:
        """Claim an item."""
        self.add(at - 0.1, What.ASKS, "claim")
        return self.add(at, What.CLAIMED, "claim", item, token=token, note=str(attempts or token))

    def ends(self, at: float, item: str, token: int, outcome: What | None = What.ACKNOWLEDGED) -> Thread:
        """End a claim."""
        self.add(at, What.GIVES_BACK if outcome is What.GAVE_BACK else What.ACKNOWLEDGES, "claim", item, token=token)
        return self.add(at + 0.01, outcome, "claim", item, token=token) if outcome else self

    def session(self, at: float) -> Thread:
        """Get another session."""
        self.events.append(Event(at, self.process, 0, What.SESSION, note="0x1 00"))
        return self


def found(threads: Iterable[Thread], *faults: Fault, stock: Stock = ANY) -> list[Violation]:
    """The violations that the checker finds."""
    events = [event for thread in threads for event in thread.events]
    return check_items(History(events, faults, {}, healed=100.0, queues={PATH: stock}))


def rules(*threads: Thread, faults: Iterable[Fault] = (), stock: Stock = ANY) -> list[str]:
    """Which rules are broken."""
    return [violation.rule for violation in found(threads, *faults, stock=stock)]


def killed(process: str, at: float) -> Fault:
    """Say that a process was killed."""
    return Fault(KILLED, at, at, process)


def test_each_item_once() -> None:
    """Items that are acknowledged, got, given back and claimed again, and dead break no rule."""
    producer = Thread("1.1").puts(1, "a", "b", "c", "d")
    consumer = Thread("2.1").claims(2, "a", 10).ends(3, "a", 10).gets(4, "b")
    consumer.claims(5, "c", 11).ends(6, "c", 11, What.GAVE_BACK).claims(7, "c", 12).ends(8, "c", 12)
    assert rules(producer, consumer, Thread("keeper", 0).add(9, What.BURIED, "dead", "d")) == []


def test_a_lost_item() -> None:
    """An item that was put and never came is told of with its story."""
    (violation,) = found([Thread("1.1").puts(1, "a", "b"), Thread("2.1").gets(2, "a")])
    assert (violation.rule, violation.item) == ("losses", "b")
    assert "b is lost" in violation.words
    given_back = Thread("2.1").claims(2, "a", 10).ends(3, "a", 10, What.GAVE_BACK)
    assert rules(Thread("1.1").puts(1, "a"), given_back) == ["losses"]


def test_who_was_killed_may_have_taken_one_item_along() -> None:
    """In `get`, one for each thread; so may one whose `get` was not over when it came back, if it is killed soon."""
    producer, consumer = Thread("1.1").puts(1, "a"), Thread("2.1").add(2, What.ASKS, "get")
    assert rules(producer, consumer) == ["losses"]
    assert rules(producer, consumer, faults=[killed("2.1", 3)]) == []
    assert rules(producer, consumer, faults=[killed("1.1", 3)]) == ["losses"]
    assert rules(Thread("1.1").puts(1, "a", "b"), consumer, faults=[killed("2.1", 3)]) == ["losses"] * 2
    claims = Thread("2.1").add(2, What.ASKS, "claim")
    assert rules(producer, claims, faults=[killed("2.1", 3)]) == ["losses"]
    for note, at, broken in (("", 3, ["losses"]), (SETTLING, 3, []), (SETTLING, 60, ["losses"])):
        assert rules(producer, Thread("2.1").gets(2, note=note), faults=[killed("2.1", at)]) == broken


def test_who_was_killed_may_have_acknowledged() -> None:
    """Once it had begun to; else the item comes again."""
    producer, consumer = Thread("1.1").puts(1, "a"), Thread("2.1").claims(2, "a", 10)
    assert rules(producer, consumer, faults=[killed("2.1", 5)]) == ["losses"]
    consumer.ends(3, "a", 10, None)
    assert rules(producer, consumer, faults=[killed("2.1", 5)]) == []
    assert rules(producer, consumer, Thread("3.1").gets(9, "a"), faults=[killed("2.1", 5)]) == []
    gives_back = Thread("2.1").claims(2, "a", 10).add(3, What.GIVES_BACK, "claim", "a", token=10)
    assert rules(producer, gives_back, faults=[killed("2.1", 5)]) == ["losses"]


def test_an_item_twice() -> None:
    """To be acknowledged, got or buried twice, or by two of these, is found; so is a claim of what was acknowledged."""
    producer, once = Thread("1.1").puts(1, "a"), Thread("2.1").claims(2, "a", 10).ends(3, "a", 10)
    assert rules(producer, once, Thread("3.1").claims(4, "a", 11).ends(5, "a", 11)) == ["ends", "ends"]
    assert rules(producer, once, Thread("3.1").gets(4, "a")) == ["ends"]
    assert rules(producer, once, Thread("keeper", 0).add(9, What.BURIED, "dead", "a")) == ["ends"]
    assert rules(producer, Thread("2.1").gets(3, "a"), Thread("3.1").gets(4, "a")) == ["ends"]
    (violation,) = found([producer, once, Thread("3.1").claims(4, "a", 11).ends(5, "a", 11, What.GAVE_BACK)])
    assert "a was acknowledged by 2.1/1 (claim, token 10" in violation.words


def test_an_item_from_nowhere() -> None:
    """Nobody has put it, or its put has said that nothing was put."""
    assert rules(Thread("2.1").gets(2, "a")) == ["origins"]
    assert rules(Thread("1.1").puts(1, "a", outcome=What.REFUSED), Thread("2.1").gets(2, "a")) == ["origins"]


def test_a_put_of_unknown_outcome() -> None:
    """It is there once, or not at all."""
    for outcome, faults in ((What.UNKNOWN, []), (None, [killed("1.1", 1.5)])):
        producer = Thread("1.1").puts(1, "a", outcome=outcome)
        assert rules(producer, faults=faults) == []
        assert rules(producer, Thread("2.1").gets(2, "a"), faults=faults) == []
        assert rules(producer, Thread("2.1").gets(2, "a").gets(3, "a"), faults=faults) == ["ends"]


def test_two_who_have_one_item() -> None:
    """Only if the session of the first is over."""
    producer, second = Thread("1.1").puts(1, "a"), Thread("3.1").claims(3, "a", 11).ends(4, "a", 11)

    def first(outcome: What = What.LOST) -> Thread:
        return Thread("2.1").session(0.5).claims(2, "a", 10).ends(5, "a", 10, outcome)

    (violation,) = found([producer, first(), second])
    assert violation.rule == "claims"
    assert "a was claimed by 3.1/1 (claim, token 11, since 3.000) while 2.1/1" in violation.words
    assert rules(producer, first().session(4.9), second) == []
    assert rules(producer, first().session(5.01 + GRACE + 1), second) == ["claims"]
    assert rules(producer, first(What.GAVE_BACK), second) == ["claims"]
    # That a process was stopped ends no session.
    assert rules(producer, first(), second, faults=[Fault(STOPPED_LONG, 2.5, 4.9, "2.1")]) == ["claims"]


def test_a_loss_without_a_cause() -> None:
    """An acknowledgement fails only if the session is over."""
    producer, keeper = Thread("1.1").puts(1, "a"), Thread("keeper", 0).gets(9, "a")
    loser = Thread("2.1").session(0.5).claims(2, "a", 10).ends(5, "a", 10, What.LOST)
    assert rules(producer, loser, keeper) == ["claims"]
    assert rules(producer, loser.session(4), keeper) == []


def test_attempts() -> None:
    """They grow from claim to claim, up to the most if that is given."""

    def claimed(*counts: int) -> list[Thread]:
        consumer = Thread("2.1")
        for number, count in enumerate(counts):
            consumer.claims(2 + number, "a", 10 + number, count).ends(2.5 + number, "a", 10 + number, What.GAVE_BACK)
        return [Thread("1.1").puts(1, "a"), consumer, Thread("keeper", 0).add(9, What.BURIED, "dead", "a")]

    stock = Stock(max_attempts=3)
    assert rules(*claimed(1, 2, 3), stock=stock) == []
    assert rules(*claimed(1, 3), stock=stock) == []  # of a killed process one has not heard
    assert rules(*claimed(1, 1), stock=stock) == ["attempts"]
    assert rules(*claimed(1, 2, 3, 4), stock=stock) == ["attempts"]
    assert rules(*claimed(1, 2)) == []
    assert rules(*claimed(1, 1)) == ["attempts"]
    assert rules(*claimed(2, 1)) == ["attempts"]


def test_an_overfull_queue() -> None:
    """More items than there are places, claimed ones included, each of which surely was there."""
    stock = Stock(maxsize=2)
    producer = Thread("1.1").puts(1, "a", "b").puts(5, "c")
    rest = Thread("keeper", 0).gets(8, "b").gets(9, "c")

    def also(consumer: Thread) -> list[str]:
        return rules(producer, consumer, rest, stock=stock)

    assert also(Thread("2.1").gets(6, "a", asked=4)) == []  # it may have gone before the other came
    assert also(Thread("2.1").gets(7, "a", asked=6)) == ["sizes"]
    assert also(Thread("2.1").claims(4, "a", 10).ends(4.9, "a", 10)) == []
    assert also(Thread("2.1").claims(4, "a", 10).ends(6, "a", 10)) == ["sizes"]
    assert also(Thread("2.1").gets(2, note=SETTLING).gets(7, "a", asked=6)) == []  # it was taken, and put back
    assert also(Thread("2.1").gets(5.5, note=SETTLING, asked=4).gets(7, "a", asked=6)) == []
    assert also(Thread("2.1").claims(4, "a", 10).ends(4.5, "a", 10, What.GAVE_BACK).gets(7, "a", asked=6)) == ["sizes"]
    (violation,) = found([producer, Thread("2.1").gets(7, "a", asked=6), rest], stock=stock)
    assert violation.words == "/queue: c is one of 3 items"
