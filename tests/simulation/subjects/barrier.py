"""Barriers in the simulation: parties that come, wait for so long, act, break and reset."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from tests.simulation.checks.invariants import Checks
from tests.simulation.world.client import Process
from tests.simulation.world.ensemble import Transport
from tests.simulation.world.run import CHROOT, Run
from tests.simulation.world.schedule import Deviation, Schedule, random_schedule
from tests.simulation.world.workload import Worker
from tests.simulation.world.world import Violation
from zkconcurrent._engine.call import Call
from zkconcurrent._engine.client_state import UNANSWERED
from zkconcurrent._errors import ZkConcurrentError
from zkconcurrent._memory import changes
from zkconcurrent._protocol.operations import Failure, Node
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent._recipes import barrier as recipes
from zkconcurrent._recipes.barrier_state import ROLE, ArrivalIndexes, BarrierContent, Party
from zkconcurrent._runtime.wait_loops import Steps, wait
from zkconcurrent._threads.barrier import Barrier

PATH = "/app/b"
# There are no numbers to bring to an end.
NOT_HERE = {"number": "turn"}
CALM = ("turn", "late", "starve")
LEAVING = ("interrupt", "remove", "cut", "expire")  # a party goes, and the others must learn of it
TRIPS = (0.06, 0.1, 0.15, 0.3)  # round trips of slow links, in seconds
SLOWEST = 0.6  # that of a link so slow that others come, leave and trip meanwhile
SLACK = 0.2 + 1e-6  # of the clean-ups' patience
# No death among them: a party that leaves breaks nothing.
GENTLE = ("leave", "leave", "leave", "turn", "late", "starve", "cut")
CLOSE = ("leave", "leave_as_it_fills", "leave_as_it_fills", "leave_together", "turn")


class Oops(Exception):
    """The error that an action raises."""


class Cancelled(BaseException):
    """The error that a cancelled task is told."""


class Meeting(NamedTuple):
    """A visit to the barrier.

    Attributes:
        parties: how many must come.
        do: "wait", "abort", "reset" or "look".
        timeout: how long to wait, in seconds.
        action: how long the action takes, in seconds; None: there is none.
        fails: the action raises.
        pause: how long to pause before.
        mends: a party that is told that the barrier is broken resets it.
        leaves: the wait is a task's: it can be cancelled, and the party then leaves.
    """

    parties: int
    do: str
    timeout: float
    action: float | None
    fails: bool
    pause: float
    mends: bool
    leaves: bool = False


class BarrierChecks(Checks):
    """The invariants of a barrier, of what its state went through at the leader.

    Attributes:
        state: the present one.
        trips: of each generation that tripped, the nodes it tripped with.
        failed: the generations that were broken or reset.
        broken_until: when the barrier was broken last.
        failed_at: when a generation was broken or reset last.
        passed: of each generation, the indices that were told.
        acted: the generations whose action has begun; `done`: those whose action has ended; `acting`: those of which
            the state said that it begins.
        breaking: how many are aborting or resetting, or have requests that may still be on their way.
        gentle: parties only come and leave.
        expired: a session is over.
        withdrawn: how many have left.
        on_arrival: what to do, once, as a party arrives that leaves so many seats free.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state: BarrierContent | None = None
        self.trips: dict[int, set[str]] = {}
        self.failed: set[int] = set()
        self.broken_until = 0.0
        self.failed_at = 0.0
        self.passed: dict[int, set[int]] = {}
        self.acted: set[int] = set()
        self.done: set[int] = set()
        self.acting: set[int] = set()
        self.breaking = 0
        self.gentle = self.expired = False
        self.withdrawn = 0
        self.waiting: dict[BarrierWorker, None] = {}
        self.on_arrival: list[tuple[int, Callable[[], object]]] = []
        self.ensemble.on_change = self._follow

    def _follow(self, change: changes.Change) -> None:
        for step in change:
            if isinstance(step, changes.Written):
                if step.path == f"{CHROOT}{PATH}":
                    self._changed()
                else:
                    self.withdrawn += 1
            elif isinstance(step, changes.Made) and ROLE in step.path:
                self._arrived(step.path)

    def _arrived(self, path: str) -> None:
        *_, generation, name = path.split("/")
        free = self.seats(int(generation)).top - int(name.rpartition(ROLE)[2])
        due = [each for each in self.on_arrival if each[0] == free]
        for each in due:
            self.on_arrival.remove(each)
            each[1]()

    def nodes(self, generation: int) -> dict[int, str]:
        """Return the parties' nodes at the leader, by number."""
        names = self.ensemble.leader.children(f"{CHROOT}{PATH}/{generation:010d}")
        return {int(name.rpartition("party-")[2]): name for name in names}

    def seats(self, generation: int) -> ArrivalIndexes:
        """Return the seats at the leader."""
        path = f"{CHROOT}{PATH}/{generation:010d}"
        node = self.ensemble.leader.nodes.get(path)
        parties = self.state.parties if self.state else 0
        return (
            ArrivalIndexes(parties) if node is None else ArrivalIndexes.parse(path, parties, Node(node.data, 0, 0.0, 0))
        )

    def expiring(self, state: Any) -> None:
        """Note that a session ends."""
        self.expired = True
        super().expiring(state)

    def _check_gentle(self, generation: int) -> None:
        """No party that leaves breaks the barrier; one whose time is up does, and one whose session is over.

        But one that came too late, and whose time is up, breaks no earlier generation than the next, unless the party
        that has run the action has left.
        """
        seats = self.seats(generation)

        def may_break(party: Party) -> bool:
            came_too_late = party.generation == generation and party.ticket.name and seats.seat(party.number) is None
            return party.late and (generation in self.acting or not came_too_late)

        if self.gentle and not self.expired and not any(may_break(p) for each in self.waiting for p in each.came):
            raise Violation(f"generation {generation} is broken, and parties have only left")

    def _changed(self) -> None:
        node = self.ensemble.leader.nodes[f"{CHROOT}{PATH}"]
        new = BarrierContent.parse(PATH, Node(node.data, node.czxid, 0.0, 0, node.version))
        old = self.state or BarrierContent(new.parties, born=node.czxid)
        self.state = new
        self.world.say(f"STATE {new.data.decode()}")
        if old.broken:
            self.broken_until = self.world.now
        there, seats = self.nodes(old.generation), self.seats(old.generation)
        counted = seats.counted()
        whole = all(number in there for number in counted)
        if len(counted) < old.parties and old.generation not in self.acting:
            raise Violation(f"generation {old.generation} counts {counted} for {old.parties}")
        if new.generation not in (old.generation, old.generation + 1):
            raise Violation(f"from {old} to {new}")
        if not set(old.failed) <= set(new.failed):
            raise Violation(f"a failure is forgotten: from {old} to {new}")
        if not set(new.failed) <= self.failed:
            self.failed_at = self.world.now
            self._check_gentle(old.generation)
        self.failed.update(new.failed)
        acts = old.acting or new.acting
        if new.acting:
            self.acting.add(new.generation)
        if new.generation > old.generation and old.generation not in new.failed:
            if not whole:
                raise Violation(f"generation {old.generation} trips without all of its parties: {there}")
            if acts and old.generation not in self.done:
                raise Violation(f"generation {old.generation} trips before its action has run")
            self.trips[old.generation] = {there[number] for number in counted}
        elif new.acting and not whole:
            raise Violation(f"generation {old.generation} acts without all of its parties: {there}")
        elif whole and not new.acting and not self.breaking and old.generation in self.acted - self.done:
            raise Violation(f"generation {old.generation} is broken while its action runs, and nobody has left")

    def _notice(self, process: Process, ticket: Ticket, began: float) -> None:
        """A party whose node is taken away can do nothing: the first must miss it, and `quiet` sees to that."""

    def quiet(self) -> None:
        """No party sleeps that is entitled to go on, or that must tell the others that one is missing."""
        super().quiet()
        if self.faults() or self.state is None:
            return
        state = self.state
        there, seats = self.nodes(state.generation), self.seats(state.generation)
        for worker in list(self.waiting):
            if not worker.came:
                continue
            process, party = worker.process, worker.came[-1]
            ticket, wire = party.ticket, process.connection.wire
            if not process.alive or wire is None or not process.client.connected or process.client._queue:
                continue
            if ticket.prefix not in process.session.registry.tickets:
                continue  # it is on its way out
            if ticket.changed or ticket.session != wire.session.number or wire.session.closed:
                continue
            if party.generation != state.generation or state.broken:
                raise Violation(f"{worker.name} waits in generation {party.generation}, and it is {state}")
            if not wire.watches(f"{CHROOT}{PATH}"):
                raise Violation(f"{worker.name} waits without a watch")
            if party.late:
                continue  # all it waits for is that the last party decides
            if party.number == min(there) and not party.is_last and set(party.line) != set(there):
                raise Violation(f"{worker.name} watches over the others, and has not seen that they are {there}")
            if not party.watches_all and min(party.line) not in there:
                raise Violation(f"{worker.name} waits, and {min(party.line)} has come and gone: {there}")
            created = self.ensemble.leader.nodes[f"{CHROOT}{ticket.path}"].creates
            missing = [number for number in seats.counted() if number < created and number not in there]
            if missing and party.watches_all:
                raise Violation(f"{worker.name} waits, and {missing} have come and gone: {there}")
            if party.number == seats.top and not state.acting:
                raise Violation(f"{worker.name} waits although it is the last: {there}")

    def healthy(self, worker: BarrierWorker, since: float) -> bool:
        """Whether nothing has kept the worker from asking the service since then."""
        process = worker.process
        wire = process.connection.wire
        if wire is None or not wire.open or not process.client.connected:
            return False
        ends = (process.starved_until, worker.actor.held_until, self.world.late, self.ensemble.amiss_until)
        ends = (*ends, wire.heard_since(), wire.silent_until, wire.stalled_until)
        return max(*ends, process.connection.pipe.full_until) < since


class Sleep:
    """The sleep of a wait that can be cancelled, as a task's."""

    def __init__(self, call: Call, event: Any) -> None:
        self._call, self._event = call, event
        self._cancelled = False
        self.set, self.clear = event.set, event.clear

    def wait(self, timeout: float) -> bool:
        """Sleep; only here a cancel strikes."""
        woken = self._event.wait(timeout)
        if self._cancelled:
            self._cancelled = False
            self._call.leave_clean_up()
            raise Cancelled
        return bool(woken)

    def cancel(self) -> None:
        """Cancel the wait."""
        self._cancelled = True
        self._event.set()


class LeavingBarrier(Barrier):
    """A barrier whose parties leave when they are cancelled, as those of `aio.Barrier`."""

    sleep: Sleep | None = None

    def _await(self, call: Any, steps: Steps[Any]) -> Any:
        self.sleep = Sleep(call, self._session.link.sleep_event())
        try:
            return wait(call, steps, self.sleep)
        finally:
            self.sleep = None

    def _withdraw(self, party: Party) -> None:
        self._session.link.handler.spawn(self._end, *self._withdrawal(party))

    def _end(self, call: Call, steps: Steps[None]) -> None:
        with suppress(ZkConcurrentError):
            call.wait(steps)


class BarrierWorker(Worker):
    """A worker that comes to the barrier."""

    checks: BarrierChecks

    def __init__(self, *arguments: Any) -> None:
        self.barrier: Barrier | None = None  # the one at which it waits
        self.came: list[Party] = []
        self.until = 0.0  # when the time of its wait is up
        super().__init__(*arguments)

    def _visit(self, visit: Any) -> None:
        assert isinstance(visit, Meeting)
        self.world.sleep(visit.pause)
        barrier = (LeavingBarrier if visit.leaves else Barrier)(
            self.process.client, PATH, visit.parties, None if visit.action is None else lambda: self._act(visit)
        )
        if visit.do == "look":
            if not 0 <= barrier.n_waiting <= visit.parties:
                raise Violation("more wait than there are parties")
            _ = barrier.broken
        elif visit.do == "wait":
            self._wait(barrier, visit)
        else:
            self._break(barrier, visit)

    def _break(self, barrier: Barrier, visit: Meeting) -> None:
        generation = None if self.checks.state is None else self.checks.state.generation
        began = self.world.now
        self.checks.breaking += 1
        getattr(barrier, visit.do)()
        self.checks.breaking -= self.process.alive  # if it was interrupted, what it has sent may be applied still
        self.world.say(f"has done its {visit.do}")
        state = self.checks.state
        assert state is not None
        if visit.do == "abort":
            if self.checks.failed_at < began:  # a reset in between makes it moot
                self._must_have_been_broken(began)
        elif generation is not None and state.generation == generation and self._seen_since(began) == began:
            raise Violation(f"reset() has returned, and it is {state} still")

    def _seen_since(self, began: float) -> float:
        """Return since when a call may see: a leader that is left alone answers with the state of that moment."""
        servers = self.checks.ensemble.servers
        return min(began, *(server.alone_since for server in servers if server.alone_until > began), math.inf)

    def _must_have_been_broken(self, began: float) -> None:
        state = self.checks.state
        if state is None or not (state.broken or self.checks.broken_until >= self._seen_since(began)):
            raise Violation(f"it is said to be broken, and it is {state}")

    def _wait(self, barrier: Barrier, visit: Meeting) -> None:
        checks, world = self.checks, self.world
        began = world.now
        # The answers that it needs, and then that to its last question, may take a third of the session timeout each.
        limit, third = visit.timeout, (self.process.session.timeout or UNANSWERED) / 3
        self.came, self.until = [], began + limit
        self.world.say(f"comes, {visit}")
        checks.waiting[self] = None
        broken = False
        self.barrier = barrier
        try:
            index = barrier.wait(visit.timeout)
        except Failure as error:
            raise Violation(f"{self.name} is told what is the recipe's own business: {error!r}") from None
        except threading.BrokenBarrierError:
            self.world.say("is told that the barrier is broken")
            self._check_broken(began, began + limit)
            broken = True
        except Oops:
            self._check_failed()
        except Cancelled:
            self.world.say("is cancelled")
            if any(party.late for party in self.came):
                checks.gentle = False  # its time was up, so its requests may break the barrier still
            return
        else:
            self._check_passed(index)
        finally:
            self.barrier = None
            checks.waiting.pop(self, None)
        # Then the end of a generation that is complete is waited for.
        outlasts = self.came and (self.came[-1].generation in checks.acting or not self.came[-1].counts)
        third = max(third, self.process.session.timeout / 3)  # that of the next session may be longer
        at_most = max(visit.timeout, third) + third
        if self._ran_since(began) and not outlasts and world.now > began + at_most + SLACK:
            raise Violation(f"wait({limit:g}) took {world.now - began:g} s")
        if broken and visit.mends:
            self._break(barrier, visit._replace(do="reset"))

    def _act(self, visit: Meeting) -> None:
        checks, party = self.checks, self.came[-1]
        checks.waiting.pop(self)
        generation = party.generation
        self.world.say(f"acts for generation {generation}")
        if generation in checks.acted:
            raise Violation(f"the action of generation {generation} is run twice")
        if generation in checks.trips or not party.is_last:
            raise Violation(f"the action of generation {generation} is run too late, or by {party.number}")
        checks.acted.add(generation)
        try:
            self.world.sleep(visit.action or 0.0)
            if visit.fails:
                raise Oops
        finally:
            checks.done.add(generation)

    def _check_passed(self, index: int) -> None:
        self._check_passed_none()
        party = self.came[-1]
        checks, generation = self.checks, party.generation
        self.world.say(f"passes generation {generation} as {index}")
        if party.ticket.name not in checks.trips.get(generation, ()):
            raise Violation(f"{self.name} passes generation {generation}, which has not tripped with it")
        told = checks.passed.setdefault(generation, set())
        if index in told or not 0 <= index < party.view.parties:
            raise Violation(f"{self.name} is told an index of another's: {index}")
        told.add(index)

    def _check_passed_none(self) -> None:
        """No party waits for a later generation than the one that tripped with it."""
        for each in self.came[:-1]:
            if each.ticket.name in self.checks.trips.get(each.generation, ()):
                raise Violation(f"{self.name} waits on, and has passed generation {each.generation}")

    def _check_broken(self, began: float, deadline: float) -> None:
        """Broken is told if it was, or if there was no way to know."""
        self._check_passed_none()
        checks, now = self.checks, self.world.now
        in_time = min(deadline, now)
        if not self.came or not self.came[-1].ticket.sent:
            acts = checks.state is not None and checks.state.acting
            moot = checks.failed_at >= deadline  # its time was up, and a reset came before it could break the barrier
            if now < deadline or (self.came and checks.healthy(self, in_time) and not acts and not moot):
                self._must_have_been_broken(began)
            return
        party = self.came[-1]
        passed = party.ticket.name in checks.trips.get(party.generation, ())
        if party.generation in checks.failed and not passed:
            return
        # Before its deadline, a party waits until a server shows the outcome, even if its session ends meanwhile.
        if passed and party.counts and now < deadline:
            raise Violation(f"{self.name} is told that generation {party.generation} is broken, and has passed it")
        if party.ticket.session != self.process.session.registry.session or not checks.healthy(self, in_time):
            return
        # A party without a seat breaks the next generation if its time is up. It can't know the end of its own if its
        # node was taken away, which kept the generation's.
        unknown = party.late or f"{CHROOT}{party.ticket.node}" in checks.removed
        if passed or party.counts or not unknown:
            raise Violation(
                f"{self.name} is told that generation {party.generation} is broken, and it is not: {checks.state}"
            )

    def _check_failed(self) -> None:
        party, checks = self.came[-1], self.checks
        if party.generation in checks.trips:
            raise Violation(f"generation {party.generation} has tripped, and its action failed")
        if party.generation not in checks.failed and checks.healthy(self, self.world.now):
            raise Violation(f"the action of generation {party.generation} failed, and it is not broken")


class BarrierRun(Run):
    """A run of such workers."""

    worker = BarrierWorker
    invariants = BarrierChecks
    checks: BarrierChecks

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        visits = [visit for process in schedule.threads for _, visits in process for visit in visits]
        kinds = {each.kind for each in schedule.deviations}
        self.checks.gentle = all(isinstance(visit, Meeting) and visit.leaves for visit in visits) and (
            kinds <= {*GENTLE, *CLOSE, "slow", "one_by_one"}
            and not any(visit.fails or visit.mends or visit.do in ("abort", "reset") for visit in visits)  # type: ignore[attr-defined]
        )

        self._pauses: dict[Process, float] = {}
        serve = self.ensemble.serve

        def served(wire: Transport) -> None:
            serve(wire)
            pause = next((self._pauses.get(each) for each in self.processes if each.connection.wire is wire), None)
            if pause is not None and wire.requests:
                turn, request, answer, due = wire.requests[0]
                wire.requests[0] = turn, request, answer, max(due, self.world.now + pause)
                self.world.at(wire.requests[0][3])

        self.ensemble.serve = served  # type: ignore[method-assign]

    def _leave_as_it_fills(self, it: Deviation) -> None:
        """Cancel a party where it sleeps, once the generation is complete, or is but for one."""
        self.checks.on_arrival.append((it.length % 4 // 3, partial(self._leave, it)))

    def _leave_together(self, it: Deviation) -> bool | None:
        """Cancel two parties at once, where they sleep."""
        return self._leave(it) is not False and self._leave(it._replace(which=it.which + 1))

    def _one_by_one(self, it: Deviation) -> bool | None:
        """Have each request of a process arrive some time after the one before, from now on."""
        process = self._process(it)
        if process is None:
            return False
        self._pauses[process] = TRIPS[it.length % len(TRIPS)] / 3
        return None

    def _leave(self, it: Deviation) -> bool | None:
        """Cancel a party where it sleeps."""
        workers = [
            each for each in self.workers if each.process.alive and getattr(each.barrier, "sleep", None) is not None
        ]
        if not workers:
            return False
        worker = workers[it.which % len(workers)]
        self.world.say(f"{worker.name} is cancelled where it sleeps")
        worker.barrier.sleep.cancel()
        return None

    def _slow(self, it: Deviation) -> bool | None:
        """Have a process's messages be under way for long, from now on."""
        process = self._process(it)
        if process is None:
            return False
        process.connection.delay = (*TRIPS, SLOWEST)[it.length % (len(TRIPS) + 1)] / 2
        if process.connection.wire is not None:
            process.connection.wire.delay = process.connection.delay
        return None

    def to_the_end(self) -> int:
        """Run until everybody has finished and all is at rest; return the steps it took."""
        with _recorded(self):
            return super().to_the_end()


@contextmanager
def _recorded(run: BarrierRun) -> Iterator[None]:
    class Known(Party):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            next(each for each in run.workers if each.actor is run.world.current).came.append(self)

    with patch.object(recipes, "Party", Known):
        yield


def random_meetings(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    workers = sum(len(process) for process in threads)
    parties = min(workers, random.choice((1, 2, 2, 3, 3, 4)))
    acts = random.random() < 0.4
    meetings = [
        [(start, [_meeting(random, parties, acts) for _ in range(len(visits) + 1)]) for start, visits in process]
        for process in threads
    ]
    deviations = [each._replace(kind=NOT_HERE.get(each.kind, each.kind)) for each in deviations]
    if seed % 3 == 0:
        deviations[:0] = [Deviation(1, "slow", n, random.randrange(len(TRIPS))) for n in range(len(threads))]
    if seed % 4 == 0:  # all come, and some go
        meetings = [
            [(start, [Meeting(workers, "wait", 20.0, None, False, 0.0, True)] * 2) for start, _ in process]
            for process in threads
        ]
        deviations = [each if each.kind in CALM else each._replace(kind=random.choice(LEAVING)) for each in deviations]
    if seed % 8 == 1:  # all have come, one acts for longer than the others wait, and its process dies
        meetings = [
            [(0.0, [Meeting(workers, "wait", 3.0, 7.0, False, 0.0, True)] * 2) for _ in process] for process in threads
        ]
        deviations = [Deviation(random.randint(110, 200) * workers, "kill", random.randrange(8), 0)]
    if seed % 5 == 2:  # all are tasks, and some are cancelled while they wait for the last one
        threads[0][0] = (3.0, threads[0][0][1])
        meetings[0][0] = (3.0, meetings[0][0][1])
        meetings = [
            [(start, [visit._replace(leaves=True) for visit in visits]) for start, visits in process]
            for process in meetings
        ]
        leaving = [
            Deviation(random.randint(1, 120), "leave", random.randrange(8), 0) for _ in range(random.randint(6, 12))
        ]
        deviations = leaving if seed % 3 == 0 else random.sample([*leaving, *deviations], len(leaving + deviations))
    if seed % 10 == 7:  # and nothing else becomes of any
        action, expected = random.choice((None, None, 0.5)), random.choice((workers, max(2, workers - 1)))
        meetings = [
            [(start, [Meeting(expected, "wait", 20.0, action, False, 0.0, False, True)] * 5) for start, _ in process]
            for process in threads
        ]
        deviations = [
            Deviation(random.randint(1, 120), random.choice(GENTLE), random.randrange(8), random.randrange(3))
            for _ in range(random.randint(6, 14))
        ]
    if seed % 5 == 3:
        return _close_meetings(random, one_reads_slowly=seed % 10 == 3)
    if seed % 16 == 11:
        return _late_meetings(random)
    return Schedule(meetings, deviations)  # type: ignore[arg-type]


def _late_meetings(random: Random) -> Schedule:
    """Return a schedule of parties that come when all seats are taken, while the last party is slow or acts.

    Their time is up then, as others leave, or their sessions end.
    """
    acts = random.random() < 0.5
    links = [Deviation(1, "slow", 1, len(TRIPS)), Deviation(1, "one_by_one", 2, 3)]
    visit = Meeting(2, "wait", 20.0, 10.0 if acts else None, False, 0.0, False, not acts)
    if acts:
        start, limit, strikes = 1.5, 20.0, [Deviation(random.randint(150, 500), "expire", 2, 0)]
    else:
        start, limit = 0.4, random.choice((0.4, 0.6, 0.8))
        strikes = [
            Deviation(random.randint(1, 40), random.choice(CLOSE), random.randrange(8), random.randrange(8))
            for _ in range(random.randint(3, 8))
        ]
    late = [(start + 0.1 * n, [visit._replace(timeout=limit)]) for n in range(2)]
    return Schedule([[(0.0, [visit] * 2)], [(0.0, [visit] * 2)], late], links + strikes)  # type: ignore[list-item]


def _close_meetings(random: Random, *, one_reads_slowly: bool) -> Schedule:
    """Return a schedule of parties that leave and come again as the generation fills.

    Args:
        random: draws it.
        one_reads_slowly: as many come as there are seats, and the reads of one are far apart; else more come.
    """
    near, far = (3, 1) if one_reads_slowly else (2, 2)
    parties = near + far - (not one_reads_slowly)
    links = [Deviation(1, "slow", 0, 0), Deviation(1, "one_by_one", 1, 3)]
    limit = 20.0
    if not one_reads_slowly:  # the last to come and the one behind it learn late that others have left
        slowest = random.randint(2, len(TRIPS))
        links = [Deviation(1, "slow", 0, random.randrange(2)), Deviation(1, "slow", 1, slowest)]
        # Where time is short, a party can learn within a third of the session timeout nevertheless.
        limit = 20.0 if slowest == len(TRIPS) else random.choice((2.0, 20.0))
    visits = [Meeting(parties, "wait", limit, None, False, 0.0, False, True)] * 4
    leaves = [
        Deviation(random.randint(1, 40), random.choice(CLOSE), random.randrange(8), random.randrange(8))
        for _ in range(random.randint(6, 14))
    ]
    return Schedule([[(0.0, visits)] * near, [(0.0, visits)] * far], links + leaves)  # type: ignore[list-item]


def _meeting(random: Random, parties: int, acts: bool) -> Meeting:
    do = random.choice(("wait",) * 14 + ("abort", "reset", "reset", "look"))
    timeout = random.choice((0.0, 0.3, 1.0, 3.0, 10.0, 20.0, 20.0, 20.0))
    action = random.choice((0.0, 0.5, 3.0)) if acts else None
    pause = random.choice((0.0, 0.0, 0.5, 1.0))
    return Meeting(parties, do, timeout, action, random.random() < 0.15, pause, random.random() < 0.5)
