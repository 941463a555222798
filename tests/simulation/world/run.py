"""A run: the world of one schedule, stepped to its end with all checks."""

from __future__ import annotations

import gc
import logging
import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, TypeVar
from unittest.mock import patch

from tests.simulation.checks.invariants import Checks
from tests.simulation.world.client import Process
from tests.simulation.world.ensemble import TICK, Ensemble, Server, SessionState
from tests.simulation.world.schedule import LAST, LENGTHS, TIMEOUT, Deviation, Schedule
from tests.simulation.world.workload import Worker
from tests.simulation.world.world import CALM, Actor, Violation, World, add_note
from zkconcurrent._engine import watch_removals
from zkconcurrent._engine.call import Call
from zkconcurrent._engine.client_state import ClientState
from zkconcurrent._engine.keeper_thread import IDLE_BEAT
from zkconcurrent._engine.operation_runner import POLICIES
from zkconcurrent._memory import changes
from zkconcurrent._protocol.operations import Children, WaitGone
from zkconcurrent._protocol.ticket import State
from zkconcurrent._threads.base.lock_base import LockBase
from zkconcurrent._threads.lock import Lock
from zkconcurrent._threads.rlock import RLock

R = TypeVar("R", bound="Run")
CHROOT = "/root"
# The kinds of deviation that take effect in the random runs of every primitive.
COMMON_FAULTS = {"cut", "turn", "late", "expire", "interrupt", "kill", "stop", "lag"}
TIMES = int(os.environ.get("SIM_TIMES", "1"))  # as many random runs
PATIENCE = 400.0
REST = 4 * TIMEOUT


class Run:
    """One schedule, run.

    Attributes:
        worker: the type of its threads.
        invariants: the type of its checks.
        injected: how often each kind of deviation took effect.
    """

    worker = Worker
    invariants = Checks

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.world = World()
        self.ensemble = Ensemble(self.world)
        self.ensemble.trip = schedule.round_trip / 2
        self.ensemble.ask(0, changes.Create(CHROOT))
        self.processes = [
            Process(self.world, self.ensemble, "abc"[n], n + 1, TIMEOUT) for n in range(len(schedule.threads))
        ]
        for n, process in enumerate(self.processes):
            process.connection.server = self.ensemble.servers[n % 2]
        self.checks = self.invariants(self.world, self.ensemble, self.processes, CHROOT)
        self.workers = [
            self.worker(process, self.checks, f"{process.name}{n}", visits, start)
            for process, threads in zip(self.processes, schedule.threads, strict=True)
            for n, (start, visits) in enumerate(threads)
        ]
        self.injected: dict[str, int] = {}
        self._over = False
        self._left = list(schedule.deviations)
        self.world.check = self.checks.step
        self.world.at_rest = self.checks.quiet
        self.world.network = self._network
        self.world.deviate = self._deviate
        self.ensemble.on_expiry = self.checks.expiring
        self._next_deviation()

    def to_the_end(self) -> int:
        """Run until everybody has finished and all is at rest; return the steps it took.

        Raises:
            Violation: something happened that must not, or nothing happens any more.
        """
        world = self.world
        with quietly(), _heard(self), self._buried(), world.closing(), self._stopped():
            patience = world.now + PATIENCE
            at_work = list(self.workers)
            while at_work:
                if at_work[-1].done or not at_work[-1].process.alive:
                    at_work.pop()
                    continue
                world.step()
                if world.now > patience or world.steps > world.limit:
                    raise Violation(f"not finished: {[worker.name for worker in self.workers if not worker.done]}")
            world.countdown = CALM
            rest = world.now + REST
            world.at_rest = self._look_for_the_end
            while not self._over and (world.now < rest or world.now < self._disturbed_until() + REST):
                world.step()
            if not self._over:
                self.checks.end()
        return world.steps

    @contextmanager
    def _buried(self) -> Iterator[None]:
        """Have the sessions forget everything when the block is left: nothing is theirs to do at the real exit."""
        try:
            yield
        finally:
            for process in self.processes:
                process.session.forget_after_fork()

    @contextmanager
    def _stopped(self) -> Iterator[None]:
        """Stop the clients when the block is left: a thread that takes a lock back through all faults then gives up."""
        try:
            yield
        finally:
            for process in self.processes:
                process.client._stopped.set()

    def _look_for_the_end(self) -> None:
        self.checks.quiet()
        if not self.checks.faults():
            with suppress(Violation):
                self.checks.end()
                self._over = True

    def _disturbed_until(self) -> float:
        """Until when a fault keeps clients and servers apart: one that waits for its moment may strike in the rest."""
        links = [process.connection for process in self.processes if process.alive]
        return max(max(link.ensemble.amiss_until, link.down_until, link.bound_until) for link in links)

    def note_listing(self, step: Children, names: Any) -> None:
        """Remember how new the listing is that a ticket's recipe goes by."""
        if step.ticket is not None:
            self.checks.listed[step.ticket] = getattr(names, "seen", 0)

    def _network(self) -> Callable[[], None] | None:
        oldest: tuple[int, Callable[[], None]] | None = None
        for process in self.processes:
            for move in process.messages():
                if oldest is None or move[0] < oldest[0]:
                    oldest = move
        return None if oldest is None else oldest[1]

    # -- deviations ----------------------------------------------------------------------------------------------

    def _next_deviation(self) -> None:
        self.world.countdown = self._left[0].after if self._left else CALM

    def _deviate(self) -> None:
        deviation = self._left.pop(0)
        if getattr(self, f"_{deviation.kind}")(deviation) is not False:
            self.injected[deviation.kind] = self.injected.get(deviation.kind, 0) + 1
        self._next_deviation()

    def _turn(self, it: Deviation) -> bool | None:
        """Give somebody else the turn: another thread, or a message that is not the oldest."""
        world = self.world
        others: list[Any] = [actor for actor in world.choices() if actor is not world.next_up]
        moves = [move for process in self.processes for _, move in sorted(process.messages(), key=lambda m: m[0])]
        if not others and not moves:
            return False
        chosen = (others + moves)[it.which % len(others + moves)]
        if isinstance(chosen, Actor):
            world.next_up = chosen
        else:
            chosen()
        return None

    def _worker(self, it: Deviation) -> Worker | None:
        workers = [worker for worker in self.workers if not worker.done and worker.process.alive]
        return workers[it.which % len(workers)] if workers else None

    def _process(self, it: Deviation) -> Process | None:
        processes = [process for process in self.processes if process.alive]
        return processes[it.which % len(processes)] if processes else None

    def _starve(self, it: Deviation) -> bool | None:
        """Give the thread whose turn it is none for a while."""
        actor = self.world.next_up
        if actor is None or actor.process is None:
            return False
        # The shortest: until everybody else waits.
        actor.process.starve(actor, self.world.now + (LENGTHS[it.length] or 1e-3))
        self.world.say(f"{actor} is starved until {actor.held_until - 1000:.3f}")
        return None

    def _straddle(self, it: Deviation) -> bool | None:
        """Starve the thread whose turn it is until its session is over and the next has begun."""
        actor = self.world.next_up
        wire = None if actor is None or actor.process is None else actor.process.connection.wire
        if actor is None or wire is None or not wire.open:
            return False
        self._starve(it._replace(length=LENGTHS.index(6.5)))
        actor.process.connection.down_until = actor.held_until - 0.1
        self.ensemble.close(wire)
        return None

    def _late(self, _: Deviation) -> None:
        """Let time pass although messages are under way."""
        self.world.skip_network = True

    def _cut(self, it: Deviation) -> bool | None:
        """Cut a connection, losing requests or answers; the next one may go to the other server."""
        process = self._process(it)
        wire = None if process is None else process.connection.wire
        if process is None or wire is None or not wire.open:
            return False
        process.connection.down_until = self.world.now + LENGTHS[it.length]
        process.connection.server = self.ensemble.servers[it.which // 4]
        self.world.say(f"the connection of {process.name} is cut for {LENGTHS[it.length]:g}")
        self.ensemble.close(wire, served=(0, 1, 9)[it.after % 3])
        return None

    def _stall(self, it: Deviation) -> bool | None:
        """Let a connection be a black hole for a while."""
        process = self._process(it)
        wire = None if process is None else process.connection.wire
        if process is None or wire is None or not wire.open:
            return False
        if it.after % 2:  # only towards the client
            wire.silent_until = self.world.now + LENGTHS[it.length]
            self.world.at(wire.silent_until)
            return None
        self.world.say(f"the connection of {process.name} stalls for {LENGTHS[it.length]:g}")
        self.ensemble.silence(wire.session)
        wire.stalled_until = self.world.now + LENGTHS[it.length]
        self.world.at(wire.stalled_until)
        return None

    def _clog(self, it: Deviation) -> bool | None:
        """Let kazoo's pipe have no room for a while."""
        process = self._process(it)
        if process is None:
            return False
        process.connection.pipe.full_until = self.world.now + LENGTHS[it.length % 4]
        return None

    def _expire(self, it: Deviation) -> bool | None:
        """Cut a connection for longer than the session's timeout."""
        return self._cut(it._replace(length=LENGTHS.index(6.5)))

    def _lag(self, it: Deviation) -> None:
        """Let the follower lag."""
        follower = self.ensemble.follower
        follower.lags_until = self.world.now + LENGTHS[it.length]
        self.world.say(f"the follower lags for {LENGTHS[it.length]:g}")
        self.world.at(follower.lags_until, self.ensemble.recover)

    def _bind(self, server: Server, length: float) -> None:
        """Let the clients of a server reach no other for a while."""
        for process in self.processes:
            if process.connection.server is server:
                process.connection.bound_until = self.world.now + length

    def _cut_off(self, it: Deviation) -> bool | None:
        """Cut the follower off from its leader: now, or with its clients as soon as a write of theirs is answered."""
        length = LENGTHS[4 + it.length % 5]
        if it.which % 2:
            return self.ensemble.cut_off(length)
        self.ensemble.on_proof = partial(self._cut_off_with_clients, length)
        return None

    def _cut_off_with_clients(self, length: float) -> None:
        if self.ensemble.cut_off(length):
            self._bind(self.ensemble.follower, length)

    def _hear_late(self, it: Deviation) -> bool:
        """Let the follower hear its leader late; then, maybe, cut it off as soon as a write of its client is taken."""
        if it.which % 2:
            self.ensemble.on_proof = partial(self._cut_off_with_clients, 14.0)
        return self.ensemble.be_late(LENGTHS[1 + it.length % 5])

    def _stand_still(self, it: Deviation) -> bool:
        """Let the leader stand still."""
        return self.ensemble.stand_still(LENGTHS[it.length], bool(it.which % 2))

    def _usurp(self, it: Deviation) -> bool:
        """Have the follower elected, while its leader goes on alone, maybe with its clients."""
        length = LENGTHS[4 + it.length % 5] if it.which else 0.0
        usurped = self.ensemble.usurp(length)
        if usurped and it.which % 2:
            self._bind(self.ensemble.follower, length)
        return usurped

    def _limit(self, it: Deviation) -> None:
        """Have a server grant shorter timeouts, to those who connect from now on."""
        self.ensemble.servers[it.which % 2].limit = 2 * TICK if it.length % 2 else 5.0

    def _stop(self, it: Deviation) -> bool | None:
        """Stop a process for a while (SIGSTOP)."""
        process = self._process(it)
        if process is None:
            return False
        self.world.say(f"{process.name} is stopped for {LENGTHS[it.length]:g}")
        process.stop_until(self.world.now + LENGTHS[it.length])
        return None

    def _kill(self, it: Deviation) -> bool | None:
        """Kill a process (SIGKILL); not the last."""
        process = self._process(it)
        if process is None or sum(process.alive for process in self.processes) == 1:
            return False
        self.world.say(f"{process.name} is killed")
        process.stop_until(math.inf)
        return None

    def _interrupt(self, it: Deviation) -> bool | None:
        """Interrupt a worker (Ctrl-C)."""
        worker = self._worker(it)
        if worker is None:
            return False
        self.world.say(f"{worker.name} is interrupted where it waits")
        self.world.throw(worker.actor, KeyboardInterrupt())
        return None

    def _remove(self, it: Deviation) -> bool | None:
        """Have an operator delete one of our nodes."""
        nodes = sorted(self.ensemble.leader.all_ephemerals(), key=lambda path: path[-10:])
        if not nodes:
            return False
        node = nodes[it.which % len(nodes)]
        self.ensemble.delete(node)
        self.checks.remove(node)
        return None

    def _close(self, it: Deviation) -> bool | None:
        """Have an operator close a session, so that no lease has run out; maybe its connection outlives it."""
        process = self._process(it)
        wire = None if process is None else process.connection.wire
        if wire is None or wire.session.closed:
            return False
        wire.outlives = bool(it.length % 2)
        self._end_session(wire.session)
        return None

    def _quit(self, it: Deviation) -> bool | None:
        """Stop a client, by its `stop()`; not the last."""
        running = [process for process in self.processes if process.alive and not process.client._stopped.is_set()]
        if len(running) < 2:
            return False
        process = running[it.which % len(running)]
        self.world.say(f"{process.name}'s client is stopped")
        process.on_close = self._end_session
        process.client._stopped.set()
        process.connection._connection_routine.ready = True
        return None

    def _end_session(self, session: SessionState) -> None:
        """End a session on the word of its client, or of an operator, while its leases run."""
        nodes = self.ensemble.leader.ephemerals(session.number)
        self.ensemble.end_session(session)
        for node in nodes:
            self.checks.remove(node)

    def _reap(self, _: Deviation) -> None:
        """Have the server remove empty containers."""
        self.ensemble.reap()

    def _number(self, it: Deviation) -> bool | None:
        """Bring a queue's sequence numbers near their end."""
        path, number = CHROOT + ("/app/l", "/app/r")[it.which % 2], LAST - it.length % 3
        node = self.ensemble.leader.nodes.get(path)
        if node is None or not 0 <= node.creates < number:
            return False
        self.ensemble.wraps = it.which >= 4
        self.ensemble.count_from(path, number)
        return None


def runs(make: Callable[[Any], R], draw: Callable[[int], Any], seeds: int, name: str) -> Iterator[R]:
    """Run the schedules of so many seeds, times `SIM_TIMES`, to their end; yield each run.

    Args:
        make: makes a run of a schedule.
        draw: draws the schedule of a seed.
        seeds: how many.
        name: of these runs.

    Raises:
        Violation: a run broke an invariant. That, and any other error that it raises, has its seed and schedule.
    """
    for seed in range(seeds * TIMES):
        schedule = draw(seed)
        run = make(schedule)
        try:
            run.to_the_end()
        except BaseException as error:
            add_note(error, f"seed {seed}\n{schedule}\npython -m tests.simulation {name!r} {seed}")
            raise
        yield run


@contextmanager
def _heard(run: Run) -> Iterator[None]:
    """Have the world hear of operations and releases; note what a listing had seen, and no silent release of a loss."""
    releases: dict[type[LockBase], Callable[[Any], None]] = {kind: kind.release for kind in (Lock, RLock)}

    def performed(perform: Callable[[Call, Any], Any], driver: Call, step: Any) -> Any:
        steps = step if type(step) is tuple else (step,)
        run.world.hear("+".join(type(each).__name__ for each in steps))
        if isinstance(step, WaitGone) and not step.asks and run.world.current is not None:
            run.world.current.waits_since = run.world.now
        answer = yield from perform(driver, step)
        run.world.hear("")
        if isinstance(step, WaitGone):
            answered = zip(step.reads, answer, strict=True) if answer else ()
        else:
            answered = zip(steps, answer if type(step) is tuple else (answer,), strict=True)
        for each, one in answered:
            if isinstance(each, Children):
                run.note_listing(each, one)
        return answer

    def released(lock: LockBase) -> None:
        hold = lock._lock_core.mine()
        run.world.hear("Release" if hold is None or hold.depth == 1 else "ReleaseOneLevel")
        hold = lock._lock_core.releasable()
        lost = hold is not None and (hold.ticket.state is State.LOST or run.world.now >= hold.ticket.lease.end)
        next(releases[kind] for kind in type(lock).__mro__ if kind in releases)(lock)
        if lost:
            raise Violation(f"the release of {hold} is silent, and it was lost")
        run.world.hear("")

    with ExitStack() as patches:
        heard = {kind: policy._replace(steps=partial(performed, policy.steps)) for kind, policy in POLICIES.items()}
        patches.enter_context(patch.dict(POLICIES, heard))
        for kind in releases:
            patches.enter_context(patch.object(kind, "release", released))
        yield


def _only_wake(client: ClientState, text: str, *args: object, **_: object) -> None:
    """Wake the keeper; an error of posted work, which the library only logs, is a bug."""
    if text.startswith("work posted"):
        raise Violation(text % args)
    client.wake_keeper()


@contextmanager
def quietly() -> Iterator[None]:
    """Show no warnings of the library, and collect no garbage: a dropped object must go at once, or not.

    Long waits are not reported, as a report would read from the servers. No warning is left to the thread that logs.
    Keepers take no more turns while a watch lingers: most steps would be theirs, and few faults would meet a call.
    """
    log, waits = logging.getLogger("zkconcurrent"), logging.getLogger("zkconcurrent.waits")
    collects = gc.isenabled()
    gc.disable()
    try:
        with (
            warnings.catch_warnings(),
            patch.object(log, "disabled", True),
            patch.object(waits, "disabled", True),
            patch.object(ClientState, "warn_later", _only_wake),
            patch.object(watch_removals, "LINGER", 2 * IDLE_BEAT),
        ):
            warnings.simplefilter("ignore", ResourceWarning)
            yield
    finally:
        if collects:
            gc.enable()
