"""What all machines share: actors that make calls, a model of what comes of them, and the comparison after each step.

A rule begins a call, or a fault, and changes the model. After each rule, when no thread can go on, each call must have
the outcome that the model says, or wait if that says so; and the server must have what the model has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.properties.stage import PENDING, Actor, Stage
from tests.simulation.world.client import Process
from zkconcurrent import ClientError

# Without a number the examples are few and always the same, so that a failure is about the change at hand; `make soak`
# tries a thousand others.
EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "0"))
FEW, STEPS = 10, 25
# In seconds: a timeout, and what a proof of a lease may take, by its heartbeats.
SHORT, PROOF = 0.01, 8.0
PATH = "/app/p"
# Calls that may end because a connection is lost.
HASTY = {"try", "timed"}
# Any outcome is expected: the machine looks at it itself.
ANY = "any"
ACTORS = ("a1", "a2", "b1", "b2")
processes = st.sampled_from("ab")


class Machine(RuleBasedStateMachine):
    """The base of all machines.

    Attributes:
        OPS: the calls that a rule draws from; `do` begins one.
        WHILE_CUT: whether a process that is cut off makes calls.
        OF: the class of the primitive, and its arguments behind the path.
        KIND: threads, or tasks.
        expected: the outcome of each actor's last call.
        pending: the actors that are expected to wait, in the order of their calls.
        due: the outcomes that actors learn once they are connected again.
    """

    OF: ClassVar[Any] = ()
    OPS: ClassVar[list[Any]] = []
    WHILE_CUT: ClassVar[bool] = False
    KIND: ClassVar[type[Actor]] = Actor

    # -- of each primitive ---------------------------------------------------------------------------------------

    def make(self, client: Any) -> Any:
        """Make the primitive."""
        return self.OF[0](client, PATH, *self.OF[1:])

    def do(self, actor: Actor, op: Any) -> None:
        """Begin one of `OPS`, and change the model."""
        raise NotImplementedError

    def modelled(self) -> object:
        """Return what can be seen, by the model."""

    def seen(self) -> object:
        """Return the same as it is."""

    def restored(self, process: str) -> None:
        """Change the model: a process is connected again, in its session."""

    def expired(self, process: str) -> None:
        """Change the model: the session of a process is over, and it has another."""

    def gone(self, process: str) -> None:
        """Change the model: another process is in the place of this one."""

    def finish(self) -> None:
        """End all calls."""

    # -- the rules -----------------------------------------------------------------------------------------------

    @initialize(seed=st.integers(0, 2**16))
    def start(self, seed: int) -> None:
        """Begin with two processes of two actors each."""
        self.stage = Stage(seed)
        self.processes: dict[str, Process] = {}
        self.actors: dict[str, Actor] = {}
        self.objects: dict[str, Any] = {}
        self.expected: dict[Actor, object] = {}
        self.pending: list[Actor] = []
        self.due: dict[Actor, object] = {}
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
        if self.is_waiting(known) or (self.is_cut(known) and not self.WHILE_CUT):
            return
        self.do(known, op)
        if blink is not None and blink[0] not in self.cut and not {op, op[0] if isinstance(op, tuple) else op} & HASTY:
            process, moves, served = blink
            self.stage.rest(moves_left=moves)
            self.stage.cut(self.processes[process], served)
            self.stage.restore(self.processes[process])
            self.stage.rest()
            try:
                self.the_world_is_as_modelled()
            except AssertionError:
                # The grant may need another proof that the session lives, for the first one was lost.
                self.stage.rest(PROOF)
        self.stage.rest()

    @rule(process=processes, fault=st.sampled_from(["cut", "expire", "stop", "kill"]))
    def fault(self, process: str, fault: str) -> None:
        """Let something befall a process; one that is cut off is connected again: its session and leases outlast that.

        One that is stopped or killed loses its holds, and another begins in its place.
        """
        known = self.processes[process]
        if process in self.cut:
            self.restore(process)
        elif fault == "cut":
            self.cut.add(process)
            self.stage.cut(known)
            self.stage.rest()
        elif fault == "expire":
            self.stage.expire(known)
            self.stage.rest()
            self.expired(process)
        else:
            self.stage.end(known, kill=fault == "kill")
            self.stage.rest()
            self._see_off(process, PENDING if fault == "kill" else ClientError)
            self.gone(process)
            self.pending = [each for each in self.pending if each.process is not known]
            self._begin_process(process)
            self.stage.rest()

    def _see_off(self, process: str, end_of_a_wait: object) -> None:
        for actor in self.of(process):
            outcome, expected = actor.outcome, self.expected.pop(actor)
            right = expected in (outcome, ANY) or (expected is PENDING and outcome == end_of_a_wait)
            assert right, f"{actor}: {outcome}, expected: {expected}"

    @invariant()
    def the_world_is_as_modelled(self) -> None:
        """Each outcome is right, and so is the server."""
        for actor, expected in self.expected.items():
            assert expected in (actor.outcome, ANY), f"{actor}: {actor.outcome}, expected: {expected}"
        seen, modelled = self.seen(), self.modelled()
        assert seen == modelled, f"{seen}, expected: {modelled}"

    # -- what they use -------------------------------------------------------------------------------------------

    def _begin_process(self, name: str) -> None:
        process = self.processes[name] = self.stage.process(name)
        self.objects[name] = self.make(process.client)
        for each in ACTORS:
            if each[0] == name:
                self.actors[each] = self.KIND(each, process)
                self.expected[self.actors[each]] = None

    def begin(self, actor: Actor, outcome: object, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Begin a call whose outcome is known; PENDING, if it is not to end for now."""
        self.expected[actor] = outcome
        if outcome is PENDING:
            self.pending.append(actor)
        actor.begin(call, *args, **kwargs)

    def learns(self, actor: Actor, outcome: object) -> None:
        """Expect a wait to end so, once the actor is connected."""
        if actor in self.pending:
            self.pending.remove(actor)
        (self.due if self.is_cut(actor) else self.expected)[actor] = outcome

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

    def restore(self, process: str) -> None:
        """Connect a process that is cut off."""
        self.cut.remove(process)
        self.stage.restore(self.processes[process])
        self.stage.rest()
        for actor in [each for each in self.due if each.process.name == process]:
            self.expected[actor] = self.due.pop(actor)
        self.restored(process)

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
                    self.the_world_is_as_modelled()
                self.finish()
                self.stage.rest()
                self.the_world_is_as_modelled()
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
