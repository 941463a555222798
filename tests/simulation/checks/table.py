"""The table of operations x faults: every operation of every recipe meets every fault that can befall it.

The rows are the operations of the recipes, as a target thread performs them in some situation; the columns are those
faults of faults.md that are marked S and concern the primitives there are. A situation is run once to see which
operations there are, then once for each operation, fault and moment; each run goes to its end with all checks. A fault
that cannot befall an operation is said to be impossible, with the reason, and all others must have happened.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.helpers.places import FEWER
from tests.simulation.world.ensemble import Transport
from tests.simulation.world.injection import InjectedRun, Injection, Situation, Way
from tests.simulation.world.schedule import LAST

# -- the faults ------------------------------------------------------------------------------------------------------


def expire(run: InjectedRun) -> bool:
    """The connection is cut until the session is over."""
    return run.cut(6.6)


def expire_and_linger(run: InjectedRun) -> bool:
    """The same; the next session begins at a server that still has the nodes of the old one."""
    run.lag(14)
    return run.cut(6.6, follower=True)


def lose_by_clock(run: InjectedRun) -> None:
    """The process is stopped until the lease has run out, which is before the session is over."""
    left = run.target.process.session.registry.lease.end - run.world.now
    run.stop(max(left, 2.0) + 0.02)


def expire_and_starve(run: InjectedRun) -> None:
    """The session is over, and another thread of the process holds anew, before the target goes on."""
    run.cut(6.6)
    run.starve(8)


def isolate(run: InjectedRun) -> None:
    """The server of the target's client is cut off from the leader until the session is over."""
    run.isolate(7)
    run.starve(8)


def answer_late(run: InjectedRun) -> None:
    """The answer to a heartbeat comes late, and nothing after it: the connection is cut until the session is over."""

    def cut() -> None:
        run.cut(7)

    def late(wire: Transport) -> None:
        wire.silent_until = run.world.now + 1.9
        run.world.at(wire.silent_until, lambda: setattr(run, "before_next_request", cut))

    run.after_next_answer = late
    run.starve(12)


def close_session(run: InjectedRun) -> bool:
    """An operator closes the session."""
    wire = run.target.process.connection.wire
    if wire is None or not wire.open:
        return False
    nodes = run.ensemble.leader.ephemerals(wire.session.number)
    run.ensemble.end_session(wire.session)
    for node in nodes:
        run.checks.remove(node)
    run.starve(5)
    return True


def close_session_only(run: InjectedRun) -> bool:
    """The same, and its connection stays."""
    wire = run.target.process.connection.wire
    if wire is not None:
        wire.outlives = True
    return close_session(run)


def interrupt(run: InjectedRun) -> None:
    """It is interrupted."""
    run.interrupt()


def between_sessions(run: InjectedRun) -> None:
    """It gets no turn until its session is over and the next has not begun."""
    run.cut(6.6)
    run.starve(6.65)


def into_next_session(run: InjectedRun) -> None:
    """It gets no turn until the next session has begun."""
    run.cut(6.6)
    run.starve(7)


def into_next_session_and_cut(run: InjectedRun) -> None:
    """The same, and there the answer to its next request is lost."""

    def lose(_: Transport) -> None:
        run.cut(0)

    def listen() -> None:
        run.after_next_answer = lose

    run.cut(6.6)
    run.world.at(run.world.now + 6.9, listen)
    run.starve(7)


def predecessor_gives_up(run: InjectedRun) -> bool:
    """Somebody ahead in the queue, not the holder, gives up."""
    ahead = [worker for worker in run.workers[1:] if not worker.done and worker.visits[0].wait != -1]
    if ahead:
        run.world.throw(ahead[-1].actor, KeyboardInterrupt())
    return bool(ahead)


def hold_answers(run: InjectedRun) -> bool:
    """Nothing is heard until the very moment at which the target's time is up."""
    wire = run.target.process.connection.wire
    deadline = run.deadline()
    if wire is None or not wire.open or deadline <= run.world.now:
        return False
    run.stall(wire, deadline - run.world.now)
    return True


def hear_nothing(run: InjectedRun) -> bool:
    """Nothing is heard for longer than the target has time."""
    wire = run.target.process.connection.wire
    if wire is None or not wire.open:
        return False
    run.stall(wire, 3.5)
    return True


def throttle(run: InjectedRun) -> bool:
    """The server is too busy for one request, and serves those behind it; the target gets no turn for a while."""
    wire = run.target.process.connection.wire
    if wire is None or not wire.open:
        return False
    wire.throttled = True
    run.target.process.starve(run.target.actor, run.world.now + 1)
    return True


def count_from(number: int, wraps: bool = False) -> Way:
    """The queue's sequence numbers are near their end."""

    def count(run: InjectedRun) -> bool:
        path = run.queue
        if path not in run.ensemble.leader.nodes:
            return False
        run.ensemble.wraps = wraps
        run.ensemble.count_from(path, number)
        return True

    return count


def lose_answer(run: InjectedRun) -> bool:
    """The connection is cut, with what is on it."""
    return run.cut(0)


def stay_away(run: InjectedRun) -> bool:
    """The connection is cut for a while, and the next one is to a follower."""
    return run.cut(1, follower=True)


def miss_it(run: InjectedRun) -> bool:
    """The connection is cut for so long that the awaited event happens in the gap."""
    return run.cut(2.5)


def kill(run: InjectedRun) -> None:
    """The process is killed."""
    run.stop(math.inf)


def pause(run: InjectedRun) -> None:
    """It gets no turn for a moment."""
    run.starve(0.08)


def delete_node(run: InjectedRun) -> bool:
    """An operator deletes the target's newest node."""
    return run.delete_node()


def forget(_: InjectedRun) -> None:
    """The object is dropped, which the target does by itself."""


BEFORE, SENT, BETWEEN, SERVED, AFTER = "before", "sent", "between", "served", "after"
ANY = (BEFORE, SENT, SERVED, AFTER)


class Fault(NamedTuple):
    """A fault of faults.md, and how it happens."""

    number: int
    ways: tuple[tuple[Way, tuple[str, ...]], ...]


EVERYWHERE = (interrupt, between_sessions, into_next_session, into_next_session_and_cut)
"""Faults for every point at which the target's turn can end, not only at its operations."""

OVER = Fault(
    6,
    (
        (expire, ANY),
        (isolate, (BEFORE,)),
        (answer_late, (BEFORE,)),
        (close_session, (BEFORE,)),
        (close_session_only, (BEFORE,)),
    ),
)

LOST = (SENT, BETWEEN, SERVED)
COLUMNS = (
    Fault(1, ((lose_answer, LOST),)),
    Fault(2, ((expire, (SENT, SERVED)), (expire_and_linger, (SENT, SERVED)))),
    Fault(3, ((lose_answer, (SENT, SERVED)),)),
    Fault(4, ((lose_answer, (BEFORE, *LOST, AFTER)), (stay_away, LOST))),
    Fault(5, ((expire, ANY),)),
    OVER,
    Fault(7, ((miss_it, ANY),)),
    Fault(8, ((miss_it, ANY),)),
    Fault(13, ((expire_and_linger, (BEFORE, AFTER)),)),
    Fault(16, ((interrupt, ANY),)),
    Fault(17, ((hold_answers, (BEFORE, SENT, SERVED)), (hear_nothing, (BEFORE, SENT, SERVED)))),
    Fault(18, ((predecessor_gives_up, ANY),)),
    Fault(20, ((delete_node, ANY),)),
    Fault(22, tuple((count_from(LAST - n, wraps), (BEFORE,)) for n in range(3) for wraps in (False, True))),
    Fault(32, ((kill, ANY),)),
    Fault(35, ((lose_answer, LOST), (miss_it, LOST), (expire, ANY))),
    Fault(36, ((kill, ANY), (expire, (SENT, SERVED)), (close_session, (BEFORE,)))),
    Fault(39, ((expire_and_starve, (BEFORE,)),)),
    Fault(40, ((lose_by_clock, ANY),)),
    Fault(42, ((forget, (BEFORE,)),)),
    Fault(160, ((throttle, (BEFORE, SENT, BETWEEN)),)),
)


def columns(*numbers: int) -> tuple[Fault, ...]:
    """Return the columns of some faults."""
    return tuple(fault for fault in COLUMNS if fault.number in numbers)


SETTLES = {"Release", "ReleaseOneLevel", "AcquireAgain", "Forget"}
SILENT = {
    "NewTicket",
    "Grant",
    "SuspendHold",
    "MarkDeleted",
    "MarkMissing",
    "AcquireAgain",
    "ReleaseOneLevel",
    "Forget",
    "DetachTicket",
}
WRITES = {"CreateEphemeral", "Multi", "CreatePersistent", "CreateTogether", "SetNode"}
WAITS = {"WaitGone", "Watch", "Wait", "WaitRecursive"}


def impossible(recipe: str, operation: str, fault: int) -> str | None:
    """Return why the fault can't befall the operation, whatever the primitive; None if it may."""
    parts = set(operation.split("+"))
    if fault in (1, 2) and not parts & WRITES:
        return "makes and writes nothing"
    if fault == 3 and not parts & {"Release", "Discard", "Delete"}:
        return "deletes nothing"
    if (fault == 4 and parts & SILENT and operation != "NewTicket") or (
        fault == 160 and not parts - SILENT - {"Wait", "WaitRecursive", "ProveLease"}
    ):
        return "sends nothing"
    if fault in (5, 7, 8) and not parts & WAITS:
        return "waits for nobody"
    if fault == 17 and "timed" not in recipe:
        return "has no deadline"
    if fault == 22 and "CreateEphemeral" not in parts:
        return "takes no number"
    if fault == 42 and operation != "Forget":
        return "the object is in use"
    return None


class Cell(NamedTuple):
    """Where a injection is counted."""

    recipe: str
    operation: str
    fault: int


class Table(NamedTuple):
    """The table of some primitives.

    Attributes:
        name: the primitives'.
        run: the runs in which faults are injected at their operations.
        situations: the targets' actions in these.
        faults: the columns.
        impossible: returns why a fault can't befall an operation of a recipe; None if it can.
        most: at how many of the places with such an operation a fault is injected.
    """

    name: str
    run: type[InjectedRun]
    situations: tuple[Situation, ...]
    faults: tuple[Fault, ...]
    impossible: Callable[[str, str, int], str | None]
    most: int = FEWER

    def injections(self) -> Iterator[tuple[Situation, Injection, Cell]]:
        """Yield every injection of every situation."""
        calm = [self.run(situation) for situation in self.situations]
        for run in calm:
            run.to_the_end()
        places = Counter(row for run in calm for row in run.operations)
        seen: Counter[tuple[str, str]] = Counter()
        for run in calm:
            for index, row in enumerate(run.operations):
                here, there = seen[row], places[row]
                seen[row] += 1
                n = min(there, self.most)
                for turn, (fault, way, moment) in enumerate(self._ways(*row)):
                    if here in {(turn + k * there // n) % there for k in range(n)}:  # another place each time
                        yield run.situation, Injection(index, fault, way, moment), Cell(*row, fault)

    def _ways(self, recipe: str, operation: str) -> Iterator[tuple[int, Way, str]]:
        for fault in self.faults:
            if not self.impossible(recipe, operation, fault.number):
                for way, moments in fault.ways:
                    for moment in moments:
                        yield fault.number, way, moment

    def holes(self, cells: Counter[Cell]) -> list[Cell]:
        """Return the cells in which nothing happened although it could."""
        rows = {(cell.recipe, cell.operation) for cell in cells}
        return [
            Cell(recipe, operation, fault.number)
            for recipe, operation in sorted(rows)
            for fault in self.faults
            if not self.impossible(recipe, operation, fault.number) and not cells[Cell(recipe, operation, fault.number)]
        ]
