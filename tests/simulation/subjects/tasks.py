"""Tasks in the simulation: those of event loops, and threads, contend on one path, and tasks are cancelled.

One text serves both: a coroutine, which a loop runs as a task, or a thread from its beginning to its end, as nothing
in it suspends there. A schedule cancels tasks at random moments, and closes loops with tasks that wait.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from kazoo.protocol.serialization import Delete, Transaction

import zkconcurrent
from tests.models import event as models
from tests.models import history
from tests.simulation.subjects.condition import CondChecks, Waiting
from tests.simulation.subjects.event import as_modelled, flag_after
from tests.simulation.subjects.semaphore import LEASES, VALUE, PermitChecks
from tests.simulation.subjects.unfair import UnfairChecks
from tests.simulation.world.calls import LosingRun, States
from tests.simulation.world.client import Process
from tests.simulation.world.event_loop import LoopThread
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import LENGTHS, Deviation, Schedule, random_deviations, random_schedule
from tests.simulation.world.workload import Section, Worker
from tests.simulation.world.world import Actor, Violation
from zkconcurrent import aio
from zkconcurrent._engine.holds import Hold
from zkconcurrent._engine.keeper_thread import IDLE_BEAT
from zkconcurrent._errors import ClientError, LockLostError, SequenceExhaustedError, WaitCancelledError
from zkconcurrent._memory import changes
from zkconcurrent._protocol.operations import Node
from zkconcurrent._protocol.ticket import State, Ticket
from zkconcurrent._recipes.condition import WAITER
from zkconcurrent._recipes.event import Flag
from zkconcurrent._threads import condition as _condition
from zkconcurrent._threads.base.cancel import waits
from zkconcurrent._threads.base.node_data import node_data
from zkconcurrent.aio import _tasks

LOCK, RLOCK, UNFAIR, RW = "/app/l", "/app/r", "/app/u", "/app/w"
SEMAPHORE, EVENT = "/app/s", "/app/e"
OF_AN_RLOCK, OF_A_LOCK = "/app/c", "/app/d"
RESCUE, AGAIN = 30.0, 5.0  # when waiters of an event are let go, in seconds
KEPT = 3.0  # how long the tasks of a closed loop are kept from being garbage, in seconds
STRUCK = (asyncio.CancelledError, KeyboardInterrupt)


class Act(NamedTuple):
    """The action of a task or a thread.

    Attributes:
        path: where; that says with which primitive.
        do: "hold"; "read", "write" or "downgrade"; "hold", "wait" or "notify"; "wait", "set" or "clear".
        loop: which of the process's event loops runs it, with all that follows; 0: it is a thread.
        wait: how long to wait for a lock or permits, in seconds: -1 for ever, 0 for a try.
        stay: how long to stay, in seconds.
        block: whether it is a block, `async with`; otherwise each part is a call.
        n: without a block, how many levels or permits are acquired; how many are notified, -1 for all.
        timeout: how long to wait for a notification, or an event, in seconds; None: for ever.
        awaits: whether it awaits the result of a plain method.
    """

    path: str
    do: str = "hold"
    loop: int = 0
    wait: float = -1
    stay: float = 0.0
    block: bool = True
    n: int = 1
    timeout: float | None = 1.0
    awaits: bool = False


def core(primitive: Any) -> Any:
    """Return the primitive of threads that is in one of tasks, or else the primitive."""
    return getattr(primitive, "_core", primitive)


async def result(value: Any) -> Any:
    """Return the result of a call of either binding."""
    return await value if inspect.isawaitable(value) else value


class Block:
    """`async with`, for an object that has only `with`."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    async def __aenter__(self) -> None:
        self._lock.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self._lock.__exit__(*error)


class Player(Worker):
    """A task of an event loop, or a thread.

    Attributes:
        cancelled: when its task was cancelled last.
        act: what it does now.
        watches: of an event, how long the log was when its present wait began; None while it does not wait.
    """

    checks: TaskChecks

    def __init__(
        self,
        process: Process,
        checks: TaskChecks,
        name: str,
        visits: list[Any],
        start: float,
        loop: LoopThread | None,
    ) -> None:
        self.loop = loop
        self.cancelled = 0.0
        self.act: Act | None = None
        self.watches: int | None = None
        if loop is None:
            super().__init__(process, checks, name, visits, start)
            return
        self.process, self.checks, self.world = process, checks, process.world
        self.name, self.visits, self.start, self.done = name, visits, start, False
        self.actor = loop.actor
        loop.members.append(self)

    def _run(self) -> None:
        with suppress(StopIteration):
            self.main().send(None)
            raise AssertionError("a thread awaits")

    async def main(self) -> None:
        """Do everything, one after the other."""
        for act in [None, *self.visits]:
            self.act = act
            try:
                if act is not None:
                    await self._act(act)
                elif self.start:
                    await self._sleep(self.start)
            except asyncio.CancelledError:
                self.world.say(f"{self.name} is cancelled")
                if self.loop is None or self.loop.ending:
                    raise
            except KeyboardInterrupt:
                self.world.say(f"{self.name} is interrupted")
                if self.loop is not None:
                    raise
            except ClientError:
                if not self.process.client._stopped.is_set():
                    raise
                break
        self.done, self.act = True, None

    @property
    def gone(self) -> bool:
        """Whether its task is thrown away, with its loop, or with the world."""
        return self.world.closed or (self.loop is not None and self.loop.loop.is_closed())

    async def _sleep(self, seconds: float) -> None:
        if self.loop is None:
            self.world.sleep(seconds)
        else:
            await asyncio.sleep(seconds)

    async def _act(self, act: Act) -> None:
        if act.path == EVENT:
            await self._use_event(act)
        elif act.path in (OF_AN_RLOCK, OF_A_LOCK):
            await self._use_condition(act)
        elif act.do == "downgrade":
            await self._downgrade(act)
        else:
            await self._hold(self._make(act), act, lambda _: self._stay_there(act))

    def _make(self, act: Act) -> Any:
        kinds, client, path = zkconcurrent if self.loop is None else aio, self.process.client, act.path
        if path == RW:
            pair = kinds.ReadWriteLock(client, path)
            return pair.read_lock if act.do == "read" else pair.write_lock
        if path == SEMAPHORE:
            return kinds.Semaphore(client, path, VALUE)
        if path == EVENT:
            return kinds.Event(client, path)
        if path == OF_AN_RLOCK:
            return kinds.Condition(client, path)
        if path == OF_A_LOCK:
            return kinds.Condition(client, path, kinds.Lock(client, f"{path}-lock"))
        return kinds.RLock(client, path) if path == RLOCK else kinds.Lock(client, path, fair=path != UNFAIR)

    # -- locks and permits ---------------------------------------------------------------------------------------

    def _held(self, lock: Any) -> list[Hold]:
        """Return its holds."""
        primitive = core(lock)
        owner = primitive._identity()
        return [hold for hold in primitive._path_state.all(primitive._rule.role) if hold.owner == owner]

    async def _stay_there(self, act: Act) -> None:
        if act.stay:
            self.world.say(f"{self.name} stays {act.stay:g}")
            await self._sleep(act.stay)

    async def _hold(
        self, lock: Any, act: Act, within: Callable[[list[Section]], Any], condition: Any | None = None
    ) -> None:
        """Acquire, do what is to be done within, and release."""
        block = condition or lock
        sections: list[Section] = []
        try:
            if act.block:
                self.world.say(f"{self.name} enters {act.path}")
                async with block if self.loop is not None else Block(block):
                    sections = self._enter_all(lock, 1)
                    try:
                        await within(sections)
                    finally:
                        self._exit_all(sections)
                if self._held(lock):
                    raise Violation(f"{self.name} has left the block, and holds {self._held(lock)}")
                for section in sections:
                    section.left = True
            else:
                await self._hold_by_calls(lock, act, within, sections)
        except SequenceExhaustedError:
            if not self.process.ensemble.ends:
                raise
        except WaitCancelledError as error:
            self.world.say(f"{self.name}: {error}")
            if not self.gone and self._held(lock):
                raise Violation(f"the wait of {self.name} was ended, and it holds {self._held(lock)}") from None
        except LockLostError:
            if not sections:
                raise  # each loss was settled
            self._check_any_lost(sections)
        finally:
            if not self.gone:
                self._settle_all(lock)
            for section in sections if self.gone else ():
                section.left = True  # no object is left that could be told of a loss

    async def _hold_by_calls(
        self, lock: Any, act: Act, within: Callable[[list[Section]], Any], sections: list[Section]
    ) -> None:
        together = act.path == SEMAPHORE
        levels = 0
        try:
            while levels < (1 if together else act.n) and await self._acquire(lock, act):
                levels += 1
                if levels == 1:
                    sections += self._enter_all(lock, act.n if together else 1)
            if levels:
                await within(sections)
        finally:
            if levels:
                self._exit_all(sections)
                for _ in range(0 if self.gone else levels):
                    await self._release(lock, act, sections)

    async def _acquire(self, lock: Any, act: Act) -> bool:
        """Acquire; a cancelled acquire holds nothing, and waits for nothing."""
        before = sum(hold.depth for hold in self._held(lock))
        options: dict[str, Any] = {"permits": act.n} if act.path == SEMAPHORE else {}
        if act.wait == 0:
            options["blocking"] = False
        elif act.wait > 0:
            options["timeout"] = act.wait
        self.world.say(f"{self.name} acquires {act.path} {options}")
        try:
            got = bool(await result(lock.acquire(**options)))
        except WaitCancelledError as error:
            if act.wait == 0:
                raise Violation(f"{self.name} made one attempt, and was told {error}") from None
            got = False
        except STRUCK as error:
            if self.gone:
                raise
            if sum(hold.depth for hold in self._held(lock)) != before:
                raise Violation(f"{self.name} was struck, and holds {self._held(lock)}") from None
            late = self.world.now - self.cancelled
            if isinstance(error, asyncio.CancelledError) and late > 0 and self._ran_since(self.cancelled):
                raise Violation(f"{self.name} was cancelled, and has cleaned up for {late:g} s") from None
            raise
        after = sum(hold.depth for hold in self._held(lock))
        if after != before + got * act.n ** (act.path == SEMAPHORE):
            raise Violation(f"acquire() has said {got}, and {self.name} holds {self._held(lock)}")
        self.world.say(f"{self.name} {'has' if got else 'goes without'} {act.path}")
        return got

    async def _release(self, lock: Any, act: Act, sections: list[Section]) -> None:
        n = min(act.n, len(self._held(lock))) if act.path == SEMAPHORE else 1
        if not n or not self._held(lock):
            return
        self.world.say(f"{self.name} releases {act.path}")
        try:
            released = lock.release(n) if act.path == SEMAPHORE else lock.release()
        except LockLostError:
            self._check_any_lost(sections)
            return
        if not self._held(lock):
            for section in sections:
                section.left = True
        if act.awaits and released is not None:
            await released

    def _settle_all(self, lock: Any) -> None:
        """Release what an interrupt kept from being released; this too may be interrupted."""
        struck: BaseException | None = None
        while self._held(lock):
            try:
                lock.release()
            except LockLostError:
                self.world.point()
            except KeyboardInterrupt as error:
                struck = error
        if struck is not None:
            raise struck

    def _enter_all(self, lock: Any, n: int) -> list[Section]:
        holds = self._held(lock)
        if len(holds) != n:
            raise Violation(f"{self.name} has acquired {n}, and has {holds}")
        sections = [Section(self, hold) for hold in holds]
        self.checks.sections += sections
        return sections

    def _exit_all(self, sections: list[Section]) -> None:
        for section in sections:
            if section in self.checks.sections:
                self._exit(section)

    def _check_any_lost(self, sections: list[Section]) -> None:
        self.world.say(f"{self.name} is told of a loss")
        if not any(map(self._is_lost, sections)):
            raise Violation(f"{sections[0].ticket} is said to be lost, and is not")

    async def _downgrade(self, act: Act) -> None:
        """Write, begin to read, stop writing, and stop reading."""
        write, read = self._make(act), self._make(act._replace(do="read"))
        reading: list[Section] = []

        async def begin_to_read(_: list[Section]) -> None:
            if await self._acquire(read, act._replace(n=1, wait=-1)):
                reading.extend(self._enter_all(read, 1))

        try:
            await self._hold(write, act, begin_to_read)
            await self._stay_there(act)
        finally:
            self._exit_all(reading)
            if self.gone:
                for section in reading:
                    section.left = True
            else:
                try:
                    if reading:
                        await self._release(read, act, reading)
                finally:
                    self._settle_all(read)

    # -- conditions ----------------------------------------------------------------------------------------------

    async def _use_condition(self, act: Act) -> None:
        condition = self._make(act)
        parts = {"wait": self._wait, "notify": self._notify, "hold": self._only_hold}
        await self._hold(condition._lock, act, partial(parts[act.do], condition, act), condition)

    async def _only_hold(self, _: Any, act: Act, __: list[Section]) -> None:
        await self._stay_there(act)

    async def _wait(self, condition: Any, act: Act, sections: list[Section]) -> None:
        """Wait; then the lock is held as before, or lost."""
        checks, world, lock = self.checks, self.world, condition._lock
        await self._stay_there(act)
        (old,) = sections
        depth, key = old.hold.depth, core(lock)._identity()
        self._exit(old)
        old.left = True  # a loss that nobody knows of when the lock is given up need not be told
        waiting = checks.waiting[key] = Waiting(self, old.ticket)  # type: ignore[arg-type]
        world.say(f"{self.name} waits {act.timeout} at {act.path}")
        notified = struck = failed = False
        began, at = len(checks.ensemble.log), world.now
        try:
            notified = await result(condition.wait(act.timeout))
        except WaitCancelledError:
            raise Violation(f"{self.name} waits at a condition, and that was ended") from None
        except LockLostError:
            failed = True
            if old.ticket.state is not State.LOST:
                raise Violation(f"{old.ticket} is said to be lost, and is not") from None
            raise
        except STRUCK:
            struck = failed = True
            raise
        finally:
            del checks.waiting[key]
            if not self.gone and not self.process.client._stopped.is_set():
                self._check_waited(lock, waiting, depth)
                if checks.queues_once:
                    self._check_place(lock, key, began)
                if not failed:
                    sections += self._enter_all(lock, 1)
                if struck:
                    self._check_struck(waiting, act.path)
        world.say(f"{self.name} was {'' if notified else 'not '}notified")
        by = checks.deleted.get(waiting.node or "")
        if not notified and by != self.actor.ident:
            raise Violation(f"{self.name} was notified by {by}, and says that it was not")
        # kazoo takes an interrupt that strikes as it sends for the end of the connection. And where an operator has
        # deleted the lock's node, a waiter without a reply takes itself for queued, and notified.
        known = not (waiting.interrupted or checks.loops or waiting.lock in checks.removed)
        early = act.timeout is None or world.now < at + act.timeout
        early = early and sections[-1].ticket.session == old.ticket.session
        if notified and known and (early or checks.calm) and by not in checks.notifiers:
            raise Violation(f"{self.name} was woken by nobody")

    def _check_waited(self, lock: Any, waiting: Waiting, depth: int) -> None:
        held = self._held(lock)
        if len(held) != 1 or held[0].depth != depth:
            raise Violation(f"{self.name} has waited, and holds {held}, not {depth} levels")
        lost = held[0].ticket.state is State.LOST
        if waiting.node in self.checks.ensemble.leader.nodes and not lost:
            raise Violation(f"{self.name} waits no more, and {waiting.node} is there")

    def _check_place(self, lock: Any, key: int, began: int) -> None:
        """See that the wait has queued for the lock once in each session: a strike costs it no place."""
        who, mine = node_data(key).partition(TIME)[0], Counter[int]()
        for _, step in self.checks.ensemble.steps(began):
            if (
                isinstance(step, changes.Made)
                and step.path.startswith(f"{CHROOT}{lock.path}/")
                and (step.data or b"").partition(TIME)[0] == who
            ):
                mine[step.owner] += 1
        if any(n > 1 for n in mine.values()):
            raise Violation(f"{self.name} has waited, and queued {max(mine.values())} times for the lock again")

    def _check_struck(self, waiting: Waiting, path: str) -> None:
        """Take note of a notification that met a cancellation: another waiter must get it."""
        by = self.checks.deleted.get(waiting.node or "")
        mine = {self.actor.ident, *(actor.ident for actor in self.process.own_threads)}
        if self.loop is not None and by is not None and by not in mine:
            self.world.say(f"{self.name} was notified, and passes it on")
            self.checks.owed.append((self.process, path))

    async def _notify(self, condition: Any, act: Act, _: list[Section]) -> None:
        checks, me = self.checks, self.actor.ident
        await self._stay_there(act)
        self.world.say(f"{self.name} notifies {act.n}")
        checks.notifiers.add(me)
        before = checks.queue(condition.path)
        woken = checks.woken[me] = []
        try:
            told = condition.notify_all() if act.n < 0 else condition.notify(act.n)
        finally:
            checks.woken.pop(me, None)
        if told is None:
            self._check_woken(act, woken, [node for node in before if node in checks.ensemble.leader.nodes])
        elif act.awaits:
            await told
            left = [node for node in before if node in checks.ensemble.leader.nodes]
            if len(left) > max(len(before) - act.n, 0) or (left and act.n < 0):
                raise Violation(f"{self.name} has notified {act.n} of {before}, and {left} wait")
        else:
            checks.begun.append((self.process, told))

    def _check_woken(self, act: Act, woken: list[str], left: list[str]) -> None:
        if left and (act.n < 0 or len(woken) < act.n):
            raise Violation(f"{self.name} has notified {len(woken)} instead of {act.n}, and {len(left)} wait")
        if left and woken and WAITER.key(woken[-1]) > WAITER.key(left[0]):
            raise Violation(f"{self.name} has notified {woken[-1]}, and {left[0]} has waited longer")
        if 0 <= act.n < len(woken) and self.checks.calm:
            raise Violation(f"{self.name} has notified {len(woken)} instead of {act.n}")

    # -- events --------------------------------------------------------------------------------------------------

    async def _use_event(self, act: Act) -> None:
        event, log = self._make(act), self.checks.ensemble.log
        await self._stay_there(act)
        began, call = len(log), history.Call(self.name, act.do, timeout=act.timeout)
        self.world.say(f"{self.name}: {act}")
        if act.do != "wait":
            told = getattr(event, act.do)()
            if told is not None and not act.awaits:
                self.checks.begun.append((self.process, told))
                return
            await result(told)
            call.outcome = None
        else:
            self.watches = began
            try:
                call.outcome = await result(event.wait(act.timeout))
            finally:
                self.watches = None
            if act.timeout is not None and not call.outcome:
                return
        if wrong := history.explain(models.Event(), call, self.checks.flags(began), []):
            raise Violation(wrong)


class TaskChecks(PermitChecks, UnfairChecks, CondChecks):
    """The invariants of all of these, and those of tasks.

    Attributes:
        players: the tasks and threads.
        loops: the threads that run event loops.
        owed: the notifications that met a cancellation, and were not passed on: their tasks and conditions.
        begun: the calls that plain methods have begun, and nobody awaits.
        ended: the waits that were ended.
        queues_once: a wait that is struck queues for the lock but once.
    """

    queues_once = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.players: list[Player] = []
        self.loops: dict[tuple[Process, int], LoopThread] = {}
        self.owed: list[tuple[Process, str]] = []
        self.begun: list[tuple[Process, aio.Completion]] = []
        self.ended: list[tuple[Process, Any, weakref.ref[Any]]] = []
        self._flags = States(self.ensemble.log, partial(flag_after, CHROOT + EVENT))

    def _granted(self, ticket: Ticket, lease_end: float) -> None:
        super()._granted(ticket, lease_end)
        if ticket.path != LEASES:  # of several holders, the later need not be told later
            self.newest[ticket.path, ticket.name or ""] = ticket.token

    def _gave_up(self, lock: str) -> None:
        for waiting in self.waiting.values():
            waiting.interrupted = waiting.interrupted or waiting.worker.gone  # type: ignore[attr-defined]
        super()._gave_up(lock)

    def leave_out(self) -> None:
        """Leave the sections of closed loops to the keeper, or to the garbage collection."""
        for section in [each for each in self.sections if each.worker.gone]:  # type: ignore[attr-defined]
            self.sections.remove(section)
            self.past.append(section)
            section.left = True

    def forget(self) -> None:
        """Forget the tickets that were discarded: an object with the ticket of a task would keep the task."""
        for known in (self.seen, self.listed):
            for ticket in [ticket for ticket in known if ticket.state is State.DISCARDED]:
                known.pop(ticket)  # type: ignore[attr-defined]

    def flags(self, since: int) -> list[models.Flag]:
        """Return the states of the event since the log had so much."""
        return as_modelled(self._flags.since(since))

    def _runs(self, process: Process) -> bool:
        wire = process.connection.wire
        up = wire is not None and process.client.connected and not process.client._queue
        return process.alive and up and not process.client._stopped.is_set()

    def quiet(self) -> None:
        """Nobody sleeps although it is its turn, in a loop or a thread; and nothing is kept for a closed loop."""
        if self.faults() or self._deserted():
            return
        super().quiet()
        for process, path in self.owed:
            if self._runs(process) and self.queue(path):
                raise Violation(f"a notification at {path} met a cancellation, and {self.queue(path)} wait")
        for player in self.players:
            watching = player.watches is not None and self._runs(player.process) and not player.gone
            if watching and self.flags(len(self.ensemble.log))[-1].is_set:
                raise Violation(f"{player.name} waits, and the flag is set")
        for process, session, ref in self.ended:
            wait = ref()
            if wait is None or wait.why_end is None or not self._runs(process):
                continue
            if not any(call.whole is wait and not call.finished for call in session.calls):
                continue
            if all(self.world.available(actor) for actor in self.world.actors if actor.process is process):
                raise Violation(f"a wait for {wait.path} was ended, and goes on")

    def _deserted(self) -> bool:
        """Whether calls of a closed loop are left; the keeper abandons them at its next beat."""
        for process in self.processes:
            left = [call for call in process.session.calls if call.deserted is not None and call.deserted()]
            if not process.alive or not left:
                continue
            closed = [loop.closed for (of, _), loop in self.loops.items() if of is process and loop.closed is not None]
            since = max(*closed, process.starved_until, self.world.late, 0.0)
            if self.world.now > since + 2 * IDLE_BEAT + 0.1:
                raise Violation(f"{process.name} has closed a loop, and keeps {[call.tickets for call in left]}")
            return True
        return False

    def end(self) -> None:
        """Nothing is left, and the calls that plain methods have begun are done."""
        super().end()
        for process, told in self.begun:
            if process.alive and not process.client._stopped.is_set() and not told.done():
                raise Violation(f"{process.name} has begun what is never done")


class Threads:
    """`threading`, as the module that runs calls in the background sees it."""

    def __init__(self, run: TaskRun) -> None:
        self._run = run

    def Thread(self, *, target: Callable[[], None], name: str) -> Threads:  # noqa: N802 - as threading calls it
        """Make a thread."""
        del name
        self._target = target
        return self

    def start(self) -> None:
        """Begin it, in the process of the thread whose turn it is."""
        world = self._run.world
        if world.closed:
            return
        assert world.current is not None
        actor: Actor = world.current.process.client.handler.spawn(self._target)
        self._run.checks.notifiers.add(actor.ident)


class TaskRun(LosingRun):
    """A run of tasks and threads.

    Attributes:
        cancels: how many cancellations have struck a task.
        ended: how many waits were ended.
    """

    invariants = TaskChecks
    checks: TaskChecks
    losable = (Transaction, Delete)
    workers: list[Player]  # type: ignore[assignment]

    def __init__(self, schedule: Schedule) -> None:
        self.loops: dict[tuple[Process, int], LoopThread] = {}
        self.cancels = self.ended = 0
        self._traps: dict[Player, int] = {}
        super().__init__(schedule)
        self.checks.injected = self.injected
        self.checks.players = self.workers
        self.checks.loops = self.loops
        if any(visit.path == EVENT for process in schedule.threads for _, visits in process for visit in visits):
            for n in range(50):
                self.world.at(self.world.now + RESCUE + n * AGAIN, self.rescue)

    def worker(  # type: ignore[override]
        self, process: Process, checks: TaskChecks, name: str, visits: list[Act], start: float
    ) -> Player:
        """Make a task, or a thread."""
        number = visits[0].loop
        if not number:
            return Player(process, checks, name, visits, start, None)
        if (process, number) not in self.loops:
            loop = self.loops[process, number] = LoopThread(process, f"{process.name}.loop{number}")
            loop.loop.on_sleep = partial(self._spring, loop)
            loop.before_collection, loop.on_close = checks.forget, checks.leave_out
        return Player(process, checks, name, visits, start, self.loops[process, number])

    def to_the_end(self) -> int:
        """Run until all is done; see `Run`."""
        try:
            with (
                patch.object(_tasks, "threading", Threads(self)),
                patch.object(sys, "unraisablehook", self._not_raised),
                self._passing(),
            ):
                return super().to_the_end()
        except Violation:
            raise
        except Exception as error:  # the errors that are raised to a task or a thread, and should not be
            raise Violation(f"{type(error).__name__}: {error}") from error
        finally:
            for loop in self.loops.values():
                loop.bury()
            gc.collect()  # the tasks of a closed loop

    def _not_raised(self, what: Any) -> None:
        """Take note of an error as a task was collected, which would only be printed."""
        # A finalizer of the simulation may lose its turn, as no real one does; then others find its task at work.
        if not self.world.closed and not isinstance(what.exc_value, ValueError):
            self.world.failure = self.world.failure or what.exc_value

    @contextmanager
    def _passing(self) -> Iterator[None]:
        """Hear of each notification that is passed on."""
        pass_on, checks = _condition.pass_on, self.checks

        def heard(waiters: str) -> Any:
            me, path = self.world.whoami(), waiters.removesuffix("/waiters")
            woken = checks.woken[me] = []
            try:
                yield from pass_on(waiters)
            finally:
                checks.woken.pop(me, None)
            if woken or not checks.queue(path):
                owed = next((each for each in checks.owed if each[1] == path), None)
                if owed is not None:
                    checks.owed.remove(owed)

        with patch.object(_condition, "pass_on", heard):
            yield

    def rescue(self) -> None:
        """Set the flag, as a process that is not of the run."""
        path, nodes = CHROOT + EVENT, self.ensemble.leader.nodes
        if path in nodes:
            flag = Flag.of(EVENT, Node(nodes[path].data, 0, 0.0, 0))
            if not flag.is_set:
                self.ensemble.ask(0, changes.SetData(path, flag.changed_to(True).data))

    def may_lose(self, request: Any) -> bool:
        """Return whether a request may be lost: a multi, or the delete of a waiter's node."""
        return super().may_lose(request) and (not isinstance(request, Delete) or "/waiters/" in request.path)

    # -- deviations ----------------------------------------------------------------------------------------------

    def _cancel(self, it: Deviation) -> bool | None:
        """Cancel a task where it is, or as it wakes next; once, twice in a row, or until its act ends."""
        tasks = [player for player in self.workers if player.loop and not player.done and player.process.alive]
        if not tasks:
            return False
        player = tasks[it.which // 2 % len(tasks)]
        assert player.loop is not None
        if it.which % 2:
            self._traps[player] = it.length
        elif not player.loop.loop.is_closed():
            player.loop.loop.call_soon_threadsafe(self._strike, player, it.length)
        return None

    def _end_waits(self, it: Deviation) -> bool | None:
        """Have a thread end the waits for a lock, by `cancel_waits()`."""
        player: Any = self._worker(it)
        if player is None or player.visits[0].path == EVENT:
            return False

        def end() -> None:
            made = core(player._make(player.visits[0]))
            lock = getattr(made, "_lock", made)
            ended = waits(lock._session.calls, lock._lock_core.queue_key)
            self.checks.ended += [(player.process, lock._session, weakref.ref(wait)) for wait in ended]
            self.ended += lock.cancel_waits()
            self.world.say(f"ends {len(ended)} waits for {lock.path}")

        self.world.spawn(f"{player.process.name}.ends{len(self.world.actors)}", end, player.process)
        return None

    def _spring(self, loop: LoopThread, future: asyncio.Future[Any]) -> None:
        """Have a task cancelled as it wakes: the awaited event has come, and it does not know yet."""
        if not self._traps:
            return
        task = asyncio.current_task(loop.loop)
        player = next((each for each in self._traps if loop.tasks.get(each) is task), None)
        if player is not None:
            length = self._traps.pop(player)
            future.add_done_callback(lambda _: self._strike(player, length))

    def _strike(self, player: Player, length: int, during: Act | None = None) -> None:
        loop = player.loop
        if during is not None and player.act is not during:
            return
        task = None if loop is None else loop.tasks.get(player)
        if loop is None or task is None or task.done():
            return
        self.world.say(f"{player.name} is to be cancelled")
        self.cancels += 1
        player.cancelled = self.world.now
        self._mark(player)
        task.cancel()
        if length in (3, 4):
            task.cancel()
        elif length >= 5 and not loop.loop.is_closed():  # again: in the loop's next turn, or a while later
            again = partial(self._strike, player, 0)
            if length == 6 and player.act is not None:
                loop.loop.call_later(0.01, partial(self._strike, player, length, player.act))
            elif length < 7:
                loop.loop.call_soon(again)
            else:
                loop.loop.call_later(LENGTHS[length - 6], again)

    def _mark(self, *players: Player) -> None:
        """Take note that waits at a condition are struck."""
        for waiting in self.checks.waiting.values():
            if waiting.worker in players:  # type: ignore[comparison-overlap]
                waiting.interrupted = True

    def _interrupt(self, it: Deviation) -> bool | None:
        """Interrupt a thread: a loop's tasks are all cancelled."""
        player: Any = self._worker(it)
        if player is None or (player.loop is not None and player.loop.loop.is_closed()):
            return False
        self._mark_all(player)
        return super()._interrupt(it)

    def _shut(self, it: Deviation) -> bool | None:
        """End a loop: its tasks are cancelled, or it is closed while they wait."""
        loops = [loop for loop in self.loops.values() if loop.process.alive and not loop.over]
        if not loops:
            return False
        loop = loops[it.which % len(loops)]
        self._mark(*(player for player in self.workers if player.loop is loop))
        others = [other.loop for other in self.loops.values() if other.process is loop.process and other is not loop]
        if it.which >= 4 and others:
            loop.other = others[0]
        loop.stop(cancel=it.length % 3 == 0, keep=KEPT if it.length % 3 == 1 else 0.0)
        return None

    def _mark_all(self, player: Player) -> None:
        self._mark(*(each for each in self.workers if each.actor is player.actor))


TIME = b', "time"'  # what follows in a node's data tells the nodes of one owner apart
SUBJECTS = (LOCK, LOCK, RLOCK, UNFAIR, RW, RW, SEMAPHORE, SEMAPHORE, EVENT, OF_AN_RLOCK, OF_AN_RLOCK, OF_A_LOCK)
# Single primitives have runs with an operator's deletes; a leader left alone tells an old state of an event.
NOT_HERE = {"number": "turn", "remove": "cut", "close": "expire", "usurp": "cut"}


# Which loop of its process runs each task; 0: it is a thread. The last are for runs in which loops are closed.
LOOPS = ((1, 1, 1), (1, 1), (1, 0), (1, 1, 0), (1, 2), (1, 1, 2), (1, 2, 0))


def random_tasks(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    path = random.choice(SUBJECTS)
    _, deviations, round_trip = random_schedule(random)
    shuts = random.random() < 0.2
    threads = []
    for _ in range(random.choice((1, 2, 2, 2))):
        loops = random.choice(LOOPS[3:] if shuts else LOOPS)
        threads.append(
            [
                (
                    random.choice((0.0, 0.0, 0.0, 0.5, 2.0)),
                    [_act(random, path, loop, block=shuts) for _ in range(random.randint(1, 3))],
                )
                for loop in loops
            ]
        )
    return Schedule(threads, [deviation(random, each, shuts=shuts) for each in deviations], round_trip)  # type: ignore[arg-type]


def random_passes(seed: int) -> Schedule:
    """Return the random schedule of a seed, of threads that read, write, and go over from writing to reading."""
    random = Random(seed)
    threads, deviations, round_trip = random_schedule(random)
    acts = [
        [(start, [_act(random, RW, 0, block=False) for _ in visits]) for start, visits in process]
        for process in threads
    ]
    here = [each._replace(kind=NOT_HERE.get(each.kind, each.kind)) for each in deviations]
    return Schedule(acts, here, round_trip)  # type: ignore[arg-type]


# How often each is chosen where threads meet at a condition.
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
    """Return the random schedule of a seed: few threads at a condition, whose times often coincide."""
    random = Random(seed)
    path = OF_AN_RLOCK if random.random() < 0.6 else OF_A_LOCK
    threads = [
        [
            (random.choice((0.0, 0.0, 1.0)), [_act(random, path, 0, block=False) for _ in range(random.randint(1, 2))])
            for _ in range(random.randint(1, 2))
        ]
        for _ in range(random.choice((2, 2, 3)))
    ]
    deviations = random_deviations(random, KINDS, 1, 12)
    if seed % 16 == 15:  # the first in line goes while its notification, which was lost, is on its way again
        line = [Act(OF_A_LOCK, "wait", timeout=timeout) for timeout in (1.0, 20.0)]
        threads = [[(0.0, line[:1])], [(0.1, line[1:])], [(0.9, [Act(OF_A_LOCK, "notify")])]]
        deviations = [Deviation(random.randint(1, 9), "lose", random.choice((1, 5)), random.randrange(len(LENGTHS)))]
    return Schedule(threads, deviations)  # type: ignore[arg-type]


def deviation(random: Random, it: Deviation, *, shuts: bool) -> Deviation:
    """Return a deviation, or a cancel, a lost reply, or the end of a loop instead of it."""
    drawn = random.random()
    kind = NOT_HERE.get(it.kind, it.kind)
    if drawn < 0.4:
        kind = "cancel"
    elif drawn < 0.47:
        kind = "lose"
    elif drawn < 0.57 and shuts:
        kind = "shut"
    elif drawn > 0.9:
        kind = "end_waits"
    return it._replace(kind=kind)


def _act(random: Random, path: str, loop: int, *, block: bool) -> Act:
    stay = random.choice((0.0, 0.0, 0.05, 1.0, 1.0, 3.0))
    block = random.random() < (1.0 if block and loop else 0.3)
    awaits = random.random() < 0.5
    act = Act(path, "hold", loop, stay=stay, block=block, awaits=awaits)
    if not block:
        act = act._replace(wait=random.choice((-1, -1, -1, -1, 0, 1.0, 3.0)))
    if path == EVENT:
        what = random.choice(("wait", "wait", "wait", "set", "set", "clear"))
        return act._replace(do=what, timeout=random.choice((None, None, 1.0, 3.0)))
    if path in (OF_AN_RLOCK, OF_A_LOCK):
        if random.random() < 0.4:
            return act._replace(do="notify", n=random.choice((1, 1, 1, 2, -1)), block=True)
        levels = random.randint(1, 2) if path == OF_AN_RLOCK and not block else 1
        return act._replace(do="wait", timeout=random.choice((1.0, 2.0, 20.0, 20.0)), n=levels)
    if path == RW:
        act = act._replace(do=random.choice(("read", "read", "write", "write", "downgrade")))
        if act.do == "downgrade":
            act = act._replace(wait=-1)
    if not block and path in (RLOCK, RW, SEMAPHORE) and act.do != "downgrade":
        act = act._replace(n=random.randint(1, 3 if path == SEMAPHORE else 2))
    return act
