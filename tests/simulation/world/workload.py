"""The threads of a simulated process: their visits to locks, as a user writes them, and the user's expectations."""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.checks.invariants import Checks
from tests.simulation.world.client import Process
from tests.simulation.world.world import Actor, Violation
from zkconcurrent._engine.client_state import UNANSWERED
from zkconcurrent._engine.holds import Hold
from zkconcurrent._errors import ClientError, LockLostError, SequenceExhaustedError
from zkconcurrent._protocol.operations import NoNode
from zkconcurrent._protocol.session_lease import GAP, NEVER
from zkconcurrent._protocol.ticket import State, Ticket
from zkconcurrent._threads.base.lock_base import LockBase
from zkconcurrent._threads.lock import Lock
from zkconcurrent._threads.rlock import RLock

SLACK = 0.1 + 1e-6  # the clean-up's patience


class Visit(NamedTuple):
    """One visit to one lock.

    Attributes:
        path: the lock's path.
        reentrant: whether it is an RLock.
        wait: how long to wait, in seconds: -1 for ever, 0 for a try.
        depth: how often it is acquired.
        stay: how long to stay, in seconds.
        leave: "release"; "with" (a block); "lend": another thread releases; "forget": the object is dropped.
        within: another visit, made inside of this one.
    """

    path: str
    reentrant: bool = False
    wait: float = -1
    depth: int = 1
    stay: float = 0.0
    leave: str = "release"
    within: Visit | None = None


class Section:
    """A critical section that a thread believes to be in.

    Attributes:
        left: it was left by a release that raised nothing: a loss after that need not be told.
    """

    def __init__(self, worker: Worker, hold: Hold) -> None:
        self.worker = worker
        self.hold = hold
        self.left = False

    @property
    def ticket(self) -> Ticket:
        """The ticket that is held."""
        return self.hold.ticket


class Worker:
    """A thread that makes visits, one after the other.

    Attributes:
        done: all visits were made.
        told: how often an `on_lost` of it was called, by path.
    """

    def __init__(self, process: Process, checks: Checks, name: str, visits: list[Visit], start: float) -> None:
        self.process = process
        self.checks = checks
        self.world = process.world
        self.name = name
        self.visits = visits
        self.start = start
        self.done = False
        self.stop = False
        self.actor: Actor = self.world.spawn(name, self._run, process)

    def _run(self) -> None:
        try:
            if self.start:
                self.world.sleep(self.start)
        except KeyboardInterrupt:
            self.world.say("is interrupted before its first visit")
        for visit in self.visits:
            try:
                self._visit(visit)
            except KeyboardInterrupt:
                self.world.say("is interrupted")
            except ClientError:
                if not self.process.client._stopped.is_set():
                    raise
                break
        self.done = True

    def _lock(self, visit: Visit) -> LockBase:
        kind = RLock if visit.reentrant else Lock
        return kind(self.process.client, visit.path)

    # -- one visit -----------------------------------------------------------------------------------------------

    def _visit(self, visit: Visit) -> None:
        lock = self._lock(visit)
        if visit.leave == "with":
            self._visit_with(lock, visit)
            return
        if visit.leave == "forget":
            del lock
            self._visit_and_forget(visit)
            return
        depth = 0
        section: Section | None = None
        try:
            while depth < visit.depth and self._acquire(lock, visit, depth):
                depth += 1
                section = section or self._enter(lock)
            if depth:
                self._stay(visit)
        except LockLostError:
            if not depth:
                raise  # each loss was settled
        finally:
            if section is not None:
                self._release_level(lock, visit, section, depth)

    def _visit_with(self, lock: LockBase, visit: Visit) -> None:
        section: Section | None = None
        try:
            with lock:
                section = self._enter(lock)
                try:
                    self._stay(visit)
                finally:
                    self._exit(section)
        except SequenceExhaustedError:
            if not self.process.ensemble.ends:
                raise
            self.world.say("is told that the numbers are at their end")
        except LockLostError:
            if section is None:
                raise  # each loss was settled
            self._check_lost(lock, section)
        else:
            assert section is not None
            section.left = True
        finally:
            if section is not None:  # an interrupt in __exit__ leaves it to us, as with every `with`
                self._settle(lock)

    def _visit_and_forget(self, visit: Visit) -> None:
        lock = self._lock(visit)
        if not self._acquire(lock, visit, 0):
            return
        section = self._enter(lock)
        try:
            self._stay(visit)
            self.world.hear("Forget")
        finally:
            self._exit(section)
            self.checks.past.remove(section)  # no object is left that could be told of a loss
            self.world.say(f"forgets {visit.path}")
            del lock  # if it was the process's last for this path, the hold goes with it
            try:
                lock = self._lock(visit)
            except KeyboardInterrupt:
                self._settle(self._lock(visit))
                raise
            self._settle(lock)

    def _stay(self, visit: Visit) -> None:
        if visit.stay:
            self.world.say(f"stays {visit.stay:g}")
            self.world.sleep(visit.stay)
        if visit.within is not None:
            self._visit(visit.within)

    def _acquire(self, lock: LockBase, visit: Visit, depth: int) -> bool:
        world, process = self.world, self.process
        began, third = world.now, (process.session.timeout or UNANSWERED) / 3
        unproved = process.session.registry.lease.heard == NEVER
        self.actor.waits_since = -1.0  # a wait before this may have been at the same moment
        if depth:
            world.hear("AcquireAgain")
        self.world.say(f"acquires {visit.path}" + ("" if visit.wait == -1 else f", waiting {visit.wait:g}"))
        try:
            got = lock.acquire(False) if visit.wait == 0 else lock.acquire(timeout=visit.wait)
        except SequenceExhaustedError:
            if not process.ensemble.ends:
                raise
            world.say("is told that the numbers are at their end")
            return False
        # Its requests before it waits may take as long as a try.
        waits_since = self.actor.waits_since
        limit = max(visit.wait, waits_since - began if waits_since >= began else third)
        if unproved:  # the first proof takes the time it takes
            limit += (process.session.timeout or UNANSWERED) * GAP + third
        if visit.wait != -1 and self._ran_since(began) and world.now > began + limit + SLACK:
            raise Violation(f"acquire(timeout={limit:g}) took {world.now - began:g} s")
        world.say(f"has {visit.path}" if got else f"goes without {visit.path}")
        return got

    def _ran_since(self, began: float) -> bool:
        return max(self.process.starved_until, self.actor.held_until) <= began

    def _enter(self, lock: LockBase) -> Section:
        hold = lock._lock_core.mine()
        assert hold is not None
        section = Section(self, hold)
        self.checks.sections.append(section)
        return section

    def _exit(self, section: Section) -> None:
        self.checks.sections.remove(section)
        self.checks.past.append(section)

    def _release_level(self, lock: LockBase, visit: Visit, section: Section, depth: int) -> None:
        self._exit(section)
        try:
            if visit.leave == "lend" and not visit.reentrant and depth == 1:
                self._lend(lock, section)
            for _ in range(depth):
                self._release(lock, section)
        finally:
            self._settle(lock)

    def _release(self, lock: LockBase, section: Section) -> None:
        if lock._lock_core.mine() is None:
            return
        began = self.world.now
        self.world.say(f"releases {lock.path}")
        try:
            lock.release()
        except LockLostError:
            self._check_lost(lock, section)
        else:
            section.left = True
        if self._ran_since(began) and self.world.now > began + self.process.session.timeout / 6 + SLACK:
            raise Violation(f"release() took {self.world.now - began:g} s")

    def _lend(self, lock: LockBase, section: Section) -> None:
        def release() -> None:
            newest = lock._lock_core.newest()
            if newest is not None and newest.alive and newest.ticket is section.ticket:
                self.world.say(f"releases {lock.path} for {self.name}")
                try:
                    lock.release()
                except LockLostError:
                    if self._others_lost(section):
                        self.world.say(f"is told of the loss of another thread's hold on {lock.path}")
                    else:
                        self._check_lost(lock, section)
                except RuntimeError:
                    if newest.claimant != self.actor.ident:
                        raise
                    self.world.say(f"finds that {self.name} releases {lock.path} itself, as it was interrupted")
                else:
                    section.left = True

        helper = self.world.spawn(f"{self.name}.helper", release, self.process)
        while not helper.done:
            self.world.sleep(0.01)

    def _settle(self, lock: LockBase) -> None:
        """Release what an interrupt kept from being released; this too may be interrupted."""
        interrupted = False
        while lock._lock_core.mine() is not None:
            try:
                lock.release()
            except LockLostError:
                self.world.say(f"settles its loss of {lock.path}")
                self.world.point()  # a thread that does so for ever is found
            except RuntimeError:
                hold = lock._lock_core.mine()
                if hold is not None and hold.claimant == self.actor.ident:
                    raise
                self.world.sleep(0.01)  # the borrower is releasing it
            except KeyboardInterrupt:
                interrupted = True
        if interrupted:
            raise KeyboardInterrupt

    def _check_lost(self, lock: LockBase, section: Section) -> None:
        self.world.say(f"is told that its hold on {lock.path} is lost")
        if not self._is_lost(section):
            raise Violation(f"{section.ticket} is said to be lost, and is not")

    def _others_lost(self, section: Section) -> bool:
        """Return whether other threads of the process have lost holds of the same lock: a release may tell of one."""
        held = (each for each in [*self.checks.sections, *self.checks.past] if each.ticket.path == section.ticket.path)
        return any(self._is_lost(each) for each in held if each.worker.process is self.process and each is not section)

    def _is_lost(self, section: Section) -> bool:
        ticket = section.ticket
        removed = self.checks.chroot + ticket.node in self.checks.removed
        # The release itself has found that another had deleted the node, or had ended its session.
        taken = removed or self.process.ensemble.sessions[ticket.lease.session].closed
        return ticket.state is State.LOST or (isinstance(ticket.refusal, NoNode) and taken)
