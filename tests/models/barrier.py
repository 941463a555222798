"""The barrier: so many parties go on together, each with an index of its own, or none does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import NamedTuple

from tests.models.history import QUEUES, Call, Model, Outcome


class Generation(NamedTuple):
    """The state of a barrier.

    Attributes:
        waiting: the calls that wait, in the order of their arrival.
        outcomes: those of calls that have yet to end.
        broken: whether it is.
        misses: a party has died, and no other has seen that yet.
        cut: the parties that are cut off from the service.
    """

    waiting: tuple[Call, ...] = ()
    outcomes: frozenset[tuple[Call, Outcome]] = frozenset()
    broken: bool = False
    misses: bool = False
    cut: frozenset[str] = frozenset()

    def broken_off(self, broken: bool) -> Generation:
        """Return the state after all that wait were told that it is broken; whether it stays so, is the question."""
        told = {(each, threading.BrokenBarrierError) for each in self.waiting}
        return self._replace(waiting=(), outcomes=self.outcomes | told, broken=broken, misses=False)


class Barrier(Model):
    """A barrier for so many parties. One whose time is up breaks it, and one that dies.

    All have come before they go on: a reset or an abort may still come between, and then breaks all their waits.
    """

    initial = Generation()
    events = ("cut", "restored", "expired", "gone")

    def __init__(self, parties: int) -> None:
        self.parties = parties

    def apply(self, state: Generation, call: Call) -> Iterator[tuple[Outcome, Generation]]:
        """Wait, reset, abort, or what befalls a party."""
        if call.what in ("reset", "abort"):
            yield None, state.broken_off(call.what == "abort")
        elif call.what == "wait":
            yield from self._wait(state, call)
        else:
            yield None, self._befalls(state, call.what, call.party)

    def _wait(self, state: Generation, call: Call) -> Iterator[tuple[Outcome, Generation]]:
        told = next((each for each in state.outcomes if each[0] is call), None)
        if told is not None:
            yield told[1], state._replace(outcomes=state.outcomes - {told})
            return
        if call.timeout is not None or (call not in state.waiting and (state.broken or state.misses)):
            after = state.broken_off(broken=True)
            yield threading.BrokenBarrierError, after._replace(outcomes=_without(after.outcomes, call))
        if call in state.waiting and len(state.waiting) == self.parties:
            passed = {(each, n) for n, each in enumerate(state.waiting)}
            index = state.waiting.index(call)
            yield index, state._replace(waiting=(), outcomes=state.outcomes | (passed - {(call, index)}))
        elif not (call in state.waiting or state.broken or state.misses or len(state.waiting) == self.parties):
            yield QUEUES, state._replace(waiting=(*state.waiting, call))

    def _befalls(self, state: Generation, what: str, party: str) -> Generation:
        theirs = [each for each in state.waiting if each.party == party]
        if what == "expired":
            return state.broken_off(broken=True) if theirs else state
        cut = state.cut | {party} if what == "cut" else state.cut - {party}
        state = state._replace(cut=cut)
        if what == "gone":
            left = tuple(each for each in state.waiting if each.party != party)
            state = state._replace(waiting=left, misses=state.misses or bool(theirs))
        sees_it = state.misses and any(each.party not in cut for each in state.waiting)
        return state.broken_off(broken=True) if sees_it else state


def _without(outcomes: frozenset[tuple[Call, Outcome]], call: Call) -> frozenset[tuple[Call, Outcome]]:
    return frozenset(each for each in outcomes if each[0] is not call)
