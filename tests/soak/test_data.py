"""The checkers of data: each rule is shown a history that keeps it, and one that does not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.soak.checks.data import GONE, NODE_LASTS, Crowd, Gate, Line, Promise, check_data
from tests.soak.checks.history import GRACE, SLOW, History, Violation
from tests.soak.events import DELETED, EXPIRED, KILLED, Event, Fault, What

PATH = "/data"
NUMBERS, NAMES = Line(named=False), Line()


class Thread:
    """One thread of one process, whose events are written by hand."""

    def __init__(self, process: str, number: int = 1, client: int = 0) -> None:
        self.process, self.number, self.client = process, number, client
        self.events: list[Event] = []

    def add(self, at: float, what: What, role: str, item: str = "", note: str = "") -> Thread:
        """Write down one event."""
        more = {"client": self.client, "item": item, "note": note}
        self.events.append(Event(at, self.process, self.number, what, PATH, role, **more))  # type: ignore[arg-type]
        return self

    def changes(
        self,
        at: float,
        value: int | None,
        size: int = 1,
        name: str = "",
        what: What = What.ANSWERED,
        asked: float = 0.1,
    ) -> Thread:
        """Change a value; the call returns at a time."""
        self.add(at - asked, What.ASKS, "v", name, str(size))
        return self.add(at, what, "v", name, "" if value is None else str(value))

    def reads(self, at: float, value: int, name: str = "", kind: str = "read", asked: float = 0.1) -> Thread:
        """Read a value."""
        return self.add(at - asked, What.ASKS, "v", note=kind).add(at, What.ANSWERED, "v", name, str(value))

    def asks(self, at: float, size: int = 1, name: str = "") -> Thread:
        """Ask for a change, and hear nothing."""
        return self.add(at, What.ASKS, "v", name, str(size))

    def does(self, at: float, role: str, item: str = "", note: str = "", took: float = 0.1, **how: Any) -> Thread:
        """Make another call."""
        return self.add(at - took, What.ASKS, role, item).add(at, how.get("what", What.ANSWERED), role, item, note)

    def session(self, at: float) -> Thread:
        """Get another session."""
        self.events.append(Event(at, self.process, 0, What.SESSION, client=self.client, note="0x1 00"))
        return self


def found(promise: Promise, threads: Iterable[Thread], *faults: Fault) -> list[Violation]:
    """The violations that the checker finds."""
    events = [event for thread in threads for event in thread.events]
    return check_data(History(events, faults, {}, healed=100.0, data={PATH: promise}))


def rules(promise: Promise, *threads: Thread, faults: Iterable[Fault] = ()) -> list[str]:
    """Which rules are broken."""
    return [violation.rule for violation in found(promise, threads, *faults)]


def killed(process: str, at: float) -> Fault:
    """Say that a process was killed."""
    return Fault(KILLED, at, at, process)


# -- values ------------------------------------------------------------------------------------------------------------


def test_a_line() -> None:
    """Changes one after the other, reads between them, and calls that overlap, break no rule."""
    one = Thread("1.1").changes(1, 3, 3).reads(2, 3).changes(5, 9, 2, asked=2)
    other = Thread("2.1").changes(4, 7, 4, asked=1.5).reads(6, 9).changes(7, None, 4, what=What.REFUSED)
    assert rules(NUMBERS, one, other) == []


def test_a_change_twice() -> None:
    """A number that has more than what was added to it is found, and the words say where."""
    (violation,) = found(NUMBERS, [Thread("1.1").changes(1, 3, 3).changes(2, 9, 3)])
    assert violation.rule == "gaps"
    assert "3 more than was added, between 3 and 6, as seen by 1.1/1's change by 3" in violation.words
    assert rules(NUMBERS, Thread("1.1").changes(1, 3, 3), Thread("keeper", 0).reads(9, 6)) == ["gaps"]


def test_a_change_that_is_lost() -> None:
    """Two changes of one number, or a number that is less in the end, are found."""
    one, other = Thread("1.1").changes(1, 3, 3, asked=0.5), Thread("2.1").changes(1.1, 2, 2, asked=0.5)
    assert rules(NUMBERS, one, other) == ["forks"]
    assert rules(NUMBERS, Thread("1.1").changes(1, 3, 3), Thread("keeper", 0).reads(9, 0)) == ["order"]
    assert rules(NUMBERS, Thread("1.1").changes(1, 3, 3), Thread("2.1").changes(2, 3, 3)) == ["forks", "order"]


def test_a_change_that_may_have_been_made() -> None:
    """By one that was killed, or whose outcome is unknown: in its time, and no more than once."""
    after = Thread("2.1").changes(1, 3, 3).changes(4, 9, 4)
    for what, faults in ((None, [killed("1.1", 3)]), (What.UNKNOWN, [])):

        def unsure(at: float, size: int, what: What | None = what) -> Thread:
            thread = Thread("1.1").asks(at, size)
            return thread.add(at + 0.1, what, "v") if what else thread

        assert rules(NUMBERS, unsure(2, 2), after, faults=faults) == []
        assert rules(NUMBERS, unsure(2, 1), after, faults=faults) == ["gaps"]
        assert rules(NUMBERS, unsure(4.5, 2), after, faults=faults) == ["gaps"]
        late = Thread("2.1").changes(1, 3, 3).changes(4 + SLOW, 7, 4).changes(5 + SLOW, 13, 4)
        assert rules(NUMBERS, unsure(2, 2), late, faults=faults) == ["gaps"]
    assert rules(NUMBERS, Thread("1.1").changes(2, None, 2, what=What.REFUSED), after) == ["gaps"]


def test_an_old_answer() -> None:
    """A read that lies before what another had seen by then, unless a leader without followers may have given it."""
    one, other = Thread("1.1").changes(1, 3, 3), Thread("2.1").reads(2, 0)
    (violation,) = found(NUMBERS, [one, other])
    assert violation.rule == "order"
    assert "2.1/1's read, asked at 1.900 was answered 0, after 1.1/1's change by 3" in violation.words
    assert rules(NUMBERS, one, Thread("2.1").reads(1.5, 0, asked=0.6)) == []  # it began before
    assert rules(NUMBERS, one, other, faults=[Fault("leader isolated", 0.5, 1)]) == []
    assert rules(NUMBERS, one, other, faults=[Fault("follower frozen", 0.5, 1)]) == ["order"]
    # A change asks more than one server.
    late = Thread("2.1").changes(3, 2, 2)
    assert "order" in rules(NUMBERS, one, late, faults=[Fault("leader isolated", 0.5, 1)])


def test_a_copy_that_goes_back() -> None:
    """A copy may be old, but it never goes back: not behind its own client's reads and changes, nor to nothing."""
    writer = Thread("1.1").changes(1, 1, name="x").changes(2, 2, name="y")
    assert rules(NAMES, writer, Thread("2.1").reads(3, 1, "x", "cached").reads(4, 2, "y", "cached")) == []
    back = Thread("2.1").reads(3, 2, "y", "cached").reads(4, 1, "x", "cached")
    assert rules(NAMES, writer, back) == ["order"]
    assert rules(NAMES, writer, back, faults=[Fault("leader isolated", 0.5, 9)]) == ["order"]
    assert rules(NAMES, writer, Thread("2.1").reads(3, 0, "", "cached").reads(4, -1, "", "cached")) == ["order"]
    assert rules(NAMES, writer, Thread("1.1", 2).reads(3, 1, "x", "cached")) == ["order"]
    assert rules(NAMES, writer, Thread("1.1", 2, client=1).reads(3, 1, "x", "cached")) == []
    fresh, copy = Thread("2.1").reads(3, 2, "y"), Thread("2.1", 2).reads(4, 1, "x", "cached")
    assert rules(NAMES, writer, fresh, copy) == ["order"]


def test_whose_change_it_is() -> None:
    """A value that no change has made, or another one, or one that was refused, is found."""
    writer = Thread("1.1").changes(1, 1, name="x")
    assert rules(NAMES, writer, Thread("2.1").reads(2, 1, "x")) == []
    assert rules(NAMES, writer, Thread("2.1").reads(2, 1, "z")) == ["names"]
    other = Thread("3.1").asks(1.5, name="z")
    assert rules(NAMES, writer, other, Thread("2.1").reads(2, 1, "z"), faults=[killed("3.1", 2)]) == ["names"]
    assert rules(NAMES, writer, other, Thread("2.1").reads(2, 2, "z"), faults=[killed("3.1", 2)]) == []
    two = [Thread("2.1").reads(2, 2, "z"), Thread("4.1").reads(3, 2, "q"), Thread("3.1", 2).asks(1.6, name="q")]
    assert rules(NAMES, writer, other, *two, faults=[killed("3.1", 2)]) == ["names"]
    refused = Thread("3.1").changes(1.5, None, name="z", what=What.REFUSED)
    assert sorted(rules(NAMES, writer, refused, Thread("2.1").reads(2, 2, "z"))) == ["gaps", "names"]


# -- double barriers ---------------------------------------------------------------------------------------------------


def party(process: str, enters: float, leaves: float, took: float = 0.5, **how: Any) -> Thread:
    """Enter, and leave; by these times each call has returned."""
    return Thread(process).does(enters, "enter", took=took).does(leaves, "leave", took=took, **how)


def test_a_gate() -> None:
    """Parties that enter together and leave together, one that comes late, and one that gives up, break no rule."""
    parties = [party("1.1", 1, 3), party("2.1", 1.1, 3.1), party("3.1", 1.2, 3.2)]
    late = Thread("4.1").does(2, "enter").does(3.3, "leave", took=0.5)
    assert rules(Gate(3), *parties, late, Thread("5.1").does(6, "enter", what=What.REFUSED)) == []


def test_too_few_have_entered() -> None:
    """A party that enters without as many others is found; one that has given up does not count, one that died does."""
    first = [party("1.1", 1, 3), party("2.1", 1.1, 3.1)]
    assert rules(Gate(3), *first) == ["enters", "enters"]
    assert rules(Gate(3), *first, Thread("3.1").does(1.2, "enter", took=0.4, what=What.REFUSED)) == []
    gave_up = Thread("3.1").does(0.4, "enter", what=What.REFUSED)
    (violation, _) = found(Gate(3), [*first, gave_up])
    assert "1.1/1 has entered with 1 others: 1.1/1, 2.1/1" in violation.words
    died = Thread("3.1").add(0.1, What.ASKS, "enter")
    assert rules(Gate(3), *first, died, faults=[killed("3.1", 0.3)]) == []
    late = [party("1.1", 1 + NODE_LASTS, 3 + NODE_LASTS), party("2.1", 1 + NODE_LASTS, 3 + NODE_LASTS)]
    assert rules(Gate(3), *late, died, faults=[killed("3.1", 0.3)]) == ["enters", "enters"]


def test_one_that_had_no_reply_may_be_counted() -> None:
    """A party that gives up, or leaves, without a reply leaves its node for a while."""
    first = [party("1.1", 1, 3), party("2.1", 1.1, 3.1)]
    for took, broken in ((0.5, ["enters", "enters"]), (2.3, [])):
        third = Thread("3.1").does(0.4, "enter", took=took, what=What.REFUSED)
        third.events[0] = replace(third.events[0], limit=3.0)
        assert rules(Gate(3), *first, third) == broken


def test_one_that_came_late_has_few_others() -> None:
    """Those that let in the party that lets it in may have left, or died."""
    dead = [Thread(f"{n}.1").does(1, "enter", took=0.5) for n in (1, 2)]
    inside, late = party("3.1", 1, 1 + 2 * NODE_LASTS), party("4.1", 2 * NODE_LASTS, 1 + 2 * NODE_LASTS)
    assert rules(Gate(3), *dead, inside, late, faults=[killed("1.1", 2), killed("2.1", 2)]) == []


def test_one_that_is_still_inside() -> None:
    """A party that is told that all have left, while one has not asked to, is found."""
    first = [party("1.1", 1, 2), party("2.1", 1.1, 3.1)]
    violation, _ = found(Gate(3), [*first, party("3.1", 1.2, 3.2)])
    assert violation.rule == "leaves"
    assert "1.1/1 has left, and was told that all had, while" in violation.words
    assert rules(Gate(3), *first, party("3.1", 1.2, 3.2), faults=[Fault("leader frozen", 1, 2)]) == []
    told = Thread("1.1").does(1, "enter", took=0.5).does(2, "leave", took=0.5, what=What.REFUSED)
    assert rules(Gate(3), told, first[1], party("3.1", 1.2, 3.2)) == []
    # It may have been lost long before it asked.
    others = [party("2.1", 1.1, 3.1, what=What.LOST), party("3.1", 1.2, 3.2, what=What.REFUSED)]
    assert rules(Gate(3), first[0], *others) == []
    late = party("4.1", 1.9, 3.2, took=0.1)  # inside after the first has asked to leave
    assert rules(Gate(3), party("1.1", 1, 2), party("2.1", 1.1, 2.1), party("3.1", 1.2, 2.2), late) == []


# -- groups ------------------------------------------------------------------------------------------------------------


def test_a_group() -> None:
    """Members that are seen while they are there, and may be seen while they come or go, break no rule."""
    member = Thread("1.1").does(1, "join", "a").does(5, "leave", "a", GONE)
    looks = Thread("2.1").does(0.95, "members", note="a").does(2, "members", note="a").does(4.95, "members")
    assert rules(Crowd(), member, looks.does(6, "members")) == []


def test_a_member_that_is_not_seen() -> None:
    """Its session must be the same; that of another client may have ended a while before anyone can tell."""
    member, look = Thread("1.1").does(1, "join", "a").does(50, "leave", "a"), Thread("2.1").does(20, "members")
    (violation,) = found(Crowd(), [member, look])
    assert "a, a member since 1.000, was not seen at 20.000" in violation.words
    assert rules(Crowd(), member, look, faults=[Fault("leader isolated", 19, 20)]) == []
    for at, broken in ((19 + SLOW, []), (21 + SLOW, ["members"])):
        assert rules(Crowd(), member, look, faults=[killed("1.1", at)]) == broken
        assert rules(Crowd(), member, look, Thread("1.1").session(at)) == broken
    assert rules(Crowd(), member, look, Thread("1.1", client=1).session(20)) == ["members"]
    assert rules(Crowd(), member, look, faults=[Fault(EXPIRED, 19, 19, "1.1")]) == []
    assert rules(Crowd(), member, look, faults=[Fault(DELETED, 19, 19, "1.1", 0, f"{PATH}/a")]) == []
    own = Thread("1.1", 2).does(20, "members")
    assert rules(Crowd(), member, own, Thread("1.1").session(21 + GRACE)) == ["members"]
    assert rules(Crowd(), member, own, Thread("1.1").session(20)) == []
    assert rules(Crowd(), Thread("1.1").does(1, "join", "a", what=What.REFUSED), look) == []


def test_a_member_that_is_gone() -> None:
    """One that is seen after it has left, or that never was, is found."""
    look = Thread("2.1").does(9, "members", note="a")
    assert rules(Crowd(), Thread("1.1").does(1, "join", "a").does(5, "leave", "a", GONE), look) == ["members"]
    assert rules(Crowd(), Thread("1.1").does(1, "join", "a").does(5, "leave", "a"), look) == []
    assert rules(Crowd(), look) == ["members"]
    assert rules(Crowd(), Thread("1.1").does(11, "join", "a"), look) == ["members"]
