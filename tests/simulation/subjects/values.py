"""Atomic numbers and shared values in the simulation: threads that add, compare, update, ask and wait.

Each call adds a bit of its own. So the number tells which calls were applied, and a bit that was added twice carries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple

from tests.models import history
from tests.models import values as models
from tests.simulation.world.calls import Call, CallChecks, CallWorker, LossyRun, lagging
from tests.simulation.world.ensemble import Transport, removed_by, writes
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import Schedule, random_schedule
from tests.simulation.world.world import Violation
from zkconcurrent._engine.client_state import UNANSWERED
from zkconcurrent._errors import OutcomeUnknownError
from zkconcurrent._memory import changes
from zkconcurrent._protocol.blocking_rules import MUTEX, blocker
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent._threads.atomic import AtomicLong
from zkconcurrent._threads.shared_value import SharedValue

PATH = "/app/v"
NOT_HERE = {"number": "turn", "clog": "turn"}
OWN = 56  # bits of calls; those above are the rescue's
RESCUED = 0x7F << OWN


class Number:
    """Turns a number into eight bytes."""

    @staticmethod
    def encode(item: Any, /) -> bytes:
        """Return the bytes of a number."""
        return int(item).to_bytes(8, "big")

    @staticmethod
    def decode(data: bytes, /) -> int:
        """Return the number of bytes."""
        return int.from_bytes(data, "big")


class Step(NamedTuple):
    """The action of a thread: a call, or "sleep".

    Attributes:
        what: the call.
        seconds: its timeout.
        bits: for how many bits a "wait" waits.
        shared: whether the primitive is a `SharedValue`.
    """

    what: str
    seconds: float | None = None
    bits: int = 0
    shared: bool = False


class ValueChecks(CallChecks):
    """The invariants of a value.

    Attributes:
        given: how many bits were given to calls.
        history: the calls, which the model judges in the end, and the rescue's changes.
    """

    model = models.AtomicLong()
    piecemeal = ("add", "get", "compare", "wait", "destroy")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.given = 0
        self.history: list[history.Call] = []

    def state(self, before: int | None, step: changes.Step) -> int | None:
        """Return the number after a step of a change."""
        if self.path in removed_by(step):
            return None
        return int.from_bytes(step.data, "big") if writes(step, self.path) else before

    def _waits(self, wire: Transport, ticket: Ticket, name: str, names: list[str]) -> None:
        if blocker(name, names, MUTEX):
            super()._waits(wire, ticket, name, names)
        else:
            raise Violation(f"{ticket} waits, and it is the first")

    def quiet(self) -> None:
        """Each waiter for a value waits rightly; none waits for a turn that is free, or for a change that is made."""
        super().quiet()
        if self.faults():
            return
        for worker in self.workers:
            process, call = worker.process, worker.call
            if call is None or call.what in ("wait", "get") or not process.alive or worker.actor.ready:
                continue
            state = process.session.directory.get(PATH)
            if not process.client.connected or process.client._queue or state is None or state._left:
                continue
            if state.combiner.batch is None and not any(each.batch for each in state.combiner.pending):
                raise Violation(f"{worker.name} waits, and nothing is under way: {list(state.combiner.pending)}")

    def settling(self) -> bool:
        """Whether something is left to be settled, or waits for its turn."""
        return any(
            process.alive and any(state._left for state in list(process.session.directory.values()))
            for process in self.processes
        )

    def end(self) -> None:
        """Each change that was answered is there, once; nothing is under way, and no turn is taken."""
        super().end()
        if self.settling():
            raise Violation("something is left to be settled")
        for process in self.processes:
            for state in list(process.session.directory.values()) if process.alive else ():
                if state.combiner.batch is not None or state.combiner.pending:
                    raise Violation(f"{process.name} has a turn that never ends: {list(state.combiner.pending)}")
        last = history.Call("the service", "get", begun=math.inf, ended=math.inf)
        last.outcome = self.modelled(len(self.ensemble.log))[-1]
        destroyed = [
            history.Call("the service", "set", (0,), None, n - 0.4, n + 0.2, None)
            for n, step in self.ensemble.steps()
            if self.path in removed_by(step)
        ]
        known = [each for each in self.history if each.outcome is not history.OPEN or each.what in ("add", "compare")]
        history.check(self.model, [*known, *destroyed, last])


class ValueWorker(CallWorker):
    """A thread that uses a value."""

    checks: ValueChecks
    value: Any = None
    last: Any = 0

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self.value = None

    def _visit(self, step: Step) -> None:  # type: ignore[override]
        if step.what == "sleep":
            self.value = None  # the last one of its process leaves its receipts to the next
            self.world.sleep(step.seconds or 0.0)
            return
        client = self.process.client
        if self.value is None:
            self.value = SharedValue(client, PATH, 0, codec=Number()) if step.shared else AtomicLong(client, PATH)
        asks = step.what in ("get", "wait") or self.checks.given >= OWN
        if step.what == "wait" and step.shared:
            limit = None if step.seconds is None else step.seconds + (self.process.session.timeout or UNANSWERED) / 3
            with self._timed("wait", limit, step.bits) as call:
                if self.value.wait_for(lambda number: number.bit_count() >= step.bits, step.seconds):
                    call.outcome = True
                elif step.seconds is None or self.world.now < call.began + step.seconds:
                    raise Violation(f"{self.name} gave up waiting after {self.world.now - call.began:g} s")
        elif asks:
            with self._timed("get") as call:
                self.last = got = self.value.get()
                call.outcome = got.value if step.shared else got
        else:
            try:
                self._change(step)
            except OutcomeUnknownError:
                if not self.process.session.link.stopped:
                    raise Violation(f"{self.name}: the outcome of its {step.what} can be found out") from None

    @contextmanager
    def _timed(self, what: str, timeout: float | None = None, *args: Any) -> Iterator[Call]:
        """Make a call within the block, and note when it took place: between which changes."""
        log = self.checks.ensemble.log
        judged = history.Call(self.name, what, args, begun=len(log) + 0.5)
        self.checks.history.append(judged)
        with self.calling(what, timeout, *args) as call:
            try:
                yield call
            finally:
                # A leader that is left alone answers with what was so before.
                judged.begun = min(judged.begun, call.begun + 0.5)
                judged.outcome = call.outcome
                if call.outcome is not history.OPEN:
                    judged.ended = max(judged.begun, len(log) + 0.25)

    def _change(self, step: Step) -> None:
        checks, value = self.checks, self.value
        mine = 1 << checks.given
        checks.given += 1
        if step.what == "compare":
            expected = value.get() if step.shared else self.last
            before = expected.value if step.shared else expected
            with self._timed("compare", None, before, before | mine, step.shared) as call:
                call.outcome = value.compare_and_set(expected, before | mine)
            after = before | mine if call.outcome else 0
        else:
            with self._timed("add", None, mine) as call:
                if step.what == "update" or step.shared:
                    call.outcome = value.update(lambda number: number | mine)
                elif step.what == "get_and_add":
                    call.outcome = value.get_and_add(mine) + mine
                else:
                    call.outcome = value.add(mine)
            after = call.outcome
        if not step.shared:
            self.last = after


class ValueRun(LossyRun):
    """A run of such workers."""

    path = PATH
    worker = ValueWorker
    invariants = ValueChecks
    checks: ValueChecks

    def rescue(self) -> None:
        """Set all bits that are nobody's, as a process that is not of the run."""
        node = self.ensemble.leader.nodes.get(CHROOT + PATH)
        waits = any(worker.call is not None and worker.call.what == "wait" for worker in self.workers)
        if waits and node is not None and not int.from_bytes(node.data, "big") & RESCUED:
            number = int.from_bytes(node.data, "big") | RESCUED
            when = len(self.ensemble.log) + 0.5
            self.ensemble.ask(0, changes.SetData(CHROOT + PATH, number.to_bytes(8, "big")))
            self.checks.history.append(history.Call("the rescue", "set", (number,), None, when, when + 0.75, None))


def random_steps(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    shared = random.random() < 0.4
    steps: list[Any] = [
        [
            (start if random.random() < 0.3 else 0.0, [_step(random, shared) for _ in range(random.randint(2, 6))])
            for start, _ in process
        ]
        for process in threads
    ]
    chosen = [
        each._replace(kind=random.choices((each.kind, "lose", "strike", "remove"), (6, 4, 4, 1))[0])
        for each in lagging(random, deviations, NOT_HERE)
    ]
    return Schedule(steps, chosen)


def _step(random: Random, shared: bool) -> Step:
    what = random.choice(("add", "add", "add", "add", "get_and_add", "compare", "update", "get", "sleep", "wait"))
    if what == "sleep":
        return Step(what, random.choice((0.05, 0.3, 1.0)), shared=shared)
    if what == "wait":
        return Step(what, random.choice((None, None, 0.0, 0.3, 3.0)), random.randint(1, 5), shared)
    return Step(what, shared=shared)
