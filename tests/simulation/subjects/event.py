"""Events in the simulation: threads that set, clear, pulse, destroy, ask and wait."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from tests.models import event
from tests.simulation.world.calls import Call, CallChecks, CallRun, CallWorker, lagging
from tests.simulation.world.ensemble import removed_by, writes
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import Schedule, random_schedule
from tests.simulation.world.world import Violation
from zkconcurrent._memory import changes
from zkconcurrent._protocol.operations import Node
from zkconcurrent._recipes.event import Flag
from zkconcurrent._threads.event import Event

PATH = "/app/e"
NOT_HERE = {"number": "lag", "clog": "lag", "reap": "lag", "quit": "remove"}


class Step(NamedTuple):
    """The action of a thread: a call, or "pulse" (set, then clear), or "sleep"; `seconds` is its timeout."""

    what: str
    seconds: float | None = None


def flag_after(path: str, before: Flag | None, step: changes.Step) -> Flag | None:
    """Return the content of an event's node after a step of a change."""
    if path in removed_by(step):
        return None
    return Flag.of(path, Node(step.data, 0, 0.0, 0)) if writes(step, path) else before


def as_modelled(flags: list[Flag | None]) -> list[event.Flag]:
    """Return the contents of the node as states of the model."""
    return [event.Flag(flag is not None and flag.is_set) for flag in flags]


class EventChecks(CallChecks):
    """The invariants of an event."""

    model = event.Event()

    def state(self, before: Flag | None, step: changes.Step) -> Flag | None:
        """Return the content of the node after a step of a change."""
        return flag_after(self.path, before, step)

    def modelled(self, begun: int) -> list[event.Flag]:
        """Return whether the flag was set, since the log had so much."""
        return as_modelled(self.states(begun))

    def wrote(self, call: Call, step: changes.Step) -> None:
        """Each write turns the flag, and counts the sets."""
        super().wrote(call, step)
        if isinstance(step, changes.Written):
            before, after = (flag or Flag() for flag in self.states(len(self.ensemble.log) - 1))
            if after != before.changed_to(not before.is_set):
                raise Violation(f"{call} made {after} of {before}")

    def entitled(self, worker: CallWorker) -> bool:
        """Whether the flag was set since the wait looked first, and its node is there still."""
        assert worker.call is not None
        looked = worker.call.looked
        removed, _ = self.ensemble.gone.get(self.path, (0, 0))
        return looked is not None and any(flag.is_set for flag in self.modelled(max(looked, removed)))


class EventWorker(CallWorker):
    """A thread that uses an event."""

    def _visit(self, step: Step) -> None:  # type: ignore[override]
        if step.what == "sleep":
            self.world.sleep(step.seconds or 0.0)
        elif step.what == "pulse":
            self._visit(Step("set"))
            self._visit(Step("clear"))
        else:
            method = getattr(Event(self.process.client, PATH), step.what)
            with self.calling(step.what, step.seconds) as call:
                call.outcome = method(step.seconds) if step.what == "wait" else method()


class EventRun(CallRun):
    """A run of such workers."""

    path = PATH
    worker = EventWorker
    invariants = EventChecks

    def rescue(self) -> None:
        """Set the flag, as a process that is not of the run."""
        path, nodes = CHROOT + PATH, self.ensemble.leader.nodes
        if path in nodes:
            flag = Flag.of(PATH, Node(nodes[path].data, 0, 0.0, 0))
            if not flag.is_set:
                self.ensemble.ask(0, changes.SetData(path, flag.changed_to(True).data))

    def _remove(self, _: object) -> bool | None:
        """Have an operator delete the node."""
        if CHROOT + PATH not in self.ensemble.leader.nodes:
            return False
        self.ensemble.delete(CHROOT + PATH)
        return None


def random_steps(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    steps = [[(start, [_step(random) for _ in range(random.randint(2, 6))]) for start, _ in each] for each in threads]
    if seed % 8 == 5:  # some wait as the node is destroyed, and made anew with a lower epoch
        pulses = [Step(what, None) for what in ("pulse", "pulse", "pulse")]
        anew = [*pulses, Step("sleep", random.choice((0.3, 1.0))), Step("destroy", None), Step("pulse", None)]
        waits = [Step("sleep", 0.3), Step("wait", None)]
        steps = [[(0.0, anew if i == 0 else waits) for i, _ in enumerate(each)] for each in threads]
    return Schedule(steps, lagging(random, deviations, NOT_HERE))  # type: ignore[arg-type]


def _step(random: Random) -> Step:
    what = random.choice(("set", "set", "clear", "clear", "pulse", "wait", "wait", "wait", "is_set", "sleep", "sleep"))
    if random.random() < 0.03:
        what = "destroy"
    if what == "sleep":
        return Step(what, random.choice((0.05, 0.05, 0.3, 1.0, 3.0)))
    return Step(what, random.choice((None, None, None, 0.0, 0.05, 1.0, 3.0)) if what == "wait" else None)
