"""Waiting acquires that another thread may end: the work of `cancel_waits()`.

A cancelled wait ends as an interrupted one does: the error is raised in its steps, at their sleep, on the thread or
loop that waits. So the steps clean up after themselves, and no node is left.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

from ._engine.driver import Call
from ._engine.live_set import LiveSet
from ._engine.waiting import Steps
from ._errors import WaitCancelledError


class CancellableWait(Generator["float | None", bool, bool]):
    """One acquire that waits: its steps. An object, as a generator around them would take more memory.

    Attributes:
        path: of the lock that it waits for.
    """

    __slots__ = ("__weakref__", "_begun", "_calls", "_cancelled", "_steps", "_told", "_waits", "path")

    def __init__(self, path: str, calls: Sequence[Call]) -> None:
        self.path = path
        self._calls = calls  # the last one sleeps; a MultiLock's acquire adds more
        self._begun = False
        self._cancelled = False
        self._told = False

    def cancel(self) -> bool:
        """End the wait; on any thread, also in a signal handler. Never waits. Return False if it was ended before."""
        before, self._cancelled = self._cancelled, True  # first: it is looked at after each sleep
        for sleeper in self._calls[-1:]:
            sleeper.wake()
        return not before

    @property
    def over(self) -> bool:
        """Whether it was told to end, or was abandoned, as when its event loop was closed."""
        return self._told or any(sleeper.finished for sleeper in self._calls[-1:])

    def run(self, steps: Steps[bool], waits: Waits) -> Steps[bool]:
        """Return the steps of the acquire, which raise what ends the wait; `waits` has this wait while they run.

        Raises:
            WaitCancelledError: the wait was cancelled.
        """
        self._steps, self._waits = steps, waits
        return self

    def __next__(self) -> float | None:
        return self.send(None)  # type: ignore[arg-type]  # not the base class: a warning would point to its frame

    def send(self, woken: bool, /) -> float | None:
        """Go on with the steps; once the wait is cancelled, raise that in them, as an interrupt would be, once."""
        if self._begun and self._cancelled and not self._told:
            self._told = True
            why = "cancel_waits() has ended this wait: nothing is held, and no node is left"
            return self.throw(WaitCancelledError(self.path, why))
        try:
            if not self._begun:
                self._begun = True
                self._waits.add(self)
            return self._steps.send(woken)
        except BaseException:  # they have ended
            self._waits.discard(self)
            raise

    def throw(self, *error: Any) -> float | None:
        """Raise an interrupt in the steps, which clean up after themselves."""
        try:
            return self._steps.throw(*error)
        except BaseException:
            self._waits.discard(self)
            raise
        finally:
            del error  # or its traceback and this frame keep each other, and the call, alive

    def close(self) -> None:
        """End the steps where they are."""
        self._waits.discard(self)
        self._steps.close()

    def enlist(self, steps: Steps[bool], waits: Waits) -> Steps[bool]:
        """Run steps that are a part of the acquire; `waits` has this wait meanwhile, too."""
        waits.add(self)
        try:
            return (yield from steps)
        finally:
            waits.discard(self)


Waits: TypeAlias = "LiveSet[CancellableWait]"
"""The waits for one thing; weakly, as a wait refers to its task, which a closed loop throws away."""


def cancel_all(waits: Waits) -> int:
    """End all of them; return how many there were."""
    there = [wait for wait in waits if not wait.over]
    return sum([wait.cancel() for wait in there])
