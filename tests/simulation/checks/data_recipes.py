"""The tables of operations x faults of primitives with data, of groups, double barriers and detached locks.

Each promise is that of the random runs: a value is changed exactly once, or the outcome is said to be unknown; an item
is neither lost nor taken twice; no node is left behind; nobody waits in vain. The threads of the library that follow a
map, keep a membership, or settle an interrupted call have rows of their own.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from contextlib import suppress
from typing import Any, NamedTuple

from tests.simulation.checks.recipes import RecipeRun, of_calls
from tests.simulation.checks.table import BEFORE, Table, columns
from tests.simulation.subjects.detached import PATH as DETACHED_PATH
from tests.simulation.subjects.detached import Act, DetachedChecks, DetachedRun
from tests.simulation.subjects.dicts import KEYS, DictRun, DictWorker
from tests.simulation.subjects.dicts import Step as DictStep
from tests.simulation.subjects.dicts import Steps as DictSteps
from tests.simulation.subjects.double_barrier import DoubleBarrierRun
from tests.simulation.subjects.double_barrier import Step as DoubleStep
from tests.simulation.subjects.group import GroupRun
from tests.simulation.subjects.group import Step as GroupStep
from tests.simulation.subjects.queues import DEAD, ITEMS, QueueChecks, QueueRun, QueueWorker
from tests.simulation.subjects.queues import Step as QueueStep
from tests.simulation.subjects.queues import Steps as QueueSteps
from tests.simulation.subjects.values import PATH as VALUE_PATH
from tests.simulation.subjects.values import Step as ValueStep
from tests.simulation.subjects.values import ValueRun, ValueWorker
from tests.simulation.world.calls import CallWorker
from tests.simulation.world.ensemble import removed_by
from tests.simulation.world.injection import InjectedRun, Injection, Situation, Thread, at, situation
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import Deviation
from tests.simulation.world.workload import Visit
from tests.simulation.world.world import Actor, Violation
from zkconcurrent._errors import OutcomeUnknownError, ZkConcurrentError
from zkconcurrent._memory import changes
from zkconcurrent._recipes.queue.order import unframe
from zkconcurrent._threads.atomic import AtomicLong
from zkconcurrent._threads.base.queue_base import ShutDown
from zkconcurrent._threads.queue import Queue

LIBRARY = ("settle", "follow", "stay")  # recipes of its own threads
NOT_INTERRUPTED = "a thread of the library is not interrupted"
FAULTS = (1, 2, 3, 4, 5, 8, 13, 16, 17, 20, 32, 160)


class InjectedCalls(RecipeRun):
    """An injected run of calls; in some situations the faults strike at a thread of the library.

    An operation is told by the innermost recipe that it belongs to, and by whether its call has a deadline.
    """

    def acts(self, actor: Actor) -> bool:
        """Whether a thread's operations are those at which faults are injected."""
        if self.situation.then not in LIBRARY:
            return super().acts(actor)
        return actor.process is self.target.process and all(actor is not worker.actor for worker in self.workers)

    def doing(self, operation: str) -> str:  # noqa: ARG002
        """Return the recipe that the target's operation belongs to."""
        outer, inner = self.present, self.innermost.strip("_")
        if outer == "settle":
            return f"settle, {inner}" if inner != "settle" else inner
        if inner in ("write", "attempt"):
            inner = self.situation.recipe if outer == self.situation.then else outer
        return f"{inner}, timed" if self.deadlines.get(self.world.current) else inner

    def delete_node(self) -> bool:
        """Have an operator delete the newest ephemeral node of the target's process."""
        wire, nodes = self.target.process.connection.wire, self.ensemble.leader.nodes
        ours = [] if wire is None else self.ensemble.leader.ephemerals(wire.session.number)
        if ours:
            node = max(ours, key=lambda path: nodes[path].czxid)
            self.ensemble.delete(node)
            self.checks.remove(node)
        return bool(ours)


class Settling(InjectedCalls):
    """A run in which a call may be interrupted as the reply to its write is under way, or as the request is lost."""

    _striking: Deviation | None

    def __init__(self, situation: Situation, *injections: Injection) -> None:
        super().__init__(situation, *injections)
        if situation.then == "settle":
            self.spared = () if "put" in situation.recipe else ("put",)
            self._striking = Deviation(
                0, "strike", int("lost" in situation.recipe), int("acknowledge" in situation.recipe)
            )


def _of_data(recipe: str, operation: str, fault: int) -> str | None:
    parts = set(operation.split("+"))
    if fault == 16 and recipe.startswith("settle"):
        return NOT_INTERRUPTED
    if fault == 20 and recipe in ("destroy", "drain"):
        return "has no node"
    if fault == 20:
        return None if parts & {"Wait", "WaitGone", "Multi"} else "is deleted at another operation"
    return of_calls(recipe, operation, fault)


def destroy(worker: CallWorker, primitive: Any, folder: str) -> None:
    """Have a thread destroy a primitive.

    Args:
        worker: the thread.
        primitive: the primitive.
        folder: the name of the folder in which each client that uses it has a node.

    Raises:
        Violation: the primitive is still there, or none of these nodes was there.
    """
    checks, session = worker.checks, worker.process.session.registry.session
    path, ensemble, nodes = checks.path, checks.ensemble, checks.ensemble.leader.nodes

    alone = all(each.done or each is worker for each in checks.workers if each.process is worker.process)

    def is_others(node: str, owner: int) -> bool:
        return node.startswith(f"{path}/{folder}/") and not (alone and owner == session)

    there, used = path in nodes, any(is_others(each, node.owner) for each, node in nodes.items())
    with worker.calling("destroy") as call:
        try:
            primitive.destroy()
        except RuntimeError as error:
            if isinstance(error, ZkConcurrentError):
                raise
            made = [step for _, step in ensemble.steps(call.begun) if isinstance(step, changes.Made)]
            if not used and not any(is_others(step.path, step.owner) for step in made):
                raise Violation(f"{worker.name} is told that others use it") from None
        else:
            if there and not any(path in removed_by(step) for _, step in ensemble.steps(call.begun)):
                raise Violation(f"{worker.name} has destroyed it, and it was there all the time")


# -- values ----------------------------------------------------------------------------------------------------------


class ValueOwner(ValueWorker):
    """A thread that uses a value, and destroys it."""

    def _visit(self, step: ValueStep) -> None:  # type: ignore[override]
        if step.what == "destroy":
            destroy(self, self.value or AtomicLong(self.process.client, VALUE_PATH), "lock")
        else:
            super()._visit(step)


class InjectedValue(Settling, ValueRun):
    """An injected run of a value."""

    worker = ValueOwner


QUEUED = "/lock/_c_ffffffff-0000-4000-8000-000000000001-lock-"


def queue_ahead(run: InjectedRun) -> bool:
    """Another client waits in the queue of those that have met conflicts, and soon leaves it."""
    above = run.ensemble.leader.nodes.get(f"{CHROOT}{VALUE_PATH}/lock")
    wire = run.processes[1].connection.wire
    if above is None or wire is None:
        return False
    path = f"{CHROOT}{VALUE_PATH}{QUEUED}{above.creates:010d}"
    run.ensemble.ask(wire.session.number, changes.Create(path, b"{}", flags=changes.EPHEMERAL))

    def leave() -> None:
        if path in run.ensemble.leader.nodes:
            run.ensemble.ask(0, changes.Delete(path))

    run.world.at(run.world.now + 0.7, leave)
    return True


def _values(start: float, *steps: str | tuple[Any, ...], shared: bool = False) -> Thread:
    made = [ValueStep(*((step,) if isinstance(step, str) else step)) for step in steps]
    return at(start, *(step._replace(shared=shared) for step in made))


def _of_value(recipe: str, operation: str, fault: int) -> str | None:
    if fault == 20 and recipe != "change in turn":
        return "makes no node of the session"
    return _of_data(recipe, operation, fault)


VALUES: tuple[Situation, ...] = (
    situation("change", "apply", _values(0, "add"), _values(0.2, "add")),
    situation("change", "apply", [_values(0.5, "add", "compare"), _values(0.5, "add")], _values(0, "add", "add")),
    situation("change", "apply", _values(0.5, "update", "add"), _values(0, "add", "add")),
    situation("change in turn", "apply", _values(0.5, "add"), _values(0, "add"), first=(7, queue_ahead, BEFORE)),
    situation("get", "look", _values(0.5, "get"), _values(0, "add", "add")),
    situation(
        "wait", "wait_until", _values(0, ("wait", None, 2), shared=True), _values(0.5, "add", "add", shared=True)
    ),
    situation("wait", "wait_until", _values(0.5, ("wait", 0.5, 9), shared=True), _values(0, "add", "add", shared=True)),
    situation("destroy", "destroy", _values(0.5, "destroy"), _values(0, "add", "add")),
    situation("destroy", "destroy", _values(0.5, "add", "destroy", "add"), [_values(0, "add"), _values(0.5, "add")]),
    situation("destroy", "destroy", _values(0.5, "destroy"), _values(0, "add"), first=(0, queue_ahead, BEFORE)),
    situation("settle", "settle", _values(0, "add", "add"), _values(2, "add", "add")),
    situation("settle what is lost", "settle", _values(0, "add", "add"), _values(2, "add", "add")),
)
VALUE = Table("AtomicLong, SharedValue", InjectedValue, VALUES, columns(*FAULTS), _of_value)

# -- maps ------------------------------------------------------------------------------------------------------------


class MapOwner(DictWorker):
    """A thread that uses a map, and clears and destroys it."""

    def _do(self, step: DictStep) -> None:
        if step.what == "destroy":
            destroy(self, self.map, "writers")
            return
        if step.what != "clear":
            super()._do(step)
            return
        assert self.map is not None
        session = self.process.session.registry.session
        with self.calling("clear") as call:
            try:
                self.map.clear()
            except OutcomeUnknownError:
                over = session is None or self.checks.ensemble.sessions[session].closed
                if not (over or self.checks.removed):
                    raise Violation(f"{self.name}: the outcome of clear() can be found out") from None
                return
            moments = [{each.key for each in entries or ()} for entries in self.checks.states(call.begun)]
            if left := set(KEYS).intersection(*moments):
                raise Violation(f"{self.name} has cleared it, and {left} was there always")


class InjectedMap(InjectedCalls, DictRun):
    """An injected run of a map."""

    worker = MapOwner


def _maps(start: float, *steps: str, ephemeral: bool = False) -> Thread:
    made = [DictStep(*step.split()) if step != "nap" else DictStep("sleep", seconds=0.3) for step in steps]
    return at(start, DictSteps(ephemeral, made))


def _of_map(recipe: str, operation: str, fault: int) -> str | None:
    if fault == 16 and recipe in ("follow", "list", "catch_up", "read"):
        return NOT_INTERRUPTED
    return _of_data(recipe, operation, fault)


MAPS: tuple[Situation, ...] = (
    situation("put", "put", _maps(0, "put x", "put x"), _maps(0.2, "put x", "read x")),
    situation("put ephemeral", "put", _maps(0, "put x", "put x", ephemeral=True), _maps(0.2, "put x", ephemeral=True)),
    situation(
        "setdefault", "put_if_absent", _maps(0.5, "setdefault x", "setdefault y"), _maps(0, "put x", "nap", "put y")
    ),
    situation("replace", "replace", _maps(0.5, "replace x", "replace x"), _maps(0, "put x", "nap", "put x", "del x")),
    situation(
        "replace ephemeral",
        "replace",
        _maps(0.5, "replace x", "replace x", ephemeral=True),
        _maps(0, "put x", ephemeral=True),
    ),
    situation("pop", "take", _maps(0.5, "pop x", "remove y", "pop x"), _maps(0, "put x", "put y", "nap", "put x")),
    situation("del", "delete", _maps(0.5, "del x", "del x", "del y"), _maps(0, "put x", "put y", "nap")),
    situation("clear", "clear", _maps(0.5, "clear"), _maps(0, "put x", "put y", "nap", "put x", "del y")),
    situation("destroy", "destroy", _maps(7.0, "destroy", "put x"), _maps(0, "put x", "put y")),
    situation(
        "destroy",
        "destroy",
        [_maps(0.5, "put x", "read x", "destroy", "read x"), _maps(0.5, "read x", "put y")],
        _maps(0, "read x", "nap", "nap", "nap", "put z"),
    ),
    situation("destroy", "destroy", _maps(0.5, "destroy"), _maps(0, "put x", "put y", "nap")),
    situation(
        "follow", "follow", _maps(0, "put x", "nap", "nap", "read x", "all"), _maps(0.2, "put x", "del x", "put y")
    ),
    situation(
        "follow", "follow", _maps(0.5, "read x", "nap", "nap", "read x"), _maps(0, "put x", "nap", "nap", "put x")
    ),
)
MAP = Table("Dict, Set", InjectedMap, MAPS, columns(*FAULTS), _of_map)

# -- groups ----------------------------------------------------------------------------------------------------------


class InjectedGroup(InjectedCalls, GroupRun):
    """An injected run of a group."""


def _joins(start: float, *steps: GroupStep) -> Thread:
    return at(start, *steps)


def _join(name: str = "x", stay: float = 1.0, wait: float = 0.0) -> GroupStep:
    return GroupStep("join", name, wait, stay)


LOOK, OBSERVE = GroupStep("members"), GroupStep("observe", seconds=1.0)


def _of_group(recipe: str, operation: str, fault: int) -> str | None:
    if fault == 16 and recipe in ("stay", "join", "create", "missing_beside", "outlast", "delete_node"):
        return NOT_INTERRUPTED
    if fault == 20 and operation == "Wait" and recipe != "outlast":
        return "has no node"
    return _of_data(recipe, operation, fault)


GROUPS: tuple[Situation, ...] = (
    situation("member", "stay", _joins(0, _join(stay=1.0)), _joins(0.5, LOOK, OBSERVE)),
    situation("member", "stay", _joins(0.5, _join(stay=3.0)), _joins(0, _join("y", 2.0), LOOK)),
    situation("wait for an id", "stay", _joins(0.5, _join(wait=9.0)), _joins(0, _join(stay=1.0), LOOK)),
    situation("members", "members", _joins(0.5, LOOK), _joins(0, _join(stay=1.0))),
    situation("observe", "next_members", _joins(0, OBSERVE), _joins(0.5, _join(stay=0.5))),
    situation("observe", "next_members", _joins(0.5, OBSERVE), [_joins(0, _join("y", 1.0)), _joins(0.7, _join())]),
)
GROUP = Table("Group", InjectedGroup, GROUPS, columns(*FAULTS), _of_group)

# -- double barriers -------------------------------------------------------------------------------------------------


class InjectedDoubleBarrier(InjectedCalls, DoubleBarrierRun):
    """An injected run of a double barrier of two."""


def _rounds(start: float, *steps: DoubleStep) -> Thread:
    return at(start, *steps)


def _round(seconds: float | None = None, stay: float = 0.3, leaving: float | None = None) -> DoubleStep:
    return DoubleStep("round", seconds, stay, leaving)


DOUBLE_BARRIERS: tuple[Situation, ...] = (
    situation("enter first", "enter", _rounds(0, _round()), _rounds(0.5, _round())),
    situation("enter last", "enter", _rounds(0.5, _round()), _rounds(0, _round(stay=1.0))),
    situation(
        "enter late", "enter", _rounds(1.0, _round()), [_rounds(0, _round(stay=2.0)), _rounds(0, _round(stay=3.0))]
    ),
    situation("leave first", "leave", _rounds(0, _round(stay=0.3)), _rounds(0.2, _round(stay=1.0))),
    situation("leave last", "leave", _rounds(0, _round(stay=2.0)), _rounds(0.2, _round(stay=0.3))),
    situation("leave", "leave", _rounds(0.5, _round(stay=0.3)), _rounds(0, _round(stay=1.0))),
    situation("give up", "withdraw", _rounds(0, _round(0.5)), _rounds(2, _round(1.0))),
    situation("give up", "withdraw", _rounds(0, _round(0.5)), _rounds(0.5, _round(3.0))),
)
DOUBLE_BARRIER = Table("DoubleBarrier", InjectedDoubleBarrier, DOUBLE_BARRIERS, columns(*FAULTS), _of_data)

# -- queues ----------------------------------------------------------------------------------------------------------


class QueueMoment(NamedTuple):
    """A queue between two changes.

    Attributes:
        there: its node exists.
        closed: it is shut down.
        idle: no item is left, and none that was taken is unfinished.
        users: the sessions that have members.
        dead: the items that were claimed too often.
    """

    there: bool
    closed: bool
    idle: bool
    users: frozenset[int]
    dead: frozenset[bytes]


class QueueOwnerChecks(QueueChecks):
    """The invariants of a queue that may be shut down, waited for and destroyed."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.moments: list[tuple[int, QueueMoment]] = []

    def step(self) -> None:
        """Look at what the last change has made of the queue."""
        super().step()
        length = len(self.ensemble.log)
        if not self.moments or self.moments[-1][0] < length:
            self.moments.append((length, self._moment()))

    def _moment(self) -> QueueMoment:
        nodes = self.ensemble.leader.nodes
        node = nodes.get(self.path)
        unfinished: Counter[int] = Counter()
        for path, each in nodes.items():
            if path.startswith(f"{self.path}/members/"):
                unfinished[each.owner] += json.loads(each.data or b"").get("unfinished", 0)
        dead = {
            content for path, each in nodes.items() if path.startswith(DEAD) for content in unframe(path, each.data)[0]
        }
        closed = node is not None and not node.data.endswith(b"open")
        idle = not self.names and all(count <= 0 for count in unfinished.values())
        return QueueMoment(node is not None, closed, idle, frozenset(unfinished), frozenset(dead))

    def during(self, begun: int) -> list[QueueMoment]:
        """Return all that the queue was since the log had so much."""
        self.step()
        before = [moment for length, moment in self.moments if length <= begun][-1:]
        return before + [moment for length, moment in self.moments if length > begun]

    def wrote(self, call: Any, step: changes.Step) -> None:
        """Take note of a step; an item that a call removes with the queue, or as it shuts it down, is nobody's."""
        super().wrote(call, step)
        self.step()
        removes = isinstance(step, changes.Removed) and step.path.startswith((ITEMS, DEAD))
        if call.what in ("drain", "destroy") and removes:
            name = step.path.rpartition("/")[2]
            (content,) = (each for each, names in self.created.items() if name in names)
            self.took(content, call.what)

    def _came(self, name: str, data: bytes) -> None:
        known = set(self.created)
        super()._came(name, data)
        new = self.names[name] not in known and not self.names[name].startswith(b"rescue")
        if new and self.moments and self.moments[-1][1].closed:
            raise Violation(f"{self.names[name]!r} was put, and the queue was shut down")


class QueueOwner(QueueWorker):
    """A thread that uses a queue, and may shut it down, wait for it and destroy it."""

    checks: QueueOwnerChecks

    def _do(self, step: QueueStep) -> None:
        own = getattr(self, f"_{step.what}", None) if step.what in OWNERS else None
        begun = len(self.checks.ensemble.log)
        try:
            if own is None:
                super()._do(step)
                return
            with self.calling(step.what):
                own(self.queue, begun)
        except ShutDown:
            self._must(begun, "is told that it is shut down", lambda moment: moment.closed)
            if step.what == "put":
                self.checks.refused.add(f"{self.name} {self.number}".encode())

    def _must(self, begun: int, what: str, holds: Any) -> None:
        if not any(map(holds, found := self.checks.during(begun))):
            raise Violation(f"{self.name} {what}: {found}")

    def _shutdown(self, queue: Any, begun: int, *, immediate: bool = False) -> None:
        queue.shutdown(immediate)
        self._must(begun, "has shut it down, and it is open", lambda moment: moment.closed)

    def _drain(self, queue: Any, begun: int) -> None:
        self._shutdown(queue, begun, immediate=True)
        left = self.checks.free
        if left:
            raise Violation(f"{self.name} has shut it down, and {left} are left")

    def _join(self, queue: Any, begun: int) -> None:
        queue.join()
        self._must(begun, "goes on, and items are left or unfinished", lambda moment: moment.idle)

    def _done(self, queue: Any, _: int) -> None:
        with suppress(ValueError):  # its `get` was interrupted
            queue.task_done()

    def _dead(self, queue: Any, begun: int) -> None:
        found = set(queue.dead())
        moments = self.checks.during(begun)
        if not moments[0].dead <= found <= moments[-1].dead:
            raise Violation(f"{found} are dead: {moments}")

    def _destroy(self, queue: Any, begun: int) -> None:
        mine = self.process.session.registry.session
        try:
            queue.destroy()
        except RuntimeError as error:
            if isinstance(error, ZkConcurrentError):
                raise
            self._must(begun, "is told that others use it", lambda moment: moment.users - {mine})
        else:
            self._must(begun, "has destroyed it, and it is there", lambda moment: not moment.there)


OWNERS = ("shutdown", "drain", "join", "done", "dead", "destroy")


class InjectedQueue(Settling, QueueRun):
    """An injected run of a queue."""

    worker = QueueOwner
    invariants = QueueOwnerChecks

    def rescue(self) -> None:
        """Take an item for which somebody waits to be taken, too."""
        super().rescue()
        if self.checks.free and any(worker.call is not None and worker.call.what == "join" for worker in self.workers):
            name = self.checks.free[0]
            self.checks.took(self.checks.names[name], "the rescue")
            self.ensemble.ask(0, changes.Delete(ITEMS + name))

    def stop(self, length: float) -> None:
        """Stop the target's process; if that is for good, what its calls were about to return is lost."""
        if length == math.inf:
            process = self.target.process
            for worker in self.workers:
                if worker.process is process and worker.call is not None:
                    self._excuse(worker)
            if any(state._left for state in list(process.session.directory.values())):
                self.checks.excused |= set(self.checks.created)
        super().stop(length)


def _queues(start: float, *steps: QueueStep, size: int = 0, most: int | None = None) -> Thread:
    return at(start, QueueSteps(Queue, size, most, list(steps)))


PUT, GET, CLAIM, FAIL = (QueueStep(what) for what in ("put", "get", "claim", "fail"))
SHUTDOWN, DRAIN, JOIN, DONE, DEAD_ONES, DESTROY = map(QueueStep, OWNERS)
SLEEP, AWHILE = QueueStep("sleep", 1.0), QueueStep("claim", 1.0, 0.5)


QUEUES: tuple[Situation, ...] = (
    situation("put", "put", _queues(0, PUT, PUT), _queues(0.2, GET, GET)),
    situation("put", "put", _queues(0.5, PUT, size=1), _queues(0, PUT, QueueStep("sleep", 1.0), GET, size=1)),
    situation(
        "put",
        "put",
        [_queues(0.5, PUT, size=1), _queues(0.4, PUT, size=1)],
        _queues(0, PUT, QueueStep("sleep", 1.0), GET, GET, size=1),
    ),
    situation(
        "put", "put", _queues(0.5, QueueStep("put", 0.5), size=1), _queues(0, PUT, QueueStep("sleep", 3.0), GET, size=1)
    ),
    situation("get", "take", _queues(0.5, GET, GET), _queues(0, PUT, PUT)),
    situation("get", "take", _queues(0, GET), _queues(0.5, PUT)),
    situation("get", "take", [_queues(0.2, GET), _queues(0, GET)], _queues(0.5, PUT, PUT)),
    situation("get", "take", [_queues(0.5, QueueStep("get", 0.5)), _queues(0, PUT, GET)], _queues(1.0, PUT)),
    situation("claim", "take", _queues(0.5, CLAIM, CLAIM), _queues(0, PUT, PUT)),
    situation(
        "claim, counted", "take", _queues(0.5, FAIL, QueueStep("claim", 0.0), most=1), _queues(0, PUT, PUT, most=1)
    ),
    situation("acknowledge", "acknowledge", _queues(0.5, CLAIM), _queues(0, PUT, QueueStep("get", 9.0))),
    situation("give_back", "give_back", _queues(0.5, FAIL), _queues(0, PUT, QueueStep("sleep", 1.0), GET)),
    situation("look", "look", _queues(0.5, QueueStep("qsize")), _queues(0, PUT, PUT)),
    situation("shutdown", "shut_down", _queues(0, SHUTDOWN), _queues(0.5, PUT, GET)),
    situation("shutdown", "shut_down", _queues(0.5, SHUTDOWN, PUT), _queues(0, PUT, SLEEP, PUT, GET, GET)),
    situation("shutdown now", "shut_down", _queues(0.5, DRAIN), _queues(0, PUT, PUT, SLEEP, PUT, GET)),
    situation(
        "shutdown now", "shut_down", _queues(0.5, DRAIN), _queues(0, PUT, PUT, QueueStep("claim", stay=1.0), GET)
    ),
    situation("join", "wait_until_done", _queues(0.5, JOIN), _queues(0, PUT, PUT, AWHILE, GET, DONE)),
    situation(
        "join", "wait_until_done", _queues(0.5, PUT, JOIN), _queues(0, PUT, GET, AWHILE, PUT, DONE, AWHILE, GET, DONE)
    ),
    situation("task_done", "done", _queues(0.5, GET, DONE), _queues(0, PUT, JOIN)),
    situation("dead", "dead", _queues(0.5, DEAD_ONES, most=1), _queues(0, PUT, FAIL, PUT, FAIL, most=1)),
    situation("destroy", "destroy", _queues(3.0, DESTROY), _queues(0, PUT, PUT)),
    situation("destroy", "destroy", _queues(3.0, PUT, DESTROY, PUT), _queues(0, PUT, PUT)),
    situation(
        "destroy", "destroy", _queues(0.5, DESTROY), _queues(0, PUT, QueueStep("get", 9.0), QueueStep("get", 9.0))
    ),
    situation("settle a put", "settle", _queues(0, PUT, PUT), _queues(2, PUT, PUT)),
    situation("settle a lost put", "settle", _queues(0, PUT, PUT), _queues(2, PUT, PUT)),
    situation("settle a get", "settle", _queues(0.5, GET, GET), _queues(0, PUT, PUT)),
    situation("settle a lost get", "settle", _queues(0.5, GET, GET), _queues(0, PUT, PUT)),
    situation("settle a claim", "settle", _queues(0.5, CLAIM, GET), _queues(0, PUT, PUT)),
    situation("settle an acknowledge", "settle", _queues(0.5, CLAIM, GET), _queues(0, PUT, PUT)),
    situation("settle a lost acknowledge", "settle", _queues(0.5, CLAIM, GET), _queues(0, PUT, PUT)),
)
QUEUE = Table("Queue", InjectedQueue, QUEUES, columns(*FAULTS), _of_data)

# -- detached locks --------------------------------------------------------------------------------------------------


class InjectedDetached(InjectedCalls, DetachedRun):
    """An injected run of a detached lock."""

    checks: DetachedChecks

    def interrupt(self) -> None:
        """Interrupt the target; if its acquire is about to return, the lock may stay held, as after a kill."""
        tickets = self.target.process.session.registry.tickets.values()
        holder = self.checks.since(len(self.ensemble.log))[-1].holder
        if holder is not None and not holder.session and not any(ticket.lasting for ticket in tickets):
            self.checks.confirmed.add(holder.token)
        super().interrupt()

    def delete_node(self) -> bool:
        """Have an operator delete the target's newest node; or the holder's, if the target has none."""
        first = self.checks.since(len(self.ensemble.log))[-1].first
        if super().delete_node():
            return True
        if first is not None:
            self._delete(f"{self.checks.path}/{first}")
        return first is not None


def _hold(owner: str = "x", wait: float = -1, stay: float = 0.0, leave: str = "release") -> Act:
    return Act("hold", owner, wait, stay, leave)


def _of_detached(recipe: str, operation: str, fault: int) -> str | None:
    if fault == 20 and operation == "Delete":
        return None
    return _of_data(recipe, operation, fault)


RELEASE, FORCE, KEPT = Act("release"), Act("force", "y"), _hold(leave="keep")
DETACHED_LOCKS: tuple[Situation, ...] = (
    situation("acquire", "acquire", at(0, _hold(stay=0.5)), at(0.2, _hold("y"))),
    situation("acquire", "acquire", at(0.5, _hold()), [at(0, _hold("y", stay=1.0)), at(0.6, _hold("z"))]),
    situation(
        "acquire",
        "acquire",
        at(0.5, _hold(leave="with")),
        [at(0, Visit(DETACHED_PATH, stay=1.0)), at(0.6, Visit(DETACHED_PATH))],
    ),
    situation("acquire", "acquire", [at(0.5, _hold()), at(0.6, _hold())], at(0, _hold("y", stay=1.0))),
    situation("acquire of one's own", "acquire", at(0.5, _hold()), at(0, KEPT)),
    situation("timed acquire", "acquire", at(0.5, _hold(wait=0.5)), [at(0, _hold("y", stay=3.0)), at(0.6, _hold("z"))]),
    situation("timed acquire", "acquire", at(0.5, _hold(wait=2.0)), at(0, _hold("y", stay=1.0))),
    situation("try", "acquire", at(0, _hold(wait=0, stay=0.5)), at(0.2, _hold("y"))),
    situation("try", "acquire", at(0.5, _hold(wait=0)), at(0, _hold("y", stay=1.0))),
    situation("release", "release", at(0.5, RELEASE), at(0, KEPT)),
    situation("release", "release", at(0.5, RELEASE), [at(0, KEPT), at(0.6, _hold("y"))]),
    situation("force_release", "force_release", at(0.5, FORCE), [at(0, KEPT), at(0.6, _hold("z"))]),
)
DETACHED = Table("DetachedLock", InjectedDetached, DETACHED_LOCKS, columns(*FAULTS), _of_detached)
