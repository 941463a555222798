"""Double barriers in the simulation: threads that enter, stay and leave."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from tests.simulation.world.calls import Call, CallChecks, CallRun, CallWorker, lagging
from tests.simulation.world.ensemble import removed_by
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import Deviation, Schedule, random_schedule
from tests.simulation.world.workload import SLACK
from tests.simulation.world.world import Violation
from zkconcurrent._engine.client_state import UNANSWERED
from zkconcurrent._errors import LockLostError
from zkconcurrent._memory import changes
from zkconcurrent._memory.server_watches import ANY_WATCH
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent._recipes.double_barrier import READY, ROLE
from zkconcurrent._threads.double_barrier import DoubleBarrier

PATH = "/app/d"
PARTIES = 2
NOT_HERE = {"number": "lag", "clog": "lag"}


class Step(NamedTuple):
    """The action of a thread: "round" (it enters, stays and leaves) or "sleep".

    Attributes:
        seconds: how long it waits to enter, None for ever; or sleeps.
        stay: how long it stays inside.
        leaving: how long it waits for the others to leave, None for ever.
    """

    what: str
    seconds: float | None = None
    stay: float = 0.0
    leaving: float | None = None


class Moment(NamedTuple):
    """The nodes at one moment: the parties', with their times of creation, and that of `ready`, if it is there."""

    parties: dict[str, int]
    ready: int | None


class DoubleBarrierChecks(CallChecks):
    """The invariants of a double barrier.

    Attributes:
        moments: the nodes after each change.
        rescues: how many times `ready` was made by the run itself.
        ended_early: a party's call was interrupted, or had no reply in time: so the keeper deleted the node.
        gone: the parties whose calls were interrupted, and have ended: nobody may count them any more.
    """

    ended_early = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.moments: list[Moment] = [Moment({}, None)]
        self.rescues: set[int] = set()
        self.gone: set[str] = set()
        self._arrived = self._withdrawn = self._steps = 0

    def state(self, before: Any, step: changes.Step) -> Any:
        """Return that there was a change of the path."""
        paths = [step.path] if isinstance(step, changes.Made) else removed_by(step)
        return True if any(path.startswith(f"{self.path}/") for path in paths) else before

    def step(self) -> None:
        """Follow the log."""
        super().step()
        log = self.ensemble.log
        while len(self.moments) <= len(log):
            number, (parties, ready) = len(self.moments), self.moments[-1]
            for step in log[number - 1]:
                self._steps += 1
                for path in [step.path] if isinstance(step, changes.Made) else removed_by(step):
                    above, _, name = path.rpartition("/")
                    if above != self.path:
                        continue
                    if name != READY:
                        parties = {each: made for each, made in parties.items() if each != name}
                        if isinstance(step, changes.Made):
                            parties[name] = self._steps
                    elif isinstance(step, changes.Made):
                        ready = self._steps
                        if number not in self.rescues:
                            self._opened(parties, self.moments[-1].ready)
                    else:
                        ready = None
            self.moments.append(Moment(parties, ready))

    def _opened(self, parties: dict[str, int], before: int | None) -> None:
        """It opens when enough have come, of whom some may have died since; or is made anew, in one multi."""
        if before is not None:
            self._kept_open(parties, before)
            return
        lately = {name for moment in self.moments[-30:] for name in moment.parties}
        if len(parties.keys() - self.gone) < PARTIES and len(lately - self.gone) < PARTIES:
            raise Violation(f"it is opened for {sorted(parties)}; interrupted before: {sorted(self.gone & lately)}")

    def _kept_open(self, parties: dict[str, int], before: int) -> None:
        """A party that comes late is let in by one that is inside."""
        if min(made for name, made in parties.items() if name not in self.gone) > before:
            raise Violation(f"it is kept open for {sorted(parties)}, which were not let in")

    def counted(self, name: str) -> bool:
        """Return whether a party was there when the barrier opened."""
        return any(
            moment.ready is not None and moment.parties.get(name, moment.ready) < moment.ready
            for moment in self.moments
        )

    def let_in(self, name: str) -> bool:
        """Return whether a party was there when the barrier was open, by those that came before `ready`."""
        for moment in self.moments:
            made = moment.parties.get(name)
            if made is None or moment.ready is None:
                continue
            if made < moment.ready or min(moment.parties.values()) < moment.ready:
                return True
        return False

    def there(self, call: Call) -> set[str]:
        """Return the parties that were there when a call began."""
        self.step()
        return set(self.moments[min(call.begun, len(self.moments) - 1)].parties)

    def may_have_seen(self, call: Call) -> set[str]:
        """Return the parties that a call may have seen."""
        last = max([call.begun, *(applied for answer, applied in call.served if answer.done)])
        return {name for moment in self.moments[call.begun : last + 1] for name in moment.parties}

    def quiet(self) -> None:
        """Nobody waits to enter if enough have come, or to leave if all have left."""
        super().quiet()
        if self.faults():
            return
        self.step()
        parties, ready = self.moments[-1]
        waiting = {"enter": 0, "leave": 0}
        for worker in self.workers:
            process, call = worker.process, worker.call
            if call is None or not process.alive or worker.actor.ready or not process.client.connected:
                continue
            wire = process.connection.wire
            if process.client._queue or wire is None:
                continue
            if call.what in waiting:
                waiting[call.what] += 1
                tickets = [each for each in process.session.registry.tickets.values() if each.awaits]
                if not any(wire.watches(CHROOT + path, ANY_WATCH) for each in tickets for path in each.awaits):
                    raise Violation(f"{worker.name} waits to {call.what} without a watch")
            if call.what == "leave" and not set(parties) & (self.may_have_seen(call) | self._own(worker)):
                raise Violation(f"{worker.name} waits to leave, and all have left")
        if waiting["enter"] >= PARTIES and len(parties) >= PARTIES and waiting["enter"] == len(parties):
            raise Violation(f"{sorted(parties)} wait to enter, and enough have come; ready: {ready}")

    def end(self) -> None:
        """Nothing is left; `ready` may be, if a party has died, or ended before its time."""
        super().end()
        died = any(
            isinstance(step, changes.Closed) and any(ROLE in path for path in step.paths)
            for _, step in self.ensemble.steps()
        )
        if f"{self.path}/{READY}" in self.ensemble.leader.nodes and not (died or self.removed or self.ended_early):
            raise Violation("all have left, and the barrier is open")

    def _own(self, worker: Any) -> set[str]:
        ticket: Ticket | None = worker.inside
        return set() if ticket is None or ticket.name is None else {ticket.name}


class DoubleBarrierWorker(CallWorker):
    """A thread that uses a double barrier.

    Attributes:
        inside: the ticket of its party.
        struck: when it was interrupted last.
    """

    checks: DoubleBarrierChecks
    inside: Ticket | None = None
    struck = 0.0

    def _visit(self, step: Step) -> None:  # type: ignore[override]
        if step.what == "sleep":
            self.world.sleep(step.seconds or 0.0)
            return
        barrier = DoubleBarrier(self.process.client, PATH, PARTIES)
        try:
            if not self._enter(barrier, step.seconds):
                return
            self.world.sleep(step.stay)
            self._leave(barrier, step.leaving)
        finally:
            while self.inside is not None:
                try:
                    self._leave(barrier, 0.0)
                except KeyboardInterrupt:
                    self.world.say("is interrupted again")

    def _enter(self, barrier: DoubleBarrier, seconds: float | None) -> bool:
        state = barrier._path_state
        third = (self.process.session.timeout or UNANSWERED) / 3
        before = set(self.checks.moments[-1].parties)
        with self.calling("enter", None if seconds is None else max(seconds, third) + third) as call:
            try:
                got = barrier.enter(seconds)
            except KeyboardInterrupt:
                self._check_gone({step.path.rpartition("/")[2] for _, step in call.wrote if ROLE in step.path})
                raise
            finally:
                self.inside = state.inside.get(self.actor.ident)
        self.checks.step()
        mine = [
            step.path.rpartition("/")[2]
            for _, step in call.wrote
            if isinstance(step, changes.Made) and ROLE in step.path and not step.path.endswith(READY)
        ]
        if got:
            assert self.inside is not None
            assert self.inside.name is not None
            if not self.checks.let_in(self.inside.name) and self.inside.name not in before:
                raise Violation(f"{self.name} is in, and was not let in: {self.inside}")
            return True
        took = self.world.now - call.began
        if seconds is None or took < seconds - 1e-6:
            raise Violation(f"{self.name} gave up waiting after {took:g} s")
        third = min(third, (self.process.session.timeout or UNANSWERED) / 3)  # it may have connected meanwhile
        knew = took < seconds + third - SLACK and self._ran_since(call.began)
        self.checks.ended_early |= not knew
        if knew and mine and self.checks.counted(mine[-1]) and not self._died(mine[-1]):
            raise Violation(f"{self.name} was let in, and is told that it was not")
        return False

    def _check_gone(self, names: set[str]) -> None:
        """A party whose call was interrupted is gone when the call has ended, unless it was cut off."""
        self.checks.step()
        self.checks.ended_early = True
        wire = self.process.connection.wire
        knows = self.world.now < self.struck + (self.process.session.timeout or UNANSWERED) / 3 - SLACK
        heard = wire is not None and wire.open and self.process.client.connected and wire.heard_since() <= self.struck
        if knows and heard and self._ran_since(self.struck):
            if still := names.intersection(self.checks.moments[-1].parties):
                raise Violation(f"{self.name} was interrupted, and {sorted(still)} is there still")
            self.checks.gone |= names

    def _died(self, name: str) -> bool:
        """Whether a node went with its session, or by an operator."""
        path = f"{self.checks.path}/{name}"
        return path in self.checks.removed or any(
            isinstance(step, changes.Closed) and path in step.paths for _, step in self.checks.ensemble.steps()
        )

    def _leave(self, barrier: DoubleBarrier, seconds: float | None) -> None:
        ticket = self.inside
        assert ticket is not None
        assert ticket.name is not None
        third = (self.process.session.timeout or UNANSWERED) / 3
        try:
            with self.calling("leave", None if seconds is None else max(seconds, third) + third) as call:
                left = barrier.leave(seconds)
        except KeyboardInterrupt:
            self._check_gone({ticket.name})
            raise
        except LockLostError:
            self.inside = None
            self.checks.step()
            if not self._died(ticket.name):
                raise Violation(f"{ticket} is said to be lost, and is not") from None
            self.world.say("is told that it was lost inside")
            return
        finally:
            if self.actor.ident not in barrier._path_state.inside:
                self.inside = None
        if left:
            still = self.checks.there(call) & set(self.checks.moments[-1].parties) - {ticket.name}
            if still:
                raise Violation(f"{self.name} has left with all others, and {sorted(still)} are inside")
            return
        took = self.world.now - call.began
        if seconds is None or took < seconds - 1e-6:
            raise Violation(f"{self.name} gave up waiting after {took:g} s")
        third = min(third, (self.process.session.timeout or UNANSWERED) / 3)  # it may have connected meanwhile
        self.checks.ended_early |= took >= third - SLACK or not self._ran_since(call.began)


class DoubleBarrierRun(CallRun):
    """A run of such workers."""

    path = PATH
    worker = DoubleBarrierWorker
    invariants = DoubleBarrierChecks
    checks: DoubleBarrierChecks

    def _interrupt(self, it: Deviation) -> bool | None:
        worker = self._worker(it)
        if isinstance(worker, DoubleBarrierWorker):
            worker.struck = self.world.now
        return super()._interrupt(it)

    def rescue(self) -> None:
        """Open the barrier for those that wait for more than will ever come, as a process that is not of the run."""
        self.checks.step()
        waiting = any(each.call is not None and each.call.what == "enter" for each in self.workers)
        if waiting and CHROOT + PATH in self.ensemble.leader.nodes and self.checks.moments[-1].ready is None:
            self.checks.rescues.add(len(self.ensemble.log) + 1)
            self.ensemble.ask(0, changes.Create(f"{CHROOT}{PATH}/{READY}"))


def random_steps(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    steps: Any = [
        [(start, [_step(random) for _ in range(random.randint(1, 4))]) for start, _ in each] for each in threads
    ]
    return Schedule(steps, lagging(random, deviations, NOT_HERE))


def _step(random: Random) -> Step:
    if random.random() < 0.15:
        return Step("sleep", random.choice((0.05, 0.3, 1.0, 3.0)))
    return Step(
        "round",
        random.choice((None, None, None, 0.0, 0.05, 1.0, 3.0)),
        random.choice((0.0, 0.0, 0.05, 0.3, 1.0)),
        random.choice((None, None, None, 0.0, 0.05, 1.0)),
    )
