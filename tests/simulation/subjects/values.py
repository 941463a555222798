"""Atomic numbers and shared values in the simulation: threads that add, compare, update, ask and wait.

Each call adds a bit of its own. So the number tells which calls were applied, and a bit that was added twice carries.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

from tests.simulation.world.calls import CallChecks, CallWorker, LossyRun, lagging
from tests.simulation.world.ensemble import Transport, removed_by, writes
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import Schedule, random_schedule
from tests.simulation.world.world import Violation
from zkconcurrent._engine.client_state import UNANSWERED
from zkconcurrent._errors import OutcomeUnknownError
from zkconcurrent._memory import changes
from zkconcurrent._protocol.rules import MUTEX, blocker
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
        added: the bits whose calls say that they were added.
        refused: those whose calls say that they were not.
        destroyed: those that the number had when it was destroyed.
        wanted: for how many bits each thread waits.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.given = 0
        self.added = 0
        self.refused = 0
        self.destroyed = 0
        self.wanted: dict[Any, int] = {}
        self._read = 0
        self._now = 0

    def state(self, before: int | None, step: changes.Step) -> int | None:
        """Return the number after a step of a change."""
        if self.path in removed_by(step):
            return None
        return int.from_bytes(step.data, "big") if writes(step, self.path) else before

    def wrote(self, call: Any, step: changes.Step) -> None:
        """Take note of a step of a change: it may be that of several calls."""
        if self.state(None, step) is not None:
            call.wrote.append((len(self.ensemble.log), step))

    def step(self) -> None:
        """Each change adds bits that were given, and takes none away, unless it destroys the number."""
        super().step()
        for _, step in self.ensemble.steps(self._read):
            if self.path in removed_by(step):
                self.destroyed |= self._now
                self._now = 0
                continue
            after = self.state(self._now, step) or 0
            if after & self.destroyed:
                raise Violation(f"{after & self.destroyed:#x} was destroyed, and is there again")
            if self._now & ~after:
                raise Violation(f"{self._now:#x} became {after:#x}: a change was lost, or applied twice")
            if after & ~RESCUED & ~((1 << self.given) - 1):
                raise Violation(f"{after:#x} has bits that no call was given, of {self.given}")
            self._now = after
        self._read = len(self.ensemble.log)
        if self._now & self.refused:
            raise Violation(f"{self._now & self.refused:#x} was added, and its call has said that it was not")

    def since(self, begun: int) -> list[int]:
        """Return all that the number was since the log had so much."""
        return [state or 0 for state in self.states(begun)]

    def entitled(self, worker: CallWorker) -> bool:
        """Whether the number has the bits that it waits for."""
        return self._now.bit_count() >= self.wanted.get(worker, 99)

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
            if state.turn.batch is None and not any(each.batch for each in state.turn.pending):
                raise Violation(f"{worker.name} waits, and nothing is under way: {list(state.turn.pending)}")

    def settling(self) -> bool:
        """Whether something is left to be settled, or waits for its turn."""
        return any(
            process.alive and any(state._left for state in list(process.session.directory.values()))
            for process in self.processes
        )

    def end(self) -> None:
        """Each change that was answered is there, once; nothing is under way, and no turn is taken."""
        super().end()
        self.step()
        if self.settling():
            raise Violation("something is left to be settled")
        for process in self.processes:
            for state in list(process.session.directory.values()) if process.alive else ():
                if state.turn.batch is not None or state.turn.pending:
                    raise Violation(f"{process.name} has a turn that never ends: {list(state.turn.pending)}")
        if missing := self.added & ~self._now & ~self.destroyed:
            raise Violation(f"{missing:#x} was added, as its calls say, and is not there")


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
        if step.what in ("get", "wait") or self.checks.given >= OWN:
            self._ask(step)
        else:
            try:
                self._change(step)
            except OutcomeUnknownError:
                if not self.process.session.link.stopped:
                    raise Violation(f"{self.name}: the outcome of its {step.what} can be found out") from None
                raise

    def _ask(self, step: Step) -> None:
        checks, value = self.checks, self.value
        if step.what == "wait" and step.shared:
            checks.wanted[self] = step.bits
            limit = None if step.seconds is None else step.seconds + (self.process.session.timeout or UNANSWERED) / 3
            with self.calling("wait", limit) as call:
                got = value.wait_for(lambda number: number.bit_count() >= step.bits, step.seconds)
                if got and max(each.bit_count() for each in checks.since(call.begun)) < step.bits:
                    raise Violation(f"{self.name} goes on before there are {step.bits} bits")
                if not got and (step.seconds is None or self.world.now < call.began + step.seconds):
                    raise Violation(f"{self.name} gave up waiting after {self.world.now - call.began:g} s")
            return
        with self.calling("get") as call:
            self.last = got = value.get()
            number = got.value if step.shared else got
            if number not in checks.since(call.begun):
                raise Violation(f"{self.name} is told {number:#x}: {checks.since(call.begun)}")

    def _change(self, step: Step) -> None:
        checks, value = self.checks, self.value
        mine = 1 << checks.given
        checks.given += 1
        with self.calling(step.what) as call:
            if step.what == "compare":
                if step.shared:
                    self.last = expected = value.get()
                    done = value.compare_and_set(expected, expected.value | mine)
                    before = expected.value
                else:
                    before = self.last
                    done = value.compare_and_set(before, before | mine)
                if not done and set(checks.since(call.begun)) == {before} and not step.shared:
                    raise Violation(f"{self.name} is told that {before:#x} is another number")
                after = before | mine
            elif step.what == "update" or step.shared:
                after, done = value.update(lambda number: number | mine), True
            elif step.what == "get_and_add":
                after, done = value.get_and_add(mine) + mine, True
            else:
                after, done = value.add(mine), True
            self._check(call, mine, after, done=done)
            if not step.shared:
                self.last = after if done else 0

    def _check(self, call: Any, mine: int, after: int, *, done: bool) -> None:
        checks = self.checks
        if not done:
            checks.refused |= mine
            checks.step()
            return
        checks.added |= mine
        states = checks.since(call.begun)
        # Several calls may have changed the number in one step, one after the other.
        if not any(
            not before & mine and not before & ~after and not after & ~then and after & mine
            for before, then in pairwise(states)
        ):
            raise Violation(f"{self.name} made {after:#x}, adding {mine:#x}: {[f'{each:#x}' for each in states]}")


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
            self.ensemble.ask(0, changes.SetData(CHROOT + PATH, number.to_bytes(8, "big")))


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
