"""Semaphores in the simulation: threads that take permits, several at once, give them back, and add some."""

from __future__ import annotations

import json
from random import Random
from typing import Any, NamedTuple

from kazoo.protocol.serialization import Create, Transaction

from tests.simulation.checks.invariants import Checks
from tests.simulation.world.calls import LosingRun
from tests.simulation.world.ensemble import Transport
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import Schedule, random_schedule
from tests.simulation.world.workload import SLACK, Section, Visit, Worker
from tests.simulation.world.world import Violation
from zkconcurrent._engine.client_state import UNANSWERED
from zkconcurrent._engine.holds import Hold
from zkconcurrent._errors import LockLostError
from zkconcurrent._memory.server_watches import CHILDREN_WATCH
from zkconcurrent._protocol.blocking_rules import MUTEX, PERMIT, blocker
from zkconcurrent._protocol.operations import Node
from zkconcurrent._protocol.permits import count
from zkconcurrent._protocol.ticket import State, Ticket
from zkconcurrent._recipes.nodes import PathCheck
from zkconcurrent._recipes.semaphore import SemaphoreLayout, parse
from zkconcurrent._threads.semaphore import Semaphore

PATH, VALUE = "/app/s", 3
LOCKS, LEASES, PERMITS = f"{PATH}/locks", f"{PATH}/leases", f"{PATH}/permits"
NOT_HERE = {"number": "turn"}


class Use(NamedTuple):
    """One use of the semaphore.

    Attributes:
        permits: how many are taken; how many are added, if it is left by "add".
        wait: how long to wait, in seconds: -1 for ever, 0 for a try.
        stay: how long to stay, in seconds.
        leave: "release" (one by one); "all" (in one call); "with" (a block of one permit); "lend" (another thread
            releases); "add" (nothing is acquired, and more is released).
    """

    permits: int
    wait: float
    stay: float
    leave: str


class User(Worker):
    """A worker that uses the semaphore."""

    checks: PermitChecks

    def _visit(self, use: Any) -> None:
        semaphore = Semaphore(self.process.client, PATH, VALUE)
        if use.leave == "add":
            self._add(semaphore, use.permits)
            return
        sections: list[Section] = []
        try:
            if use.leave == "with":
                with semaphore:
                    sections = self._enter_all(semaphore, 1)
                    try:
                        self._stay(Visit(PATH, stay=use.stay))
                    finally:
                        for section in sections:
                            self._exit(section)
                sections[0].left = True
            elif self._take(semaphore, use):
                sections = self._enter_all(semaphore, use.permits)
                try:
                    self._stay(Visit(PATH, stay=use.stay))
                finally:
                    for section in sections:
                        self._exit(section)
                    self._give(semaphore, use, sections)
        except LockLostError:
            if not sections:
                raise  # each loss was settled
            self._told(sections)
        finally:
            self._settle(semaphore)

    def _held(self, semaphore: Semaphore) -> list[Hold]:
        return [hold for hold in semaphore._path_state.all(PERMIT.role) if hold.owner == self.actor.ident]

    def _take(self, semaphore: Semaphore, use: Use) -> bool:
        world, session = self.world, self.process.session
        began = world.now
        limit = max(use.wait, (session.timeout or UNANSWERED) / 3)
        world.say(f"acquires {use}")
        try:
            got = semaphore.acquire(timeout=None if use.wait == -1 else use.wait, permits=use.permits)
        except BaseException:
            if self._held(semaphore):
                raise Violation(f"{self.name} holds permits, and acquire has failed") from None
            raise
        if use.wait != -1 and self._ran_since(began) and world.now > began + limit + SLACK:
            raise Violation(f"acquire(timeout={limit:g}) took {world.now - began:g} s")
        world.say("has them" if got else "goes without")
        if not got and self._held(semaphore):
            raise Violation(f"{self.name} holds permits, and was told that it does not")
        return got

    def _enter_all(self, semaphore: Semaphore, permits: int) -> list[Section]:
        holds = self._held(semaphore)
        if len(holds) != permits:
            raise Violation(f"{self.name} acquired {permits} permits, and has {len(holds)}")
        sections = [Section(self, hold) for hold in holds]
        self.checks.sections += sections
        return sections

    def _give(self, semaphore: Semaphore, use: Use, sections: list[Section]) -> None:
        if use.leave == "lend":
            self._lend(semaphore, sections[0])
        while held := self._held(semaphore):
            n = len(held) if use.leave == "all" else 1
            lost = [each for each in held if each.ticket.state is State.LOST or self.world.now >= each.ticket.lease.end]
            self.world.say(f"releases {n}")
            self.world.hear("Release")
            try:
                semaphore.release(n)
                self.world.hear("")
            except LockLostError:
                self._told(sections)
                continue
            if lost:
                raise Violation(f"a release is silent, and {lost} was to be settled first")
            if len(self._held(semaphore)) != len(held) - n:
                raise Violation(f"{self.name} released {n} of {held}, and has {self._held(semaphore)}")
            for section in sections:
                section.left = section.left or section.ticket.state is State.DISCARDED

    def _told(self, sections: list[Section]) -> None:
        self.world.say("is told that permits are lost")
        if not any(map(self._is_lost, sections)):
            raise Violation(f"{sections[0].ticket} is said to be lost, and is not")

    def _add(self, semaphore: Semaphore, permits: int) -> None:
        self.world.say(f"adds {permits}")
        self.checks.at_most += permits
        semaphore.release(permits)
        self.checks.at_least += permits


class PermitChecks(Checks):
    """Never more permits are out than there are; waiters are rightly kept waiting; each added permit was added once.

    Attributes:
        at_least: how many permits were added.
        at_most: the same, with those of calls whose outcome can't be known.
    """

    at_least = at_most = 0

    def _value(self) -> int:
        leader = self.ensemble.leader
        node = leader.nodes.get(CHROOT + PERMITS)
        if node is None:
            return VALUE
        number, _ = parse(SemaphoreLayout(PATH, None, PathCheck(PATH, "Semaphore")), Node(node.data, 0, 0.0, 0))
        return number + count(leader.children(CHROOT + PERMITS))

    def step(self) -> None:
        """There are never more permits out than there are, but for those that an operator took away."""
        super().step()
        out = [
            ticket
            for process in self.processes
            if process.alive
            for ticket in process.session.registry.tickets.values()
            if ticket.state is State.HELD
            and ticket.path == LEASES
            and self.world.now < ticket.lease.end
            and CHROOT + ticket.node not in self.removed
        ]
        self._check_number(out)
        if len({ticket.name for ticket in out}) < len(out):
            raise Violation(f"one lease is two permits: {out}")

    def _check_number(self, out: list[Ticket]) -> None:
        if len(out) > VALUE and len(out) > self._value():
            raise Violation(f"{len(out)} permits are out, of {self._value()}: {out}")

    def _granted(self, ticket: Ticket, lease_end: float) -> None:
        super()._granted(ticket, lease_end)
        self.newest.clear()  # of several holders, the later need not be told later

    def _waits(self, wire: Transport, ticket: Ticket, name: str, names: list[str]) -> None:
        leader = self.ensemble.leader
        if ticket.path != LOCKS or blocker(name, names, MUTEX):
            super()._waits(wire, ticket, name, names)
            return
        wants = json.loads(leader.nodes[CHROOT + ticket.node].data)["permits"]
        leases = leader.children(CHROOT + LEASES)
        if self._value() - len(leases) >= wants:
            raise Violation(f"{ticket} waits for {wants} permits, and {leases} are out")
        for path in (LEASES, PERMITS):
            if leader.children(CHROOT + path) and not wire.watches(CHROOT + path, CHILDREN_WATCH):
                raise Violation(f"{ticket} waits without a watch on {path}")

    def end(self) -> None:
        """Nothing is left but the added permits."""
        super().end()
        added = self._value() - VALUE
        if not self.at_least <= added <= self.at_most:
            raise Violation(f"{added} permits were added, and not {self.at_least} to {self.at_most}")


class SemaphoreRun(LosingRun):
    """A run of such workers."""

    worker = User
    invariants = PermitChecks
    losable = (Transaction, Create)  # a multi, or a permit to be added


def random_uses(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    uses: list[Any] = [
        [(start, [_use(random, visit, alone=len(process) == 1) for visit in visits]) for start, visits in process]
        for process in threads
    ]
    kinds = (random.choices((None, "lose", "remove"), (8, 2, 1))[0] for _ in deviations)
    chosen = [kind or NOT_HERE.get(each.kind, each.kind) for kind, each in zip(kinds, deviations, strict=True)]
    return Schedule(uses, [each._replace(kind=kind) for kind, each in zip(chosen, deviations, strict=True)])


def _use(random: Random, visit: Visit, *, alone: bool) -> Use:
    leave = random.choice(("release", "release", "all", "all", "with", *(("lend", "add") if alone else ())))
    permits = 1 if leave in ("with", "lend") else random.choice((1, 1, 2, 2, 3))
    return Use(permits, -1 if leave == "with" else visit.wait, visit.stay, leave)
