"""Groups in the simulation: threads that join, look, and leave."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

from tests.simulation.world.calls import CallChecks, CallRun, CallWorker, lagging
from tests.simulation.world.ensemble import Transport, removed_by
from tests.simulation.world.schedule import Deviation, Schedule, random_schedule
from tests.simulation.world.world import Violation
from zkconcurrent._engine.client_state import UNANSWERED
from zkconcurrent._errors import ClientError
from zkconcurrent._memory import changes
from zkconcurrent._threads.group import Group, Membership

PATH = "/app/g"
NOT_HERE = {"number": "lag", "clog": "lag"}


class Step(NamedTuple):
    """The action of a thread: "join" (it stays and leaves), "members", "observe" or "sleep".

    Attributes:
        id: the id to join with.
        seconds: how long to wait for the id, to observe, or to sleep.
        stay: how long it stays a member.
    """

    what: str
    id: str = ""
    seconds: float = 0.0
    stay: float = 0.0


class Node(NamedTuple):
    """A member's node: the session that made it, and after how many changes."""

    owner: int
    made: int


class GroupChecks(CallChecks):
    """The invariants of a group.

    Attributes:
        moments: the members after each change.
        mine: the memberships of each process that were joined and not left.
        operated: the nodes that an operator took away, by session and name.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.moments: list[dict[str, Node]] = [{}]
        self.mine: dict[Membership, Any] = {}
        self.operated: set[tuple[int, str]] = set()

    def state(self, before: Any, step: changes.Step) -> Any:  # noqa: ARG002
        """Return nothing: a thread of the library makes the changes."""
        return before

    def step(self) -> None:
        """Follow the log."""
        super().step()
        log = self.ensemble.log
        while len(self.moments) <= len(log):
            n = len(self.moments)
            members = dict(self.moments[-1])
            for step in log[n - 1]:
                if isinstance(step, changes.Made) and step.path.rpartition("/")[0] == self.path:
                    members[step.path.rpartition("/")[2]] = Node(step.owner, n)
                for path in removed_by(step):
                    if path.rpartition("/")[0] == self.path:
                        del members[path.rpartition("/")[2]]
            self.moments.append(members)

    def remove(self, node: str) -> None:
        """Take note of whose an operator took away."""
        super().remove(node)
        name = node.rpartition("/")[2]
        gone = [members[name].owner for members in self.since(0) if name in members]
        self.operated.update((owner, name) for owner in gone[-1:])

    def since(self, begun: int) -> list[dict[str, Node]]:
        """Return the members at each moment since the log had so much."""
        self.step()
        return self.moments[min(begun, len(self.moments) - 1) :]

    def quiet(self) -> None:
        """Each member of a client that is connected has its node, in its session, and a watch on it."""
        super().quiet()
        if self.faults():
            return
        self.step()
        for member, process in self.mine.items():
            wire = process.connection.wire
            if not process.alive or wire is None or not process.client.connected or process.client._queue:
                continue
            if member._over or any(actor.ready for actor in self.world.actors if actor.process is process):
                continue
            node = self.moments[-1].get(member.id)
            if node is None or node.owner != wire.session.number:
                raise Violation(f"{process.name} is a member {member.id}, and the node is {node}")
            if not member.active:
                raise Violation(f"{process.name} has its node {member.id}, and does not know")
            if not wire.watches(f"{self.path}/{member.id}"):
                raise Violation(f"{process.name} is a member {member.id} without a watch")


class GroupWorker(CallWorker):
    """A thread that uses a group."""

    checks: GroupChecks
    run: GroupRun

    def _visit(self, step: Step) -> None:  # type: ignore[override]
        group = Group(self.process.client, PATH)
        if step.what == "sleep":
            self.world.sleep(step.seconds)
        elif step.what == "members":
            with self.calling("members") as call:
                seen = list(group.members())
            if seen not in [self._in_order(members) for members in self.checks.since(call.begun)]:
                # Nodes are read one by one: one that came or went meanwhile may be missing.
                moments = self.checks.since(call.begun)
                always = set.intersection(*(set(members) for members in moments))
                ever = set.union(*(set(members) for members in moments))
                if not always <= set(seen) <= ever:
                    raise Violation(f"{self.name} is told {seen}: {moments}")
        elif step.what == "observe":
            for n, _ in enumerate(group.observe(step.seconds)):
                if n > 3:
                    break
        else:
            self._join(group, step)

    def _in_order(self, members: dict[str, Node]) -> list[str]:
        return sorted(members, key=lambda name: members[name].made)

    def _join(self, group: Group, step: Step) -> None:
        checks, state = self.checks, group._path_state
        local = state.members.get(step.id)
        member: Membership | None = None
        try:
            try:
                with self.calling("join") as call:
                    member = group.join(self.name.encode(), step.id, wait=step.seconds)
            except ValueError:
                taken = any(step.id in members for members in checks.since(call.begun)) or local is not None
                if not taken and step.id not in state.members:
                    raise Violation(f"{self.name} is told that {step.id} is taken, and it is not") from None
                if local is None and self.world.now < call.began + step.seconds and state.members.get(step.id) is None:
                    raise Violation(f"{self.name} did not wait for {step.id}") from None
                return
            sessions = member._member.sessions
            if not any(
                members[step.id].owner in sessions for members in checks.since(call.begun) if step.id in members
            ):
                raise Violation(f"{self.name} is told that it is a member {step.id}, and never was")
            checks.mine[member] = self.process
            self.world.sleep(step.stay)
        finally:
            if member is not None:
                self._leave(member)

    def _leave(self, member: Membership) -> None:
        checks = self.checks
        checks.mine.pop(member, None)
        over = member._over
        if over and not self.process.client._stopped.is_set() and not self._was_taken(member):
            raise Violation(f"{member} is lost, and no other has its id")
        if over and not member.lost.is_set():
            raise Violation(f"{member} is over, and `lost` is not set")
        interrupted = True
        while interrupted:
            interrupted = False
            try:
                began = self.world.now
                # A reconnect may shorten the timeout meanwhile.
                third = (self.process.session.timeout or UNANSWERED) / 6
                with suppress(ClientError):
                    member.leave()
                if self._ran_since(began) and self.world.now > began + third + 0.2:
                    raise Violation(f"leave() took {self.world.now - began:g} s")
            except KeyboardInterrupt:
                interrupted = True
                self.world.say("is interrupted as it leaves")

    def _was_taken(self, member: Membership) -> bool:
        ours = member._member.sessions
        return any(each[member.id].owner not in ours for each in self.checks.since(0) if member.id in each)


class GroupRun(CallRun):
    """A run of such workers."""

    path = PATH
    worker = GroupWorker
    invariants = GroupChecks
    checks: GroupChecks

    def rescue(self) -> None:
        """Nobody waits for ever."""

    def _on_answer(self, wire: Transport, answer: object) -> None:
        """No client deletes a node that is another's, but for one whose own had been deleted by an operator."""
        super()._on_answer(wire, answer)
        self.checks.step()
        for n, step in self.ensemble.steps(self._logged):
            name = step.path.removeprefix(f"{self.checks.path}/") if isinstance(step, changes.Removed) else ""
            node = self.checks.moments[n - 1].get(name)
            if node is None or node.owner == wire.session.number:
                continue
            if (wire.session.number, name) not in self.checks.operated:
                raise Violation(f"session {wire.session.number & 0xFFFF} deletes {name}, which is another's")


def random_steps(seed: int) -> Schedule:
    """Return the random schedule of a seed."""
    random = Random(seed)
    threads, deviations, _ = random_schedule(random)
    steps: Any = [
        [(start, [_step(random) for _ in range(random.randint(1, 4))]) for start, _ in each] for each in threads
    ]
    found: list[Deviation] = lagging(random, deviations, NOT_HERE)
    return Schedule(steps, found)


def _step(random: Random) -> Step:
    what = random.choice(("join", "join", "join", "join", "members", "observe", "sleep"))
    if what == "join":
        stay = random.choice((0.0, 0.0, 0.3, 1.0, 3.0, 9.0))
        return Step(what, random.choice(("x", "x", "x", "y")), random.choice((0.0, 0.0, 0.3, 3.0, 9.0)), stay)
    return Step(what, seconds=random.choice((0.05, 0.3, 1.0, 3.0)))
