"""Queues in the simulation: threads that put, get, claim, acknowledge and give back.

The ensemble's log is the truth: every item has a content of its own, so it tells which calls have put and taken it.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from tests.simulation.checks.invariants import Checks
from tests.simulation.world.calls import Call, CallChecks, CallWorker, LossyRun
from tests.simulation.world.ensemble import Transport, removed_by
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import LENGTHS, TIMEOUT, Deviation, Schedule, random_schedule
from tests.simulation.world.world import Violation
from zkconcurrent._engine.call import CLOCK_POLL_INTERVAL
from zkconcurrent._engine.client_state import UNANSWERED
from zkconcurrent._errors import ClientError, LockLostError, OutcomeUnknownError
from zkconcurrent._memory import changes
from zkconcurrent._memory.server_watches import CHILDREN_WATCH
from zkconcurrent._protocol.blocking_rules import MUTEX, blocker
from zkconcurrent._protocol.ticket import Ticket
from zkconcurrent._recipes.queue.order import delayed_prefix, due, frame, milliseconds, number, unframe
from zkconcurrent._threads.base.queue_base import Empty, Full
from zkconcurrent._threads.queue import DelayQueue, LifoQueue, Queue

PATH = "/app/q"
ITEMS, CLAIMS, DEAD = f"{CHROOT}{PATH}/items/", f"{CHROOT}{PATH}/claims/", f"{CHROOT}{PATH}/dead/"
NOT_HERE = {"number": "turn"}


class Failed(Exception):
    """The error that the block of a claim raises."""


class Struck(Exception):
    """The error that a signal handler raises, such as one of an alarm."""


class Step(NamedTuple):
    """The action of a thread.

    It is "put", "get", "claim" (and acknowledge), "fail" (claim and give back), "qsize", "destroy" or "sleep".

    Attributes:
        seconds: its timeout; 0 for no wait, None for ever.
        stay: how long a claim is kept.
        delay: in how many seconds an item is due.
    """

    what: str
    seconds: float | None = None
    stay: float = 0.0
    delay: float = 0.0


class Steps(NamedTuple):
    """The steps of a thread, and their queue."""

    kind: type[Queue[bytes]]
    maxsize: int
    most: int | None
    steps: list[Step]


class QueueChecks(CallChecks):
    """The invariants of a queue.

    Attributes:
        put: the items that a `put` has acknowledged.
        refused: those whose `put` has said that they were not put.
        taken: those that `get` has returned or whose claim was acknowledged.
        excused: those whose taker can't say whether it has taken them.
        held: the items that each thread has claimed and neither acknowledged nor given back.
        overlapping: the calls that take an item while another does.
        outlive: called once, with a thread that keeps a claim for long.
        maxsize: the queue's.
        destroyed: the items that a call of `destroy` has deleted.
        destroys: some call has begun to.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.put: dict[bytes, None] = {}
        self.refused: set[bytes] = set()
        self.taken: dict[bytes, str] = {}
        self.excused: set[bytes] = set()
        self.held: dict[Any, Any] = {}
        self.overlapping: set[Call] = set()
        self.outlive: Any = None
        self.maxsize = 0
        self.destroyed: set[bytes] = set()
        self.destroys = False
        self.newest_first = False
        self.timed = False
        self.created: dict[bytes, list[str]] = {}
        self.names: dict[str, bytes] = {}  # the items that are there
        self.claimed: dict[str, None] = {}
        self.ever: set[str] = set()  # claimed
        self.since: dict[str, int] = {}
        self.due: dict[bytes, str] = {}  # how the names of delayed items begin
        self.opened: dict[int, Any] = {}  # the process of each session
        self._read = 0

    def step(self) -> None:
        """Follow the log."""
        super().step()
        for process in self.processes:
            if process.connection.wire is not None:
                self.opened[process.connection.wire.session.number] = process
        calls = [each.call for each in self.workers if each.call is not None and each.call.what in TAKES]
        if not self.overlapping.issuperset(calls) and (len(calls) > 1 or self.settling()):
            self.overlapping.update(calls)
        for length, step in self.ensemble.steps(self._read):
            self._read = length
            if isinstance(step, changes.Made):
                if step.path.startswith(ITEMS):
                    self._came(step.path.removeprefix(ITEMS), step.data)
                elif step.path.startswith(CLAIMS):
                    self._claim(step.path.removeprefix(CLAIMS), step.owner)
            elif isinstance(step, changes.Removed) and step.path.startswith(ITEMS):
                self._went(step.path.removeprefix(ITEMS))
            for path in removed_by(step):
                self.claimed.pop(path.removeprefix(CLAIMS), None)
        self._look_at_claims()

    def _look_at_claims(self) -> None:
        """While its session lives, a claim is its consumer's alone, unless an operator has deleted it."""
        nodes = self.ensemble.leader.nodes
        for worker, taken in self.held.items():
            path = CLAIMS + taken.name
            # Since the claim was made: its thread may learn of it only after that.
            removed = self.ensemble.zxid(self.removed.get(path, 0)) > taken.token
            over = self.ensemble.sessions[taken.session].closed or removed
            if over or not worker.process.alive:
                continue
            node = nodes.get(path)
            if node is None or node.owner != taken.session:
                raise Violation(f"{worker.name} has claimed {taken}, and the claim is {node and node.owner}")

    def _came(self, name: str, data: bytes) -> None:
        (content,), _ = unframe(name, data)
        self.names[name] = content
        self.ever.discard(name)  # one of a queue that was destroyed
        self.since[name] = self._read
        names = self.created.setdefault(content, [])
        if name not in names:
            names.append(name)
        if len(names) > 1:
            raise Violation(f"{content!r} was put twice: {names}")
        if not name.startswith(self.due.get(content, "")):
            raise Violation(f"{content!r} is {name}, and should be due at {self.due[content]}")
        if content in self.refused:
            raise Violation(f"{content!r} was put, and its put has said that it was not")
        if 0 < self.maxsize < len(self.names):
            raise Violation(f"{len(self.names)} items are in a queue of {self.maxsize}")

    def _went(self, name: str) -> None:
        if name in self.claimed:
            raise Violation(f"{name} is taken, and another consumer has claimed it")
        content = self.names.pop(name)
        if self.destroys:
            self.excused.add(content)
            if name not in self.ever:
                self.destroyed.add(content)

    def _claim(self, name: str, session: int) -> None:
        if name not in self.names:
            raise Violation(f"{name} is claimed, and is not there")
        if self.timed:
            self._is_due(name, session)
        self.claimed[name] = None
        takers = [worker for worker in self.workers if worker.call is not None and worker.call.what in TAKES]
        # Of several takers, and of their threads that settle what was interrupted, any may be first.
        if len(takers) == 1 and takers[0].call not in self.overlapping:
            call = takers[0].call
            assert call is not None
            for other in self.names:
                ahead = number(other) > number(name) if self.newest_first else self._key(other) < self._key(name)
                known = self.since[other] <= call.begun and other not in self.ever and other not in self.claimed
                if ahead and known:
                    raise Violation(f"{name} is taken before {other}")
        self.ever.add(name)

    def _key(self, name: str) -> tuple[int, int]:
        return due(name) if self.timed else 0, number(name)

    def _is_due(self, name: str, session: int) -> None:
        """No consumer takes an item before it is due by that consumer's clock."""
        process = self.opened[session]
        if milliseconds(process.read) < due(name):
            raise Violation(f"{process.name} takes {name} at {process.read:g}, before it is due")

    def overdue(self, process: Any) -> list[str]:
        """Return the free items that a consumer of that process should take, unless its clock was set just now."""
        if not self.timed:
            return self.free
        if self.world.now <= process.set_at + CLOCK_POLL_INTERVAL + 0.01:
            return []
        now = milliseconds(self.world.now + process.ahead - 0.01)
        return [name for name in self.free if due(name) <= now]

    def settling(self) -> bool:
        """Whether a thread has something to settle."""
        return any(
            process.alive and any(state._left for state in list(process.session.directory.values()))
            for process in self.processes
        )

    def took(self, content: bytes, who: str) -> None:
        """Take note of an item that was taken for good."""
        if content in self.taken:
            raise Violation(f"{content!r} was taken twice: by {self.taken[content]} and {who}")
        if content in self.destroyed:
            raise Violation(f"{who} takes {content!r}, which was destroyed with its queue")
        self.taken[content] = who

    @property
    def free(self) -> list[str]:
        """The items that are not claimed."""
        return [name for name in self.names if name not in self.claimed]

    def wrote(self, call: Call, step: changes.Step) -> None:
        """Take note of a step of a change that a call has made."""
        call.wrote.append((len(self.ensemble.log), step))

    def state(self, before: Any, step: changes.Step) -> Any:
        """Nothing is asked of it."""
        raise NotImplementedError

    def _waits(self, wire: Transport, ticket: Ticket, name: str, names: list[str]) -> None:
        if blocker(name, names, MUTEX):
            super()._waits(wire, ticket, name, names)
            return
        self.step()
        consumes = ticket.path.endswith("consumers")
        process = next(each for each in self.processes if each.connection.wire is wire)
        if consumes and (late := self.overdue(process)):
            raise Violation(f"{ticket} waits for an item, and there is {late}")
        if not consumes and len(self.names) < self.maxsize:
            raise Violation(f"{ticket} waits for a place, and there are {len(self.names)} items of {self.maxsize}")
        if not wire.watches(ITEMS[:-1], CHILDREN_WATCH):
            raise Violation(f"{ticket} waits without a watch on the items")
        if consumes and self.claimed and not wire.watches(CLAIMS[:-1], CHILDREN_WATCH):
            raise Violation(f"{ticket} waits without a watch on the claims")

    def quiet(self) -> None:
        """A contender waits only where it should; one that does not keeps its run from its end, too."""
        Checks.quiet(self)

    def end(self) -> None:
        """Nothing is lost, and nothing is left but what was put, the receipts and the empty folders."""
        super().end()
        self.step()
        if self.settling():
            raise Violation("something is left to be settled")
        there = set(self.names.values())
        buried = {
            content
            for path, node in self.ensemble.leader.nodes.items()
            if path.startswith(DEAD)
            for content in unframe(path, node.data)[0]
        }
        if again := (there | buried) & set(self.taken):
            raise Violation(f"taken, and still there: {again}")
        if both := there & buried:
            raise Violation(f"dead, and still there: {both}")
        if lost := set(self.put) - there - buried - set(self.taken) - self.excused:
            raise Violation(f"lost: {lost}")
        if missing := set(self.put) - set(self.created):
            raise Violation(f"never put: {missing}")


TAKES = ("get", "claim", "fail")


class QueueWorker(CallWorker):
    """A thread that uses a queue."""

    checks: QueueChecks
    queue: Queue[bytes] | None = None
    number = 0

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self.queue = None  # the last one that uses it drops it

    def _visit(self, steps: Steps) -> None:  # type: ignore[override]
        for step in steps.steps:
            try:
                if step.what == "sleep":
                    self.queue = None  # the last one of its process leaves its receipts to the next
                    self.world.sleep(step.seconds or 0.0)
                    continue
                if self.queue is None:
                    self.queue = steps.kind(self.process.client, PATH, steps.maxsize, max_attempts=steps.most)
                self._do(step)
            except (KeyboardInterrupt, Struck):
                self.world.say("is interrupted")

    def _do(self, step: Step) -> None:
        queue, checks = self.queue, self.checks
        assert queue is not None
        if step.what == "qsize":
            with self.calling("qsize"):
                queue.qsize()
        elif step.what == "destroy":
            checks.destroys = True
            with self.calling("destroy"), suppress(RuntimeError):  # another client uses it
                queue.destroy()
        elif step.what == "put":
            self._put(queue, step)
        elif step.what == "get":
            with self.calling("get", self._limit(step)) as call:
                try:
                    content = queue.get(*_arguments(step.seconds))
                except Empty:
                    self._gave_up(call, step)
                except (ClientError, OutcomeUnknownError):
                    checks.step()
                    checks.excused |= set(checks.put)  # its client is stopped, and it was about to return one
                    raise
                else:
                    checks.took(content, self.name)
        else:
            self._claim(queue, step)

    def _put(self, queue: Queue[bytes], step: Step) -> None:
        self.number += 1
        content, checks = f"{self.name} {self.number}".encode(), self.checks
        with self.calling("put", self._limit(step)) as call:
            try:
                self._put_item(queue, content, step)
            except Full:
                checks.step()
                if content in checks.created:
                    raise Violation(f"{content!r} was put, and its put says that it was not") from None
                checks.refused.add(content)
                self._gave_up(call, step)
            except OutcomeUnknownError:
                self._gave_up(call, step)
            else:
                checks.put[content] = None
                checks.step()
                if content not in checks.created:
                    raise Violation(f"{content!r} was not put, and its put says that it was")

    def _put_item(self, queue: Queue[bytes], content: bytes, step: Step) -> None:
        if not isinstance(queue, DelayQueue):
            queue.put(content, *_arguments(step.seconds))
            return
        self.checks.due[content] = delayed_prefix(self.process.wall_clock(), step.delay)
        queue.put(content, *_arguments(step.seconds), delay=step.delay)

    def _claim(self, queue: Queue[bytes], step: Step) -> None:
        claim = queue.claim(*_arguments(step.seconds))
        acknowledging = False
        with self.calling(step.what, self._limit(step)) as call:
            try:
                claim.__enter__()
            except Empty:
                self._gave_up(call, step)
                return
        taken = claim._taken
        assert taken is not None
        if taken.session:
            if taken.token in [other.token for other in self.checks.held.values()]:
                raise Violation(f"{self.name} has claimed {taken}, and another thread has that claim")
            self.checks.held[self] = taken
        if step.stay > TIMEOUT and self.checks.outlive is not None:
            self.checks.outlive(self)
        try:
            self.world.sleep(step.stay)
            if step.what == "fail":
                raise Failed
            acknowledging = True
            self.checks.held.pop(self, None)
            with self.calling("acknowledge"):
                claim.__exit__(None, None, None)
            self.checks.took(claim.item, self.name)
        except LockLostError:
            self.world.say("is told that its claim is lost")
        except BaseException as error:
            self.checks.held.pop(self, None)
            if acknowledging:
                self.checks.excused.add(claim.item)
                raise
            try:
                with self.calling("give back"):
                    claim.__exit__(type(error), error, None)
            except ClientError:
                pass
            if not isinstance(error, Failed):
                raise

    def _limit(self, step: Step) -> float | None:
        """Return how long a call may take: a change that is under way at the deadline gets its reply."""
        return None if step.seconds is None else step.seconds + (self.process.session.timeout or UNANSWERED) / 3

    def _gave_up(self, call: Call, step: Step) -> None:
        if step.seconds is None or self.world.now < call.began + step.seconds:
            raise Violation(f"{self.name} gave up waiting after {self.world.now - call.began:g} s")


def _arguments(seconds: float | None) -> tuple[bool, float | None]:
    return (False, None) if seconds == 0 else (True, seconds)


class QueueRun(LossyRun):
    """A run of such workers."""

    path = PATH
    worker = QueueWorker
    invariants = QueueChecks
    spared = ("put",)
    checks: QueueChecks

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        first: Any = schedule.threads[0][0][1][0]
        self.checks.maxsize = first.maxsize
        self.checks.newest_first = first.kind is LifoQueue
        self.checks.timed = first.kind is DelayQueue
        self._rescued = 0

    def what_strikes(self, it: Deviation) -> BaseException:
        """Return what a signal handler raises: one of the two."""
        return Struck() if it.which // 2 % 2 else KeyboardInterrupt()

    def rescue(self) -> None:
        """Give a waiter an item, or a place for one, as a process that is not of the run."""
        checks = self.checks
        if ITEMS[:-1] not in self.ensemble.leader.nodes:
            return
        checks.step()
        waiting = [worker.call.what for worker in self.workers if worker.call is not None and worker.process.alive]
        # The first of the producers goes by a listing that may be old, as no other client puts an item meanwhile.
        producing = self.ensemble.leader.children(f"{CHROOT}{PATH}/producers")
        if (
            any(what in TAKES for what in waiting)
            and not any(checks.overdue(process) for process in self.processes if process.alive)
            and (not checks.maxsize or (len(checks.names) < checks.maxsize and not producing))
        ):
            self._rescued += 1
            prefix = delayed_prefix(self.world.now - 60.0, 0.0) if checks.timed else "queue-"
            data = frame([b"rescue %d" % self._rescued])
            self.ensemble.ask(0, changes.Create(ITEMS + prefix, data, flags=changes.SEQUENTIAL))
        elif ("put" in waiting or checks.settling()) and 0 < checks.maxsize <= len(checks.names) and checks.free:
            name = checks.free[0]
            checks.taken[checks.names[name]] = "the rescue"
            self.ensemble.ask(0, changes.Delete(ITEMS + name))

    def _look_for_the_end(self) -> None:
        super()._look_for_the_end()
        self.rescue()  # an item may wait for a place, to be put back, that no thread gives any more

    def _kill(self, it: Deviation) -> bool | None:
        """Kill a process; the results that its calls were about to return are lost."""
        alive = [process for process in self.processes if process.alive]
        killed = super()._kill(it)
        for worker in self.workers:
            if worker.process in alive and not worker.process.alive and worker.call is not None:
                self._excuse(worker)
        for process in alive:
            if not process.alive and any(state._left for state in list(process.session.directory.values())):
                self.checks.excused |= set(self.checks.created)
        return killed

    def _set_clock(self, it: Deviation) -> bool:
        """Set the wall clock of a process, forward or back."""
        process = self._process(it)
        if process is None:
            return False
        process.ahead = LENGTHS[it.length] * (-1 if it.which // 4 else 1)
        process.set_at = self.world.now
        self.world.say(f"the clock of {process.name} is now ahead by {process.ahead:g}")
        return True

    def _excuse(self, worker: Any) -> None:
        self.checks.step()
        call = worker.call
        gone = {
            content
            for content, names in self.checks.created.items()
            if any(ITEMS + name in removed_by(step) for _, step in call.wrote for name in names)
        }
        self.checks.excused |= gone | set(self.checks.names.values())  # its request may be under way

    def _outlive(self, _: Deviation) -> None:
        """End the session of the next claim that is kept for long, two seconds later."""

        def outlive(worker: Any) -> None:
            self.checks.outlive = None
            wire = worker.process.connection.wire
            if wire is not None:
                self.world.at(self.world.now + 2.0, lambda: wire.session.closed or self._end_session(wire.session))

        self.checks.outlive = outlive

    def _part(self, _: Deviation) -> None:
        """End the session of the first process, in four seconds."""

        def part() -> None:
            wire = self.processes[0].connection.wire
            if wire is not None and not wire.session.closed:
                self._end_session(wire.session)

        self.world.at(self.world.now + 4.0, part)

    def _purge(self, _: Deviation) -> None:
        """Have an operator delete all items with their parent, in four seconds."""

        def purge() -> None:
            self.checks.destroys = True
            for path in [ITEMS + name for name in self.checks.names] + [ITEMS[:-1]]:
                if path in self.ensemble.leader.nodes:
                    self.ensemble.ask(0, changes.Delete(path))

        self.world.at(self.world.now + 4.0, purge)


def random_steps(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    kind = random.choice((Queue, Queue, Queue, LifoQueue))
    maxsize = random.choice((0, 0, 1, 2))
    most = random.choice((None, None, 1, 2))
    steps: list[Any] = [
        [
            (start, [Steps(kind, maxsize, most, [_step(random) for _ in range(random.randint(2, 6))])])
            for start, _ in process
        ]
        for process in threads
    ]
    kinds = [random.choices((None, "lose", "strike", "close", "remove"), (6, 3, 2, 1, 1))[0] for _ in deviations]
    if seed % 8 == 5:  # a claim that outlives its session, as another process claims its item
        late = [Step(random.choice(("claim", "claim", "fail")), None, 7.0)]
        steps = [
            [(0.0, [Steps(kind, 0, None, [Step("put", None), late[0], Step("get", 1.0)])])],
            [(1.0, [Steps(kind, 0, None, [Step("claim", None, 7.0), Step("put", None)])])],
        ]
        deviations.insert(0, Deviation(1, "outlive", 0, 0))
        kinds.insert(0, None)
    chosen = [kind or NOT_HERE.get(each.kind, each.kind) for kind, each in zip(kinds, deviations, strict=True)]
    return Schedule(steps, [each._replace(kind=kind) for kind, each in zip(chosen, deviations, strict=True)])


def _step(random: Random) -> Step:
    what = random.choice(("put", "put", "put", "put", "get", "get", "claim", "claim", "fail", "sleep", "qsize"))
    if what == "sleep":
        return Step(what, random.choice((0.05, 0.3, 1.0, 3.0)))
    seconds = random.choice((None, None, None, 0.0, 0.05, 1.0, 3.0))
    return Step(what, seconds, random.choice((0.0, 0.0, 0.3, 1.0, 7.0, 7.0)))


def random_delays(seed: int) -> Schedule:
    """Return a random schedule of a seed, of a queue of delayed items and of clocks that are set."""
    schedule, random = random_steps(seed), Random(-1 - seed)
    delays, clocks = (0.0, 0.0, 0.3, 1.0, 3.0, 7.0), random.choice((0.0, 0.0, 0.3))
    threads: list[Any] = [
        [
            (
                start,
                [
                    Steps(
                        DelayQueue,
                        visit.maxsize,
                        visit.most,
                        [each._replace(delay=random.choice(delays) * (each.what == "put")) for each in visit.steps],
                    )
                    for visit in visits
                ],
            )
            for start, visits in process
        ]
        for process in schedule.threads  # type: ignore[assignment]
    ]
    deviations = [each._replace(kind="set_clock") if random.random() < clocks else each for each in schedule.deviations]
    return schedule._replace(threads=threads, deviations=deviations)


def random_destroys(seed: int) -> Schedule:
    """Return a random schedule of a seed, of a queue that is destroyed and made anew, while a client knows the old one.

    Either that client destroys it itself, or another one does, after the session of the first has ended.
    """
    random = Random(seed)
    kind, own = random.choice((Queue, Queue, LifoQueue)), bool(random.randrange(2))
    putting, getting = [Step("put")], [Step("get", 1.0)]
    before, after = random.choice(((0.0, 8.0), (3.7, 0.7)))  # items that were read ahead are old by then, or not
    known = [*putting * random.randint(5, 9), Step("sleep", before), *getting * random.randint(1, 4)]
    anew = [Step("destroy"), *putting * random.randint(2, 9)]
    first = [*known, *(anew if own else [Step("sleep", after)]), *getting * random.randint(1, 9)]
    threads: list[Any] = [[(0.0, [Steps(kind, 0, None, first)])]]
    if not own:
        threads.append([(5.0 if after > 1.0 else 4.1, [Steps(kind, 0, None, anew)])])
    _, deviations, _ = random_schedule(random)
    chosen = [each for each in deviations if each.kind in ("turn", "late", "lag", "cut", "interrupt")][
        : random.randrange(3)
    ]
    return Schedule(threads, [Deviation(1, "part", 0, 0), *chosen] if not own else chosen)


def random_purges(seed: int) -> Schedule:
    """Return a random schedule of a seed, of a queue whose items are deleted with their parent as consumers wait."""
    random = Random(seed)
    kind = random.choice((Queue, LifoQueue))
    first = [Step("put"), *[Step("get")] * random.randint(2, 3)]
    later = [Step("put")] * random.randint(2, 4)
    threads: list[Any] = [
        [(0.0, [Steps(kind, 0, None, first)])],
        [(7.0, [Steps(kind, 0, None, later)])],
    ]
    _, deviations, _ = random_schedule(random)
    chosen = [each for each in deviations if each.kind in ("turn", "late", "lag", "cut")][: random.randrange(3)]
    return Schedule(threads, [Deviation(1, "purge", 0, 0), *chosen])
