"""Quorums of locks in the simulation: several services in one world, each with its own servers, clients and faults.

A party is one program, with a client for each service. Each service has its own checks, those of all locks; this
module adds the invariants of the quorums. A QuorumLock has no threads of its own, so nothing stands in for it but the
random pauses between two tries, which are drawn from a seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.simulation.checks.invariants import Checks
from tests.simulation.world.client import Process
from tests.simulation.world.ensemble import Ensemble
from tests.simulation.world.run import CHROOT, Run
from tests.simulation.world.schedule import LENGTHS, TIMEOUT, Deviation, Schedule, random_schedule
from tests.simulation.world.workload import SLACK, Worker
from tests.simulation.world.world import CALM, Violation, World
from zkconcurrent._engine.client_state import UNANSWERED
from zkconcurrent._errors import LockLostError, WaitCancelledError
from zkconcurrent._memory import changes
from zkconcurrent._protocol.lease import GAP, NEVER
from zkconcurrent._protocol.operations import NoNode
from zkconcurrent._protocol.ticket import State, Ticket
from zkconcurrent._threads import quorum as _quorum
from zkconcurrent._threads.base.lock_base import LockBase
from zkconcurrent._threads.lock import Lock
from zkconcurrent._threads.quorum import FIRST_PAUSE, GRACE, LONGEST_PAUSE, SLOW_TRIES, QuorumLock
from zkconcurrent._threads.rlock import RLock

LOCK, RLOCK = "/app/l", "/app/r"
PAUSE = max(LONGEST_PAUSE, SLOW_TRIES * (TIMEOUT / 3 + GRACE))  # the longest, after a try that took so long
NOT_HERE = {"number": "turn", "quit": "cut", "usurp": "cut_off"}


class Take(NamedTuple):
    """The action of a thread.

    Attributes:
        what: "all" (the quorum), "one" (a single lock of it) or "sleep".
        path: of the locks.
        wait: how long to wait, in seconds: -1 for ever, 0 for a try.
        stay: how long to stay.
        depth: how often it is acquired.
        block: whether it is a block.
        which: which single lock.
        besides: whether the thread has acquired a single lock before, which is re-entrant.
        shared: whether the object is that of all threads of the party.
    """

    what: str
    path: str = LOCK
    wait: float = -1
    stay: float = 0.0
    depth: int = 1
    block: bool = False
    which: int = 0
    besides: bool = False
    shared: bool = False

    def __str__(self) -> str:
        plain = self._field_defaults
        return ", ".join([self.what, *(f"{n} {v}" for n, v in self._asdict().items() if n in plain and v != plain[n])])


class Section:
    """A quorum that a thread believes to hold.

    Attributes:
        parts: the tickets of its locks.
        lost: it was lost before its release began.
        left: it was released, and that has raised nothing.
    """

    def __init__(self, worker: QuorumWorker, lock: QuorumLock, quorum: Any) -> None:
        self.worker, self.lock, self.quorum = worker, lock, quorum
        self.least = lock.quorum
        self.parts: list[Ticket] = [hold.ticket for _, hold in quorum.parts]
        self.lost = self.left = False

    def alive(self, now: float) -> int:
        """Return how many of its locks are held, as far as the party can know."""
        return sum(each.state is State.HELD and now < each.lease.end for each in self.parts)


class ServiceChecks(Checks):
    """The invariants of one service.

    Attributes:
        granted: when each ticket became a hold.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.granted: dict[Ticket, float] = {}

    def _granted(self, ticket: Ticket, lease_end: float) -> None:
        super()._granted(ticket, lease_end)
        self.granted[ticket] = self.world.now


class QuorumChecks:
    """The invariants of all services, and of the quorums.

    Attributes:
        services: the checks of each service.
        here: those of the service that the present deviation befalls.
        sections, past: the quorums that threads believe to hold, and have held.
        told: how often `on_lost` was called, by the object.
        strikes: after so many turns the next release is interrupted; 0: not at all.
    """

    strikes = 0

    def __init__(self, world: World, services: list[ServiceChecks]) -> None:
        self.world = world
        self.services = services
        self.here = services[0]
        self.sections: list[Section] = []
        self.past: list[Section] = []
        self.workers: list[QuorumWorker] = []
        self.told: dict[int, int] = {}
        self.kept: list[QuorumLock] = []
        for each in services[1:]:
            each.listed = services[0].listed

    @property
    def listed(self) -> dict[Ticket, int]:
        """How much of the log the last listing had seen that a ticket's recipe was given."""
        return self.here.listed

    def remove(self, node: str) -> None:
        """Take note of a node that an operator took away."""
        self.here.remove(node)

    def faults(self) -> bool:
        """Whether anything is kept from going on by a fault."""
        return any(each.faults() for each in self.services)

    def _excused(self, ticket: Ticket) -> bool:
        return any(
            ticket.node.startswith(f"{ticket.path}/") and CHROOT + ticket.node in each.removed and each.excused(ticket)
            for each in self.services
        )

    def step(self) -> None:
        """No two threads hold a quorum of the same locks."""
        now, held = self.world.now, {}
        for each in self.services:
            each.step()
        for section in self.sections:
            if not section.worker.process.alive:
                continue
            if section.alive(now) < section.least:
                section.lost = True
                continue
            sure = sum(
                each.state is State.HELD and now < each.lease.end and not self._excused(each) for each in section.parts
            )
            path = section.lock.locks[0].path
            other = held.setdefault(path, section)
            if sure >= section.least and other.worker is not section.worker:
                raise Violation(f"{section.worker.name} and {other.worker.name} hold {path}: {section.parts}")
            if sure < section.least and other is section:
                del held[path]

    def quiet(self) -> None:
        """Nobody waits while a quorum is free."""
        for each in self.services:
            each.quiet()
        now = self.world.now
        for worker in self.workers:
            if worker.wants is None or not self._is_free(worker):
                worker.free_since = None
            elif worker.free_since is None:
                worker.free_since = now
            elif now > worker.free_since + PAUSE + TIMEOUT / 3 + GRACE + 12 * self.here.ensemble.trip + 1e-6:
                raise Violation(f"{worker.name} waits, and a quorum was free for {now - worker.free_since:g} s")

    def _is_free(self, worker: QuorumWorker) -> bool:
        """Return whether the worker could acquire a quorum now."""
        assert worker.wants is not None
        free, alone = 0, all(each is worker or each.done for each in self.workers if each.party is worker.party)
        for checks, process in zip(self.services, worker.party, strict=True):
            wire, nodes = process.connection.wire, checks.ensemble.leader.nodes
            parent = nodes.get(CHROOT + worker.wants)
            up = wire is not None and wire.open and process.client.connected and not process.client._queue
            # A session that has not proved yet that it lives waits for that first.
            proved = process.session.registry.lease.heard != NEVER
            names = [] if parent is None else [f"{CHROOT}{worker.wants}/{name}" for name in parent.children]
            mine = alone and all(nodes[name].owner == process.session.registry.session for name in names)
            free += up and proved and not checks.faults() and (mine or not names)
        return free > len(self.services) // 2

    def end(self) -> None:
        """Nothing is left anywhere, and each loss was told, once."""
        for each in self.services:
            each.end()
        for section in self.past:
            if section.lost and section.worker.process.alive and not section.quorum.losses.whole.told:
                raise Violation(f"{section.worker.name}: the loss of {section.parts} was never told")
        for lock in self.kept:
            held = [each for each in (*self.sections, *self.past) if each.lock is lock]
            losses = {id(each.quorum) for each in held if each.quorum.losses.whole.told}
            told = self.told.get(id(lock), 0)
            if told != len(losses) and all(each.worker.process.alive for each in held):
                raise Violation(f"{lock} was lost {len(losses)} times, and that was told {told} times")
            if lock._held and any(self._lives(owner) for owner in lock._held):
                raise Violation(f"left: {lock} has {lock._held}")
            if lock._acquiring and any(self._lives(owner) for owner in lock._acquiring):
                raise Violation(f"left: {lock} is being acquired by {lock._acquiring}")

    def _lives(self, owner: int) -> bool:
        return any(worker.actor.ident == owner and worker.process.alive for worker in self.workers)


class QuorumWorker(Worker):
    """A thread that uses quorums.

    Attributes:
        party: the processes of its party, one for each service.
        objects: the locks that the threads of a party share, by its first process and the path.
        wants: the path of the quorum that it waits for.
        free_since: since when it waits in vain.
    """

    party: list[Process]
    objects: dict[tuple[str, str], QuorumLock]
    checks: QuorumChecks  # type: ignore[assignment]
    wants: str | None = None
    free_since: float | None = None

    def _member(self, which: int, path: str) -> LockBase:
        return (RLock if path == RLOCK else Lock)(self.party[which].client, path)

    def _make(self, take: Take) -> QuorumLock:
        key = self.process.name, take.path
        if take.shared and key in self.objects:
            return self.objects[key]
        told = self.checks.told

        def on_lost(lock: QuorumLock) -> None:
            told[id(lock)] = told.get(id(lock), 0) + 1

        members: Any = [self._member(n, take.path) for n in range(len(self.party))]
        lock = QuorumLock(members, on_lost=on_lost)
        self.checks.kept.append(lock)
        if take.shared:
            lock = self.objects.setdefault(key, lock)
        return lock

    def _visit(self, take: Take) -> None:  # type: ignore[override]
        if take.what == "sleep":
            self.world.sleep(take.stay)
        elif take.what == "one":
            self._hold_one(take)
        elif take.besides:
            self._hold_one(take._replace(which=take.which), take._replace(besides=False))
        else:
            self._hold_all(take)

    def _hold_one(self, take: Take, within: Take | None = None) -> None:
        lock = self._member(take.which, take.path)
        try:
            if not lock.acquire(timeout=1.0):
                return
            if within is None:
                self.world.sleep(take.stay)
                return
            hold = lock._lock_core.mine()
            self._hold_all(within)
            mine = lock._lock_core.mine()
            if mine is not hold or (mine is not None and mine.depth != 1):
                raise Violation(f"{self.name} had {hold} besides, and has {mine}")
        except LockLostError:
            self.world.say("is told that its single lock is lost")
        finally:
            self._settle_one(lock)

    def _settle_one(self, lock: LockBase) -> None:
        struck = False
        while lock._lock_core.mine() is not None:
            try:
                lock.release()
            except LockLostError:
                self.world.point()
            except KeyboardInterrupt:
                struck = True
        if struck:
            raise KeyboardInterrupt

    def _levels(self, lock: QuorumLock) -> list[int]:
        return [0 if (hold := each._lock_core.mine()) is None else hold.depth for each in lock.locks]

    def _hold_all(self, take: Take) -> None:
        lock = self._make(take)
        sections: list[Section] = []
        try:
            try:
                while len(sections) < take.depth and self._acquire_all(lock, take):
                    sections.append(Section(self, lock, lock._mine()))
                    self.checks.sections.append(sections[-1])
                if sections:
                    self.world.sleep(take.stay)
                    self._ask(lock, sections[-1])
            finally:
                for section in sections:
                    self._exit(section)  # type: ignore[arg-type]
                for section in reversed(sections):
                    self._release_all(lock, section)
        except LockLostError:
            if not sections:
                raise
        finally:
            self._settle_all(lock)

    def _ask(self, lock: QuorumLock, section: Section) -> None:
        """Look whether the object knows what it holds."""
        said, alive = lock.hold_count(), section.alive(self.world.now)
        if bool(said) != (alive >= section.least):
            raise Violation(f"{lock} says that it is held {said} times, and {alive} locks are")
        if said and lock.lost.is_set():
            raise Violation(f"{lock} is held, and said to be lost")

    def _acquire_all(self, lock: QuorumLock, take: Take) -> bool:
        world, third = self.world, max((each.session.timeout or UNANSWERED) for each in self.party) / 3
        unproved = any(each.session.registry.lease.heard == NEVER for each in self.party)
        before, quorums, began = self._levels(lock), lock._held.get(self.actor.ident, ()), world.now
        losses = [hold for each in lock.locks if (hold := each._lock_core.mine()) is not None and not hold.alive]
        self.wants = take.path if take.wait == -1 and not quorums and not any(before) else None
        world.say(f"acquires {take}")
        got = False
        try:
            got = lock.acquire(False) if take.wait == 0 else lock.acquire(timeout=take.wait)
        except WaitCancelledError:
            world.say("its wait was ended")
        except LockLostError:
            if not quorums and not losses and self._levels(lock) == before:
                raise Violation(f"{self.name} has lost nothing, and is told so") from None
            raise
        finally:
            self.wants = self.free_since = None
            if not got:
                # An own lock that was lost meanwhile stays to be settled, at its level.
                if any(now > was for now, was in zip(self._levels(lock), before, strict=True)):
                    raise Violation(f"{self.name} goes without {lock}, and has {self._levels(lock)} after {before}")
                if lock._held.get(self.actor.ident, ()) != quorums:
                    raise Violation(f"{self.name} goes without {lock}, which has {lock._held}")
        world.say(f"has {take.path}" if got else f"goes without {take.path}")
        limit = max(take.wait, third) + third / 2 + 2 * SLACK + GRACE
        if unproved:
            limit += TIMEOUT * GAP + third
        if take.wait != -1 and self._ran_since(began) and world.now > began + limit:
            raise Violation(f"acquire(timeout={take.wait:g}) took {world.now - began:g} s")
        if got:
            self._check_parts(lock, began, fresh=not any(before))
        return got

    def _check_parts(self, lock: QuorumLock, began: float, *, fresh: bool) -> None:
        """Look at what was acquired: it is a quorum, and a service that did not answer was not waited for."""
        quorum: Any = lock._mine()
        if len(quorum.parts) < lock.quorum:
            raise Violation(f"{self.name} has {lock}, of {quorum.parts} alone")
        granted = {ticket: at for each in self.checks.services for ticket, at in each.granted.items()}
        if fresh and self._ran_since(began):
            enough = sorted(granted[hold.ticket] for _, hold in quorum.parts)[lock.quorum - 1]
            if self.world.now > enough + max(GRACE, enough - began) + SLACK:
                raise Violation(f"{self.name} had a quorum of {lock}, and waited {self.world.now - enough:g} s")

    def _ran_since(self, began: float) -> bool:
        return max(self.actor.held_until, *(each.starved_until for each in self.party)) <= began

    def _release_all(self, lock: QuorumLock, section: Section) -> None:
        if lock._mine() is not section.quorum:
            return  # an interrupted release has released it
        began = self.world.now
        lost = section.alive(began) < section.least
        section.lost = section.lost or lost
        left = self._levels(lock)
        self.world.say(f"releases {lock.locks[0].path}")
        if self.checks.strikes and self.world.countdown < CALM // 2:
            self.world.countdown, self.checks.strikes = self.checks.strikes, 0
            self.world.throw(self.actor, KeyboardInterrupt())
        try:
            lock.release()
        except LockLostError:
            gone = sum(each.state is State.LOST or isinstance(each.refusal, NoNode) for each in section.parts)
            if len(section.parts) - gone >= section.least:
                raise Violation(f"{lock} is said to be lost, and is not: {section.parts}") from None
            self.world.say("is told that the quorum is lost")
        except KeyboardInterrupt:
            if 0 < len(section.quorum.left or ()) < len(section.quorum.parts):
                raise Violation(f"an interrupted release has released some of {section.parts}") from None
            raise
        else:
            if lost:
                raise Violation(f"the release of {section.parts} is silent, and it was lost")
            section.left = True
        parts = {part for part, _ in section.quorum.parts}
        for each, was, now in zip(lock.locks, left, self._levels(lock), strict=True):
            if now != max(0, was - (each._lock_core in parts)):
                raise Violation(f"{self.name} has released {lock}: {each} had {was} levels, and has {now}")
        if self._ran_since(began) and self.world.now > began + TIMEOUT / 6 + SLACK:
            raise Violation(f"release() took {self.world.now - began:g} s")

    def _settle_all(self, lock: QuorumLock) -> None:
        """Release what an interrupt kept from being released; this too may be interrupted."""
        struck = False
        while lock._mine() is not None:
            try:
                lock.release()
            except LockLostError:
                self.world.point()
            except KeyboardInterrupt:
                struck = True
        if struck:
            raise KeyboardInterrupt


class QuorumRun(Run):
    """A run of such workers, on several services.

    Attributes:
        services: how many there are.
    """

    services = 3
    worker = QuorumWorker  # type: ignore[assignment]
    checks: QuorumChecks  # type: ignore[assignment]
    workers: list[QuorumWorker]  # type: ignore[assignment]

    def __init__(self, schedule: Schedule, *, trace: bool = False) -> None:
        self.schedule = schedule
        self.world = World()
        self.world.limit = 60_000  # several services, of which each takes its steps
        self.world.trace = [] if trace else None
        self.ensembles = [Ensemble(self.world) for _ in range(self.services)]
        for ensemble in self.ensembles:
            ensemble.trip = schedule.round_trip / 2
            ensemble.ask(0, changes.Create(CHROOT))
        self.ensemble = self.ensembles[0]
        numbers = iter(range(1, 100))
        self.parties = [
            [
                Process(self.world, ensemble, f"{'abc'[n]}@{k}", next(numbers), TIMEOUT, f"service{k}")
                for k, ensemble in enumerate(self.ensembles)
            ]
            for n in range(len(schedule.threads))
        ]
        self.processes = [process for party in self.parties for process in party]
        of_services = [list(each) for each in zip(*self.parties, strict=True)]
        checks = [
            ServiceChecks(self.world, ensemble, processes, CHROOT)
            for ensemble, processes in zip(self.ensembles, of_services, strict=True)
        ]
        self.checks = QuorumChecks(self.world, checks)
        for ensemble, each in zip(self.ensembles, checks, strict=True):
            ensemble.on_expiry = each.expiring
        for n, process in enumerate(self.processes):
            process.connection.server = process.ensemble.servers[n % 2]
        self.workers = []
        objects: dict[tuple[str, str], QuorumLock] = {}
        for party, threads in zip(self.parties, schedule.threads, strict=True):
            for n, (start, visits) in enumerate(threads):
                made: Any = self.worker(party[0], self.checks, f"{party[0].name}{n}", visits, start)  # type: ignore[arg-type]
                made.party, made.objects = party, objects
                self.workers.append(made)
        self.checks.workers = self.workers
        self.injected = {}
        self._over = False
        self._left = list(schedule.deviations)
        self.world.check = self.checks.step
        self.world.at_rest = self.checks.quiet
        self.world.network = self._network
        self.world.deviate = self._deviate
        self._next_deviation()

    def to_the_end(self) -> int:
        """Run until all have finished; see `Run`."""
        with self._parted():
            return super().to_the_end()

    @contextmanager
    def _parted(self) -> Iterator[None]:
        """Draw the pauses between two tries from a seed."""
        random = Random(len(self.schedule.deviations))
        with patch.object(_quorum, "random", SimpleNamespace(uniform=random.uniform)):
            yield

    # -- deviations ----------------------------------------------------------------------------------------------

    def _deviate(self) -> None:
        it = self._left[0]
        service = (it.after + it.which) % self.services
        actor = self.world.next_up
        if it.kind == "straddle" and actor is not None and actor.process is not None:
            service = self.ensembles.index(actor.process.ensemble)
        self.ensemble, self.checks.here = self.ensembles[service], self.checks.services[service]
        super()._deviate()

    def _process(self, it: Deviation) -> Process | None:
        processes = [each for each in self.processes if each.alive and each.ensemble is self.ensemble]
        return processes[it.which % len(processes)] if processes else None

    def _party(self, process: Process) -> list[Process]:
        return next(party for party in self.parties if process in party)

    def _starve(self, it: Deviation) -> bool | None:
        actor = self.world.next_up
        starved = super()._starve(it)
        if starved is None and actor is not None:
            for process in self._party(actor.process):
                process.starve(actor, actor.held_until)
        return starved

    def _stop(self, it: Deviation) -> bool | None:
        """Stop a party for a while (SIGSTOP)."""
        process = self._process(it)
        if process is None:
            return False
        self.world.say(f"{process.name} is stopped for {LENGTHS[it.length]:g}")
        for each in self._party(process):
            each.stop_until(self.world.now + LENGTHS[it.length])
        return None

    def _kill(self, it: Deviation) -> bool | None:
        """Kill a party (SIGKILL); not the last."""
        process = self._process(it)
        if process is None or sum(party[0].alive for party in self.parties) == 1:
            return False
        self.world.say(f"{process.name} is killed")
        for each in self._party(process):
            each.stop_until(math.inf)
        return None

    def _black_out(self, it: Deviation) -> bool | None:
        """Cut all connections to one service or two for a while, and have no new one made."""
        first, two = self.ensembles.index(self.ensemble), it.which >= 5
        length = LENGTHS[(6 if two else 1) + it.length % (3 if two else 8)]
        services = [self.ensembles[(first + n) % self.services] for n in range(1 + two)]
        self.world.say(f"services {[self.ensembles.index(each) for each in services]} are out of reach for {length:g}")
        for process in self.processes:
            wire = process.connection.wire
            if process.ensemble in services and process.alive:
                process.connection.down_until = self.world.now + length
                if wire is not None and wire.open:
                    process.ensemble.close(wire, served=it.which % 2)
        return None

    def _strike(self, it: Deviation) -> None:
        """Interrupt the next release, where its thread loses its turn to the next deviation."""
        self.checks.strikes = 1 + it.which + it.length

    def _end_waits(self, it: Deviation) -> bool | None:
        """Have a thread end the waits of its party for an object."""
        worker: Any = self._worker(it)
        lock = None if worker is None else worker.objects.get((worker.process.name, LOCK))
        if lock is None:
            return False
        self.world.spawn(f"{worker.process.name}.ends{len(self.world.actors)}", lock.cancel_waits, worker.process)
        return None


def random_takes(seed: int) -> Schedule:
    """Return the random schedule of a seed. In some, quorums are held for long, and sessions end more often."""
    random = Random(seed)
    threads, deviations, round_trip = random_schedule(random)
    path, long = random.choice((LOCK, LOCK, RLOCK)), random.random() < 0.4
    apart = random.choice((1, 4, 10))  # three services take more decisions than one
    takes: list[Any] = [
        [(start, [_take(random, path, long=long) for _ in range(random.randint(1, 3))]) for start, _ in process]
        for process in threads
    ]
    found = []
    for each in deviations:
        kind = NOT_HERE.get(each.kind, each.kind)
        kind = random.choices((kind, "black_out", "strike", "end_waits"), (14, 3, 2, 1))[0]
        if long:
            kind = random.choices((kind, "stop", "black_out", "remove", "close"), (6, 3, 3, 2, 1))[0]
        found.append(each._replace(kind=kind, after=each.after * apart))
    return Schedule(takes, found, round_trip)


def _take(random: Random, path: str, *, long: bool) -> Take:
    what = random.choice(("all",) * 6 + ("one", "sleep"))
    stay = random.choice((7.0, 14.0) if long else (0.0, 0.0, 0.05, 1.0, 3.0, 7.0))
    if what != "all":
        return Take(what, path, stay=stay, which=random.randrange(3))
    wait = random.choice((-1, -1, -1, 0, FIRST_PAUSE, 1.0, 3.0))
    again = path == RLOCK and random.random() < 0.4
    return Take(
        what,
        path,
        wait,
        stay,
        random.randint(1, 2) if again else 1,
        which=random.randrange(3),
        besides=again and random.random() < 0.5,
        shared=random.random() < 0.5,
    )
