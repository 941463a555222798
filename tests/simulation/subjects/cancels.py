"""`cancel_waits()` in the simulation: at random moments, threads of the run's processes end the waits of all others."""

from __future__ import annotations

import weakref
from random import Random
from typing import Any

from tests.simulation.subjects.tasks import EVENT, Act, Player, TaskChecks, TaskRun, core, random_tasks
from tests.simulation.world.client import Process
from tests.simulation.world.schedule import Deviation, Schedule
from tests.simulation.world.workload import Section
from tests.simulation.world.world import Violation
from zkconcurrent import WaitCancelledError
from zkconcurrent._threads.base.cancel import waits


class Waiter(Player):
    """A task or thread whose waits for locks and permits may be ended."""

    async def _hold(self, lock: Any, act: Act, within: Any, condition: Any | None = None) -> None:
        try:
            await super()._hold(lock, act, within, condition)
        except WaitCancelledError as error:
            self.world.say(f"{self.name}: {error}")
            if not self.gone and self._held(lock):
                raise Violation(f"the wait of {self.name} was ended, and it holds {self._held(lock)}") from None

    async def _acquire(self, lock: Any, act: Act) -> bool:
        before = sum(hold.depth for hold in self._held(lock))
        try:
            return await super()._acquire(lock, act)
        except WaitCancelledError as error:
            if act.wait == 0:
                raise Violation(f"{self.name} made one attempt, and was told {error}") from None
            if not self.gone and sum(hold.depth for hold in self._held(lock)) != before:
                raise Violation(f"the wait of {self.name} was ended, and it holds {self._held(lock)}") from None
            return False

    async def _wait(self, condition: Any, act: Act, sections: list[Section]) -> None:
        try:
            await super()._wait(condition, act, sections)
        except WaitCancelledError:
            raise Violation(f"{self.name} waits at a condition, and that was ended") from None


class CancelChecks(TaskChecks):
    """The invariants of tasks; and a wait that was ended does not go on.

    Attributes:
        ended: the waits that were ended.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ended: list[tuple[Process, Any, weakref.ref[Any]]] = []

    def quiet(self) -> None:
        """None that was ended sleeps on."""
        super().quiet()
        for process, session, ref in self.ended:
            wait = ref()
            if wait is None or wait.why_end is None or not self._runs(process) or self._deserted():
                continue
            if not any(call.whole is wait and not call.finished for call in session.calls):
                continue
            if all(self.world.available(actor) for actor in self.world.actors if actor.process is process):
                raise Violation(f"a wait for {wait.path} was ended, and goes on")


class CancelRun(TaskRun):
    """A run of such tasks and threads.

    Attributes:
        told: how many waits were ended.
    """

    invariants = CancelChecks
    checks: CancelChecks

    def __init__(self, schedule: Schedule) -> None:
        self.told = 0
        super().__init__(schedule)

    def worker(  # type: ignore[override]
        self, process: Process, checks: CancelChecks, name: str, visits: list[Act], start: float
    ) -> Player:
        """Make a task, or a thread."""
        made = super().worker(process, checks, name, visits, start)
        made.__class__ = Waiter
        return made

    def _end_waits(self, it: Deviation) -> bool | None:
        """Have a thread end the waits for a lock."""
        player: Any = self._worker(it)
        if player is None:
            return False
        act = player.visits[0]

        def end() -> None:
            made = core(player._make(act))
            lock = getattr(made, "_lock", made)
            session = lock._session
            ended = waits(session.calls, lock._lock_core.queue_key)
            self.checks.ended += [(player.process, session, weakref.ref(wait)) for wait in ended]
            self.told += lock.cancel_waits()
            self.world.say(f"ends {len(ended)} waits for {lock.path}")

        self.world.spawn(f"{player.process.name}.ends{len(self.world.actors)}", end, player.process)
        return None


def random_cancels(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    schedule = random_tasks(seed)
    while any(act.path == EVENT for process in schedule.threads for _, acts in process for act in acts):  # type: ignore[attr-defined]
        seed += 1_000_003
        schedule = random_tasks(seed)
    deviations = [each._replace(kind="end_waits") if random.random() < 0.35 else each for each in schedule.deviations]
    return schedule._replace(deviations=deviations)
