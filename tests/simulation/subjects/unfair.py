"""Unfair locks in the simulation: the same visits, to locks that threads of one process hand to each other."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import patch

from tests.simulation.checks.invariants import Checks
from tests.simulation.world.run import Run
from tests.simulation.world.schedule import Deviation, Schedule, random_schedule
from tests.simulation.world.workload import Section, Visit, Worker
from tests.simulation.world.world import Violation
from zkconcurrent._engine.call import Call
from zkconcurrent._protocol.ticket import State, Ticket
from zkconcurrent._threads.base.lock_base import LockBase
from zkconcurrent._threads.lock import Lock
from zkconcurrent._threads.rlock import RLock


class UnfairChecks(Checks):
    """The invariants of the hand-off, on top of those of locks.

    Attributes:
        handed_over: how often a thread came in by the ticket of another.
        stale: the holds that were lost while they were kept for the next thread.
    """

    handed_over = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.stale: set[Ticket] = set()

    def step(self) -> None:
        """No two threads are in by one ticket."""
        super().step()
        for process in self.processes:
            for ref in process.session.directory.valuerefs():  # in a third of the time of `values`
                handoff = getattr(ref(), "handoff", None)
                if handoff is not None and (kept := handoff._kept) is not None and kept.state is State.LOST:
                    self.stale.add(kept)
        inside: dict[object, Section] = {}
        for section in self.sections:
            if section.worker.process.alive and section.ticket.state is State.HELD:
                other = inside.setdefault(section.ticket, section)
                if other is not section:
                    raise Violation(f"{section.worker.name} and {other.worker.name} are in by {section.ticket}")

    def end(self) -> None:
        """Nobody waits for a hand-off, and nothing is kept."""
        for section in self.past:
            # Handed on by a release that was interrupted after that: a loss is told to the thread that has it then.
            section.left = section.left or (
                section.hold.claimant is not None
                and not any(state.has(section.hold) for state in section.worker.process.session.directory.values())
            )
        super().end()
        for process in self.processes:
            for state in list(process.session.directory.values()) if process.alive else ():
                if state.handoff is not None and (state.handoff._next_waiter() or not state.handoff._is_open()):
                    raise Violation(f"left in {process.name}: the hand-off of {state.path} is closed")

    def quiet(self) -> None:
        """Nobody waits to enter where nobody asks or holds, and nothing is kept for nobody; when nothing is amiss."""
        super().quiet()
        if self.faults():
            return
        for process in self.processes:
            if not process.alive or process.client._queue:
                continue
            for state in list(process.session.directory.values()):
                tickets = process.session.registry.tickets.values()
                handoff, there = state.handoff, any(ticket.path == state.path for ticket in tickets)
                if handoff is not None and handoff._next_waiter() and not there and process.client.connected:
                    raise Violation(f"{process.name}: threads wait for each other at {state.path}, and nobody asks")
                if handoff is not None and handoff._kept is not None and handoff._kept.state is State.HELD:
                    raise Violation(f"{process.name}: {handoff._kept} is kept, and nobody takes it")


class UnfairWorker(Worker):
    """A worker whose locks are all unfair."""

    checks: UnfairChecks

    def _lock(self, visit: Visit) -> LockBase:
        kind = RLock if visit.reentrant else Lock
        return kind(self.process.client, visit.path, fair=False)

    def _enter(self, lock: LockBase) -> Section:
        section = super()._enter(lock)
        if section.ticket in self.checks.stale:
            raise Violation(f"{self.name} was given {section.ticket}")
        if any(each.ticket is section.ticket for each in self.checks.past):
            self.checks.handed_over += 1
        return section


class UnfairRun(Run):
    """A run of such workers, in which somebody keeps every traceback, and with it every driver."""

    worker = UnfairWorker
    invariants = UnfairChecks
    checks: UnfairChecks

    def to_the_end(self) -> int:
        """Run until all is done; see `Run`."""
        begin = Call.__init__
        kept = []

        def begun(driver: Call, *arguments: Any, **options: Any) -> None:
            kept.append(driver)
            begin(driver, *arguments, **options)

        with patch.object(Call, "__init__", begun):
            return super().to_the_end()


class ClosedRun(UnfairRun):
    """A run in which an operator closes the session while a ticket is kept for the next thread, which comes late.

    Args:
        at: at which of the steps at which something is kept.
    """

    def __init__(self, at: int) -> None:
        visits = [Visit("/app/l", stay=0.0)] * 3
        super().__init__(Schedule([[(0.0, visits)] * 4, [(0.3, visits[:1])]], []))
        self.kept_for = 0
        self._at = at
        self.world.check = self._check_and_close

    def _check_and_close(self) -> None:
        self.checks.step()
        process = self.processes[0]
        if any(place.handoff is not None and place.handoff._kept for place in process.session.directory.values()):
            if self.kept_for == self._at:
                self._close(Deviation(1, "close", 0, 0))
                for worker in self.workers:
                    if worker.process is process:
                        process.starve(worker.actor, self.world.now + 1e-3)
            self.kept_for += 1


def random_unfair(seed: int) -> Schedule:
    """Return the random schedule of a seed: many threads, whose stays are often short."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    crowded = [
        [(start, [_short(random, visit) for visit in visits]) for start, visits in process * random.randint(1, 2)]
        for process in threads
    ]
    return Schedule(crowded, deviations)


def _short(random: Random, visit: Visit) -> Visit:
    within = None if visit.within is None else _short(random, visit.within)
    return visit._replace(stay=random.choice((0.0, 0.0, 0.02, visit.stay)), within=within)
