"""Latches in the simulation: threads that count down, ask and wait."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

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

    def __str__(self) -> str:
        return f"{self.what} by {self.n}" + ("" if self.seconds is None else f", {self.seconds:g}")


class LatchChecks(CallChecks):
    """The invariants of a latch."""

    def state(self, before: int | None, step: changes.Step) -> int | None:
        """Return what was counted, after a step of a change."""
        if isinstance(step, changes.Made) and step.path.startswith(f"{self.path}/"):
            return (before or 0) + int(step.path.rpartition(ROLE)[2])
        return before

    def left(self, call: Call) -> list[int]:
        """Return all that was left to count, since the call began."""
        return [max(0, COUNT - (counted or 0)) for counted in self.states(call.begun)]

    def wrote(self, call: Call, step: changes.Step) -> None:
        """No call counts twice."""
        super().wrote(call, step)
        if len(call.wrote) > 1:
            raise Violation("one count_down has counted twice")
        if call.wrote and not self.left(call)[0]:
            raise Violation("an open latch has been counted down")

    def entitled(self, worker: CallWorker) -> bool:
        """Whether the latch is open."""
        assert worker.call is not None
        return self.left(worker.call)[-1] == 0


class LatchWorker(CallWorker):
    """A thread that uses a latch."""

    checks: LatchChecks

    def _visit(self, step: Step) -> None:  # type: ignore[override]
        if step.what == "sleep":
            self.world.sleep(step.seconds or 0.0)
            return
        latch = CountDownLatch(self.process.client, PATH, COUNT)
        with self.calling(step.what, step.seconds) as call:
            if step.what == "wait":
                got = latch.wait(step.seconds)
                if got and self.checks.left(call)[-1]:
                    raise Violation(f"{self.name} passes a latch that is not open")
                if not got and (step.seconds is None or self.world.now < call.began + step.seconds):
                    raise Violation(f"{self.name} gave up waiting after {self.world.now - call.began:g} s")
            elif step.what == "count":
                if (count := latch.count) not in self.checks.left(call):
                    raise Violation(f"{self.name} is told a count of {count}: {self.checks.left(call)}")
            else:
                latch.count_down(step.n)
                counted = [int(made.path.rpartition(ROLE)[2]) for _, made in call.wrote]
                if counted != [step.n] and (counted or 0 not in self.checks.left(call)):
                    raise Violation(f"{self.name} counted {counted}, not {step.n}")


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
