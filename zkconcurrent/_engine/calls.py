"""Several calls that one loop waits for: those of the locks of a `MultiLock`, or one after another of one lock."""

from __future__ import annotations

from collections.abc import Callable

from .driver import Call
from .waiting import WakeUp


class Calls:
    """Calls that are begun one by one, and are abandoned together.

    Args:
        undo: called when they are abandoned, before them; it never waits, and to call it again changes nothing.
    """

    def __init__(self, undo: Callable[[], None] | None = None) -> None:
        self._undo = undo
        self._wake: WakeUp | None = None
        self._deserted: Callable[[], bool] | None = None
        self.calls: list[Call] = []

    def begin(self, wake: WakeUp, deserted: Callable[[], bool] | None = None) -> None:
        """Begin; `wake` ends the sleep of each of them."""
        self._wake, self._deserted = wake, deserted

    def add(self, call: Call) -> Call:
        """Begin one more."""
        assert self._wake is not None
        self.calls.append(call)
        call.begin(self._wake, self._deserted)
        return call

    def end(self) -> None:
        """Take note that the steps of all have come to their end."""
        for call in self.calls:
            call.end()

    def hurry(self) -> None:
        """Wait no more for what is cleaned up."""
        for call in self.calls:
            call.hurry()

    def abandon(self) -> None:
        """Undo what all of them have done."""
        if self._undo is not None:
            self._undo()
        for call in self.calls:
            call.abandon()
