"""Runs in which a fault is injected at one operation of one thread, instead of at random.

`InjectedRun` does so with locks; mixed into the run of another primitive, with that one's threads and checks.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

import zkconcurrent
from tests.simulation.world.ensemble import Transport
from tests.simulation.world.run import CHROOT, Run
from tests.simulation.world.schedule import Schedule
from tests.simulation.world.workload import Worker
from tests.simulation.world.world import Actor

Way: TypeAlias = "Callable[[InjectedRun], bool | None]"
Thread: TypeAlias = tuple[float, list[Any]]
Lines: TypeAlias = tuple[tuple[str, int], ...]
PACKAGE = str(Path(zkconcurrent.__file__).parent)


class Injection(NamedTuple):
    """A fault at one operation of the target.

    Attributes:
        operation: which, counted from the target's beginning.
        fault: its number in faults.md.
        way: how, of the ways in which the fault happens; it returns False if it could not.
        moment: "before" the operation; "sent", before the server has its first request; "served", when the server has
            answered its last; "between", when it has answered the first of several; "after", where its result is taken.
    """

    operation: int
    fault: int
    way: Way
    moment: str


class Situation(NamedTuple):
    """The actions of a target thread, a0, and the other threads.

    Attributes:
        recipe: the recipe of the target's operations until it holds; then they belong to `then`.
        threads: of each process.
        first: an injection that makes the situation.
    """

    recipe: str
    then: str
    threads: list[list[Thread]]
    first: Injection | None = None


def at(start: float, *visits: Any) -> Thread:
    """Return a thread that starts then, in seconds, and makes some visits."""
    return start, list(visits)


def situation(
    recipe: str, then: str, *processes: Thread | list[Thread], first: tuple[int, Way, str] | None = None
) -> Situation:
    """Return a situation of some processes, each of one thread or of several; the target is the first of the first.

    If an injection makes the situation, it is a way at a moment of an operation of the target.
    """
    threads = [each if isinstance(each, list) else [each] for each in processes]
    return Situation(recipe, then, threads, None if first is None else Injection(first[0], 0, *first[1:]))


class InjectedRun(Run):
    """A run of a situation with injections.

    Attributes:
        operations: those that the target has performed, as (recipe, operation).
        happened: the injections that have taken place.
        points: the lines of the library at which the target's turn could have ended, if a fault was to be injected
            `at` one of these points.
        before_next_request: called instead of serving what comes next on the target's connection, which it cuts.
        after_next_answer: called when the server has answered something on the target's connection.
    """

    def __init__(self, situation: Situation, *injections: Injection, at: tuple[int, Way] | None = None) -> None:
        super().__init__(Schedule(situation.threads, []))
        self.situation = situation
        self.injections = [each for each in (situation.first, *injections) if each is not None]
        self.operations: list[tuple[str, str]] = []
        self.happened: list[Injection] = []
        self.target: Worker = self.workers[0]
        self._armed: list[Injection] = []
        self._answers: list[object] = []
        self.points: list[Lines] = []
        self._at = at
        if at is not None:
            self.world.check = self._check_and_inject
        self.after_next_answer: Callable[[Transport], None] | None = None
        self.before_next_request: Callable[[], None] | None = None
        self.target.process.connection.server = self.ensemble.follower
        self.world.hear = self._hear
        # The hooks of a primitive's own run or checks are still called.
        self._hooks = self.world.requested, self.ensemble.on_request, self.ensemble.on_answer
        self.world.requested = self._note_request
        self.ensemble.on_request = self._inject_at_request
        self.ensemble.on_answer = self._inject_at_reply

    def _check_and_inject(self) -> None:
        self.checks.step()
        if self._acting and self._at is not None:
            self.points.append(_lines_of_the_library(sys._getframe()))
            if len(self.points) == self._at[0]:
                self.world.say("has a fault injected here")
                self._at[1](self)

    # -- moments -------------------------------------------------------------------------------------------------

    def _hear(self, operation: str) -> None:
        if not self._acting:
            return
        armed, self._armed = self._armed, []
        if not operation:
            for injection in armed:
                if injection.moment == "after":
                    self._befall(injection)
            return
        index = len(self.operations)
        self.operations.append((self.doing(operation), operation))
        self._answers.clear()
        for injection in self.injections:
            if injection.operation != index:
                continue
            if injection.moment == "before":
                self._befall(injection)
            else:
                self._armed.append(injection)

    def doing(self, operation: str) -> str:
        """Return the recipe that the target's operation belongs to."""
        holds = bool(self.checks.sections) and any(each.worker is self.target for each in self.checks.sections)
        settled = operation in ("Release", "ReleaseOneLevel", "AcquireAgain", "Forget")
        return self.situation.then if holds or settled else self.situation.recipe

    def _note_request(self, answer: object) -> None:
        self._hooks[0](answer)
        if self._acting:
            self._answers.append(answer)

    def _inject_at_request(self, answer: object) -> bool:
        wire, act = self.target.process.connection.wire, self.before_next_request
        if act is not None and wire is not None and wire.requests and wire.requests[0][2] is answer:
            self.before_next_request = None
            act()
            return True
        injection = self._take("sent", answer, 0)
        if injection is not None:
            self._befall(injection)
            if wire is None or not wire.open or not self.ensemble.can_serve(wire):
                return True
        return self._hooks[1](answer)

    def _inject_at_reply(self, wire: Transport, answer: object) -> None:
        self._hooks[2](wire, answer)
        act = self.after_next_answer
        if act is not None and wire is self.target.process.connection.wire:
            self.after_next_answer = None
            act(wire)
        injection = (self._take("between", answer, 0) if len(self._answers) > 1 else None) or self._take(
            "served", answer, -1
        )
        if injection is not None:
            self._befall(injection)

    def _take(self, moment: str, answer: object, which: int) -> Injection | None:
        if not self._answers or self._answers[which] is not answer:
            return None
        injection = next((injection for injection in self._armed if injection.moment == moment), None)
        if injection is not None:
            self._armed.remove(injection)
        return injection

    def _befall(self, injection: Injection) -> None:
        self.injected["remove"] = self.injected.get("remove", 0) + 1
        self.happened.append(injection)  # it may not come back
        if injection.way(self) is False:
            self.happened.remove(injection)

    # -- what the ways are made of -------------------------------------------------------------------------------

    @property
    def _acting(self) -> bool:
        actor = self.world.current
        return actor is not None and self.acts(actor)

    def acts(self, actor: Actor) -> bool:
        """Whether a thread's operations are those at which faults are injected: the target's."""
        return actor is self.target.actor

    def deadline(self) -> float:
        """Return when the target's time is up."""
        return 1000.0 + self.target.start + self.target.visits[0].wait

    @property
    def queue(self) -> str:
        """The queue in which the target waits."""
        return CHROOT + str(self.target.visits[0].path)

    def cut(self, length: float, follower: bool = False) -> bool:
        """Cut the target's connection, with what is on it."""
        connection = self.target.process.connection
        connection.down_until = self.world.now + length
        connection.server = self.ensemble.follower if follower else self.ensemble.leader
        if connection.wire is None or not connection.wire.open:
            return False
        self.world.say(f"the target's connection is cut for {length:g}")
        self.ensemble.close(connection.wire)
        return True

    def stall(self, wire: Transport, length: float) -> None:
        """Let a connection be a black hole for a while."""
        self.ensemble.silence(wire.session)
        wire.stalled_until = self.world.now + length
        self.world.at(wire.stalled_until)

    def isolate(self, length: float) -> None:
        """Cut the follower off from its leader."""
        self.ensemble.cut_off(length)

    def lag(self, length: float) -> None:
        """Let the follower lag."""
        self.ensemble.follower.lags_until = self.world.now + length
        self.world.at(self.ensemble.follower.lags_until, self.ensemble.recover)

    def starve(self, length: float) -> None:
        """Give the target no turn for a while."""
        actor = self.world.current if self._acting and self.world.current is not None else self.target.actor
        self.target.process.starve(actor, self.world.now + length)
        self.end_turn()

    def end_turn(self) -> None:
        """Let others go on."""
        actor = self.world.current
        if self._acting and actor is not None:
            actor.ready = True
            self.world._release_level(actor)

    def interrupt(self) -> None:
        """Interrupt the target."""
        if self._acting:
            raise KeyboardInterrupt
        self.world.throw(self.target.actor, KeyboardInterrupt())

    def stop(self, length: float) -> None:
        """Stop the target's process, for a while or for good."""
        self.world.say(f"the target's process is stopped for {length:g}")
        self.target.process.stop_until(self.world.now + length)
        if length < math.inf:  # it is the first to go on
            self.world.at(self.world.now + length, lambda: setattr(self.world, "next_up", self.target.actor))
        self.end_turn()

    def delete_node(self) -> bool:
        """Have an operator delete the target's newest node."""
        leader, thread = self.ensemble.leader, str(self.target.actor.ident)
        nodes = leader.nodes
        ours = [path for path in leader.all_ephemerals() if json.loads(nodes[path].data or b"")["thread"] == thread]
        if ours:
            node = max(ours, key=lambda path: nodes[path].czxid)
            self.ensemble.delete(node)
            self.checks.remove(node)
        return bool(ours)


def _lines_of_the_library(frame: FrameType | None) -> Lines:
    lines = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(lines)
