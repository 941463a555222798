"""Latches in the simulation: threads that count down, ask and wait."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tests.models.latch import Latch
from tests.simulation.world.calls import Call, CallChecks, CallRun, CallWorker, lagging
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import Schedule, random_schedule
from tests.simulation.world.world import Violation
from zkconcurrent._memory import changes
from zkconcurrent._recipes.latch import ROLE
from zkconcurrent._threads.latch import CountDownLatch

PATH = "/app/c"
COUNT = 4
# No operator here: a deleted node of a latch counts as never counted.
NOT_HERE = {"number": "lag", "clog": "lag", "reap": "lag", "remove": "cut"}


class Step(NamedTuple):
    """The action of a thread: "count_down" by n, "count", "wait" or "sleep" for some seconds."""

    what: str
    n: int = 1
    seconds: float | None = None


class LatchChecks(CallChecks):
    """The invariants of a latch."""

    model = Latch(COUNT)
    piecemeal = ("destroy",)

    def state(self, before: int | None, step: changes.Step) -> int | None:
        """Return what is left to count, after a step of a change."""
        if isinstance(step, changes.Made) and step.path.startswith(f"{self.path}/"):
            return max(0, (COUNT if before is None else before) - int(step.path.rpartition(ROLE)[2]))
        return before

    def wrote(self, call: Call, step: changes.Step) -> None:
        """No call counts that has begun at an open latch."""
        super().wrote(call, step)
        if call.wrote and not self.modelled(call.begun)[0]:
            raise Violation(f"{call} has counted an open latch down")


class LatchWorker(CallWorker):
    """A thread that uses a latch."""

    def _visit(self, step: Step) -> None:  # type: ignore[override]
        if step.what == "sleep":
            self.world.sleep(step.seconds or 0.0)
            return
        latch, counts = CountDownLatch(self.process.client, PATH, COUNT), (step.n,) * (step.what == "count_down")
        with self.calling(step.what, step.seconds, *counts) as call:
            if step.what == "wait":
                call.outcome = latch.wait(step.seconds)
            elif step.what == "count":
                call.outcome = latch.count
            else:
                latch.count_down(*counts)
                call.outcome = None


class LatchRun(CallRun):
    """A run of such workers."""

    path = PATH
    worker = LatchWorker
    invariants = LatchChecks

    def rescue(self) -> None:
        """Count all down, as a process that is not of the run."""
        mine = f"{CHROOT}{PATH}/_c_{'0' * 36}-{ROLE}{COUNT}"
        if CHROOT + PATH in self.ensemble.leader.nodes and mine not in self.ensemble.leader.nodes:
            self.ensemble.ask(0, changes.Create(mine))


def random_steps(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    steps = [[(start, [_step(random) for _ in range(random.randint(1, 4))]) for start, _ in each] for each in threads]
    return Schedule(steps, lagging(random, deviations, NOT_HERE))  # type: ignore[arg-type]


def _step(random: Random) -> Step:
    what = random.choice(("count_down", "count_down", "count_down", "wait", "wait", "wait", "count", "sleep"))
    if what == "sleep":
        return Step(what, seconds=random.choice((0.05, 0.3, 1.0, 3.0)))
    seconds = random.choice((None, None, None, 0.0, 0.05, 1.0, 3.0)) if what == "wait" else None
    return Step(what, random.choice((1, 1, 1, 2, 3)) if what == "count_down" else 1, seconds)
