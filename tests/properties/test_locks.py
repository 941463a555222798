"""Locks: one holder, in the order of arrival, whatever is cut, lost, cancelled or given up; threads and tasks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.properties.machine import ACTORS, PATH, SHORT, Machine, explore, processes
from tests.properties.stage import PENDING, STEP, TIMEOUT, Actor, TaskActor
from zkconcurrent import (
    BoundedSemaphore,
    DeadlockError,
    Lock,
    LockLostError,
    ReadWriteLock,
    RLock,
    Semaphore,
    WaitCancelledError,
    aio,
)

HOW: dict[str, dict[str, Any]] = {"wait": {}, "try": {"blocking": False}, "timed": {"timeout": SHORT}}


@dataclass(eq=False)
class Place:
    """An actor's place in the line.

    Attributes:
        wants: in which role, or how many permits; once it holds, each permit is a place.
        levels: how many releases it owes.
        waits: whether the actor's call goes on; also once it holds, while its process is cut off.
        gone: whether the actor has left it while its process was cut off, so that its node is still there.
    """

    actor: Actor
    wants: Any
    levels: int = 1
    waits: bool = False
    gone: bool = False


class LockMachine(Machine):
    """`Lock`: a line of places, of which the first holds. Any thread of the holder's process may release it.

    Attributes:
        holding, waiting: the line.
        unsent: places of processes that are cut off, whose nodes are still to come.
        lost: places whose holds are lost, for as long as that is not settled.
    """

    OF: ClassVar[Any] = (Lock,)
    OPS: ClassVar[list[Any]] = [(how, None) for how in (*HOW, "release")]
    WHILE_CUT = True
    NOTHING_HELD: ClassVar[type[Exception]] = RuntimeError
    FOLDER: ClassVar[str] = PATH

    def __init__(self) -> None:
        super().__init__()
        self.holding: list[Place] = []
        self.waiting: list[Place] = []
        self.unsent: list[Place] = []
        self.lost: list[Place] = []

    # -- what differs from kind to kind --------------------------------------------------------------------------

    def admits(self, place: Place) -> bool:
        """Return whether the next place in the line holds, beside those that hold."""
        return not self.holding

    def lock_of(self, actor: Actor, wants: Any) -> Any:
        """Return the lock that an actor uses."""
        return self.at(actor)

    def locks(self, process: str) -> list[Any]:
        """Return the locks of a process."""
        return [self.objects[process]]

    def reenter(self, actor: Actor, wants: Any) -> Any:
        """Return the outcome of an acquire by an actor that holds; None if it must take a place."""
        return None

    def to_release(self, actor: Actor, wants: Any) -> Place | None:
        """Return the place that a release ends, alive or lost: its own, else the newest of its process."""
        held = self.held_by(actor) or self.held_by(*self.of(actor.process.name))
        return held[-1] if held else None

    def seen(self) -> object:
        names, holders = self.stage.names_at(PATH), len(self.holding)
        return sorted(names[:holders]), names[holders:]

    def modelled(self) -> object:
        return sorted(each.actor.name for each in self.holding), [each.actor.name for each in self.waiting]

    # -- the rules -----------------------------------------------------------------------------------------------

    def do(self, actor: Actor, op: Any) -> None:
        how, wants = op
        if how == "release":
            self.release(actor, wants)
        else:
            self.acquire(actor, wants, how)

    def acquire(self, actor: Actor, wants: Any, how: str, **more: Any) -> None:
        """Acquire: wait, try, or wait for a moment."""
        place = Place(actor, wants)
        outcome: Any
        if any(each.actor is actor for each in self.lost):
            outcome = LockLostError
        elif (outcome := self.reenter(actor, wants)) is not None:
            pass
        elif how == "wait":
            outcome, place.waits = PENDING, True
            (self.unsent if self.is_cut(actor) else self.waiting).append(place)
        elif outcome := not self.is_cut(actor) and not self.waiting and self.admits(place):
            self.hold(place)
        self.begin(actor, outcome, self.lock_of(actor, wants).acquire, **HOW[how], **more)
        self.move_up()

    def release(self, actor: Actor, wants: Any) -> None:
        """Release a level, or settle a lost one."""
        place = self.to_release(actor, wants)
        outcome = self.NOTHING_HELD if place is None else LockLostError if place in self.lost else None
        self.begin(actor, outcome, self.lock_of(actor, wants).release)
        if place is not None:
            place.levels -= 1
            if not place.levels:
                self.leave(place)

    @rule(process=processes)
    def cancel_waits(self, process: str) -> None:
        """End the waits of a process."""
        waiting = [each for each in self.places(process) if each.waits]
        ended = sum(each.cancel_waits() for each in self.locks(process))
        assert ended == len({each.actor for each in waiting}), f"{ended} waits have ended, expected: {waiting}"
        self.end_waits(waiting, WaitCancelledError)

    def end_waits(self, waiting: list[Place], outcome: Any) -> None:
        """Have the waits of these places end so."""
        for place in waiting:
            self.expected[place.actor], place.waits = outcome, False
        for place in waiting:
            self.leave(place)
        self.stage.rest()

    @precondition(lambda machine: machine.cut)
    @rule()
    def outlast(self) -> None:
        """Leave processes cut off until their leases and sessions are over: they know that, and others get in."""
        self.stage.rest(TIMEOUT + STEP)
        theirs = [each for each in self.holding + self.waiting if self.is_cut(each.actor)]
        self.lost += [each for each in theirs if each in self.holding and not each.waits and not each.gone]
        self.unsent += [each for each in theirs if each.waits]
        self.holding, self.waiting = (
            [each for each in places if each not in theirs] for places in (self.holding, self.waiting)
        )
        self.move_up()

    def restored(self, process: str) -> None:
        """What the process has released goes, and what it has not sent comes."""
        for each in [each for each in self.places(process) if each.gone]:
            self.leave(each)
        self.tell()
        come = [each for each in self.unsent if each.actor.process.name == process]
        self.unsent = [each for each in self.unsent if each not in come]
        self.arrive(come)

    def expired(self, process: str) -> None:
        """The holds of the process are lost, and its waiters queue again."""
        again = [each for each in self.waiting if each.actor.process.name == process]
        self.lost += [each for each in self.holding if each.actor.process.name == process]
        for places in (self.holding, self.waiting):
            places[:] = [each for each in places if each.actor.process.name != process]
        self.arrive(again)

    def gone(self, process: str) -> None:
        for places in (self.holding, self.waiting, self.unsent, self.lost):
            places[:] = [each for each in places if each.actor.process.name != process]
        self.move_up()

    # -- the model -----------------------------------------------------------------------------------------------

    def places(self, process: str) -> list[Place]:
        """Return those of a process that hold or wait."""
        return [each for each in self.holding + self.waiting + self.unsent if each.actor.process.name == process]

    def held_by(self, *actors: Actor) -> list[Place]:
        """Return the places with which actors hold, or whose loss they have to settle; the newest last."""
        return [each for each in self.lost + self.holding if each.actor in actors and not each.gone]

    def hold(self, place: Place) -> None:
        """Move a place into the hold."""
        self.holding.append(place)

    def tell(self) -> None:
        """Let the actors know that hold and are connected; one that has a loss to settle gets an error instead."""
        for place in [each for each in self.holding if each.waits and not self.is_cut(each.actor)]:
            place.waits = False
            has_lost = any(each.actor is place.actor for each in self.lost)
            self.expected[place.actor] = LockLostError if has_lost else True
            if has_lost:
                self.leave(place)

    def move_up(self) -> None:
        """Admit those whose turn it is."""
        while self.waiting and self.admits(self.waiting[0]):
            self.hold(self.waiting.pop(0))
        self.tell()

    def leave(self, place: Place) -> None:
        """Take a place away; while its process is cut off, its node stays."""
        if self.is_cut(place.actor) and (place in self.holding or place in self.waiting):
            place.gone = True
            return
        for places in (self.holding, self.waiting, self.unsent, self.lost):
            if place in places:
                places.remove(place)
        self.move_up()

    def arrive(self, places: list[Place]) -> None:
        """Add places at the tail, in the order in which the server has them: several threads have queued at once."""
        line = self.stage.names_at(self.FOLDER)[::-1]

        def place(each: Place) -> tuple[int, bool]:
            # One that is not in the line any more has got in before the others; with a loss to settle, it is out again.
            behind = line.index(each.actor.name) if each.actor.name in line else len(line)
            return -behind, each.actor.outcome is not LockLostError

        places.sort(key=place)
        self.waiting += places
        self.move_up()

    def finish(self) -> None:
        """Release all, and settle all losses; then those that wait hold, and release."""
        while self.holding or self.lost or self.waiting:
            self.the_world_is_as_modelled()
            place = next((each for each in self.lost + self.holding if not self.is_waiting(each.actor)), None)
            if place is not None:
                self.release(place.actor, place.wants)
                self.stage.rest()
                continue
            # Each holder waits, too.
            for process in self.processes:
                self.cancel_waits(process)


class RLockMachine(LockMachine):
    """`RLock`: a level for each acquire."""

    OF: ClassVar[Any] = (RLock,)

    def reenter(self, actor: Actor, wants: Any) -> Any:
        for each in self.held_by(actor):
            each.levels += 1
            return True
        return None

    def to_release(self, actor: Actor, wants: Any) -> Place | None:
        return next((each for each in self.held_by(actor) if each.wants == wants), None)


class ReadWriteLockMachine(RLockMachine):
    """`ReadWriteLock`: readers together, or one writer, which may become a reader without a gap."""

    OF: ClassVar[Any] = (ReadWriteLock,)
    OPS: ClassVar[list[Any]] = [(how, wants) for how in (*HOW, "release") for wants in ("read", "write")]

    def admits(self, place: Place) -> bool:
        return not self.holding or (place.wants == "read" and all(each.wants == "read" for each in self.holding))

    def lock_of(self, actor: Actor, wants: Any) -> Any:
        return getattr(self.at(actor), f"{wants}_lock")

    def locks(self, process: str) -> list[Any]:
        return [self.objects[process].read_lock, self.objects[process].write_lock]

    def do(self, actor: Actor, op: Any) -> None:
        # A downgrade would wait for the connection.
        if not (self.is_cut(actor) and op[1] == "read" and [each.wants for each in self.held_by(actor)] == ["write"]):
            super().do(actor, op)

    def reenter(self, actor: Actor, wants: Any) -> Any:
        """Add a level, refuse a reader that wants to write, or let a writer read too."""
        held = {each.wants: each for each in self.held_by(actor)}
        if wants in held:
            held[wants].levels += 1
        elif not held:
            return None
        elif wants == "write":
            return DeadlockError
        else:
            self.holding.append(Place(actor, "read"))
        return True


class SemaphoreMachine(LockMachine):
    """`Semaphore`: never more permits than there are, in the order of arrival; a release of more adds some."""

    OF: ClassVar[Any] = (Semaphore, 2)
    OPS: ClassVar[list[Any]] = [*((how, permits) for how in HOW for permits in (1, 2)), ("release", 1)]
    FOLDER = f"{PATH}/locks"
    size = 2

    def admits(self, place: Place) -> bool:
        """There are so many permits left; one that is cut off can't take them, and those behind it wait, too."""
        return not self.is_cut(place.actor) and len(self.holding) + int(place.wants) <= self.size

    def acquire(self, actor: Actor, wants: Any, how: str, **more: Any) -> None:
        super().acquire(actor, wants, how, permits=wants)

    def seen(self) -> object:
        return sorted(self.stage.names_at(f"{PATH}/leases")), self.stage.names_at(self.FOLDER)

    def hold(self, place: Place) -> None:
        """Make a place of each permit: each is released by itself."""
        permits, place.wants = place.wants, 1
        self.holding += [place, *(Place(place.actor, 1, waits=place.waits) for _ in range(permits - 1))]

    def release(self, actor: Actor, wants: Any) -> None:
        if self.held_by(*self.of(actor.process.name)) or self.NOTHING_HELD is ValueError:
            super().release(actor, wants)
        elif not self.is_cut(actor):
            self.size += 1
            self.begin(actor, None, self.at(actor).release)
            self.move_up()

    def to_release(self, actor: Actor, wants: Any) -> Place | None:
        """A lost one of its own; else one that it holds, or its process; else a lost one of its process."""
        theirs = sorted(self.held_by(*self.of(actor.process.name)), key=lambda each: each.actor is actor)
        mine = [each for each in theirs if each.actor is actor and each in self.lost]
        alive = [each for each in theirs if each not in self.lost]
        return next(iter((mine or alive or theirs)[::-1]), None)


class BoundedSemaphoreMachine(SemaphoreMachine):
    """`BoundedSemaphore`: a release of more is refused."""

    OF: ClassVar[Any] = (BoundedSemaphore, 2)
    NOTHING_HELD = ValueError


class OfTasks(LockMachine):
    """What the machines of tasks have more: a task can be cancelled."""

    KIND = TaskActor

    @rule(actor=st.sampled_from(ACTORS))
    def cancel_task(self, actor: str) -> None:
        """Cancel a task that waits: it ends at once, and its node goes, also of a process that is cut off."""
        known = self.actors[actor]
        assert isinstance(known, TaskActor)
        if places := [each for each in self.places(actor[0]) if each.actor is known and each.waits]:
            known.cancel()
            self.end_waits(places, asyncio.CancelledError)


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
