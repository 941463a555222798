"""Several calls for which one loop waits: the calls of a `MultiLock`'s locks, or successive calls of one lock."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from typing import Any

from .._runtime.wait_loops import WakeUp, WhyEnd, no_wakeup
from .call import Call
from .session import Session


class Calls:
    """Calls that begin one by one, and are abandoned together.

    Args:
        session: the session of the client on whose events the loop sleeps.
        undo: a function to call before the calls are abandoned. It never waits, and is idempotent.

    Attributes:
        calls: the calls that have begun.
        deserted: see `Call`.
        wake: ends the sleep of each call.
        settled: see `Resumable`.
        waits_for: see `Resumable`.
        why_end: see `Resumable`.
    """

    settled = False
    wake: WakeUp = staticmethod(no_wakeup)
    waits_for: tuple[object, ...] = ()
    why_end: WhyEnd | None = None

    def __init__(self, session: Session, undo: Callable[[], None] | None = None) -> None:
        self.session = session
        self._undo = undo
        self.deserted: Callable[[], bool] | None = None
        self.calls: list[Call] = []

    @property
    def path(self) -> str:
        """The path of the newest call."""
        return self.calls[-1].path

    @property
    def owned_locks(self) -> Collection[Any]:
        """See `Resumable`."""
        return {id(lock): lock for call in self.calls for lock in call.owned_locks}.values()

    def begin(self, wake: WakeUp, deserted: Callable[[], bool] | None = None) -> None:
        """Begin; see `Resumable`."""
        self.wake, self.deserted = wake, deserted

    def add(self, call: Call) -> Call:
        """Begin one more call."""
        self.calls.append(call)
        call.part_of = weakref.ref(self)
        call.begin(self.wake, self.deserted)
        return call

    def end(self) -> None:
        """Record that the steps of all calls have ended."""
        for call in self.calls:
            call.end()

    def leave_clean_up(self) -> None:
        """Stop waiting for clean-up; the keeper finishes it."""
        for call in self.calls:
            call.leave_clean_up()

    def abandon(self) -> None:
        """Undo everything that the calls have done. If this was interrupted, a second call finishes it (R3)."""
        if self._undo is not None:
            self._undo()
        for call in self.calls:
            call.abandon()
