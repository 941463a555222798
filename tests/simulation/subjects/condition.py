"""Conditions in the simulation: what the service shows of threads and tasks that wait, and that notify them.

The user's expectations are told in terms of the service: which thread has deleted a waiter's node. If it was another's,
the waiter was notified and must say so; if it was the waiter's own, it was not. A thread that notifies n must have
deleted n, or leave nobody waiting.
"""

from __future__ import annotations

from typing import Any

from kazoo.protocol.serialization import Create, Delete, Transaction

from tests.simulation.checks.invariants import Checks, exclude
from tests.simulation.world.client import Process
from tests.simulation.world.ensemble import Ensemble, Transport
from tests.simulation.world.run import CHROOT
from tests.simulation.world.workload import Section, Worker
from tests.simulation.world.world import Violation, World
from zkconcurrent._protocol.ticket import State, Ticket
from zkconcurrent._recipes.condition import WAITER

OF_AN_RLOCK, OF_A_LOCK = "/app/c", "/app/d"
HARMLESS = {"turn", "reap", "interrupt"}  # while nothing else has struck, nobody is woken without a notification


class Waiting:
    """One call of `wait`.

    Attributes:
        held: the ticket of the hold that it gives up.
        lock: that hold's node.
        node: the waiter's, once the service has it.
        interrupted: an interrupt has struck meanwhile.
    """

    def __init__(self, worker: Worker, held: Ticket) -> None:
        self.worker = worker
        self.held = held
        self.lock = CHROOT + held.node
        self.node: str | None = None
        self.interrupted = False


class CondChecks(Checks):
    """The invariants of conditions, on top of those of locks.

    Attributes:
        waiting: the calls of `wait`, by the thread.
        given_up: the locks' nodes that were deleted as waiters queued.
        deleted: the thread that has deleted a waiter's node.
        woken: the nodes that notifying threads have deleted by their present call.
        notifiers: the threads that ever notified.
        injected: the kinds of deviations that have taken effect.
    """

    def __init__(self, world: World, ensemble: Ensemble, processes: list[Process], chroot: str) -> None:
        super().__init__(world, ensemble, processes, chroot)
        self.waiting: dict[int, Waiting] = {}
        self.given_up: set[str] = set()
        self.deleted: dict[str, int] = {}
        self.woken: dict[int, list[str]] = {}
        self.notifiers: set[int] = set()
        self.injected: dict[str, int] = {}
        self._made_by: dict[int, int] = {}
        world.requested = lambda answer: self._made_by.__setitem__(id(answer), world.whoami())
        ensemble.on_answer = self._served

    # -- what the service has done -------------------------------------------------------------------------------

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
