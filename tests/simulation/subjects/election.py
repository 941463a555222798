"""Elections in the simulation: threads that lead, publish, stand in the background, withdraw, ask and observe."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple, TypeAlias

from tests.models import election as models
from tests.simulation.world.calls import CallChecks, CallRun, CallWorker, lagging
from tests.simulation.world.ensemble import Transport, removed_by
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import Schedule, random_schedule
from tests.simulation.world.workload import Section
from tests.simulation.world.world import Violation
from zkconcurrent._arguments.paths import ancestors
from zkconcurrent._engine.holds import Hold
from zkconcurrent._errors import ClientError, LockLostError
from zkconcurrent._memory import changes
from zkconcurrent._memory.server_watches import CHILDREN_WATCH
from zkconcurrent._protocol.blocking_rules import MUTEX
from zkconcurrent._protocol.ticket import State
from zkconcurrent._threads.base.candidacy import Candidate, LeaderLock
from zkconcurrent._threads.election import Election, Term

PATH = "/app/e"
NOT_HERE = {"number": "lag", "clog": "lag"}
STRANGER = f"{CHROOT}{PATH}/_c_{'0' * 36}-lock-2147483640"
Line: TypeAlias = tuple[tuple[str, bytes], ...]
"""The nodes of an election, by their paths, with their data."""


class Act(NamedTuple):
    """The action of a thread.

    Attributes:
        what: "lead", "stand", "withdraw", "leader", "candidates", "observe" or "sleep".
        wait: how long to wait to lead, in seconds: None for ever.
        stay: how long to stay, or to sleep.
        times: how many times it publishes while it leads, or observes.
        leave: after "stand", whether it withdraws.
    """

    what: str
    wait: float | None = None
    stay: float = 0.0
    times: int = 0
    leave: bool = False


def as_logged(candidate: Candidate | None) -> tuple[str, bytes] | None:
    """Return a candidate as the log has it."""
    return None if candidate is None else (CHROOT + candidate.node, candidate.data)


class ElectionChecks(CallChecks):
    """The invariants of an election, beside those of any lock."""

    model = models.Election()
    piecemeal = ("candidates", "stand", "await", "withdraw")
    workers: list[ElectionWorker]  # type: ignore[assignment]

    def state(self, before: Line | None, step: changes.Step) -> Line:
        """Return the nodes after a step of a change, the leader first."""
        line = dict(before or ())
        if isinstance(step, changes.Made | changes.Written) and step.path.startswith(f"{self.path}/"):
            line[step.path] = step.data
        for path in removed_by(step):
            line.pop(path, None)
        return tuple(sorted(line.items(), key=lambda each: MUTEX.key(each[0])))

    def quiet(self) -> None:
        """Nobody sleeps who has a term, or a change to see; and an observer has a watch."""
        super().quiet()
        if self.faults():
            return
        for process in self.processes:
            state = process.session.directory.get(PATH) if process.alive else None
            ended = None if state is None else state.candidacy
            if ended is not None and ended.over and not ended.withdrawn and not process.client._stopped.is_set():
                raise Violation(f"the candidacy of {process.name} has ended by itself: {ended.error!r}")
            hold = None if ended is None else ended.hold
            if hold is not None and hold.ticket.state is State.LOST and hold.loss.is_lost:
                raise Violation(f"the candidacy of {process.name} does not know that {hold.ticket} is lost")
        for worker in self.workers:
            process, call = worker.process, worker.call
            wire = process.connection.wire
            if call is None or not process.alive or wire is None or worker.actor.ready or wire.session.closed:
                continue
            if not process.client.connected or process.client._queue:
                continue
            if call.what == "await":
                candidacy = worker.leader_lock._path_state.candidacy
                hold = None if candidacy is None else candidacy.hold
                if hold is not None and hold.alive and not process.session.suspect:
                    raise Violation(f"{worker.name} waits for a term, and there is {hold.ticket}")
            elif call.what == "observe" and STRANGER not in self.ensemble.leader.nodes:  # others come in front of it
                if self.entitled(worker):
                    raise Violation(f"{call} waits, and the leader has changed")
                self._watched(worker, wire)

    def _watched(self, worker: ElectionWorker, wire: Transport) -> None:
        line = self.modelled(len(self.ensemble.log))[-1]
        if self.path not in wire.server.nodes:
            watched = wire.watches(self.path)
        else:
            watched = wire.watches(line[0][0]) if line else wire.watches(self.path, CHILDREN_WATCH)
        if not watched:
            raise Violation(f"{worker.name} observes without a watch")


class ElectionWorker(CallWorker):
    """A thread that takes part in an election.

    Attributes:
        leader_lock: the lock of the election.
    """

    checks: ElectionChecks
    leader_lock: LeaderLock
    published = 0

    def _visit(self, act: Act) -> None:  # type: ignore[override]
        if act.what == "sleep":
            self.world.sleep(act.stay)
            return
        if act.what == "withdraw":
            self._withdraw()
            return
        election = self._election()
        if act.what == "lead":
            self._lead(election, act)
        elif act.what == "stand":
            self._stand(election, act)
        elif act.what == "observe":
            self._observe(election, act)
        else:
            self._ask(election, act)

    def _election(self) -> Election:
        election = Election(self.process.client, PATH, id=self.process.name)
        self.leader_lock = election._leader_lock
        return election

    def _ask(self, election: Election, act: Act) -> None:
        with self.calling(act.what) as call:
            if act.what == "leader":
                call.outcome = as_logged(election.leader())
            else:
                line = [as_logged(each) for each in election.candidates()]
                lines = self.checks.states(call.begun)
                there = {each for state in lines for each in state or ()}
                if not set(line) <= there:
                    raise Violation(f"{self.name} is told of {line}: {lines}")

    def _observe(self, election: Election, act: Act) -> None:
        leaders, seen = election.observe(), None
        for _ in range(act.times):
            with self.calling("observe", None, seen) as call:
                call.outcome = as_logged(next(leaders))
            seen = (call.outcome,)

    def _lead(self, election: Election, act: Act) -> None:
        section: Section | None = None
        try:
            with election.lead(act.wait) as term:
                section = self._enter(self.leader_lock)
                try:
                    for _ in range(act.times):
                        self._publish(term)
                    self.world.sleep(act.stay)
                finally:
                    self._exit(section)
        except TimeoutError:
            self.world.say("is not elected in time")
        except LockLostError:
            if section is None:
                raise  # each loss was settled
            self._check_lost(self.leader_lock, section)
        except ClientError:
            raise
        except RuntimeError as error:
            if "stands at" not in str(error):
                raise
        else:
            assert section is not None
            section.left = True
        finally:
            if section is not None:  # an interrupt in __exit__ leaves it to us, as with every `with`
                self._settle(self.leader_lock)

    def _publish(self, term: Term) -> None:
        self.published += 1
        data = f"{self.name} {self.published}".encode()
        ticket = term._hold.ticket
        with self.calling("publish", None, CHROOT + ticket.node, data) as call:
            try:
                term.publish(data)
            except LockLostError:
                self._lost(term._hold)
                raise
            call.outcome = None

    def _lost(self, hold: Hold) -> None:
        if hold.ticket.state is not State.LOST:
            raise Violation(f"{hold.ticket} is said to be lost, and is not")

    def _stand(self, election: Election, act: Act) -> None:
        with self.calling("stand"):
            election.stand()
        with self.calling("await", act.wait) as call:
            candidacy = self.leader_lock._path_state.candidacy
            term = election.wait(act.wait)
            if term is None:
                ended = candidacy is None or candidacy.withdrawn
                if not ended and (act.wait is None or self.world.now < call.began + act.wait):
                    raise Violation(f"{self.name} gave up waiting after {self.world.now - call.began:g} s")
                return
        if term._hold.ticket not in self.checks.seen:
            raise Violation(f"{self.name} has a term that was never granted")
        try:
            for _ in range(act.times):
                self._publish(term)
        except ClientError:
            raise
        except LockLostError:
            self.world.say("is told that its term is lost")
        except RuntimeError as error:  # another thread has withdrawn
            if "has ended" not in str(error):
                raise
        self.world.sleep(act.stay)
        if act.leave:
            self._withdraw_once(election)
            if not term.lost.is_set():
                raise Violation(f"{self.name} has withdrawn, and its term is not told")

    def _withdraw_once(self, election: Election) -> None:
        patience = self.process.session.timeout / 3
        with self.calling("withdraw") as call:
            election.withdraw()
        if self.world.now >= call.began + patience > 0 and self.checks.healthy(self, call.began):
            raise Violation(f"{self.name}: to withdraw took {self.world.now - call.began:g} s")

    def _withdraw(self) -> None:
        """Withdraw, also after an interrupt: the candidacy would last as long as the client."""
        interrupted = False
        while True:
            try:
                self._withdraw_once(self._election())
                break
            except KeyboardInterrupt:
                interrupted = True
        if interrupted:
            raise KeyboardInterrupt


class ElectionRun(CallRun):
    """A run of such workers."""

    path = PATH
    worker = ElectionWorker
    invariants = ElectionChecks
    checks: ElectionChecks

    def rescue(self) -> None:
        """Let those go who observe and would wait for ever: let another lead for a while where nobody does."""
        nodes = self.ensemble.leader.nodes
        publishing = any(
            each.call is not None and each.call.what == "publish" and each.process.alive for each in self.workers
        )
        if publishing:
            return
        for above in (*ancestors(CHROOT + PATH), CHROOT + PATH):  # an observer alone makes no node
            if above not in nodes:
                self.ensemble.ask(0, changes.Create(above, container=True))
        line = self.checks.modelled(len(self.ensemble.log))[-1]
        if STRANGER in nodes:
            self.ensemble.ask(0, changes.Delete(STRANGER))
        elif not line:
            self.ensemble.ask(0, changes.Create(STRANGER))
        else:
            self.ensemble.ask(0, changes.SetData(line[0][0], line[0][1] + b"!"))


def random_acts(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    acts: list[Any] = [
        [(start, [*(_act(random) for _ in range(random.randint(1, 3))), Act("withdraw")]) for start, _ in process]
        for process in threads
    ]
    return Schedule(acts, lagging(random, deviations, NOT_HERE))


def _act(random: Random) -> Act:
    what = random.choice(("lead", "lead", "lead", "stand", "stand", "leader", "candidates", "observe", "sleep"))
    if what == "sleep":
        return Act(what, stay=random.choice((0.05, 0.3, 1.0, 3.0)))
    if what == "observe":
        return Act(what, times=random.choice((1, 2, 3)))
    wait = random.choice((None, None, None, 0.0, 0.05, 1.0, 3.0))
    stay = random.choice((0.0, 0.05, 1.0, 3.0, 7.0))
    return Act(what, wait, stay, random.choice((0, 0, 1, 2)), random.random() < 0.5)
