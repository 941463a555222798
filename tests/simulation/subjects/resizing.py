"""Semaphores whose number of permits changes: threads of the run's processes resize them, add, take and give back."""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import patch

from tests.simulation.subjects.semaphore import (
    LEASES,
    LOCKS,
    PATH,
    PERMITS,
    VALUE,
    PermitChecks,
    SemaphoreRun,
    User,
    random_uses,
)
from tests.simulation.world.ensemble import removed_by
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import Schedule
from tests.simulation.world.world import Violation
from zkconcurrent._memory import changes
from zkconcurrent._protocol.operations import Node
from zkconcurrent._protocol.permits import count
from zkconcurrent._recipes.nodes import PathCheck
from zkconcurrent._recipes.semaphore import SemaphoreLayout, parse
from zkconcurrent._threads import semaphore as _semaphore
from zkconcurrent._threads.semaphore import Semaphore

RESCUE, AGAIN, ENOUGH = 30.0, 5.0, 5  # when those are let go that wait for too many permits


class Resizer(User):
    """A worker that also changes the number of permits, as it leaves a use by "resize"."""

    checks: ResizeChecks

    def _visit(self, use: Any) -> None:
        if use.leave != "resize":
            super()._visit(use)
            return
        self.world.say(f"resizes to {use.permits}")
        semaphore = Semaphore(self.process.client, PATH, VALUE)
        change = self.checks.resizing(use.permits)
        semaphore.resize(use.permits)
        self.checks.resized(use.permits, change)

    def _add(self, semaphore: Semaphore, permits: int) -> None:
        self.world.say(f"adds {permits}")
        change = self.checks.adding(permits)
        semaphore.release(permits)
        self.checks.added(permits, change)


class ResizeChecks(PermitChecks):
    """Nobody gets a permit that was not free since it queued; nobody waits for a free one; the last number stays.

    Attributes:
        at_least, at_most: how many more than `VALUE` there are.
        open: the changes that have begun and not ended, or whose outcome is unknown; of those that add, how many.
        begun: how many have begun.
        last_resize: the last that has begun.
        crossed: those that began while another was open.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.open: dict[int, int] = {}
        self.begun = self.last_resize = 0
        self.crossed: set[int] = set()

    def _begin(self, adds: int) -> int:
        self.begun += 1
        if self.open:
            self.crossed.add(self.begun)
        self.open[self.begun] = adds
        return self.begun

    def adding(self, permits: int) -> int:
        """Note that permits may be added from now on."""
        self.at_most += permits
        return self._begin(permits)

    def added(self, permits: int, change: int) -> None:
        """Note that they were; a resize at the same time may have counted them."""
        del self.open[change]
        if self.last_resize < change and change not in self.crossed:
            self.at_least += permits

    def resizing(self, permits: int) -> int:
        """Note that there may be so many from now on; those that are being added may come on top."""
        more = permits - VALUE
        self.at_least = min(self.at_least, more)
        self.at_most = max(self.at_most, more + sum(self.open.values()))
        self.last_resize = self._begin(0)
        return self.last_resize

    def resized(self, permits: int, change: int) -> None:
        """Note that there are, if nothing else happened meanwhile."""
        del self.open[change]
        if not self.open and self.begun == change and change not in self.crossed:
            self.at_least = self.at_most = permits - VALUE

    def _check_number(self, out: list[Any]) -> None:
        """A resize may leave fewer than are out; the grants are checked at the end."""

    def end(self) -> None:
        """Each grant was of permits that were free, by a look at the leases and a later one at their number."""
        super().end()
        nodes: dict[str, bytes] = {}
        free: list[tuple[int, int]] = []  # by the changes before: how many leases, and how many permits
        queued: dict[str, int] = {}
        for number, change in enumerate(self.ensemble.log):
            free.append((sum(path.startswith(f"{CHROOT}{LEASES}/") for path in nodes), self._size_of(nodes)))
            made = [step.path for step in change if isinstance(step, changes.Made)]
            queued.update(dict.fromkeys(made, number))
            taken = sum(path.startswith(f"{CHROOT}{LEASES}/") for path in made)
            for step in change:
                if isinstance(step, changes.Made | changes.Written):
                    nodes[step.path] = step.data or b""
                for path in removed_by(step):
                    nodes.pop(path, None)
                    if taken and path.startswith(f"{CHROOT}{LOCKS}/"):
                        self._check_taken(taken, free[queued[path] :], path)

    @staticmethod
    def _check_taken(taken: int, free: list[tuple[int, int]], by: str) -> None:
        most = 0
        for leases, size in reversed(free):
            most = max(most, size)
            if leases + taken <= most:
                return
        raise Violation(f"{by} got {taken} permits, and they were never free since it queued: {free}")

    @staticmethod
    def _size_of(nodes: dict[str, bytes]) -> int:
        if CHROOT + PERMITS not in nodes:
            return VALUE
        at = SemaphoreLayout(PATH, None, PathCheck(PATH, "Semaphore"))
        number, _ = parse(at, Node(nodes[CHROOT + PERMITS], 0, 0.0, 0))
        below = f"{CHROOT}{PERMITS}/"
        return number + count([path.removeprefix(below) for path in nodes if path.startswith(below)])


class ResizeRun(SemaphoreRun):
    """A run of such workers."""

    worker = Resizer
    invariants = ResizeChecks
    checks: ResizeChecks

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        for n in range(70):
            self.world.at(self.world.now + RESCUE + n * AGAIN, self.rescue)

    def to_the_end(self) -> int:
        """Run until all is done; see `Run`. An acquire of more permits than a resize has left warns."""
        with patch.object(_semaphore, "warn", lambda _: None):
            return super().to_the_end()

    def rescue(self) -> None:
        """Have enough permits for all, as a process that is not of the run, if somebody waits."""
        path, leader = CHROOT + PERMITS, self.ensemble.leader
        if path in leader.nodes and leader.children(CHROOT + LOCKS):
            change = self.checks.resizing(ENOUGH)
            number = ENOUGH - count(leader.children(path))
            self.ensemble.ask(0, changes.SetData(path, b"%d resized" % number))
            self.checks.resized(ENOUGH, change)


def random_resizes(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    schedule = random_uses(seed)
    threads: list[Any] = [
        [
            (
                start,
                [
                    each._replace(leave="resize", permits=random.choice((0, 1, 2, 3, 4, 5)))  # type: ignore[call-arg]
                    if random.random() < 0.3
                    else each
                    for each in visits
                ],
            )
            for start, visits in process
        ]
        for process in schedule.threads
    ]
    return schedule._replace(threads=threads)
