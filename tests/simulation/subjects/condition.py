"""Conditions in the simulation: threads that wait until their time is up, and threads that notify them.

The user's expectations are told in terms of the service: which thread has deleted a waiter's node. If it was another's,
the waiter was notified and must say so; if it was the waiter's own, it was not. A thread that notifies n must have
deleted n, or leave nobody waiting.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from kazoo.protocol.serialization import Create, Delete, Transaction

from tests.simulation.checks.invariants import Checks, exclude
from tests.simulation.world.client import Process
from tests.simulation.world.ensemble import Ensemble, Transport, only_checks
from tests.simulation.world.run import CHROOT, Run
from tests.simulation.world.schedule import LENGTHS, Deviation, Schedule, random_deviations
from tests.simulation.world.workload import Section, Visit, Worker
from tests.simulation.world.world import Violation, World
from zkconcurrent._errors import LockLostError
from zkconcurrent._protocol.ticket import State, Ticket
from zkconcurrent._recipes.condition import WAITER
from zkconcurrent._threads.base.lock_base import LockBase
from zkconcurrent._threads.condition import Condition
from zkconcurrent._threads.lock import Lock

OF_AN_RLOCK, OF_A_LOCK = "/app/c", "/app/d"
HARMLESS = {"turn", "reap", "interrupt"}  # while nothing else has struck, nobody is woken without a notification


class Turn(NamedTuple):
    """A visit to a condition; its fields are those of `Visit`, and its actions there.

    Attributes:
        waits: how long it waits, in seconds; None: it does not.
        notifies: how many it notifies then; -1 for all, None: it does not.
    """

    path: str
    reentrant: bool
    wait: float
    depth: int
    stay: float
    leave: str
    within: Visit | None
    waits: float | None
    notifies: int | None


class Waiting:
    """One call of `wait`.

    Attributes:
        held: the ticket of the hold that it gives up.
        lock: that hold's node.
        node: the waiter's, once the service has it.
        interrupted: an interrupt has struck meanwhile.
    """

    def __init__(self, worker: CondWorker, held: Ticket) -> None:
        self.worker = worker
        self.held = held
        self.lock = CHROOT + held.node
        self.node: str | None = None
        self.interrupted = False


class Trap(NamedTuple):
    """The fault of the next request of some kinds."""

    kinds: tuple[type, ...]
    applied: bool
    length: float


class CondChecks(Checks):
    """The invariants of conditions, on top of those of locks.

    Attributes:
        waiting: the calls of `wait`, by the thread.
        given_up: the locks' nodes that were deleted as waiters queued.
        deleted: the thread that has deleted a waiter's node.
        woken: the nodes that notifying threads have deleted by their present call.
        notifiers: the threads that ever notified.
        injected: the kinds of deviations that have taken effect.
        trap: the kinds of requests of which the next is lost, or its answer, and for how long the connection then is.
    """

    def __init__(self, world: World, ensemble: Ensemble, processes: list[Process], chroot: str) -> None:
        super().__init__(world, ensemble, processes, chroot)
        self.waiting: dict[int, Waiting] = {}
        self.given_up: set[str] = set()
        self.deleted: dict[str, int] = {}
        self.woken: dict[int, list[str]] = {}
        self.notifiers: set[int] = set()
        self.injected: dict[str, int] = {}
        self.trap: Trap | None = None
        self._made_by: dict[int, int] = {}
        world.requested = lambda answer: self._made_by.__setitem__(id(answer), world.whoami())
        ensemble.on_request = self._arrived
        ensemble.on_answer = self._served

    # -- what the service has done -------------------------------------------------------------------------------

    def _arrived(self, answer: Any) -> bool:
        wire = next(wire for wire in self.ensemble.wires if wire.requests and wire.requests[0][2] is answer)
        return self._springs(wire, wire.requests[0][1], applied=False)

    def _springs(self, wire: Transport, request: Any, *, applied: bool) -> bool:
        """Cut the connection if this is what the trap is for; return whether it is."""
        trap = self.trap
        if trap is None or trap.applied is not applied or not isinstance(request, trap.kinds):
            return False
        if only_checks(request) or (isinstance(request, Delete) and "/waiters/" not in request.path):
            return False
        self.trap = None
        process = next(each for each in self.processes if each.connection.wire is wire)
        process.connection.down_until = self.world.now + trap.length
        self.ensemble.close(wire)
        return True

    def _served(self, wire: Transport, answer: Any) -> None:
        request, _, value, error, _ = wire.answers[-1][2]
        thread = self._made_by.pop(id(answer), 0)
        if isinstance(request, Delete) and error is None:
            if "/waiters/" in request.path:
                self.deleted[request.path] = thread
                self.woken.get(thread, []).append(request.path)
            else:
                self._gave_up(request.path)
        elif isinstance(request, Transaction) and not any(isinstance(each, Exception) for each in value or [error]):
            made = [node for node, each in zip(value, request.operations, strict=True) if isinstance(each, Create)]
            for each in request.operations:
                if isinstance(each, Delete) and made:
                    self._queued(each.path, made[-1])  # behind the nodes above it
        self._springs(wire, request, applied=True)

    def _gave_up(self, lock: str) -> None:
        for waiting in self.waiting.values():
            # The hold may be lost until it is suspended: the client is cut off during its first look at the path, say.
            # The keeper then deletes the hold's node, and `wait` raises LockLostError.
            if waiting.lock == lock and not waiting.interrupted and waiting.held.state is not State.LOST:
                raise Violation(f"{waiting.worker.name} waits, and has given the lock up without being queued")

    def _queued(self, lock: str, node: str) -> None:
        self.given_up.add(lock)
        for waiting in self.waiting.values():
            if waiting.lock == lock:
                waiting.node = node

    def queue(self, path: str) -> list[str]:
        """Return the waiters' nodes, the longest waiting first, as the leader has them."""
        full = f"{self.chroot}{path}/waiters"
        return sorted((f"{full}/{name}" for name in self.ensemble.leader.children(full)), key=WAITER.key)

    @property
    def calm(self) -> bool:
        """Whether nothing has struck yet by which an outcome may be unknown."""
        return set(self.injected) <= HARMLESS

    # -- the invariants ------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Nobody is in a critical section together with another, or by a hold that the registry does not know."""
        super().step()
        inside: dict[str, Section] = {}
        for section in self.sections:
            ticket, process = section.ticket, section.worker.process
            registry = process.session.registry
            if not process.alive or ticket.state is not State.HELD or self.world.now >= ticket.lease.end:
                continue
            if ticket.prefix not in registry.tickets:
                raise Violation(f"{section.worker.name} has a hold that nobody watches over: {ticket}")
            other = inside.setdefault(ticket.path, section)
            if (
                other is not section
                and exclude(other.ticket, ticket)
                and not self.excused(other.ticket)
                and not self.excused(ticket)
            ):
                raise Violation(f"{section.worker.name} and {other.worker.name} are inside of {ticket.path}")

    def _lost(self, process: Process, ticket: Ticket) -> None:
        super()._lost(process, ticket)
        if self.chroot + ticket.node in self.given_up:
            raise Violation(f"{ticket} is said to be lost, and was given up")

    def quiet(self) -> None:
        """Each waiter has not been notified, and will hear of it; when nothing is amiss."""
        super().quiet()
        if self.faults():
            return
        for process in self.processes:
            wire = process.connection.wire
            if not process.alive or wire is None or not process.client.connected or process.client._queue:
                continue
            for ticket in process.session.registry.tickets.values():
                node = self.chroot + ticket.node
                if not ticket.awaits or not ticket.path.endswith("/waiters"):
                    continue
                if node not in self.ensemble.leader.nodes:
                    raise Violation(f"{process.name}: {ticket} was notified, and sleeps")
                if not wire.watches(node):
                    raise Violation(f"{process.name}: {ticket} waits without a watch")


class CondWorker(Worker):
    """A worker that waits and notifies."""

    checks: CondChecks

    def _lock(self, visit: Visit | Turn) -> LockBase:
        return self._condition(visit)._lock if isinstance(visit, Turn) else super()._lock(visit)

    def _condition(self, turn: Turn) -> Condition:
        client = self.process.client
        return Condition(client, turn.path, None if turn.reentrant else Lock(client, f"{turn.path}-lock"))

    def _visit(self, visit: Visit | Turn) -> None:
        if isinstance(visit, Turn):
            self._take_turn(visit)
        else:
            super()._visit(visit)

    def _take_turn(self, turn: Turn) -> None:
        condition = self._condition(turn)
        lock = condition._lock
        depth = 0
        section: Section | None = None
        try:
            while depth < turn.depth and self._acquire(lock, turn, depth):
                depth += 1
                section = section or self._enter(lock)
            if section is not None:
                self._stay(turn)
                if turn.waits is not None:
                    waited, section = section, None
                    section = self._wait(condition, turn, depth, waited)
                if turn.notifies is not None:
                    self._notify(condition, turn.notifies)
        except LockLostError:
            if not depth:
                raise  # each loss was settled
        except Violation as violation:
            self.world.failure = violation  # not the outcome of settling it
        finally:
            if section is not None:
                self._release_level(lock, turn, section, depth)
            else:
                self._settle(lock)

    def _wait(self, condition: Condition, turn: Turn, depth: int, section: Section) -> Section:
        """Wait; return the critical section that we are in then."""
        checks, world, lock = self.checks, self.world, condition._lock
        began = world.now
        assert turn.waits is not None
        self._exit(section)
        section.left = True  # a loss that nobody knows of when the lock is given up need not be told
        waiting = checks.waiting[self.actor.ident] = Waiting(self, section.ticket)
        world.say(f"waits {turn.waits:g} for {turn.path}")
        try:
            notified = condition.wait(turn.waits)
        except LockLostError:
            if section.ticket.state is not State.LOST:
                raise Violation(f"{section.ticket} is said to be lost, and is not") from None
            raise
        finally:
            del checks.waiting[self.actor.ident]
            hold = lock._lock_core.mine()
            if not world.closed and not self.process.client._stopped.is_set():
                if hold is None or hold.depth != depth:
                    raise Violation(f"{self.name} has waited, and holds {hold and hold.depth} of {depth} levels")
                if waiting.node in checks.ensemble.leader.nodes:
                    raise Violation(f"{self.name} waits no more, and {waiting.node} is there")
        world.say(f"was {'' if notified else 'not '}notified")
        if section.ticket.state is State.LOST:
            raise Violation(f"{section.ticket} is lost, and {self.name} has waited as if it was not")
        by = checks.deleted.get(waiting.node or "")
        if not notified and by != self.actor.ident:
            raise Violation(f"{self.name} was notified by {by}, and says that it was not")
        early = hold is not None and world.now < began + turn.waits and hold.ticket.session == section.ticket.session
        # kazoo takes an interrupt that strikes as it sends for the end of the connection. And where an operator has
        # deleted the lock's node, a waiter without a reply takes itself for queued, and notified.
        known = not waiting.interrupted and waiting.lock not in checks.removed
        if notified and known and (early or checks.calm) and by not in checks.notifiers:
            raise Violation(f"{self.name} was woken by nobody")
        return self._enter(lock)

    def _notify(self, condition: Condition, n: int) -> None:
        checks, me = self.checks, self.actor.ident
        checks.notifiers.add(me)
        before = checks.queue(condition.path)
        woken = checks.woken[me] = []
        self.world.say(f"notifies {n} of {len(before)} at {condition.path}")
        try:
            if n < 0:
                condition.notify_all()
            else:
                condition.notify(n)
        finally:
            del checks.woken[me]
        left = [node for node in before if node in checks.ensemble.leader.nodes]
        if left and (n < 0 or len(woken) < n):
            raise Violation(f"{self.name} has notified {len(woken)} instead of {n}, and {len(left)} wait")
        if left and woken and WAITER.key(woken[-1]) > WAITER.key(left[0]):
            raise Violation(f"{self.name} has notified {woken[-1]}, and {left[0]} has waited longer")
        if n >= 0 and len(woken) > n and checks.calm:
            raise Violation(f"{self.name} has notified {len(woken)} instead of {n}")


class CondRun(Run):
    """A run of such workers."""

    worker = CondWorker
    invariants = CondChecks
    checks: CondChecks

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.checks.injected = self.injected

    def _lose(self, it: Deviation) -> None:
        """Lose the next multi, or delete of a waiter's node, or the answer to it."""
        kinds = ((Transaction,), (Delete,), (Transaction, Delete))[it.which % 3]
        self.checks.trap = Trap(kinds, it.which >= 4, LENGTHS[it.length % 7])

    def _interrupt(self, it: Deviation) -> bool | None:
        worker = self._worker(it)
        waiting = None if worker is None else self.checks.waiting.get(worker.actor.ident)
        if waiting is not None:
            waiting.interrupted = True
        return super()._interrupt(it)


KINDS = {
    "turn": 30,
    "lose": 20,
    "interrupt": 12,
    "cut": 10,
    "late": 6,
    "starve": 6,
    "lag": 5,
    "expire": 5,
    "stop": 4,
    "straddle": 3,
    "stall": 3,
    "kill": 2,
    "cut_off": 2,
    "reap": 2,
    "clog": 1,
    "quit": 1,
}


def random_turns(seed: int) -> Schedule:
    """Return the random schedule of a seed: few threads, whose times often coincide."""
    random = Random(seed)
    reentrant = random.random() < 0.6
    threads = [
        [
            (random.choice((0.0, 0.0, 1.0)), [_turn(random, reentrant) for _ in range(random.randint(1, 2))])
            for _ in range(random.randint(1, 2))
        ]
        for _ in range(random.choice((2, 2, 3)))
    ]
    deviations = random_deviations(random, KINDS, 1, 12)
    if seed % 16 == 15:  # the first in line goes while its notification, which was lost, is on its way again
        line = [Turn(OF_A_LOCK, False, -1, 1, 0.0, "release", None, waits, None) for waits in (1.0, 20.0)]
        notifier = Turn(OF_A_LOCK, False, -1, 1, 0.0, "release", None, None, 1)
        threads = [[(0.0, [line[0]])], [(0.1, [line[1]])], [(0.9, [notifier])]]
        deviations = [Deviation(random.randint(1, 9), "lose", random.choice((1, 5)), random.randrange(len(LENGTHS)))]
    return Schedule(threads, deviations)


def _turn(random: Random, reentrant: bool) -> Turn:
    path, depth = (OF_AN_RLOCK, random.randint(1, 2)) if reentrant else (OF_A_LOCK, 1)
    does = random.choice(("wait", "wait", "wait", "notify", "notify", "both"))
    waits = random.choice((0.0, 1.0, 1.0, 1.0, 2.0, 20.0)) if does != "notify" else None
    notifies = random.choice((1, 1, 1, 2, -1)) if does != "wait" else None
    wait = random.choice((-1, -1, -1, 1.0))
    leave = random.choice(("release", "release", "lend"))
    return Turn(path, reentrant, wait, depth, random.choice((0.0, 0.0, 1.0)), leave, None, waits, notifies)
