"""Read-write locks in the simulation: threads that read, write, and go over from writing to reading."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tests.simulation.world.run import Run
from tests.simulation.world.schedule import Schedule, random_schedule
from tests.simulation.world.workload import Section, Visit, Worker
from zkconcurrent._errors import LockLostError
from zkconcurrent._protocol.ticket import State
from zkconcurrent._threads.base.lock_base import LockBase
from zkconcurrent._threads.rwlock import ReadWriteLock

PATH = "/app/w"
# An operator's deletes, and numbers at their end: the checks know the excuses of two holders then for mutexes only.
NOT_HERE = {"remove": "cut", "close": "expire", "number": "turn"}


class Pass(NamedTuple):
    """A visit to a read-write lock; its fields are those of `Visit`, and as what: "read", "write" or "downgrade"."""

    path: str
    reentrant: bool
    wait: float
    depth: int
    stay: float
    leave: str
    within: Visit | None
    role: str


class RWWorker(Worker):
    """A worker that knows of both kinds of visits."""

    def _lock(self, visit: Visit | Pass) -> LockBase:
        if not isinstance(visit, Pass):
            return super()._lock(visit)
        pair = ReadWriteLock(self.process.client, visit.path)
        return pair.read_lock if visit.role == "read" else pair.write_lock

    def _visit(self, visit: Visit | Pass) -> None:
        if isinstance(visit, Pass) and visit.role == "downgrade":
            self._downgrade(visit)
        else:
            super()._visit(visit)

    def _downgrade(self, visit: Pass) -> None:
        """Write, begin to read, stop writing, and stop reading."""
        write, read = self._lock(visit), self._lock(visit._replace(role="read"))
        writing: Section | None = None
        reading: Section | None = None
        try:
            try:
                if not self._acquire(write, visit, 0):
                    return
                writing = self._enter(write)
                self._stay(visit)
                try:
                    if self._acquire(read, visit, 0):
                        reading = self._enter(read)
                        self.world.say("reads what it wrote")
                except LockLostError:
                    if writing.ticket.state is not State.LOST:
                        raise
            finally:
                if writing is not None:
                    self._release_level(write, visit, writing, 1)
                else:
                    self._settle(write)
            if reading is not None:
                self.world.sleep(visit.stay)
        finally:
            try:
                if reading is not None:
                    self._release_level(read, visit, reading, 1)
            finally:
                self._settle(read)


class RWRun(Run):
    """A run of such workers."""

    worker = RWWorker


def random_passes(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    passes = [[(start, [_pass(random, visit) for visit in visits]) for start, visits in process] for process in threads]
    return Schedule(passes, [each._replace(kind=NOT_HERE.get(each.kind, each.kind)) for each in deviations])


def _pass(random: Random, visit: Visit) -> Pass:
    role = random.choice(("read", "read", "write", "write", "downgrade", "downgrade"))
    leave = visit.leave if visit.leave != "lend" else "release"
    return Pass(PATH, True, visit.wait, random.randint(1, 2), visit.stay, leave, visit.within, role)
