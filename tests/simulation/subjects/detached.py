"""Detached locks in the simulation: threads of several owners, and ordinary locks, contend on one path.

The ensemble's log tells who holds: the first node of the queue, by its session or by its owner. A hold that an acquire
has returned may be ended by a release in its owner's name, a forced one with its token, or an operator, and by nothing
else. One that no acquire has returned must go by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from kazoo.protocol.serialization import Create2, Delete, Transaction

from tests.simulation.world.calls import Call, CallChecks, CallWorker, LossyRun, lagging
from tests.simulation.world.ensemble import Transport, removed_by
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import Deviation, Schedule, random_schedule
from tests.simulation.world.workload import SLACK, Visit
from tests.simulation.world.world import Violation
from zkconcurrent._engine.client_state import UNANSWERED
from zkconcurrent._errors import ClientError, LockLostError, WaitCancelledError
from zkconcurrent._memory import changes
from zkconcurrent._protocol.blocking_rules import MUTEX
from zkconcurrent._protocol.operations import Node
from zkconcurrent._protocol.ticket import State, Ticket
from zkconcurrent._threads import detached as _detached
from zkconcurrent._threads.base.contender import Contender
from zkconcurrent._threads.detached import DetachedLock

PATH = "/app/l"
NOT_HERE = {"number": "lag", "clog": "lag"}


class Act(NamedTuple):
    """The action of a thread.

    Attributes:
        what: "hold", "release" (a hold that it has not acquired), "force", "ask" or "sleep".
        owner: the owner's name.
        wait: how long to wait, in seconds: -1 for ever, 0 for a try.
        stay: how long to stay, or to sleep.
        leave: "release"; "with" (a block); "other" (another object of the owner releases); "force" (another ends it);
            "keep" (nobody does).
        shared: whether the object is that of all threads of the process.
        old: whether the token that is forced is an old one.
    """

    what: str
    owner: str = "x"
    wait: float = -1
    stay: float = 0.0
    leave: str = "release"
    shared: bool = False
    old: bool = False


class Entry(NamedTuple):
    """One node of the queue.

    Attributes:
        session: its session; 0 if it is persistent.
        owner: the owner's name, if any.
        token: the fencing token of its hold.
    """

    session: int
    owner: str | None
    token: int


class Moment(NamedTuple):
    """The queue between two changes: its nodes by name, and the name of the first, which holds."""

    line: dict[str, Entry]
    first: str | None

    @property
    def holder(self) -> Entry | None:
        """The one that holds."""
        return None if self.first is None else self.line[self.first]

    def held_by(self, owner: str) -> bool:
        """Return whether an owner holds."""
        return self.holder is not None and self.holder.session == 0 and self.holder.owner == owner

    def has(self, token: int) -> bool:
        """Return whether a detached hold with that token is there."""
        return any(entry.session == 0 and entry.token == token for entry in self.line.values())


class DetachedCall(Call):
    """A call of a detached lock.

    Attributes:
        worker: the thread that makes it.
        owner: the owner's name.
        token: of the hold that it is to end; None: of any.
    """

    worker: DetachedWorker
    owner: str
    token: int | None


class DetachedChecks(CallChecks):
    """The invariants of detached locks, beside those of any lock.

    Attributes:
        moments: the queue, after so many changes.
        confirmed: the tokens that an acquire has returned.
        ended: by which call each hold was ended; None: by nobody who was asked to.
        makers: by which call each persistent node was made.
        adopted: the tokens of holds whose node was replaced.
        top: the highest token so far.
    """

    workers: list[DetachedWorker]  # type: ignore[assignment]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.moments = [Moment({}, None)]
        self.confirmed: set[int] = set()
        self.ended: dict[int, DetachedCall | str | None] = {}
        self.makers: dict[int, DetachedCall | None] = {}
        self.made: dict[str, DetachedCall | None] = {}
        self.adopted: set[int] = set()
        self.top = 0

    def wrote(self, call: Call, change: tuple[Any, ...]) -> None:
        """Take note of nothing: `applied` does."""

    def entitled(self, worker: CallWorker) -> bool:  # noqa: ARG002
        """Nobody waits for a node that is another's; `_waits` looks."""
        return False

    def since(self, begun: int) -> list[Moment]:
        """Return all moments since the log had so much, that one included."""
        self.catch_up()
        return self.moments[begun:]

    def step(self) -> None:
        """No Lock is held while a detached one is."""
        self.catch_up()
        super().step()
        held = [entry for entry in self.moments[-1].line.values() if entry.session == 0]
        for process in self.processes if held else ():
            for ticket in process.session.registry.tickets.values() if process.alive else ():
                lives = ticket.state is State.HELD and self.world.now < ticket.lease.end
                if lives and not self.excused(ticket):
                    raise Violation(f"{ticket} is held, and so is {held}")

    def catch_up(self) -> None:
        """Look at the changes that no client has made, one by one."""
        while len(self.moments) <= len(self.ensemble.log):
            change = self.ensemble.log[len(self.moments) - 1]
            operated = any(isinstance(step, changes.Removed) and step.path in self.removed for step in change)
            self.applied(1, "operator" if operated else None)

    def applied(self, n: int, by: DetachedCall | str | None) -> None:
        """Look at n changes, which were applied in one step: by a call, an operator, or the library or service."""
        if not n:
            return
        before, line = self.moments[-1], dict(self.moments[-1].line)
        begun = len(self.moments) - 1
        for applied, step in self.ensemble.steps(begun):
            if applied > begun + n:
                break
            if isinstance(step, changes.Made) and step.path.startswith(f"{self.path}/"):
                name = step.path.removeprefix(f"{self.path}/")
                node = Contender.of(self.path, name, Node(step.data, self.ensemble.zxid(applied), 0.0, step.owner))
                line[name] = Entry(step.owner, node.owner, node.token)
                self.made[name] = None if isinstance(by, str) else by
            for path in removed_by(step):
                line.pop(path.removeprefix(f"{self.path}/"), None)
        after = Moment(line, min(line, key=MUTEX.key, default=None))
        self.moments += [after] * n
        self._compare(before, after, by)

    def _compare(self, before: Moment, after: Moment, by: DetachedCall | str | None) -> None:
        held = [name for name, entry in after.line.items() if entry.session == 0]
        if held not in ([], [after.first]):
            raise Violation(f"{held} hold, and the first is {after.first}: {list(after.line)}")
        holder = after.holder
        if holder is not None and after.first != before.first:
            if holder.token < self.top or (
                holder.token == self.top and (before.holder is None or before.holder.token != self.top)
            ):
                raise Violation(f"{holder} holds, after a token of {self.top}")
            self.top = holder.token
        for name, entry in before.line.items():
            if entry.session == 0 and not after.has(entry.token):
                self._ended(name, entry, by)
        if holder is not None and holder.session == 0 and after.first != before.first:
            if before.has(holder.token):
                self.adopted.add(holder.token)
            elif not isinstance(by, DetachedCall) or (by.what, by.owner) != ("acquire", holder.owner):
                raise Violation(f"{holder} holds, and was made by {by}")
            else:
                self.world.say(f"{holder.owner} HOLDS, token {holder.token}")
                self.makers[holder.token] = by

    def _ended(self, name: str, entry: Entry, by: DetachedCall | str | None) -> None:
        self.world.say(f"the hold of {entry.owner} has ended, token {entry.token}")
        self.ended[entry.token] = by
        if isinstance(by, DetachedCall):
            if by.what == "force" and by.token == entry.token:
                return
            if by.what == "release" and by.owner == entry.owner and by.token in (None, entry.token):
                return
        if by != "operator" and entry.token in self.confirmed:
            what = f"{by.what} for {by.owner} of {by.token}" if isinstance(by, DetachedCall) else by
            raise Violation(f"{name}, which is held by {entry.owner}, token {entry.token}, was ended by {what}")

    def confirm(self, call: DetachedCall, token: int) -> None:
        """Take note that an acquire has returned a hold."""
        if not any(each.held_by(call.owner) and each.has(token) for each in self.since(call.begun)):
            raise Violation(f"{call.worker.name} has acquired for {call.owner}, token {token}, and nobody held that")
        by = self.ended.get(token)
        if token in self.ended and (by is None or (isinstance(by, DetachedCall) and by.what == "acquire")):
            raise Violation(f"{call.worker.name} has acquired for {call.owner}, token {token}, which was given up")
        self.confirmed.add(token)

    def excused(self, ticket: Ticket) -> bool:
        """Whether an operator took the node away while it was the first, so that its process can't know yet."""
        removed = self.removed.get(CHROOT + ticket.node)
        if removed is None:
            return False
        if ticket.handed_over and removed > self.listed.get(ticket, 0):
            return True
        self.catch_up()
        return self.moments[removed - 1].first == ticket.name

    def quiet(self) -> None:
        """No owner waits for itself."""
        super().quiet()
        if self.faults():
            return
        self.catch_up()
        now = self.moments[-1]
        for process in self.processes:
            wire = process.connection.wire
            if not process.alive or wire is None or not process.client.connected or process.client._queue:
                continue
            for ticket in process.session.registry.tickets.values():
                mine = now.line.get(ticket.name or "")
                if mine is None or mine.owner is None or not ticket.awaits or ticket.changed:
                    continue
                ahead = now.line.get(ticket.awaits[0].rpartition("/")[2])
                if ahead is not None and ahead.session == 0 and ahead.owner == mine.owner:
                    raise Violation(f"{ticket} waits for {mine.owner}, who holds")

    def may_stay(self, token: int) -> bool:
        """Whether a hold needs not go by itself: an acquire has returned it, or its process can't end it any more."""
        maker = self.makers[token]
        if token in self.confirmed or token in self.adopted or maker is None:
            return True
        process = maker.worker.process
        return not process.alive or process.client._stopped.is_set()

    def end(self) -> None:
        """No hold is left that no acquire has returned."""
        super().end()
        self.catch_up()
        for name, entry in self.moments[-1].line.items():
            if not self.may_stay(entry.token):
                raise Violation(f"left at the server: {name}, of {entry.owner}, which no acquire has returned")


class DetachedWorker(CallWorker):
    """A thread that uses detached locks; or `Lock`s, if that is what its process uses.

    Attributes:
        objects: the locks that the threads of a process share.
    """

    checks: DetachedChecks
    call: DetachedCall | None  # type: ignore[assignment]
    objects: dict[tuple[str, str], DetachedLock]

    @contextmanager
    def asking(self, what: str, owner: str, token: int | None = None) -> Iterator[DetachedCall]:
        """Make a call within the block."""
        with self.calling(what) as call:
            call.__class__ = DetachedCall
            assert isinstance(call, DetachedCall)
            call.worker, call.owner, call.token = self, owner, token
            yield call

    def _visit(self, act: Visit | Act) -> None:  # type: ignore[override]
        if isinstance(act, Visit):
            super()._visit(act)
        elif act.what == "sleep":
            self.world.sleep(act.stay)
        elif act.what == "hold":
            self._hold(act)
        else:
            lock = DetachedLock(self.process.client, PATH, act.owner)
            if act.what == "release":
                self._end(lock)
            elif act.what == "force":
                self._force(lock, self._token(lock, old=act.old))
            else:
                self._ask(lock)

    def _hold(self, act: Act) -> None:
        lock = DetachedLock(self.process.client, PATH, act.owner)
        if act.shared:
            lock = self.objects.setdefault((self.process.name, act.owner), lock)
        if act.leave == "with":
            act = act._replace(wait=-1)
        if not self._acquire_detached(lock, act):
            return
        try:
            self.world.sleep(act.stay)
        finally:
            self._leave(lock, act)

    def _acquire_detached(self, lock: DetachedLock, act: Act) -> bool:
        world, third = self.world, (self.process.session.timeout or UNANSWERED) / 3
        self.actor.waits_since = -1.0
        began = world.now
        with self.asking("acquire", act.owner) as call:
            try:
                got = lock.acquire(False) if act.wait == 0 else lock.acquire(timeout=act.wait)
            except WaitCancelledError:
                if act.wait == 0:
                    raise
                world.say("its wait was ended")
                return False
            if got:
                self.checks.confirm(call, lock.fencing_token)
            world.say("has it" if got else "goes without")
        limit = 2 * max(act.wait, third) + third if act.wait <= 0 else max(act.wait, third) + third
        if act.wait != -1 and self._ran_since(began) and world.now > began + limit + 2 * SLACK:
            raise Violation(f"acquire(timeout={act.wait:g}) took {world.now - began:g} s")
        if not got and act.wait == -1:
            raise Violation(f"{self.name} gave up waiting")
        if not got and self.checks.healthy(self, began) and not self._was_removed(call):
            if not any(self._in_the_way(call, moment) for moment in self.checks.since(call.begun)):
                raise Violation(f"{self.name} was refused a lock that nobody else wants")
            if world.now < began + act.wait:
                raise Violation(f"{self.name} gave up after {world.now - began:g} s")
        return got

    def _was_removed(self, call: DetachedCall) -> bool:
        """Return whether an operator has deleted a node of the call."""
        checks = self.checks
        return any(by is call and f"{checks.path}/{name}" in checks.removed for name, by in checks.made.items())

    def _in_the_way(self, call: DetachedCall, moment: Moment) -> bool:
        others = [name for name in moment.line if self.checks.made[name] is not call]
        return bool(others) and not moment.held_by(call.owner)

    def _leave(self, lock: DetachedLock, act: Act) -> None:
        """Release, however often that is interrupted."""
        if act.leave == "keep":
            return
        struck: KeyboardInterrupt | None = None
        while True:
            try:
                if act.leave == "force":
                    if lock._held is not None:
                        self._force(DetachedLock(self.process.client, PATH, "operator"), lock._held.token)
                elif act.leave == "other":
                    self._end(DetachedLock(self.process.client, PATH, act.owner))
                else:
                    self._end(lock)
                break
            except KeyboardInterrupt as error:
                self.world.say("is interrupted as it releases")
                struck = error
        if struck is not None:
            raise struck

    def _end(self, lock: DetachedLock) -> None:
        """Release in the owner's name."""
        held = None if lock._held is None else lock._held.token
        checks = self.checks
        with self.asking("release", lock.name, held) as call:
            try:
                lock.release()
            except LockLostError:
                by = checks.ended.get(held or 0)
                checks.catch_up()
                if held is None or checks.moments[-1].has(held):
                    raise Violation(f"{lock} is said to be lost, and is not") from None
                if isinstance(by, DetachedCall) and by.worker is self and by.what == "release":
                    raise Violation(f"{lock} is said to be lost, and this thread has released it") from None
                self.world.say("is told that it is lost")
                return
            except ClientError:
                raise
            except RuntimeError:
                if held is not None or all(each.held_by(lock.name) for each in checks.since(call.begun)):
                    raise Violation(f"{lock} is said not to be held, and is") from None
                return
            there = checks.since(call.begun)
            if held is not None and there[-1].has(held):
                raise Violation(f"{lock} was released, and is held, token {held}")
            if held is None and not any(each.held_by(lock.name) for each in there):
                raise Violation(f"{lock} was released, and was not held")

    def _token(self, lock: DetachedLock, *, old: bool) -> int:
        if old:
            return max(self.checks.ended, default=1)
        with self.asking("ask", lock.name):
            seen = lock.owner()
        return 1 if seen is None else seen.token

    def _force(self, lock: DetachedLock, token: int) -> None:
        with self.asking("force", lock.name, token) as call:
            try:
                was_there = lock.force_release(token)
            except ValueError:
                if not any(
                    each.holder is not None and each.holder.session and each.holder.token == token
                    for each in self.checks.since(call.begun)
                ):
                    raise Violation(f"{token} is said to be a session's, and is not") from None
                return
            there = self.checks.since(call.begun)
            if was_there and (there[-1].has(token) or not any(each.has(token) for each in there)):
                raise Violation(f"{token} is said to have been ended: {there}")
            if not was_there and all(each.has(token) for each in there):
                raise Violation(f"{token} is said not to be there: {there}")

    def _ask(self, lock: DetachedLock) -> None:
        with self.asking("ask", lock.name) as call:
            locked = lock.locked()
            there = self.checks.since(call.begun)
            if not any(bool(each.line) == locked for each in there):
                raise Violation(f"{lock} is said to be {'locked' if locked else 'free'}: {there}")
            seen = lock.owner()
            there = self.checks.since(call.begun)
            found = None if seen is None else Entry(seen.session, seen.owner, seen.token)
            if found is not None and not any(found in each.line.values() for each in there):
                raise Violation(f"{found} is said to hold: {there}")


class DetachedRun(LossyRun):
    """A run of such workers."""

    path = PATH
    worker = DetachedWorker
    invariants = DetachedChecks
    checks: DetachedChecks
    workers: list[DetachedWorker]  # type: ignore[assignment]
    losable = (Transaction, Create2, Delete)

    def __init__(self, schedule: Schedule) -> None:
        super().__init__(schedule)
        objects: dict[tuple[str, str], DetachedLock] = {}
        for worker in self.workers:
            worker.objects = objects
        self._uuids = 0

    def to_the_end(self) -> int:
        """Run until all have finished; see `Run`."""
        with patch.object(_detached, "new_uuid", self._uuid):
            return super().to_the_end()

    def _uuid(self) -> str:
        self._uuids += 1
        return f"90000000-0000-4000-8000-{self._uuids:012d}"

    def _on_request(self, answer: object) -> bool:
        self.checks.catch_up()
        return super()._on_request(answer)

    def _on_answer(self, wire: Transport, answer: object) -> None:
        asked: Any = self._asked.get(id(answer))
        self.checks.applied(len(self.ensemble.log) - self._logged, None if asked is None else asked[1])
        super()._on_answer(wire, answer)

    def rescue(self) -> None:
        """Have an operator end a hold that nobody may end."""
        now = self.checks.since(len(self.ensemble.log))[-1]
        holder = now.holder
        if holder is not None and holder.session == 0 and self.checks.may_stay(holder.token):
            self._delete(f"{self.checks.path}/{now.first}")

    def _delete(self, node: str) -> None:
        self.ensemble.delete(node)
        self.checks.remove(node)

    def _remove(self, it: Deviation) -> bool | None:
        """Have an operator delete one of the nodes."""
        line = self.checks.since(len(self.ensemble.log))[-1].line
        if not line:
            return False
        self._delete(f"{self.checks.path}/{sorted(line, key=MUTEX.key)[it.which % len(line)]}")
        return None

    def _end_waits(self, it: Deviation) -> bool | None:
        """Have a thread end the waits of its process."""
        worker: Any = self._worker(it)
        if worker is None or isinstance(worker.visits[0], Visit):
            return False

        def end() -> None:
            DetachedLock(worker.process.client, PATH, "operator").cancel_waits()

        self.world.spawn(f"{worker.process.name}.ends{len(self.world.actors)}", end, worker.process)
        return None


def random_acts(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    acts: list[Any] = []
    for n, process in enumerate(threads):
        locks = n and random.random() < 0.3
        acts.append(
            [
                (start, [_visit(random) if locks else _act(random) for _ in range(random.randint(1, 3))])
                for start, _ in process
            ]
        )
    found = [
        each._replace(kind=random.choices((each.kind, "lose", "strike", "remove", "end_waits"), (16, 3, 2, 1, 2))[0])
        for each in deviations
    ]
    return Schedule(acts, lagging(random, found, NOT_HERE))


def _visit(random: Random) -> Visit:
    leave = random.choice(("release", "release", "with", "forget"))
    return Visit(PATH, wait=random.choice((-1, -1, 0, 1.0)), stay=random.choice((0.0, 0.05, 1.0, 7.0)), leave=leave)


def _act(random: Random) -> Act:
    what = random.choice(("hold",) * 7 + ("release", "force", "ask", "sleep"))
    stay = random.choice((0.0, 0.0, 0.05, 1.0, 3.0, 7.0))
    owner = random.choice("xxyz")
    if what != "hold":
        return Act(what, owner, stay=stay, old=random.random() < 0.5)
    leave = random.choice(("release",) * 4 + ("with", "other", "force", "keep"))
    wait = random.choice((-1, -1, -1, 0, 0.05, 1.0, 3.0))
    return Act(what, owner, wait, stay, leave, random.random() < 0.3)
