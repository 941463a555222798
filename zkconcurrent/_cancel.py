"""Acquires that wait, and that another thread may end: the work of `cancel_waits()`.

A cancelled wait ends as an interrupted one does. The error is raised in its steps, at their sleep, on the thread or
loop that waits; so they clean up after themselves, and no node is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias
from weakref import WeakValueDictionary

from ._engine.driver import Call
from ._engine.waiting import Steps, stopping
from ._errors import WaitCancelledError


class Wait:
    """One acquire that waits.

    Attributes:
        path: of the lock that it waits for.
    """

    __slots__ = ("__weakref__", "_calls", "_cancelled", "_told", "path")

    def __init__(self, path: str, calls: Sequence[Call]) -> None:
        self.path = path
        self._calls = calls  # the last one sleeps; a MultiLock's acquire adds more
        self._cancelled = False
        self._told = False

    def cancel(self) -> bool:
        """End the wait; on any thread, also in a signal handler. Never waits. Return False if it was ended before."""
        before, self._cancelled = self._cancelled, True  # first: it is looked at after each sleep
        for sleeper in self._calls[-1:]:
            sleeper.wake()
        return not before

    def _why(self) -> WaitCancelledError | None:
        if not self._cancelled:
            return None
        self._told = True
        return WaitCancelledError(self.path, "cancel_waits() has ended this wait: nothing is held, and no node is left")

    @property
    def over(self) -> bool:
        """Whether it was told to end, or was abandoned, as when its event loop was closed."""
        return self._told or any(sleeper.finished for sleeper in self._calls[-1:])

    def run(self, steps: Steps[bool], waits: Waits) -> Steps[bool]:
        """Run the steps of the acquire; raise in them what ends the wait.

        Args:
            steps: the steps.
            waits: has this wait while they run.

        Raises:
            WaitCancelledError: the wait was cancelled.
        """
        return (yield from self.enlist(stopping(steps, self._why), waits))

    def enlist(self, steps: Steps[bool], waits: Waits) -> Steps[bool]:
        """Run steps that are a part of those that `run` runs; `waits` has this wait meanwhile, too."""
        waits[id(self)] = self
        try:
            return (yield from steps)
        finally:
            waits.pop(id(self), None)


Waits: TypeAlias = "WeakValueDictionary[int, Wait]"
"""The waits for one thing, by their ids; weakly, as a wait refers to its task, which a closed loop throws away."""


def cancel_all(waits: Waits) -> int:
    """End all of them; return how many there were."""
    there = [wait for ref in waits.valuerefs() if (wait := ref()) is not None and not wait.over]
    return sum([wait.cancel() for wait in there])
