"""The checker: each rule is shown a history that keeps it, and one that does not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.models.lock import Lock, ReadWriteLock, RLock, Semaphore
from tests.soak.checks.history import GRACE, MARGIN, SLOW, History, Violation, check
from tests.soak.events import EXPIRED, KILLED, STOPPED_LONG, Event, Fault, What

LOCK = Lock()
AGAIN = RLock()
PAIR = ReadWriteLock()
TIMEOUT = 4.0


class Thread:
    """One thread of one process, whose events are written by hand."""

    def __init__(self, process: str, number: int = 1, role: str = "lock") -> None:
        self.process, self.number, self.role = process, number, role
        self.events: list[Event] = []
        self._hold = 0

    def add(self, at: float, what: What, role: str = "", **details: Any) -> Thread:
        """Write down one event."""
        if what is What.GRANTED and details.pop("new", True):
            self._hold += 1
        details = {"hold": self._hold, **details}
        self.events.append(Event(at, self.process, self.number, what, "/lock", role or self.role, **details))
        return self

    def takes(self, at: float, token: int, **details: Any) -> Thread:
        """Ask, and be granted at a time."""
        return self.add(at - 0.1, What.ASKS).add(at, What.GRANTED, token=token, **details)

    def leaves(self, at: float, outcome: What = What.LEFT, role: str = "") -> Thread:
        """Release."""
        return self.add(at, What.LEAVES, role).add(at + 0.01, outcome, role)

    def told(self, at: float) -> Thread:
        """Be told of the loss of the hold, in both ways."""
        return self.add(at, What.TOLD).add(at, What.CALLED)


def found(threads: Iterable[Thread], model: Lock, *faults: Fault, **more: Any) -> list[Violation]:
    """The violations that the checker finds."""
    events = [event for thread in threads for event in thread.events]
    return check(History(events, faults, {"/lock": model}, TIMEOUT, **more))


def rules(threads: Iterable[Thread], model: Lock, *faults: Fault, **more: Any) -> list[str]:
    """Which rules are broken."""
    return [violation.rule for violation in found(threads, model, *faults, **more)]


def overlap(end: float = 3.0, token: int = 11, **ends: Any) -> list[Thread]:
    """A thread holds from 1 on, another is granted at 2."""
    return [Thread("1.1").takes(1, 10).leaves(end, **ends), Thread("2.1").takes(2, token).leaves(2.5)]


def test_two_inside() -> None:
    """Two threads inside a mutex at once are found, and the words say who."""
    (violation,) = found(overlap(), LOCK)
    assert violation.rule == "exclusion"
    assert "2.1/1 (lock, token 11, since 2.000) while 1.1/1" in violation.words


def test_found_also_when_another_came_between() -> None:
    """A hold that ends soon does not hide the one that goes on."""
    readers = [Thread("1.1", role="read").takes(1, 10).leaves(5), Thread("2.1", role="read").takes(2, 11).leaves(3)]
    (violation,) = found([*readers, Thread("3.1", role="write").takes(4, 12).leaves(6)], PAIR)
    assert "3.1/1 (write, token 12, since 4.000) while 1.1/1" in violation.words


def test_levels_of_a_reentrant_mutex() -> None:
    """Its holder may come in again; it is free when it was left as often, and not before."""
    holder = Thread("1.1").takes(1, 10).takes(2, 10, new=False).leaves(3).leaves(5)
    assert found([holder, Thread("2.1").takes(6, 11).leaves(7)], AGAIN) == []
    assert rules([holder, Thread("2.1").takes(4, 11).leaves(4.5)], AGAIN) == ["exclusion"]


def test_a_downgrade() -> None:
    """A writer may read as well, and go on reading with the writer's token; no other writer gets in between."""
    writer = Thread("1.1", role="write").takes(1, 10)
    writer.add(2, What.ASKS, "read").add(2.1, What.GRANTED, "read", token=10).leaves(3, role="write")
    writer.leaves(5, role="read")
    reader = Thread("2.1", role="read").takes(4, 11).leaves(4.5)
    assert found([writer, reader, Thread("3.1", role="write").takes(6, 12).leaves(7)], PAIR) == []
    assert rules([writer, Thread("3.1", role="write").takes(4, 12).leaves(7)], PAIR) == ["exclusion"]


def test_permits() -> None:
    """As many are inside as there are permits, and no more."""
    threads = [Thread(f"{n}.1").takes(n, 20 - n).leaves(10) for n in (1, 2, 3)]
    assert found(threads, Semaphore(3)) == []
    assert rules(threads, Semaphore(2)) == ["exclusion"]


def test_told_before_the_successor() -> None:
    """A holder that was told of the loss before another was granted is not inside any more."""
    assert found([overlap(outcome=What.LOST)[0].told(1.9), overlap()[1]], LOCK) == []


def test_told_after_the_successor() -> None:
    """A holder that was told too late was inside, and the words say so."""
    (violation,) = found([overlap(outcome=What.LOST)[0].told(2.1), overlap()[1]], LOCK)
    assert violation.rule == "exclusion"
    assert "told of its loss only at 2.100" in violation.words


STOPPED = Fault(STOPPED_LONG, 1.5, 8.0, "1.1")


def test_a_stopped_process_is_excused_until_it_goes_on() -> None:
    """It can't be told meanwhile; soon after, it is."""
    for told, broken in ((8.2, []), (8.0 + GRACE + 0.5, ["exclusion"])):
        threads = [overlap(end=told + 0.1, outcome=What.LOST)[0].told(told), overlap()[1]]
        assert rules(threads, LOCK, STOPPED) == broken
        assert rules(threads, LOCK, replace(STOPPED, process="3.1")) == ["exclusion"]


def test_a_stopped_holder_must_learn_by_its_release() -> None:
    """Its release says that the hold was lost."""
    assert rules(overlap(end=8.1), LOCK, STOPPED) == ["told by release"]


def test_a_starved_process_is_excused() -> None:
    """A machine that gives a process no time has stopped it."""
    threads = [overlap(end=4.1, outcome=What.LOST)[0].told(4.0), overlap()[1]]
    threads[0].events.append(Event(4.0, "1.1", 0, What.STARVED, limit=3.0))
    assert found(threads, LOCK) == []


def test_a_robbed_client_is_excused_until_its_lease_ends() -> None:
    """Somebody closed its session, so the server gave the lock away at once; it hears of that within its lease."""
    theft = Fault(EXPIRED, 1.8, 1.9, "1.1")
    in_time, late = 1.9 + 0.9 * TIMEOUT, 1.9 + TIMEOUT + GRACE + 0.5
    for told, broken in ((in_time, []), (late, ["exclusion"])):
        threads = [overlap(end=told + 0.1, outcome=What.LOST)[0].told(told), overlap()[1]]
        assert rules(threads, LOCK, theft) == broken
    other_client = Fault(EXPIRED, 1.8, 1.9, "1.1", client=1)
    assert rules([overlap(end=2.1, outcome=What.LOST)[0].told(2.0001), overlap()[1]], LOCK, other_client)


def test_who_waited_when_all_was_healed_must_come_in_soon() -> None:
    """Nobody sleeps on although the lock is free."""
    healed = 5.0
    for after, broken in ((SLOW - 1, []), (SLOW + 1, ["progress"])):
        waits = Thread("1.1").add(4, What.ASKS).add(healed + after, What.GRANTED, token=10)
        waits.leaves(healed + after + 0.1).add(healed + after + 0.2, What.DONE)
        assert rules([waits], LOCK, healed=healed) == broken


def test_a_killed_process_holds_nothing() -> None:
    """A hold ends when its process is killed."""
    killed = Thread("1.1").takes(1, 10)
    threads = [killed, Thread("2.1").takes(2, 11).leaves(3)]
    assert found(threads, LOCK, Fault(KILLED, 1.5, 1.6, "1.1")) == []
    assert "exclusion" in rules(threads, LOCK)


@pytest.mark.parametrize("token", [9, 10])
def test_tokens_that_do_not_grow(token: int) -> None:
    """A holder's token is higher than those before it."""
    threads = [Thread("1.1").takes(1, 10).leaves(2), Thread("2.1").takes(3, token).leaves(4)]
    assert rules(threads, LOCK) == ["tokens"]


def test_tokens_between_readers_and_writers() -> None:
    """A writer after a reader has the higher token, and the other way round."""
    for first, second in (("read", "write"), ("write", "read"), ("write", "write")):
        before = Thread("1.1", role=first).takes(1, 10).leaves(2)
        assert found([before, Thread("2.1", role=second).takes(3, 11).leaves(4)], PAIR) == []
        assert rules([before, Thread("2.1", role=second).takes(3, 9).leaves(4)], PAIR) == ["tokens"]


def test_a_release_after_a_loss_must_say_so() -> None:
    """It raises LockLostError."""
    assert found([Thread("1.1").takes(1, 10).told(2).leaves(3, What.LOST)], LOCK) == []
    assert rules([Thread("1.1").takes(1, 10).told(2).leaves(3)], LOCK) == ["told by release"]


def test_every_release_after_a_loss_must_say_so() -> None:
    """At every level."""
    holder = Thread("1.1").takes(1, 10).takes(1.5, 10, new=False).told(2)
    assert found([holder.leaves(3, What.LOST).leaves(4, What.LOST)], AGAIN) == []
    holder = Thread("1.1").takes(1, 10).takes(1.5, 10, new=False).told(2)
    assert rules([holder.leaves(3, What.LOST).leaves(4)], AGAIN) == ["told by release"]


def test_a_release_without_a_loss_must_not_raise() -> None:
    """LockLostError is for what was lost."""
    assert rules([Thread("1.1").takes(1, 10).leaves(3, What.LOST)], LOCK) == ["told by release"]


def test_an_acquire_without_a_loss_must_not_raise() -> None:
    """To acquire again raises LockLostError if the hold was lost, and only then."""
    holder = Thread("1.1").takes(1, 10)
    again = [What.ASKS, What.LOST]
    lost = Thread("1.1").takes(1, 10).told(1.5).add(2, again[0]).add(2.1, again[1]).leaves(3, What.LOST)
    assert found([lost], AGAIN) == []
    assert rules([holder.add(2, again[0]).add(2.1, again[1]).leaves(3)], AGAIN) == ["told by acquire"]


def test_on_lost_is_called_once_for_each_loss() -> None:
    """Not never, and not twice; of a killed process nobody can say."""
    never = Thread("1.1").takes(1, 10).add(2, What.TOLD).leaves(3, What.LOST)
    twice = Thread("1.1").takes(1, 10).told(2).add(2, What.CALLED).leaves(3, What.LOST)
    assert rules([never], LOCK) == rules([twice], LOCK) == ["on_lost"]
    assert found([never], LOCK, Fault(KILLED, 3.5, 3.6, "1.1")) == []


def test_a_timed_acquire_that_is_late() -> None:
    """It comes back within its timeout and a margin, not counting the time in which its process was stopped."""
    for took, broken in ((1.1, []), (1.1 + MARGIN, ["punctuality"])):
        waiter = Thread("1.1").add(1, What.ASKS, limit=1.0).add(1 + took, What.REFUSED)
        assert rules([waiter], LOCK) == broken
        assert rules([waiter], LOCK, Fault(STOPPED_LONG, 1.2, 4.0, "1.1")) == []


def done(thread: Thread) -> Thread:
    """Let a thread end as it should."""
    return thread.add(20, What.DONE)


def test_everybody_goes_on_after_all_is_healed() -> None:
    """Each thread ends its call, acquires and releases once more, and is done."""
    assert found([done(Thread("1.1").takes(11, 10).leaves(12))], LOCK, healed=10) == []
    assert rules([done(Thread("1.1").takes(1, 10).leaves(2))], LOCK, healed=10) == ["progress"]
    assert rules([Thread("1.1").takes(11, 10).leaves(12)], LOCK, healed=10) == ["progress"]
    (stuck,) = found([Thread("1.1").takes(11, 10).leaves(12).add(13, What.ASKS)], LOCK, healed=10)
    assert "stuck: the last of it is '13.0000 1.1/1 asks" in stuck.words
    assert found([Thread("1.1").add(1, What.ASKS)], LOCK, Fault(KILLED, 5, 5, "1.1"), healed=10) == []


def test_errors_that_should_not_be() -> None:
    """An error of another kind is told with its words."""
    (violation,) = found([Thread("1.1").add(1, What.ASKS).add(2, What.FAILED, note="ValueError: no")], LOCK)
    assert (violation.rule, violation.words) == ("failures", "1.1/1: ValueError: no")
