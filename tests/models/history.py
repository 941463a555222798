"""Histories of calls, and the judges that compare them with a model.

A model is a primitive as one thread would see it: `apply(state, call)` yields each outcome that the call may have in a
state, with the state after it. A call that must wait there yields nothing. One that queues, and goes on later, yields
`QUEUES` with the state in which it is queued. States are hashable.

Real calls overlap. Their outcomes are right if there is an order of the calls that explains them: each call takes
effect at one moment between its beginning and its end, and the model gives it the outcome that it had
(linearizability). A call whose error leaves its outcome unknown, or that never ended, takes effect at any moment after
it began, or never.

There are two judges. `Judge` knows when calls began and ended, and searches for an order; as calls end, or afterwards
(`check`). `explain` judges a single call where all states of the primitive are known, as from the log of a service.

They import the models alone, so they can judge what any test writes down: make a `Call` of each record, and call
`check`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Outcome: TypeAlias = Any
State: TypeAlias = Hashable
OPEN: Final = "open"  # the outcome of a call that has not ended, or whose outcome is unknown
QUEUES: Final = "queues"
MOST = 100_000  # configurations: a history that needs more has too many calls at once


class Violation(AssertionError):
    """Something happened that must not."""


@dataclass(eq=False, repr=False)
class Call:
    """One call.

    Attributes:
        actor: the thread or task that makes it.
        what: the method.
        args: its arguments, as the model reads them.
        timeout: how long it waits, in seconds; None for ever, or if it does not wait.
        begun, ended: when; in any unit of time.
        outcome: its value, or the class of its error.
    """

    actor: str
    what: str
    args: tuple[Any, ...] = ()
    timeout: float | None = None
    begun: float = 0.0
    ended: float | None = None
    outcome: Outcome = OPEN

    def __repr__(self) -> str:
        args = [*map(repr, self.args), *([] if self.timeout is None else [f"timeout={self.timeout:g}"])]
        return f"{self.actor}: {self.what}({', '.join(args)})"


class Model(ABC):
    """A primitive, as one thread would see it.

    Attributes:
        initial: its first state.
        refusals: the outcomes of a call whose time is up.
        reads: the calls that change nothing, in any state.
    """

    initial: State
    refusals: tuple[Outcome, ...] = (False,)
    reads: tuple[str, ...] = ()

    @abstractmethod
    def apply(self, state: Any, call: Call) -> Iterable[tuple[Outcome, State]]:
        """Yield each outcome that a call may have in a state, with the state after it."""

    def refused(self, call: Call) -> bool:
        """Return whether a call has ended because its time was up."""
        return call.timeout is not None and any(call.outcome is each for each in self.refusals)

    def goes_on(self, state: Any, call: Call) -> bool:
        """Return whether a call need not stay where it is: it has yet to queue, or is entitled to end."""
        return any(not any(outcome is each for each in self.refusals) for outcome, _ in self.apply(state, call))


Done: TypeAlias = frozenset[tuple[Call, Outcome]]
Configuration: TypeAlias = tuple[State, Done]


class Judge:
    """Follows a history, call by call, and fails as soon as no order of the calls explains it.

    It keeps each configuration that the history allows: a state, and the calls that have taken effect and go on, with
    the outcomes that they must have (Lowe, "Testing for linearizability").

    Attributes:
        open: the calls that may take effect, or have, and go on; and whether they ever end.
        ended: those that have ended, for the reader of a failure.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.open: dict[Call, bool] = {}
        self.ended: list[Call] = []
        self._configurations: set[Configuration] = {(model.initial, frozenset())}

    def begins(self, call: Call, *, ends: bool = True) -> None:
        """A call begins; if it never ends, nobody learns its outcome."""
        self.open[call] = ends

    def ends(self, call: Call, outcome: Outcome) -> None:
        """A call ends.

        Raises:
            Violation: no order of the calls explains its outcome.
        """
        call.outcome, effect = outcome, (call, outcome)
        reached = self._reachable(call)
        self._keep(
            {(state, done - {effect}) for state, done in reached if effect in done},
            f"{call} ended in {outcome!r}, which no order explains",
        )
        del self.open[call]
        self.ended.append(call)

    def forgets(self, call: Call) -> None:
        """A call that goes on, or never ended, takes no effect from now on."""
        self._configurations = {
            (state, frozenset(each for each in done if each[0] is not call)) for state, done in self._reachable()
        }
        del self.open[call]

    def _keep(self, configurations: set[Configuration], else_: str) -> None:
        if not configurations:
            states = sorted({str(state) for state, _ in self._configurations})
            ended = "; ".join(f"{each} -> {each.outcome!r}" for each in self.ended[-8:])
            raise Violation(f"{else_}; states {states[:8]}, open {[*map(str, self.open)]}, before: {ended}")
        self._configurations = configurations

    def _reachable(self, until: Call | None = None) -> set[Configuration]:
        """Return all that open calls can lead to; go no further where a call has taken effect."""
        seen, left = set(self._configurations), list(self._configurations)
        while left:
            state, done = left.pop()
            over = {each for each, _ in done}
            if until in over:
                continue
            found = self._next(state, done, [call for call in self.open if call not in over])
            found = [each for each in found if each not in seen]
            seen.update(found)
            left.extend(found)
            if len(seen) > MOST:
                raise Violation(f"more than {MOST} configurations: too many calls at once")
        return seen

    def _next(self, state: State, done: Done, calls: Iterable[Call]) -> list[Configuration]:
        """Return what each call leads to; nothing is lost if a read whose outcome is right takes effect at once."""
        found: list[Configuration] = []
        for call in calls:
            for outcome, after in self.model.apply(state, call):
                if outcome is QUEUES:
                    found.append((after, done))
                elif call.outcome is OPEN or call.outcome == outcome:
                    found.append((after, done | {(call, outcome if self.open[call] else OPEN)}))
                    if call.what in self.model.reads and call.outcome is not OPEN:
                        return found[-1:]
        return found


def check(model: Model, calls: Iterable[Call]) -> None:
    """Judge a history: calls with the times of their beginnings and ends.

    A call whose outcome is unknown takes no effect after its end, if it has one. Split a history by path: one of many
    objects has more orders than the histories of each.

    Raises:
        Violation: no order of the calls explains their outcomes.
    """
    judge = Judge(model)
    moments = [(call.begun, 0, n, call) for n, call in enumerate(calls)]
    moments += [(call.ended, 1, n, call) for _, _, n, call in moments if call.ended is not None]
    for _, ends, _, call in sorted(moments, key=lambda moment: moment[:3]):
        if not ends:
            judge.begins(call, ends=call.outcome is not OPEN)
        elif call.outcome is OPEN:
            judge.forgets(call)
        else:
            judge.ends(call, call.outcome)


def explain(model: Model, call: Call, states: Sequence[State], effects: Sequence[tuple[State, State]]) -> str | None:
    """Judge a call where all states are known: return what is wrong with it, or None.

    Args:
        model: the primitive.
        call: the call; while it is `OPEN`, its effects alone are judged.
        states: those of the primitive from the call's beginning on, up to its end.
        effects: the changes that the call has made, each as the states before and after.
    """
    if len(effects) > 1:
        return f"{call} has taken effect {len(effects)} times: {effects}"
    moments = effects or ([] if call.outcome is OPEN else [(state, state) for state in states])
    for before, after in moments:
        if any(call.outcome in (OPEN, outcome) and after == then for outcome, then in model.apply(before, call)):
            return None
    if not moments:
        return None
    why = f"it has changed {effects[0][0]} to {effects[0][1]}" if effects else f"since it began: {[*states]}"
    return f"{call} ended in {call.outcome!r}; {why}"
