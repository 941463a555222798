"""Tasks and threads in the simulation that share numbers, maps, groups, double barriers, queues and elections.

They are those of `tasks`.

The content of a write tells its call: each change of a number adds a bit of its own, each item and each entry has a
value of its own. So the service's log shows whether a call was applied, and how often, also if it was cancelled.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from random import Random
from typing import Any

import zkconcurrent
from tests.simulation.subjects.tasks import (
    AGAIN,
    LOOPS,
    RESCUE,
    STRUCK,
    Act,
    Player,
    TaskChecks,
    TaskRun,
    core,
    deviation,
    result,
)
from tests.simulation.world.ensemble import Transport, writes
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import Deviation, Schedule, random_schedule
from tests.simulation.world.world import Violation
from zkconcurrent import aio
from zkconcurrent._arguments.paths import ancestors
from zkconcurrent._engine.client_state import UNANSWERED
from zkconcurrent._engine.patience import POLL_INTERVAL
from zkconcurrent._errors import ClientError, LockLostError, OutcomeUnknownError
from zkconcurrent._memory import changes
from zkconcurrent._protocol.rules import MUTEX, blocker
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent._recipes.queue.order import unframe
from zkconcurrent._threads.base.queue_base import Empty, Full

NUMBER, MAP, GROUP, DOUBLE_BARRIER, QUEUE, ELECTION = "/app/n", "/app/m", "/app/g", "/app/b", "/app/q", "/app/o"
SUBJECTS = (NUMBER, MAP, GROUP, DOUBLE_BARRIER, DOUBLE_BARRIER, QUEUE, QUEUE)
MAXSIZE = 2
ITEMS = f"{CHROOT}{QUEUE}/items/"
ENTRY = f"{CHROOT}{MAP}/entries/k"
READY = f"{CHROOT}{DOUBLE_BARRIER}/ready"
STRANGER = f"{CHROOT}{ELECTION}/_c_{'0' * 36}-lock-0000000000"


class DataChecks(TaskChecks):
    """The invariants of the primitives that tasks share.

    Attributes:
        bits: how many bits were given to changes of the number.
        added: those whose changes have returned.
        put: the items that were put, as their calls say.
        got: the items that calls have returned.
        inside: the players that are inside of the double barrier.
        excused: a process was killed or stopped, or a loop closed, so that the result of a call may be lost.
    """

    players: list[DataPlayer]  # type: ignore[assignment]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.bits = 0
        self.added = 0
        self.put: set[bytes] = set()
        self.got: set[bytes] = set()
        self.excused = False
        self._number = 0
        self._read = 0
        self._there: dict[str, bytes] = {}
        self.created: set[bytes] = set()

    def step(self) -> None:
        """Each change adds bits that were given and takes none away; no item is put twice."""
        super().step()
        for _, step in self.ensemble.steps(self._read):
            if writes(step, CHROOT + NUMBER):
                after = int.from_bytes(step.data, "big")
                if self._number & ~after or after >> self.bits:
                    raise Violation(f"{self._number:#x} became {after:#x}: a change was lost, or applied twice")
                self._number = after
            elif isinstance(step, changes.Made) and step.path.startswith(ITEMS):
                self._came(step.path.removeprefix(ITEMS), step.data)
            elif isinstance(step, changes.Removed) and step.path.startswith(ITEMS):
                self._there.pop(step.path.removeprefix(ITEMS), None)
        self._read = len(self.ensemble.log)

    def _came(self, name: str, data: bytes) -> None:
        (content,), _ = unframe(name, data)
        if content in self.created and content in self._there.values():
            raise Violation(f"{content!r} was put twice")
        self.created.add(content)
        self._there[name] = content

    def wrote(self, since: int, path: str, data: bytes) -> int:
        """Return how often a node was written with such data since the log had so much."""
        return sum(writes(step, path) and step.data == data for _, step in self.ensemble.steps(since))

    def quiet(self) -> None:
        """No task waits for its turn at the number while nothing is under way there."""
        super().quiet()
        if self.faults() or self._deserted():
            return
        self.step()
        for player in self.players:
            process = player.process
            if player.calls != NUMBER or not self._runs(process) or player.gone or player.actor.ready:
                continue
            state = process.session.directory.get(player.calls)
            if state is None or state._left:
                continue
            if all(turn.batch is None for turn in (state.turn, *state.loops.values())):
                raise Violation(f"{player.name} waits for its turn, and nothing is under way")
        for player in self.players:
            process = player.process
            if player.stands is None or not self._runs(process) or player.gone or player.actor.ready:
                continue
            if player.actor.until is not None and player.actor.until <= self.world.now + POLL_INTERVAL:
                continue  # the service was out of reach as it looked
            candidacy = core(player.stands._leader_lock)._path_state.candidacy
            hold = None if candidacy is None else candidacy.hold
            if hold is not None and hold.alive and not process.session.suspect:
                raise Violation(f"{player.name} waits for a term, and there is {hold.ticket}")

    def _waits(self, wire: Transport, ticket: Ticket, name: str, names: list[str]) -> None:
        if blocker(name, names, MUTEX):
            super()._waits(wire, ticket, name, names)
        elif ticket.path == f"{QUEUE}/producers" and len(self._there) < MAXSIZE:
            raise Violation(f"{ticket} waits for a place, and there are {len(self._there)} items")
        elif ticket.path == f"{QUEUE}/consumers" and self._free():
            raise Violation(f"{ticket} waits for an item, and there is {self._free()}")
        elif not ticket.path.startswith(QUEUE):
            raise Violation(f"{ticket} waits, and it is the first")

    def _free(self) -> list[str]:
        claims = set(self.ensemble.leader.children(f"{CHROOT}{QUEUE}/claims"))
        return [name for name in self._there if name not in claims]

    def end(self) -> None:
        """Each change that has returned was applied; nothing is lost, and nothing is left to be settled."""
        tickets = (process.session.registry.tickets for process in self.processes if process.alive)
        if self.ensemble.leader.all_ephemerals() or any(tickets):
            gc.collect()  # the objects that the errors of ended tasks refer to
        super().end()
        self.step()
        for process in self.processes:
            for state in list(process.session.directory.values()) if process.alive else ():
                if getattr(state, "_left", None) and not process.client._stopped.is_set():
                    raise Violation(f"{process.name} has something left to be settled")
        if self.added & ~self._number:
            raise Violation(f"{self.added & ~self._number:#x} was added, as its calls say, and is not there")
        there = set(self._there.values())
        if both := there & self.got:
            raise Violation(f"returned, and still there: {both}")
        if (lost := self.put - there - self.got) and not self.excused:
            raise Violation(f"lost: {lost}")


class DataPlayer(Player):
    """A task or a thread that shares data.

    Attributes:
        calls: the path at which it waits in a call; empty while it does not.
        gets: it waits for an item.
        meets: it enters a double barrier.
        stands: the election that it waits to win, while it does.
        observes: it waits for a leader that it has not seen.
    """

    checks: DataChecks
    calls = ""
    gets = False
    meets = False
    stands: Any = None
    observes = False
    _number = 0

    async def _act(self, act: Act) -> None:
        use = {NUMBER: self._add, MAP: self._write, GROUP: self._join, DOUBLE_BARRIER: self._meet, QUEUE: self._pass}
        use[ELECTION] = self._elect
        self.world.say(f"{self.name}: {act}")
        try:
            await use[act.path](act)
        finally:
            self.calls, self.gets, self.meets = "", False, False

    @property
    def _kinds(self) -> Any:
        return zkconcurrent if self.loop is None else aio

    async def _call(self, act: Act, call: Any) -> Any:
        """Return the result of a call; one that is cancelled ends at once."""
        self.calls, began_with = act.path, self.process.session.timeout
        try:
            return await result(call())
        except asyncio.CancelledError:
            if not self.gone:
                late = self.world.now - self.cancelled
                # Until the item is put back, or the party has withdrawn. A reconnect may have made the timeout shorter.
                most = max(began_with, self.process.session.timeout or UNANSWERED) / 3
                most = most if self.gets or self.meets else 0.0
                if late > most + 1e-6 and self._ran_since(self.cancelled):
                    raise Violation(
                        f"{self.name} was cancelled, and has cleaned up for {late:g} s, not {most:g}"
                    ) from None
            raise
        finally:
            self.calls = ""

    async def _add(self, act: Act) -> None:
        checks, value = self.checks, self._kinds.AtomicLong(self.process.client, NUMBER)
        for _ in range(act.n):
            mine = 1 << checks.bits
            checks.bits += 1
            if act.do == "update":
                after = await self._call(act, lambda mine=mine: value.update(lambda number: number | mine))
            else:
                after = await self._call(act, lambda mine=mine: value.add(mine))
            if not after & mine:
                raise Violation(f"{self.name} has added {mine:#x}, and is told {after:#x}")
            checks.added |= mine

    async def _write(self, act: Act) -> None:
        checks, shared = self.checks, self._kinds.Dict(self.process.client, MAP)
        put = shared.__setitem__ if self.loop is None else shared.put
        for _ in range(act.n):
            self._number += 1
            mine, begun = f"{self.name} {self._number}".encode(), len(checks.ensemble.log)
            try:
                if act.do == "replace":
                    await self._call(act, lambda: shared.pop("k", None))
                await self._call(act, lambda mine=mine: put("k", mine))
            except OutcomeUnknownError:
                continue
            finally:
                if checks.wrote(begun, ENTRY, mine) > 1:
                    raise Violation(f"{self.name} has written {mine!r} more than once")
            if not checks.wrote(begun, ENTRY, mine):
                raise Violation(f"{self.name} has written {mine!r}, and it never was there")
            if act.stay:
                await self._stay_there(act)

    async def _join(self, act: Act) -> None:
        checks, group = self.checks, self._kinds.Group(self.process.client, GROUP)
        begun = len(checks.ensemble.log)
        joining = group.join(self.name.encode(), act.do, wait=max(act.wait, 0.0)) if self.loop is not None else None
        try:
            if joining is not None:
                block = joining
                await self._call(act, joining.__aenter__)
            else:
                block = group.join(self.name.encode(), act.do, wait=max(act.wait, 0.0))
        except ValueError:
            return  # another has the id
        try:
            if not checks.wrote(begun, f"{CHROOT}{GROUP}/{act.do}", self.name.encode()):
                raise Violation(f"{self.name} is a member, and has no node")
            await self._stay_there(act)
            if act.block:
                await self._call(act, group.members)
        finally:
            error = sys.exc_info()
            if joining is not None:
                await joining.__aexit__(*error)
            else:
                block.__exit__(*error)

    async def _meet(self, act: Act) -> None:
        checks, barrier = self.checks, self._kinds.DoubleBarrier(self.process.client, DOUBLE_BARRIER, 2)
        begun = READY in checks.ensemble.leader.nodes, len(checks.ensemble.log)
        self.meets = True
        if not await self._call(act, lambda: barrier.enter(act.timeout)):
            return
        try:
            opened = any(
                isinstance(step, changes.Made) and step.path == READY for _, step in checks.ensemble.steps(begun[1])
            )
            if not begun[0] and not opened:
                raise Violation(f"{self.name} is inside, and it was never open")
            await self._stay_there(act)
        finally:
            if not self.gone:
                try:
                    await result(barrier.leave(act.timeout))
                except LockLostError:
                    self.world.say("is told that it was lost inside")
                except STRUCK:
                    if not self.gone and core(barrier)._identity() in core(barrier)._path_state.inside:
                        raise Violation(f"{self.name} has left, and is inside") from None
                    raise

    async def _pass(self, act: Act) -> None:
        checks, queue = self.checks, self._kinds.Queue(self.process.client, QUEUE, MAXSIZE if act.block else 0)
        if act.do == "put":
            self._number += 1
            mine = f"{self.name} {self._number}".encode()
            try:
                await self._call(act, lambda: queue.put(mine, timeout=act.timeout))
            except (Full, asyncio.QueueFull, OutcomeUnknownError):
                return
            checks.put.add(mine)
            return
        self.gets = True
        try:
            item = await self._call(act, lambda: queue.get(timeout=act.timeout))
        except (Empty, asyncio.QueueEmpty):
            return
        except OutcomeUnknownError:
            checks.excused = True
            return
        if item in checks.got:
            raise Violation(f"{item!r} was returned twice")
        checks.got.add(item)

    # -- elections -----------------------------------------------------------------------------------------------

    async def _elect(self, act: Act) -> None:
        if act.do == "withdraw":
            await self._withdraw_at_last(act)
            return
        parts = {"lead": self._lead, "stand": self._stand, "ask": self._ask, "observe": self._observe}
        await parts[act.do](self._election(), act)

    def _election(self) -> Any:
        return self._kinds.Election(self.process.client, ELECTION, id=self.process.name)

    async def _lead(self, election: Any, act: Act) -> None:
        """Lead, in a block; a task is cancelled if the term is lost."""
        try:
            await self._hold(election._leader_lock, act, lambda _: self._stay_there(act), election.lead(act.timeout))
        except TimeoutError:
            self.world.say(f"{self.name} is not elected in time")
        except ClientError:
            raise
        except RuntimeError as error:
            if "stands at" not in str(error):
                raise

    async def _stand(self, election: Any, act: Act) -> None:
        """Have the client stand; wait for its term, and publish."""
        await self._call(act, election.stand)
        self.stands = election
        try:
            term = await self._call(act, lambda: election.wait(act.timeout))
        finally:
            self.stands = None
        if term is None:
            return
        try:
            self._number += 1
            data, begun = f"{self.name} {self._number}".encode(), len(self.checks.ensemble.log)
            node = CHROOT + term._hold.ticket.node
            await self._call(act, lambda: term.publish(data))
            if self.checks.wrote(begun, node, data) != 1:
                raise Violation(f"{self.name} has published {data!r} {self.checks.wrote(begun, node, data)} times")
        except ClientError:
            raise
        except LockLostError:
            self.world.say(f"{self.name} is told that its term is lost")
        except RuntimeError as error:  # another has withdrawn
            if "has ended" not in str(error):
                raise
        await self._stay_there(act)
        if act.block:
            await self._call(act, election.withdraw)
            if not term.lost.is_set():
                raise Violation(f"{self.name} has withdrawn, and its term is not told")

    async def _ask(self, election: Any, act: Act) -> None:
        found = await self._call(act, election.leader)
        if found is not None and not self.checks.wrote(0, CHROOT + found.node, found.data):
            raise Violation(f"{self.name} is told of {found}, which never was there")
        await self._call(act, election.candidates)

    async def _observe(self, election: Any, act: Act) -> None:
        """See so many leaders."""
        leaders, seen = election.observe(), []
        following = leaders.__anext__ if self.loop is not None else lambda: next(leaders)
        for _ in range(act.n):
            self.observes = True
            try:
                found = await self._call(act, following)
            finally:
                self.observes = False
            if seen[-1:] == [found]:
                raise Violation(f"{self.name} observes {found} twice")
            seen.append(found)

    async def _withdraw_at_last(self, act: Act) -> None:
        """Withdraw once all others of the process are done; and now and then, lest they wait for its candidacy.

        It withdraws after any interrupt: the candidacy would last as long as the client.
        """
        others = [each for each in self.checks.players if each.process is self.process and each is not self]
        rests = RESCUE
        while True:
            try:
                ends = all(each.done for each in others)
                if ends or self.world.now > 1000.0 + rests:
                    rests += AGAIN
                    self._election().withdraw()
                if ends:
                    return
                await self._sleep(act.stay)
            except KeyboardInterrupt:
                continue


class DataTaskRun(TaskRun):
    """A run of tasks and threads that share data."""

    invariants = DataChecks
    checks: DataChecks
    player = DataPlayer

    def __init__(self, schedule: Schedule, *, trace: bool = False) -> None:
        super().__init__(schedule, trace=trace)
        if schedule.threads[0][0][1][0].path == ELECTION:
            for n in range(50):
                self.world.at(self.world.now + RESCUE + n * AGAIN, self.rescue)

    def rescue(self) -> None:
        """Have another leader be seen, for a while, if somebody waits for one."""
        nodes = self.ensemble.leader.nodes
        if STRANGER in nodes:
            self.ensemble.ask(0, changes.Delete(STRANGER))
        elif any(player.observes for player in self.checks.players):
            for above in (*ancestors(CHROOT + ELECTION), CHROOT + ELECTION):  # an observer alone makes no node
                if above not in nodes:
                    self.ensemble.ask(0, changes.Create(above, container=True))
            self.ensemble.ask(0, changes.Create(STRANGER))

    def _kill(self, it: Deviation) -> bool | None:
        self.checks.excused = True
        return super()._kill(it)

    def _quit(self, it: Deviation) -> bool | None:
        self.checks.excused = True
        return super()._quit(it)

    def _shut(self, it: Deviation) -> bool | None:
        self.checks.excused = True
        return super()._shut(it)


def random_data_tasks(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    return _schedule(Random(seed), SUBJECTS[seed % len(SUBJECTS)])


def random_elections(seed: int) -> Schedule:
    """Return the random schedule of a seed, of an election."""
    return _schedule(Random(-1 - seed), ELECTION)


def _schedule(random: Random, path: str) -> Schedule:
    _, deviations, round_trip = random_schedule(random)
    shuts = random.random() < 0.2
    bounded = random.random() < 0.3
    threads = [
        [
            (
                random.choice((0.0, 0.0, 0.0, 0.5, 2.0)),
                [_act(random, path, loop, bounded=bounded) for _ in range(random.randint(1, 3))],
            )
            for loop in random.choice(LOOPS[3:] if shuts else LOOPS)
        ]
        for _ in range(random.choice((1, 2, 2, 2)))
    ]
    for process in threads if path == ELECTION else ():
        process.append((1.0, [Act(ELECTION, "withdraw", stay=1.0)]))
    return Schedule(threads, [deviation(random, each, shuts=shuts) for each in deviations], round_trip)  # type: ignore[arg-type]


def _act(random: Random, path: str, loop: int, *, bounded: bool) -> Act:
    act = Act(path, loop=loop, stay=random.choice((0.0, 0.0, 0.05, 1.0, 3.0)), n=random.randint(1, 3))
    if path == NUMBER:
        return act._replace(do=random.choice(("add", "add", "update")))
    if path == MAP:
        return act._replace(do=random.choice(("put", "put", "replace")))
    if path == GROUP:
        return act._replace(do=random.choice("xxy"), wait=random.choice((0.0, 1.0, 9.0)), block=random.random() < 0.3)
    if path == ELECTION:
        do = random.choice(("lead", "lead", "lead", "stand", "stand", "ask", "observe"))
        return act._replace(
            do=do, timeout=random.choice((None, None, 0.3, 3.0)), block=do == "lead" or random.random() < 0.5
        )
    if path == DOUBLE_BARRIER:
        return act._replace(timeout=random.choice((1.0, 3.0, 9.0)))
    return act._replace(do=random.choice(("put", "put", "get")), timeout=random.choice((1.0, 3.0, 9.0)), block=bounded)
