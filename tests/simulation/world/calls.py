"""Calls: the requests of a thread to a primitive that keeps no holds, its writes, and the state meanwhile.

The ensemble's log has all states of the primitive, and shows which call has made which change. By these, the model of
the primitive judges each call: its result, and that it took effect at most once, whatever answers were lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from random import Random
from typing import Any

from kazoo.exceptions import NoNodeError, ThrottledOpError
from kazoo.protocol.serialization import SetData, Transaction

from tests.models import history
from tests.simulation.checks.invariants import Checks
from tests.simulation.world.ensemble import Transport, only_checks
from tests.simulation.world.run import CHROOT, Run
from tests.simulation.world.schedule import LENGTHS, Deviation, Schedule
from tests.simulation.world.workload import SLACK, Worker
from tests.simulation.world.world import Violation
from zkconcurrent._engine.client_state import UNANSWERED
from zkconcurrent._memory import changes
from zkconcurrent._memory.server_watches import ANY_WATCH

RESCUE = 30.0  # when those who wait for ever are let go, in seconds
AGAIN = 5.0


class Call(history.Call):
    """One call of a thread.

    Attributes:
        begun: how much the log had when it began; or before, when a leader was left alone that has answered it.
        began: when that was.
        wrote: the steps that it made, each as the log has it, and how long the log was then.
        effects: the changes of the primitive that it made, each with how long the log was, and the states around it.
        served: its requests that a server has answered, and how much of the log that had applied.
    """

    begun: int

    def __init__(self, worker: CallWorker, what: str, timeout: float | None, args: tuple[Any, ...]) -> None:
        super().__init__(worker.name, what, args, timeout, begun=len(worker.checks.ensemble.log))
        self.began = worker.world.now
        self.wrote: list[tuple[int, Any]] = []
        self.effects: list[tuple[int, Any, Any]] = []
        self.served: list[tuple[Any, int]] = []

    @property
    def looked(self) -> int | None:
        """How much of the log the first read of the node had seen whose answer arrived.

        It does not count behind a `sync` that a busy server has refused.
        """
        refused = False
        for answer, applied in self.served:
            looks = isinstance(answer.value, tuple) or isinstance(answer.error, NoNodeError)
            if answer.done and looks and not refused:
                return applied
            refused = isinstance(answer.error, ThrottledOpError)
        return None


class CallWorker(Worker):
    """A thread that makes calls, one after the other.

    Attributes:
        call: the present one.
    """

    call: Call | None = None
    checks: CallChecks

    @contextmanager
    def calling(self, what: str, timeout: float | None = None, *args: Any) -> Iterator[Call]:
        """Make a call within the block, which notes its outcome; it must not take longer than its timeout."""
        call = self.call = Call(self, what, timeout, args)
        limit = max(timeout or 0.0, (self.process.session.timeout or UNANSWERED) / 3)
        self.world.say(f"calls {what}" + ("" if timeout is None else f", waiting {timeout:g}"))
        try:
            yield call
        finally:
            self.call = None
        took = self.world.now - call.began
        if timeout is not None and self._ran_since(call.began) and took > limit + SLACK:
            raise Violation(f"{self.name}: {what} with a timeout of {limit:g} s took {took:g} s")
        if call.outcome is not history.OPEN:
            self.checks.judge(call)


class States:
    """What a primitive was after each change of the log.

    Args:
        log: the log.
        state: returns what it is after a step of a change; None stands for what was never used.
    """

    def __init__(self, log: list[changes.Change], state: Callable[[Any, changes.Step], Any]) -> None:
        self._log, self._state = log, state
        self._states: list[Any] = [None]

    def since(self, begun: int) -> list[Any]:
        """Return all that it was since the log had so much, that moment included."""
        for change in self._log[len(self._states) - 1 :]:
            self._states.append(reduce(self._state, change, self._states[-1]))
        return self._states[begun:] or self._states[-1:]


class CallChecks(Checks):
    """The invariants of calls.

    Attributes:
        model: judges the calls; None if the subject does that by rules of its own.
        workers: the threads.
        path: the primitive's, with the chroot.
        piecemeal: the calls that change it part by part: the threads that make them judge these.
    """

    model: Any = None
    piecemeal: tuple[str, ...] = ()
    path = ""
    workers: list[CallWorker]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._states = States(self.ensemble.log, self.state)

    def state(self, before: Any, step: changes.Step) -> Any:
        """Return what the primitive is after a step of a change; None stands for what was never used."""
        raise NotImplementedError

    def states(self, begun: int) -> list[Any]:
        """Return all that the primitive was since the log had so much, that moment included."""
        return self._states.since(begun)

    def modelled(self, begun: int) -> list[Any]:
        """Return these states as the model has them."""
        return [self.model.initial if state is None else state for state in self.states(begun)]

    def affected(self, call: Call, logged: int) -> None:
        """Judge what a call has changed since the log had so much: one effect, unless the nodes were made anew."""
        before, *after = self.modelled(logged)
        if before == after[-1]:
            return
        removed, _ = self.ensemble.gone.get(self.path, (0, 0))
        call.effects = [each for each in call.effects if each[0] > removed]
        call.effects.append((len(self.ensemble.log), before, after[-1]))
        self.judge(call)

    def judge(self, call: Call) -> None:
        """Have the model judge a call: its effects and, once it has ended, its outcome."""
        if call.what in self.piecemeal:
            return
        if self.model.refused(call) and not call.effects:  # it may have been kept from asking
            if self.world.now < call.began + (call.timeout or 0.0):
                raise Violation(f"{call} gave up after {self.world.now - call.began:g} s")
            return
        effects = [(before, after) for _, before, after in call.effects]
        if wrong := history.explain(self.model, call, self.modelled(call.begun), effects):
            raise Violation(wrong)

    def wrote(self, call: Call, step: changes.Step) -> None:
        """Take note of a step of a change that a call has made."""
        if self.state(None, step) is None:
            return  # the nodes above the path
        call.wrote.append((len(self.ensemble.log), step))

    def entitled(self, worker: CallWorker) -> bool:
        """Whether the thread, which waits, should not."""
        assert worker.call is not None
        return self.model.goes_on(self.modelled(len(self.ensemble.log))[-1], worker.call)

    def healthy(self, worker: CallWorker, since: float) -> bool:
        """Whether nothing has kept the worker's process from asking the service since then."""
        process = worker.process
        wire = process.connection.wire
        if wire is None or not wire.open or not process.client.connected:
            return False
        ends = (process.starved_until, self.world.late, self.ensemble.amiss_until, wire.heard_since())
        ends = (*ends, wire.silent_until, wire.stalled_until, process.connection.pipe.full_until)
        return max(*ends, *(actor.held_until for actor in self.world.actors)) < since

    def quiet(self) -> None:
        """Each waiter waits rightly, and will hear of what it waits for."""
        super().quiet()
        if self.faults():
            return
        for worker in self.workers:
            process, call = worker.process, worker.call
            wire = process.connection.wire
            if call is None or call.what != "wait" or not process.alive or wire is None or worker.actor.ready:
                continue
            if not process.client.connected or process.client._queue:
                continue
            if self.entitled(worker):
                raise Violation(f"{worker.name} waits, and the awaited event has happened")
            if not wire.watches(self.path, ANY_WATCH):
                raise Violation(f"{worker.name} waits without a watch")


def lagging(random: Random, deviations: list[Deviation], instead: dict[str, str]) -> list[Deviation]:
    """Return deviations of which half have a follower that lags from early on; some kinds are replaced by others."""
    found = [each._replace(kind=instead.get(each.kind, each.kind)) for each in deviations]
    if random.random() < 0.5:
        found.insert(0, Deviation(random.randint(1, 60), "lag", 0, random.randint(4, len(LENGTHS) - 1)))
    return found


class CallRun(Run):
    """A run of such workers."""

    worker = CallWorker
    invariants = CallChecks
    checks: CallChecks
    workers: list[CallWorker]

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.checks.path = CHROOT + self.path
        self.checks.workers = self.workers
        self._callers = {worker.actor: worker for worker in self.workers}
        self._asked: dict[int, tuple[object, Call]] = {}
        self._logged = 0
        self.world.requested = self._requested
        self.ensemble.on_request = self._on_request
        self.ensemble.on_answer = self._on_answer
        for n in range(50):
            self.world.at(self.world.now + RESCUE + n * AGAIN, self.rescue)

    path = ""

    def rescue(self) -> None:
        """Let those go who wait for ever, by a change that somebody else makes."""
        raise NotImplementedError

    def _requested(self, answer: object) -> None:
        worker = None if self.world.current is None else self._callers.get(self.world.current)
        if worker is not None and worker.call is not None:
            self._asked[id(answer)] = answer, worker.call

    def _on_request(self, _: object) -> bool:
        self._logged = len(self.ensemble.log)
        return False

    def _on_answer(self, wire: Transport, answer: object) -> None:
        asked = self._asked.get(id(answer))
        if asked is not None:
            asked[1].served.append((answer, wire.server.applied))
            if wire.server.alone_until > self.world.now:  # it answers with what was so when it was left alone
                asked[1].begun = min(asked[1].begun, wire.server.applied)
            if self._logged < len(self.ensemble.log) and self.checks.model is not None:
                self.checks.affected(asked[1], self._logged)
            for _, step in self.ensemble.steps(self._logged):
                self.checks.wrote(asked[1], step)


class LosingRun(Run):
    """A run whose schedule also loses writes.

    Attributes:
        losable: the requests that are lost.
    """

    losable: tuple[type, ...] = (Transaction,)

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self._losing: Deviation | None = None
        self._serve = self.ensemble.serve
        self.ensemble.serve = self._serve_or_lose  # type: ignore[method-assign]

    def may_lose(self, request: object) -> bool:
        """Return whether a request may be lost."""
        return type(request) in self.losable and not only_checks(request)

    def _lose(self, it: Deviation) -> None:
        """Lose the next write, before or after it is applied."""
        self._losing = it

    def _serve_or_lose(self, wire: Transport) -> None:
        it, request = self._losing, wire.requests[0][1]
        if it is None or not self.may_lose(request):
            self._serve(wire)
            return
        self._losing = None
        process = next(each for each in self.processes if each.connection.wire is wire)
        process.connection.down_until = self.world.now + LENGTHS[it.length]
        process.connection.server = self.ensemble.servers[it.which // 4]
        self.world.say(f"the connection of {process.name} is cut for {LENGTHS[it.length]:g}")
        self.ensemble.close(wire, served=it.after % 2)


class LossyRun(LosingRun, CallRun):
    """A run whose schedule also loses writes, and strikes as they are answered.

    Attributes:
        spared: the calls that are not struck so.
    """

    spared: tuple[str, ...] = ()
    losable = (Transaction, SetData)

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self._striking: Deviation | None = None

    def _strike(self, it: Deviation) -> None:
        """Interrupt the thread of one of the next multis: as its answer is under way, or as the request is lost."""
        self._striking = it

    def what_strikes(self, it: Deviation) -> BaseException:  # noqa: ARG002
        """Return what a signal handler raises in the thread that is struck."""
        return KeyboardInterrupt()

    def _serve_or_lose(self, wire: Transport) -> None:
        request, asked, striking = wire.requests[0][1], self._asked.get(id(wire.requests[0][2])), self._striking
        if (
            striking is not None
            and type(request) is Transaction
            and asked is not None
            and asked[1].what not in self.spared
        ):
            if striking.length % 4:
                self._striking = striking._replace(length=striking.length % 4 - 1)
                self._serve(wire)
                return
            self._striking = None
            if striking.which % 2:
                self.ensemble.close(wire)
            else:
                self._serve(wire)
            for worker in self.workers:
                if worker.call is asked[1]:
                    self.world.say(f"{worker.name} is interrupted as its multi is answered, or lost")
                    self.world.throw(worker.actor, self.what_strikes(striking))
            return
        super()._serve_or_lose(wire)
