"""A clock that a test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconcurrent._engine.session import Session

if TYPE_CHECKING:
    from typing_extensions import Self


class ManualClock:
    """The clock by which a session's deadlines pass, moved by hand within the block.

    Attributes:
        seen: the times that it showed, in seconds since the block began.
    """

    def __init__(self, session: Session) -> None:
        self._session, self._now = session, session.now
        self._began, self._passed = session.now(), 0.0
        self.seen: list[float] = []

    def now(self) -> float:
        """Show the time."""
        passed = self._passed
        self.seen.append(passed)
        return self._began + passed

    def move(self, passed: float, *, wake: bool = True) -> None:
        """Have so many seconds passed, and every call that waits look, unless they are to sleep on."""
        self._passed = passed
        if wake:
            self._session.wake_calls()

    def __enter__(self) -> Self:
        self._session.now = self.now
        return self

    def __exit__(self, *error: object) -> None:
        self._session.now = self._now


def jump(session: Session, seconds: float) -> None:
    """Have so many seconds pass at once by the clock of a session's deadlines, which goes on from there."""
    now = session.now
    session.now = lambda: now() + seconds
    session.wake_calls()
