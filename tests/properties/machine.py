"""What all machines share: actors that make calls, faults, and the model that judges what comes of them.

Hypothesis chooses the schedule: a rule begins a call or several, or a fault. When no thread can go on, the calls that
have ended must be explained by the model of `tests/models`, the others must wait rightly by it, and what can be seen
must be the model's state.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.models.history import Call, Judge, Model, Violation
from tests.properties.stage import PENDING, STEP, Actor, Stage
from tests.simulation.world.client import Process
from zkconcurrent import ClientError

# Without a number the examples are few and always the same, so that a failure is about the change at hand; `make soak`
# tries a thousand others.
EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))
FEW, STEPS = 10, 25
# In seconds: a timeout, and what a proof of a lease may take, by its heartbeats.
SHORT, PROOF = 0.01, 8.0
PATH = "/app/p"
ACTORS = ("a1", "a2", "b1", "b2")
TIMEOUTS: dict[str, float | None] = {"wait": None, "try": 0.0, "timed": SHORT}
processes = st.sampled_from("ab")


class Machine(RuleBasedStateMachine):
    """The base of all machines.

    Attributes:
        MODEL: judges the calls.
        OPS: the calls that a rule draws from; `ask` begins one.
        WHILE_CUT: whether a process that is cut off makes calls.
        CUT_MEANWHILE: whether it may be cut off while it makes some.
        OF: the class of the primitive, and its arguments behind the path.
        KIND: threads, or tasks.
        calls: the call of each actor that goes on.
    """

    MODEL: ClassVar[Model]
    OF: ClassVar[Any] = ()
    OPS: ClassVar[list[Any]] = []
    WHILE_CUT: ClassVar[bool] = False
    CUT_MEANWHILE: ClassVar[bool] = False
    KIND: ClassVar[type[Actor]] = Actor

    # -- of each primitive ---------------------------------------------------------------------------------------

    def make(self, client: Any) -> Any:
        """Make the primitive."""
        return self.OF[0](client, PATH, *self.OF[1:])

    def ask(self, actor: Actor, op: Any) -> None:
        """Begin one of `OPS`."""
        raise NotImplementedError

    def modelled(self, state: Any) -> object:
        """Return what can be seen of a state of the model."""

    def seen(self) -> object:
        """Return the same as it is."""

    def replaced(self, process: str) -> None:
        """Another process is in the place of this one."""

    def finish(self) -> None:
        """End all calls."""

    # -- the rules -----------------------------------------------------------------------------------------------

    @initialize(seed=st.integers(0, 2**16))
    def start(self, seed: int) -> None:
        """Begin with two processes of two actors each."""
        self.stage = Stage(seed)
        self.judge = Judge(self.MODEL)
        self.processes: dict[str, Process] = {}
        self.actors: dict[str, Actor] = {}
        self.objects: dict[str, Any] = {}
        self.calls: dict[Actor, Call] = {}
        self.cut: set[str] = set()
        self.outside = self.make(self.stage.observer.client)
        for name in "ab":
            self._begin_process(name)
        self.stage.rest()

    @rule(
        actor=st.sampled_from(ACTORS),
        op=st.runner().flatmap(lambda machine: st.sampled_from(machine.OPS)),
        blink=st.none() | st.tuples(processes, st.integers(1, 40), st.integers(0, 2)),
    )
    def call(self, actor: str, op: Any, blink: tuple[str, int, int] | None) -> None:
        """Make a call, if the actor is idle. Meanwhile a connection may be lost, which changes nothing.

        Before that, there may be so many moves; and so many requests that are under way arrive, without a reply.
        """
        known = self.actors[actor]
        if not self.may_ask(known):
            return
        self.ask(known, op)
        hasty = known in self.calls and self.calls[known].timeout is not None  # it may end as a connection is lost
        if blink is not None and blink[0] not in self.cut and not hasty:
            process, moves, served = blink
            self.stage.rest(moves_left=moves)
            self.stage.cut(self.processes[process], served)
            self.stage.restore(self.processes[process])
            try:
                self.settle()
            except Violation:
                # The grant may need another proof that the session lives, for the first one was lost.
                self.settle(PROOF)
        self.settle()

    @rule(
        ops=st.runner().flatmap(lambda machine: st.lists(st.sampled_from(machine.OPS), min_size=4, max_size=4)),
        moves=st.integers(0, 60),
        cuts=st.sets(processes),
        served=st.integers(0, 3),
    )
    def calls_at_once(self, ops: list[Any], moves: int, cuts: set[str], served: int) -> None:
        """Have all that are idle make a call at once; meanwhile processes may be cut off, with requests and replies."""
        for actor, op in zip(self.actors.values(), ops, strict=True):
            if self.may_ask(actor):
                self.ask(actor, op)
        if self.CUT_MEANWHILE:
            self.stage.rest(moves_left=moves)
            for process in sorted(cuts - self.cut):
                self.cut_off(process, served)
        self.settle()

    @rule(process=processes, fault=st.sampled_from(["cut", "expire", "stop", "kill"]))
    def fault(self, process: str, fault: str) -> None:
        """Let something befall a process; one that is cut off is connected again: its session and leases outlast that.

        One that is stopped or killed loses its holds, and another begins in its place.
        """
        known = self.processes[process]
        if process in self.cut:
            self.restore(process)
        elif fault == "cut":
            self.cut_off(process)
        elif fault == "expire":
            self.stage.expire(known)
            self.befalls("expired", process)
        else:
            self.stage.end(known, kill=fault == "kill")
            self.stage.rest()
            for actor in self.of(process):
                if (call := self.calls.pop(actor, None)) is not None:
                    right = actor.outcome is PENDING if fault == "kill" else actor.outcome is ClientError
                    assert right, f"{call}: {actor.outcome}, and its client has ended"
                    self.judge.forgets(call)
            self.befalls("gone", process)
            self.replaced(process)
            self._begin_process(process)
        self.settle()

    # -- what they use -------------------------------------------------------------------------------------------

    def settle(self, seconds: float = STEP) -> None:
        """Let all go on that can; then each outcome is right, and so is each wait, and what is seen."""
        self.stage.rest(seconds)
        for actor in list(self.calls):
            if not self.is_waiting(actor):
                self.judge.ends(self.calls.pop(actor), actor.outcome)
        self.judge.rests(call for actor, call in self.calls.items() if not self.is_cut(actor))
        seen = self.seen()
        self.judge.sees(lambda state: self.modelled(state) == seen, seen)

    def befalls(self, what: str, process: str) -> None:
        """Something befalls a process, as the model sees it."""
        if what in self.MODEL.events:
            self.judge.happens(Call(process, what, party=process))

    def begin(self, actor: Actor, what: str, call: Callable[..., Any], *args: Any, **more: Any) -> None:
        """Begin a call: its name and arguments in the model, and the call itself."""
        self.calls[actor] = Call(actor.name, what, args, party=actor.process.name, **more)
        self.judge.begins(self.calls[actor])
        actor.begin(call)

    def _begin_process(self, name: str) -> None:
        process = self.processes[name] = self.stage.process(name)
        self.objects[name] = self.make(process.client)
        for each in ACTORS:
            if each[0] == name:
                self.actors[each] = self.KIND(each, process)

    def may_ask(self, actor: Actor) -> bool:
        """Return whether an actor may make a call."""
        return not self.is_waiting(actor) and (self.WHILE_CUT or not self.is_cut(actor))

    def is_waiting(self, actor: Actor) -> bool:
        """Return whether an actor's call goes on."""
        return actor.outcome is PENDING

    def is_cut(self, actor: Actor) -> bool:
        """Return whether an actor's process is cut off."""
        return actor.process.name in self.cut

    def of(self, process: str) -> list[Actor]:
        """Return the actors of a process."""
        return [each for each in self.actors.values() if each.process.name == process]

    def at(self, actor: Actor) -> Any:
        """Return the object of an actor's process."""
        return self.objects[actor.process.name]

    def state(self) -> Any:
        """Return a state that the primitive may be in."""
        return next(iter(self.judge.states))

    def cut_off(self, process: str, served: int = 0) -> None:
        """Cut a process off."""
        self.cut.add(process)
        self.stage.cut(self.processes[process], served)
        self.befalls("cut", process)

    def restore(self, process: str) -> None:
        """Connect a process that is cut off."""
        self.cut.remove(process)
        self.stage.restore(self.processes[process])
        self.befalls("restored", process)

    def left(self) -> list[str]:
        """Return the ephemeral nodes that must not be there in the end."""
        return self.stage.ephemerals(PATH)

    def teardown(self) -> None:
        """End all; nothing may be left."""
        if not hasattr(self, "stage"):
            return
        try:
            # Hypothesis ends an example early by an error that is no `Exception`.
            if sys.exc_info()[1] is None:
                for process in sorted(self.cut):
                    self.restore(process)
                    self.settle()
                self.finish()
                self.settle()
                assert not (left := self.left()), f"left: {left}"
        finally:
            self.stage.close()


def explore(machine: type[Machine], examples: int = 0) -> None:
    """Let Hypothesis look for a way to break the library; with a number of examples, always the same ones."""
    chosen = settings(
        max_examples=examples or EXAMPLES or FEW,
        derandomize=bool(examples) or not EXAMPLES,
        database=None,
        stateful_step_count=STEPS,
        deadline=None,
        phases=[Phase.generate] if examples else [Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow],
        report_multiple_bugs=False,
    )
    run_state_machine_as_test(machine, settings=chosen)
