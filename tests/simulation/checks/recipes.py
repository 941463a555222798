"""The tables of operations x faults: the faults that each recipe of each primitive has met.

Each primitive has runs of its own, with its own threads and checks, so that every injection is followed by all the
checks of its random runs. An operation is told by the recipe that it belongs to, or by the situation's name for that
recipe. The column 37 of faults.md, never too many permits, is no fault: it is looked at after every step.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tests.helpers.places import PLACES
from tests.simulation.checks.table import (
    AFTER,
    BEFORE,
    SENT,
    SERVED,
    SETTLES,
    Table,
    close_session,
    columns,
    count_from,
    delete_node,
    expire,
    impossible,
    lose_answer,
    lose_by_clock,
    pause,
)
from tests.simulation.subjects.barrier import BarrierRun, Meeting
from tests.simulation.subjects.election import Act, ElectionRun
from tests.simulation.subjects.event import EventRun
from tests.simulation.subjects.event import Step as EventStep
from tests.simulation.subjects.latch import LatchRun
from tests.simulation.subjects.latch import Step as LatchStep
from tests.simulation.subjects.semaphore import LEASES, LOCKS, PATH, VALUE, SemaphoreRun, Use, User
from tests.simulation.subjects.tasks import OF_AN_RLOCK, TaskChecks, TaskRun
from tests.simulation.subjects.tasks import RW as RW_PATH
from tests.simulation.subjects.tasks import Act as Play
from tests.simulation.world.injection import InjectedRun, Injection, Situation, Thread, at, situation
from tests.simulation.world.run import CHROOT
from tests.simulation.world.schedule import LAST
from tests.simulation.world.workload import Visit
from tests.simulation.world.world import Actor, Violation
from zkconcurrent._engine.call import Call
from zkconcurrent._errors import SequenceExhaustedError, ZkConcurrentError
from zkconcurrent._memory import changes
from zkconcurrent._protocol.operations import Recipe
from zkconcurrent._threads.semaphore import Semaphore


class RecipeRun(InjectedRun):
    """An injected run that tells operations by their recipes.

    The situation's `then` names the recipe that it calls `recipe`.

    Attributes:
        recipes: the present recipe, of each of the target's threads, and its name.
        deadlines: when its time is up.
    """

    recipes: dict[Actor | None, tuple[weakref.ref[Recipe[Any]], str]]
    deadlines: dict[Actor | None, float]

    def __init__(self, situation: Situation, *injections: Injection) -> None:
        super().__init__(situation, *injections)
        self.recipes, self.deadlines = {}, {}

    @property
    def present(self) -> str:
        """The name of the recipe of the thread whose turn it is."""
        return self.recipes[self.world.current][1] if self.world.current in self.recipes else ""

    @property
    def innermost(self) -> str:
        """The name of the recipe within that one which yields the present operation."""
        recipe: Any = self.recipes[self.world.current][0]() if self.world.current in self.recipes else None
        while recipe is not None and inspect.isgenerator(recipe.gi_yieldfrom):
            recipe = recipe.gi_yieldfrom
        return self.present if recipe is None else str(recipe.__name__)

    def to_the_end(self) -> int:
        """Run until everybody has finished and all is at rest; return the steps it took."""
        with _told(self):
            return super().to_the_end()

    def doing(self, operation: str) -> str:
        """Return the recipe that the target's operation belongs to."""
        if operation in SETTLES:
            return "release"
        return self.situation.recipe if self.present == self.situation.then else self.present

    def deadline(self) -> float:
        """Return when the target's time is up."""
        return self.deadlines.get(self.target.actor, 0.0)


@contextmanager
def _told(run: RecipeRun) -> Iterator[None]:
    perform = Call.run

    def performed(driver: Call, recipe: Recipe[Any], *deadlines: float | None) -> Any:
        if run._acting:
            run.recipes[run.world.current] = weakref.ref(recipe), recipe.__name__
            run.deadlines[run.world.current] = (deadlines[0] if deadlines else None) or 0.0
        return perform(driver, recipe, *deadlines)

    with patch.object(Call, "run", performed):
        yield


# -- locks -----------------------------------------------------------------------------------------------------------


LOCK, RLOCK = "/app/l", "/app/r"


def _of_lock(recipe: str, operation: str, fault: int) -> str | None:
    holding = operation in SETTLES
    if fault in (3, 20) and operation == "Discard" and recipe in ("acquire", "timed acquire"):
        return "is what a session's end has left: the driver discards all else"
    if fault in (6, 40) and not (holding or (fault == 40 and operation == "Grant")):
        return "does not hold"
    if fault == 39 and not (holding and recipe in ("release", "re-entrant")):
        return "settles nothing"
    if fault == 18 and (recipe != "timed acquire" or operation != "WaitGone"):
        return "has no deadline, or no predecessor"
    looks = operation == "Sync+Children" and recipe.startswith("try_acquire")
    if fault == 20 and (operation == "NewTicket" or "Exists" in operation or looks):
        return "has no node yet"
    return impossible(recipe, operation, fault)


def _others(*starts: float, stay: float = 0.0) -> list[Thread]:
    return [at(start, Visit(LOCK, stay=stay)) for start in starts]


HOLDER = at(0.0, Visit(LOCK, stay=1.0))
END = count_from(LAST)
SITUATIONS: tuple[Situation, ...] = (
    situation("acquire", "release", at(0, Visit(LOCK, stay=0.5)), _others(0.2)),
    situation("acquire", "release", at(0.5, Visit(LOCK)), [HOLDER, *_others(0.6)]),
    situation("acquire", "release", at(0.5, Visit(LOCK, leave="with")), [HOLDER, *_others(0.4, 0.6)]),
    situation("acquire", "release", [at(0.5, Visit(LOCK, stay=2, leave="with")), *_others(0.6)], HOLDER),
    situation("acquire", "release", [at(0, Visit(LOCK, stay=1)), *_others(0.5, stay=3)], _others(0.6)),
    # A lost answer; an own node that is gone; a number that orders nothing; a lease that has run out.
    situation(
        "acquire", "release", at(0.5, Visit(LOCK)), [HOLDER, *_others(0.6)], first=(1, lambda run: run.cut(0), SERVED)
    ),
    situation(
        "acquire", "release", at(0.5, Visit(LOCK)), _others(0, stay=3), first=(2, lambda run: run.delete_node(), SERVED)
    ),
    situation("acquire", "release", at(0.5, Visit(LOCK)), HOLDER, first=(1, END, BEFORE)),
    situation("acquire", "release", at(0.5, Visit(LOCK)), _others(6), first=(4, lose_by_clock, BEFORE)),
    # A hold that is lost before it is left.
    situation("acquire", "release", at(0, Visit(LOCK, stay=1)), _others(6), first=(4, lose_by_clock, AFTER)),
    situation("acquire", "release", at(0, Visit(LOCK, stay=1, leave="with")), _others(1), first=(4, expire, AFTER)),
    # A hold that is lost behind its thread's back, for long.
    situation(
        "acquire", "release", at(0, Visit(LOCK, stay=4)), _others(6), first=(4, lambda run: run.delete_node(), AFTER)
    ),
    situation("acquire", "release", at(0, Visit(LOCK, stay=4)), _others(6), first=(4, close_session, AFTER)),
    situation("hand-over", "release", [at(0.5, Visit(LOCK)), HOLDER], _others(0.6)),
    situation("timed acquire", "release", at(0, Visit(LOCK, wait=1, stay=0.5)), _others(0.2)),
    situation("timed acquire", "release", at(0.5, Visit(LOCK, wait=1)), [*_others(0, stay=3), *_others(0.6)]),
    # The holder leaves just when the time is up, in either process.
    situation("timed acquire", "release", at(0.5, Visit(LOCK, wait=0.5)), [HOLDER, *_others(0.6)]),
    situation("timed acquire", "release", [at(0.5, Visit(LOCK, wait=0.5)), HOLDER], _others(0.6)),
    situation(
        "timed acquire", "release", at(0.5, Visit(LOCK, wait=0.05)), HOLDER, first=(1, lambda run: run.cut(0), SENT)
    ),
    situation(
        "timed acquire", "release", at(0.5, Visit(LOCK, wait=1)), HOLDER, first=(1, lambda run: run.cut(0), SERVED)
    ),
    situation(
        "timed acquire",
        "release",
        at(0.5, Visit(LOCK, wait=2)),
        [HOLDER, at(0.2, Visit(LOCK, wait=9))],
        at(0.3, Visit(LOCK, wait=9, stay=3)),
    ),
    situation("timed acquire", "release", at(0.5, Visit(LOCK, wait=3)), HOLDER, first=(1, END, BEFORE)),
    # The path was used before, and is free again.
    situation("try_acquire", "release", at(2, Visit(LOCK, wait=0, stay=0.5)), [HOLDER, *_others(2.2)]),
    situation("try_acquire", "release", at(0, Visit(LOCK, wait=0, stay=0.5)), _others(0.2)),
    situation("try_acquire", "release", at(0, Visit(LOCK, wait=0)), _others(0, 0)),
    situation("try_acquire, held", "release", at(0.5, Visit(LOCK, wait=0)), [HOLDER, *_others(0.6)]),
    situation("acquire", "re-entrant", at(0, Visit(RLOCK, True, depth=2, stay=1)), at(0.5, Visit(RLOCK, True, stay=2))),
    situation(
        "acquire",
        "re-entrant",
        [at(0, Visit(RLOCK, True, depth=2, stay=1)), at(0.5, Visit(RLOCK, True))],
        at(0.6, Visit(RLOCK, True)),
    ),
    situation("acquire", "dropped", at(0, Visit(LOCK, stay=1, leave="forget")), _others(0.5)),
    situation("acquire", "dropped", [at(0, Visit(LOCK, stay=1, leave="forget")), *_others(0.5)], _others(0.6)),
)
LOCKS_TABLE = Table(
    "Lock, RLock",
    InjectedRun,
    SITUATIONS,
    columns(1, 2, 3, 4, 5, 6, 7, 13, 16, 17, 18, 20, 22, 32, 39, 40, 42, 160),
    _of_lock,
    most=PLACES,
)


# -- read-write locks ------------------------------------------------------------------------------------------------


class InjectedPair(RecipeRun, TaskRun):
    """An injected run of a read-write lock."""


def _read(wait: float = -1, stay: float = 0.0, *, block: bool = False, depth: int = 1) -> Play:
    return Play(RW_PATH, "read", wait=wait, stay=stay, block=block, n=depth)


def _write(wait: float = -1, stay: float = 0.0, *, block: bool = False, depth: int = 1) -> Play:
    return _read(wait, stay, block=block, depth=depth)._replace(do="write")


def _downgrade(wait: float = -1, stay: float = 0.0) -> Play:
    return _read(wait, stay)._replace(do="downgrade")


def _of_pair(recipe: str, operation: str, fault: int) -> str | None:
    holds = recipe in ("release", "downgrade", "then read")
    if fault in (6, 40) and not (holds or (fault == 40 and operation == "Grant")):
        return "does not hold"
    if fault == 39 and recipe != "release":
        return "settles nothing"
    if fault == 18 and not (recipe.startswith("timed") and operation == "WaitGone"):
        return "has no deadline, or no predecessor"
    looks = operation == "Sync+Children" and recipe.startswith("try")
    if (recipe, operation) in (("downgrade", "Discard"), ("downgrade", "MarkMissing")) and fault in (3, 20):
        return "its node is gone, or was not made"
    if fault == 20 and not holds and (operation == "NewTicket" or "Exists" in operation or looks):
        return "has no node yet"
    return impossible(recipe, operation, fault)


PAIRS = (
    # The path was used before, and is free again.
    situation("read", "acquire", at(1, _read(stay=0.5)), at(0, _write()), at(1.2, _write())),
    situation("write", "acquire", at(1, _write(stay=0.5)), at(0, _write()), at(1.2, _write())),
    situation("write", "acquire", at(1, _write(block=True)), at(0, _read()), at(1.2, _read())),
    situation("write", "acquire", at(1, _write(stay=1, depth=2)), [at(0, _write()), at(1.2, _read())]),
    situation("try to read", "try_acquire", at(1, _read(wait=0, stay=0.5)), at(0, _write()), at(1.2, _write())),
    situation("read", "acquire", at(0, _read(stay=0.5)), at(0.2, _write())),
    situation("read", "acquire", at(0.5, _read(block=True)), [at(0, _write(stay=1)), at(0.6, _write())]),
    situation("read", "acquire", at(0.5, _read(stay=1)), [at(0, _read(stay=3)), at(0.6, _write())]),
    situation("read", "acquire", [at(0.5, _read()), at(0, _write(stay=1))], [at(0.6, _write()), at(0.6, _read())]),
    situation("write", "acquire", at(0, _write(stay=0.5)), at(0.2, _read())),
    situation(
        "write", "acquire", at(0.5, _write()), [at(0, _read(stay=1)), at(0.2, _read(stay=1.2))], at(0.6, _read())
    ),
    # A hold that is lost as another thread of the process waits to hold.
    situation("write", "acquire", [at(0, _write(stay=1)), at(0.5, _read(stay=3))], at(0.6, _write())),
    situation("read", "acquire", [at(0, _read(stay=1, depth=2)), at(0.5, _write(stay=3))], at(0.6, _read())),
    situation("downgrade", "downgrade", at(0, _downgrade(stay=0.5)), [at(0.2, _write()), at(0.3, _read())]),
    situation(
        "downgrade",
        "downgrade",
        [at(0.5, _downgrade(stay=1)), at(1, _write())],
        [at(0, _read(stay=1)), at(0.6, _read())],
    ),
    # A lost answer; a lease that has run out; a writer that is lost.
    situation(
        "downgrade",
        "downgrade",
        at(0.5, _downgrade(stay=0.5)),
        [at(0.2, _write()), at(0.6, _write())],
        first=(4, lose_answer, SERVED),
    ),
    situation(
        "downgrade", "downgrade", at(0.5, _downgrade(stay=0.5)), at(0.2, _write()), first=(5, lose_by_clock, BEFORE)
    ),
    situation(
        "downgrade", "downgrade", at(0.5, _downgrade(stay=0.5)), at(0.2, _write()), first=(3, delete_node, BEFORE)
    ),
    situation("timed read", "acquire", at(0.5, _read(wait=1, stay=0.5)), [at(0, _write(stay=1)), at(0.6, _write())]),
    # The holder leaves just when the time is up.
    situation("timed read", "acquire", at(0.5, _read(wait=0.5)), [at(0, _write(stay=1)), at(0.6, _read())]),
    situation("timed write", "acquire", at(0.5, _write(wait=0.5)), [at(0, _read(stay=1)), at(0.6, _read())]),
    situation(
        "timed write",
        "acquire",
        at(0.5, _write(wait=2)),
        [at(0, _read(stay=1)), at(0.2, _write(wait=9))],
        at(0.3, _read(wait=9, stay=3)),
    ),
    situation(
        "timed read",
        "acquire",
        at(0.5, _read(wait=2)),
        [at(0, _write(stay=1)), at(0.2, _read(wait=9))],
        at(0.3, _write(wait=9, stay=3)),
    ),
    situation("try to read", "try_acquire", at(0, _read(wait=0, stay=0.5)), at(0.2, _write())),
    situation("try to read", "try_acquire", at(0.5, _read(wait=0)), [at(0, _write(stay=1)), at(0.6, _read())]),
    situation("try to read", "try_acquire", at(0.5, _read(wait=0)), [at(0, _read(stay=1)), at(0.5, _write())]),
    situation("try to write", "try_acquire", at(0.5, _write(wait=0)), [at(0, _read()), at(0.5, _read())]),
    situation("try to write", "try_acquire", at(0.5, _write(wait=0)), [at(0, _read(stay=1)), at(0.6, _read())]),
)
RW = Table(
    "ReadWriteLock",
    InjectedPair,
    PAIRS,
    columns(1, 2, 3, 4, 5, 6, 7, 13, 16, 17, 18, 20, 22, 32, 39, 40, 160),
    _of_pair,
)


# -- semaphores ------------------------------------------------------------------------------------------------------


class Owner(User):
    """A thread that uses the semaphore, and destroys or resizes it (as it leaves a use by "destroy" or "resize")."""

    def _visit(self, use: Any) -> None:
        if use.leave == "resize":
            self._resize(use.permits)
            return
        if use.leave != "destroy":
            try:
                super()._visit(use)
            except SequenceExhaustedError:
                if not self.process.ensemble.ends:
                    raise
                self.world.say("is told that the numbers are at their end")
            return
        checks, nodes = self.checks, self.checks.ensemble.leader
        folders = (CHROOT + LOCKS, CHROOT + LEASES)
        begun, used = len(checks.ensemble.log), {name for path in folders for name in nodes.children(path)}
        checks.at_least = 0
        self.world.say("destroys the semaphore")
        try:
            Semaphore(self.process.client, PATH, VALUE).destroy()
        except RuntimeError as error:
            if isinstance(error, ZkConcurrentError):
                raise
            came = any(
                isinstance(step, changes.Made) and step.path.startswith(folders)
                for _, step in checks.ensemble.steps(begun)
            )
            if not used and not came:
                raise Violation("the semaphore is said to be in use, and is not") from None
            return
        if used.intersection(name for path in folders for name in nodes.children(path)):
            raise Violation("the semaphore was destroyed, and is in use")

    def _resize(self, permits: int) -> None:
        checks, more = self.checks, permits - VALUE
        checks.at_least, checks.at_most = min(checks.at_least, more), max(checks.at_most, more)
        self.world.say(f"resizes to {permits}")
        Semaphore(self.process.client, PATH, VALUE).resize(permits)
        checks.at_least = checks.at_most = more


class InjectedSemaphore(RecipeRun, SemaphoreRun):
    """An injected run of a semaphore of three permits."""

    worker = Owner
    queue = CHROOT + LOCKS


def _use(permits: int = 1, wait: float = -1, stay: float = 0.0, leave: str = "all") -> Use:
    return Use(permits, wait, stay, leave)


def _of_semaphore(recipe: str, operation: str, fault: int) -> str | None:
    parts = set(operation.split("+"))
    holds = recipe == "release"
    if fault in (6, 40) and not (holds or (fault == 40 and operation == "Grant")):
        return "does not hold"
    if fault == 39 and recipe != "release":
        return "settles nothing"
    if fault == 18 and not (recipe.startswith("timed") and operation == "WaitGone"):
        return "has no deadline, or no predecessor"
    if recipe in ("destroy", "resize") and fault != 20:
        return of_calls(recipe, operation, fault)
    if fault == 20 and (
        recipe in ("add", "destroy", "resize")
        or parts & {"Sync", "Exists", "CreateTogether"}
        or operation == "Children"
    ):
        return "has no node"
    return impossible(recipe, operation, fault)


HOG = at(0, _use(3, stay=1))
SEMAPHORES: tuple[Situation, ...] = (
    # The path was used before, and is free again.
    situation("acquire 1", "acquire", at(1, _use(stay=0.5)), at(0, _use(3)), at(1.2, _use(3))),
    situation("acquire 1", "acquire", at(0, _use(stay=0.5, leave="release")), at(0.2, _use(3))),
    # Waiting for the turn; for permits; for both.
    situation("acquire 1", "acquire", at(0.5, _use()), [HOG, at(0.2, _use(2, stay=1))], at(0.6, _use(3))),
    situation("acquire 1", "acquire", at(0.5, _use(leave="with")), HOG, at(0.6, _use(2))),
    situation("acquire 2", "acquire", at(0, _use(2, stay=0.5, leave="release")), at(0.2, _use(2))),
    situation("acquire 2", "acquire", at(0.5, _use(2)), [HOG, at(0.6, _use())]),
    # Permits are added, or come one by one.
    situation("acquire 2", "acquire", at(0.5, _use(2)), at(0, _use(2, stay=3)), at(1, _use(1, leave="add"))),
    situation("acquire 2", "acquire", at(0.5, _use(2)), [at(0, _use(2, stay=1)), at(0, _use(1, stay=1.3))]),
    # A hold that is lost as another thread of the process waits to hold.
    situation("acquire 2", "acquire", [at(0, _use(2, stay=1)), at(0.5, _use(3, stay=3))], at(0.6, _use())),
    # Both threads of a process hold, and lose.
    situation("acquire 1", "acquire", [at(0, _use(stay=1)), at(0, _use(stay=3))], at(0.6, _use(2))),
    # A lost answer; a lease that has run out.
    situation("acquire 2", "acquire", at(0.5, _use(2)), at(0.6, _use(3)), first=(4, lose_answer, SERVED)),
    situation("acquire 2", "acquire", at(0.5, _use(2)), at(0.6, _use(3)), first=(5, lose_by_clock, BEFORE)),
    situation("timed acquire", "acquire", at(0.5, _use(2, wait=1)), [HOG, at(0.6, _use(3))]),
    situation("timed acquire", "acquire", at(0.5, _use(2, wait=0.5)), [HOG, at(0.6, _use(1))]),
    situation("timed acquire", "acquire", at(0.5, _use(2, wait=0.3)), [HOG, at(0.6, _use(1))]),
    situation(
        "timed acquire", "acquire", at(0.5, _use(2, wait=2)), [HOG, at(0.2, _use(2, wait=9))], at(0.3, _use(wait=9))
    ),
    situation("try", "acquire", at(0, _use(2, wait=0, stay=0.5)), at(0.2, _use(2))),
    situation("try", "acquire", at(0.5, _use(2, wait=0)), [at(0, _use(2, stay=1)), at(0.6, _use(3))]),
    situation("try", "acquire", at(0.5, _use(1, wait=0)), [at(0, _use(2, stay=1)), at(0.2, _use(2, wait=1))]),
    # Somebody comes between the first look and the own node.
    situation(
        "try",
        "acquire",
        at(0.5, _use(1, wait=0)),
        [at(0, _use(2, stay=1)), at(0.55, _use(2, wait=2))],
        first=(0, pause, AFTER),
    ),
    situation("add", "add", at(0, _use(2, leave="add")), at(0.2, _use(4, wait=3))),
    situation("destroy", "destroy", at(1, _use(leave="destroy")), [at(0, _use()), at(0.5, _use(2, leave="add"))]),
    situation("destroy", "destroy", at(0.5, _use(leave="destroy")), [HOG, at(0.2, _use(1))]),
    situation("destroy", "destroy", at(0.5, _use(leave="destroy")), [at(0, _use(stay=0.501)), at(0.501, _use(1))]),
    situation("add", "add", at(0.5, _use(1, leave="add")), [HOG, at(0.2, _use(1))], at(0.3, _use(2))),
    situation("resize", "resize", at(0, _use(5, leave="resize")), at(0.2, _use(4, wait=3))),
    situation("resize", "resize", at(0.5, _use(4, leave="resize")), [HOG, at(0.2, _use(1))], at(0.3, _use(2))),
)
SEMAPHORE = Table(
    "Semaphore",
    InjectedSemaphore,
    SEMAPHORES,
    columns(1, 2, 3, 4, 5, 6, 8, 13, 16, 17, 18, 20, 22, 32, 39, 40, 160),
    _of_semaphore,
)


# -- conditions ------------------------------------------------------------------------------------------------------


class ConditionChecks(TaskChecks):
    """The invariants of a condition whose waits are struck, and their nodes deleted, within an operation."""

    queues_once = False


class InjectedCondition(RecipeRun, TaskRun):
    """An injected run of a condition over its RLock."""

    invariants = ConditionChecks
    checks: ConditionChecks

    def doing(self, operation: str) -> str:
        """Return the recipe that the target's operation belongs to."""
        back = self.present == "acquire" and self.target.actor.ident in self.checks.waiting
        return "take back" if back else super().doing(operation)

    def interrupt(self) -> None:
        """Interrupt the target."""
        waiting = self.checks.waiting.get(self.target.actor.ident)
        if waiting is not None:
            waiting.interrupted = True
        super().interrupt()

    def delete_node(self) -> bool:
        """Have an operator delete the target's newest node; if it waits, it is notified."""
        before = set(self.ensemble.leader.nodes)
        found = super().delete_node()
        self.checks.notifiers.add(OPERATOR)
        self.checks.deleted.update((path, OPERATOR) for path in before.difference(self.ensemble.leader.nodes))
        return found


OPERATOR = 0


def _turn(waits: float | None = None, notifies: int | None = None, depth: int = 1, stay: float = 0.0) -> Play:
    if notifies is not None:
        return Play(OF_AN_RLOCK, "notify", stay=stay, n=notifies)
    return Play(OF_AN_RLOCK, "hold" if waits is None else "wait", stay=stay, block=False, n=depth, timeout=waits)


def _of_condition(recipe: str, operation: str, fault: int) -> str | None:
    if recipe in ("acquire", "release"):
        return "is in the table of RLock"
    parts = set(operation.split("+"))
    back = recipe == "take back"
    holds = (
        recipe.startswith("notify")
        or operation in ("SuspendHold", "Grant")
        or (recipe, operation) == ("release_and_queue", "NewTicket")
    )
    if fault in (39, 40) and not holds:
        return "does not hold"
    if (fault in (3, 20) and operation in ("Discard", "MarkDeleted", "MarkMissing")) or (
        fault == 20 and operation == "Grant" and not back
    ):
        return "its node is gone"
    if fault == 35 and not parts & {"Multi", "Watch", "Wait", "Delete"}:
        return "has no part in it"
    if fault == 17 and recipe == "withdraw":
        return None
    if fault == 20 and back and operation == "NewTicket":
        return "has no node yet"
    return impossible(recipe, operation, fault)


NOTIFIER = at(1, _turn(notifies=1))
CONDITIONS: tuple[Situation, ...] = (
    situation("wait", "outwait", at(0, _turn(20)), NOTIFIER),
    situation(
        "wait",
        "outwait",
        [at(0.2, _turn(20, depth=2)), at(0.5, _turn(stay=3))],
        [at(0, _turn(20)), at(1, _turn(None, -1))],
    ),
    situation("timed wait", "outwait", at(0, _turn(1)), at(0.5, _turn(notifies=0))),
    # The notification comes just when the time is up; the lock that is taken back is held.
    situation("timed wait", "outwait", at(0, _turn(1)), [NOTIFIER, at(0.5, _turn(20)), at(5, _turn(None, -1))]),
    situation("timed wait", "outwait", at(0, _turn(1)), at(0.5, _turn(None, 1, stay=1))),
    # A lost answer, of what was applied, or not.
    situation("wait", "outwait", at(0, _turn(20)), NOTIFIER, first=(7, lose_answer, SERVED)),
    situation("wait", "outwait", at(0, _turn(3)), NOTIFIER, first=(7, lose_answer, SENT)),
    situation("wait", "outwait", at(0, _turn(3)), NOTIFIER, first=(7, delete_node, SENT)),
    situation(
        "notify",
        "notify",
        [at(0.5, _turn(notifies=1)), at(0.6, _turn(stay=3))],
        [at(0, _turn(1.5)), at(0.2, _turn(20)), at(4, _turn(None, -1))],
    ),
    situation(
        "notify",
        "notify",
        at(0.5, _turn(notifies=2)),
        [at(0, _turn(20)), at(0.2, _turn(0.3)), at(0.1, _turn(20)), at(4, _turn(None, -1))],
    ),
    situation(
        "notify_all",
        "notify",
        at(0.5, _turn(notifies=-1)),
        [at(0, _turn(20)), at(0.2, _turn(20)), at(4, _turn(None, -1))],
    ),
    situation("notify nobody", "notify", at(0.5, _turn(notifies=1)), [at(0, _turn()), at(0.6, _turn(1))]),
)
CONDITION = Table(
    "Condition",
    InjectedCondition,
    CONDITIONS,
    columns(1, 2, 3, 4, 6, 8, 13, 16, 17, 20, 32, 35, 39, 40, 160),
    _of_condition,
)


# -- events ----------------------------------------------------------------------------------------------------------


class InjectedEvent(RecipeRun, EventRun):
    """An injected run of an event."""

    def delete_node(self) -> bool:
        """Have an operator delete the event's node."""
        return self._remove(None) is not False


def of_calls(recipe: str, operation: str, fault: int) -> str | None:
    """Return why a fault can't befall an operation without a hold."""
    if fault in (3, 4) and operation == "Discard":
        return "has no node of its own"
    if fault in (6, 18, 39, 40):
        return "holds nothing"
    if fault == 20 and (
        operation in ("CreatePersistent", "CreateTogether")
        or "Exists" in operation
        or (recipe, operation) == ("destroy", "Discard")
    ):
        return "there is no node"
    return impossible(recipe, operation, fault)


def _does(start: float, *steps: str | tuple[Any, ...]) -> Thread:
    return at(start, *(EventStep(step) if isinstance(step, str) else EventStep(*step) for step in steps))


WAITERS = [_does(0, "wait"), _does(0.2, ("wait", 3.0))]
EVENTS: tuple[Situation, ...] = (
    situation("set", "turn", _does(0, "set"), _does(0.2, ("wait", 1.0))),
    situation("set", "turn", _does(0.5, "set"), WAITERS),
    situation("set", "turn", _does(0.5, "set"), [_does(0, "set", "clear"), _does(0.5, "pulse")]),
    situation("set", "turn", _does(0.5, "set"), [_does(0, "set", "clear"), _does(1, "clear")]),
    situation("clear", "turn", _does(0.5, "clear"), [_does(0, "set"), _does(0.6, ("wait", 1.0))]),
    situation("clear", "turn", _does(0.5, "clear"), [_does(0, "set"), _does(0.5, "clear", "set")]),
    situation("wait", "wait", _does(0, "wait"), _does(1, "set")),
    # It is set, and cleared at once; by two.
    situation("wait", "wait", _does(0.5, "wait"), [_does(0, "set", "clear"), _does(1, "pulse")]),
    situation("wait", "wait", _does(0.5, "wait"), _does(0, "set")),
    situation("timed wait", "wait", _does(0.5, ("wait", 0.5)), _does(0, "clear")),
    situation("timed wait", "wait", _does(0.5, ("wait", 0.5)), [_does(0, "pulse"), _does(1, "pulse")]),
    situation("is_set", "look", _does(0.5, "is_set"), [_does(0, "set"), _does(0.5, "clear")]),
    situation("destroy", "destroy", _does(0.5, "destroy"), [_does(0, "set"), _does(0.5, "clear")]),
    situation("destroy", "destroy", _does(0.5, "destroy"), _does(0, "set", "clear", ("wait", 1.0))),
)
EVENT = Table("Event", InjectedEvent, EVENTS, columns(1, 2, 3, 4, 5, 8, 13, 16, 17, 20, 32, 160), of_calls)


# -- latches ---------------------------------------------------------------------------------------------------------


class InjectedLatch(RecipeRun, LatchRun):
    """An injected run of a latch of four."""


def _counts(start: float, *steps: str | tuple[Any, ...]) -> Thread:
    return at(start, *(LatchStep(step) if isinstance(step, str) else LatchStep(*step) for step in steps))


LATCHES: tuple[Situation, ...] = (
    situation("count_down", "count_down", _counts(0, ("count_down", 2)), _counts(0.2, ("count_down", 2))),
    situation("count_down", "count_down", _counts(0.5, "count_down"), _counts(0, ("count_down", 3), "wait")),
    situation("count_down", "count_down", _counts(0.5, "count_down"), _counts(0, ("count_down", 4))),
    situation("wait", "wait", _counts(0, "wait"), _counts(1, ("count_down", 4))),
    situation("wait", "wait", _counts(0.5, "wait"), [_counts(0, ("count_down", 2)), _counts(1, ("count_down", 2))]),
    situation("wait", "wait", _counts(0.5, "wait"), _counts(0, ("count_down", 4))),
    situation("timed wait", "wait", _counts(0.5, ("wait", 1, 0.5)), _counts(0, ("count_down", 2))),
    situation(
        "timed wait",
        "wait",
        _counts(0.5, ("wait", 1, 0.5)),
        [_counts(0, ("count_down", 2)), _counts(1, ("count_down", 2))],
    ),
    situation("count", "look", _counts(0.5, "count"), _counts(0, ("count_down", 2), ("count_down", 1))),
)
LATCH = Table("CountDownLatch", InjectedLatch, LATCHES, columns(1, 2, 3, 4, 5, 8, 13, 16, 17, 32, 160), of_calls)


# -- elections -------------------------------------------------------------------------------------------------------


class InjectedElection(RecipeRun, ElectionRun):
    """An injected run of an election."""


def _of_election(recipe: str, operation: str, fault: int) -> str | None:
    if recipe not in ("leader", "observe", "publish"):
        return "a lock's, which has a table of its own"
    if recipe == "publish":
        if fault in (3, 4) and operation == "Discard":
            return "its node is the term's"
        return impossible(recipe, operation, fault)
    return of_calls(recipe, operation, fault)


def _acts(start: float, *acts: Act) -> Thread:
    return at(start, *acts)


LEADS = Act("lead", stay=1.0)
ELECTIONS: tuple[Situation, ...] = (
    situation("leader", "look", _acts(0.5, Act("leader")), _acts(0, LEADS)),
    situation("leader", "look", _acts(0.5, Act("leader")), [_acts(0.1, LEADS), _acts(0.5, LEADS)]),
    situation("observe", "follow", _acts(0, Act("observe", times=2)), _acts(0.5, LEADS)),
    situation("observe", "follow", _acts(0.5, Act("observe", times=3)), [_acts(0, LEADS), _acts(0.2, LEADS)]),
    situation("observe", "follow", _acts(0.5, Act("observe", times=2)), _acts(0, LEADS._replace(times=2))),
    situation("publish", "publish", _acts(0, LEADS._replace(times=2)), _acts(0.2, Act("leader"))),
    situation(
        "publish",
        "publish",
        _acts(0.5, LEADS._replace(times=2)),
        _acts(0, Act("observe", times=2), LEADS),
    ),
)
ELECTION = Table("Election", InjectedElection, ELECTIONS, columns(1, 2, 3, 4, 5, 8, 13, 16, 17, 32, 160), _of_election)


# -- barriers --------------------------------------------------------------------------------------------------------


class InjectedBarrier(RecipeRun, BarrierRun):
    """An injected run of a barrier."""


def _meets(
    do: str = "wait",
    timeout: float = 8.0,
    action: float | None = None,
    fails: bool = False,
    parties: int = 3,
    mends: bool = False,
) -> Meeting:
    return Meeting(parties, do, timeout, action, fails, 0.0, mends)


def _of_barrier(recipe: str, operation: str, fault: int) -> str | None:
    parts = set(operation.split("+"))
    comes = "wait" in recipe or recipe in ("finish", "fail")
    if fault == (32 if comes else 36):
        return "is no party" if fault == 36 else "is fault 36"
    early = {"Sync", "CreatePersistent", "CreateTogether", "NewTicket", "MarkDeleted"}
    if fault == 20 and (not comes or parts & early):
        return "has no node yet"
    return impossible(recipe, operation, fault)


def _comes(*starts: float, **what: Any) -> list[Thread]:
    return [at(start, _meets(**what)) for start in starts]


BARRIERS: tuple[Situation, ...] = (
    situation("wait as first", "wait", _comes(0), _comes(0.5, 1.0)),
    situation("wait as middle", "wait", _comes(0.5), _comes(0, 1.0)),
    situation("wait as last", "wait", _comes(0.5), _comes(0, 0.2)),
    # Again, and again.
    situation(
        "wait as last", "wait", at(0.5, _meets(), _meets()), [at(0, _meets(), _meets()), at(0.2, _meets(), _meets())]
    ),
    situation("wait as first", "wait", _comes(0, action=0.5), _comes(0.5, 1.0, action=0.5)),
    situation("wait to act", "wait", _comes(0.5, action=0.5), _comes(0, 0.2, action=0.5)),
    situation("wait to act", "wait", _comes(0.5, action=0.5, fails=True), _comes(0, 0.2, action=0.5)),
    # The others come in time; the time is up: nobody comes, the last comes just then, the action is not over.
    situation("timed wait", "wait", _comes(0.5, timeout=1.0), _comes(0, 0.6)),
    situation("timed wait", "wait", _comes(0.5, timeout=1.0), _comes(0, timeout=3.0)),
    situation("timed wait", "wait", _comes(0.5, timeout=0.5), _comes(0, 1.0)),
    situation("timed wait", "wait", _comes(0, timeout=1), _comes(0.5, 0.6, action=1.0)),
    situation("try", "wait", _comes(0.5, timeout=0), _comes(0, 0.2)),
    situation("try", "wait", _comes(0.5, timeout=0), _comes(0)),
    situation("abort", "abort", _comes(0.5, do="abort"), _comes(0, 0.2)),
    situation("reset", "reset", _comes(0.5, do="reset"), [*_comes(0, 0.2), *_comes(1, 1, 1)]),
    situation("reset", "reset", _comes(0.5, do="reset"), [*_comes(0, timeout=0.3), *_comes(0.5, do="reset")]),
    situation("look", "read_state", _comes(0.5, do="look"), _comes(0, 0.5, 0.5)),
)
BARRIER = Table(
    "Barrier", InjectedBarrier, BARRIERS, columns(1, 2, 3, 4, 5, 8, 13, 16, 17, 20, 32, 36, 160), _of_barrier
)
