"""Locks: one holder, in the order of arrival, whatever is cut, lost, cancelled or given up; threads and tasks."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.models import lock, rwlock, semaphore
from tests.models.history import Model
from tests.properties.machine import ACTORS, PATH, TIMEOUTS, Machine, explore, processes
from tests.properties.stage import STEP, TIMEOUT, Actor, TaskActor
from zkconcurrent import BoundedSemaphore, Lock, ReadWriteLock, RLock, Semaphore, WaitCancelledError, aio


class LockMachine(Machine):
    """`Lock`."""

    OF: ClassVar[Any] = (Lock,)
    MODEL: ClassVar[Model] = lock.Lock()
    OPS: ClassVar[list[Any]] = [(how, None) for how in (*TIMEOUTS, "release")]
    WHILE_CUT = True

    def lock_of(self, actor: Actor, wants: Any) -> Any:
        """Return the lock that an actor uses."""
        return self.at(actor)

    def locks(self, process: str) -> list[Any]:
        """Return the locks of a process."""
        return [self.objects[process]]

    def ask(self, actor: Actor, op: Any) -> None:
        how, wants = op
        of = self.lock_of(actor, wants)
        if how == "release":
            self.begin(actor, "release", of.release, wants)
            return
        arguments = {"blocking": False} if how == "try" else {} if how == "wait" else {"timeout": TIMEOUTS[how]}
        if isinstance(wants, int):
            arguments["permits"] = wants
        self.begin(actor, "acquire", lambda: of.acquire(**arguments), wants, timeout=TIMEOUTS[how])

    def seen(self) -> object:
        return sorted(self.stage.names_at(PATH))

    def modelled(self, state: Any) -> object:
        return sorted(each.actor for each in (*state.inside, *state.queue))

    @rule(process=processes)
    def cancel_waits(self, process: str) -> None:
        """End the waits of a process."""
        waiting = [actor for actor in self.of(process) if actor in self.calls]
        ended = sum(each.cancel_waits() for each in self.locks(process))
        assert ended == len(waiting), f"{ended} waits have ended, expected: {waiting}"
        self.give_up(waiting, WaitCancelledError)

    def give_up(self, waiting: list[Actor], error: type[BaseException]) -> None:
        """Have the calls of these actors end so."""
        for actor in waiting:
            self.calls[actor].given_up = error
        self.settle()

    @precondition(lambda machine: machine.cut)
    @rule()
    def outlast(self) -> None:
        """Leave processes cut off until their leases and sessions are over: they know that, and others get in."""
        self.stage.rest(TIMEOUT + STEP)
        for process in sorted(self.cut):
            self.befalls("expired", process)
        self.settle()

    def finish(self) -> None:
        """Release all, and settle all losses; then those that wait hold, and release."""
        while (line := self.state()).inside or line.lost or line.queue:
            holds = [(self.actors[each.actor], each.wants) for each in (*line.lost, *line.inside)]
            actor, wants = next((each for each in holds if not self.is_waiting(each[0])), (None, None))
            if actor is not None:
                self.ask(actor, ("release", wants))
                self.settle()
                continue
            # Each holder waits, too.
            for process in self.processes:
                self.cancel_waits(process)


class RLockMachine(LockMachine):
    """`RLock`."""

    OF: ClassVar[Any] = (RLock,)
    MODEL: ClassVar[Model] = lock.RLock()


class ReadWriteLockMachine(LockMachine):
    """`ReadWriteLock`."""

    OF: ClassVar[Any] = (ReadWriteLock,)
    MODEL: ClassVar[Model] = rwlock.ReadWriteLock()
    OPS: ClassVar[list[Any]] = [(how, wants) for how in (*TIMEOUTS, "release") for wants in ("read", "write")]

    def lock_of(self, actor: Actor, wants: Any) -> Any:
        return getattr(self.at(actor), f"{wants}_lock")

    def locks(self, process: str) -> list[Any]:
        return [self.objects[process].read_lock, self.objects[process].write_lock]

    def ask(self, actor: Actor, op: Any) -> None:
        # A downgrade would wait for the connection.
        line = self.state()
        held = [each.wants for each in (*line.lost, *line.inside) if each.actor == actor.name and not each.gone]
        if not (self.is_cut(actor) and op[1] == "read" and held == ["write"]):
            super().ask(actor, op)


class SemaphoreMachine(LockMachine):
    """`Semaphore`."""

    OF: ClassVar[Any] = (Semaphore, 2)
    MODEL: ClassVar[Model] = semaphore.Semaphore(2)
    OPS: ClassVar[list[Any]] = [*((how, permits) for how in TIMEOUTS for permits in (1, 2)), ("release", 1)]

    def ask(self, actor: Actor, op: Any) -> None:
        # To add a permit would wait for the connection.
        line, party = self.state(), actor.process.name
        holds = any(each.party == party and not each.gone for each in (*line.lost, *line.inside))
        if op[0] != "release" or holds or not self.is_cut(actor) or self.OF[0] is not Semaphore:
            super().ask(actor, op)

    def seen(self) -> object:
        return sorted(self.stage.names_at(f"{PATH}/leases")), self.stage.names_at(f"{PATH}/locks")

    def modelled(self, state: Any) -> object:
        return sorted(each.actor for each in state.inside), [each.actor for each in state.queue]


class BoundedSemaphoreMachine(SemaphoreMachine):
    """`BoundedSemaphore`."""

    OF: ClassVar[Any] = (BoundedSemaphore, 2)
    MODEL: ClassVar[Model] = semaphore.BoundedSemaphore(2)


class OfTasks(LockMachine):
    """What the machines of tasks have more: a task can be cancelled."""

    KIND = TaskActor

    @rule(actor=st.sampled_from(ACTORS))
    def cancel_task(self, actor: str) -> None:
        """Cancel a task that waits: it ends at once, and its node goes, also of a process that is cut off."""
        known = self.actors[actor]
        assert isinstance(known, TaskActor)
        if known in self.calls:
            known.cancel()
            self.give_up([known], asyncio.CancelledError)


class TaskRLockMachine(OfTasks, RLockMachine):
    """`aio.RLock`."""

    OF: ClassVar[Any] = (aio.RLock,)


class TaskReadWriteLockMachine(OfTasks, ReadWriteLockMachine):
    """`aio.ReadWriteLock`."""

    OF: ClassVar[Any] = (aio.ReadWriteLock,)


class TaskSemaphoreMachine(OfTasks, BoundedSemaphoreMachine):
    """`aio.BoundedSemaphore`."""

    OF: ClassVar[Any] = (aio.BoundedSemaphore, 2)


LOCKS = [LockMachine, RLockMachine, ReadWriteLockMachine, SemaphoreMachine, BoundedSemaphoreMachine]
OF_TASKS = [TaskRLockMachine, TaskReadWriteLockMachine, TaskSemaphoreMachine]


@pytest.mark.parametrize("machine", [*LOCKS, *OF_TASKS])
def test_properties(machine: type[Machine]) -> None:
    """No sequence of steps makes a difference between the library and the model."""
    explore(machine)
