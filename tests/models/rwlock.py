"""The read-write lock: many that read, or one that writes, and may become a reader without a gap."""

from __future__ import annotations

from collections.abc import Sequence

from tests.models.history import Outcome
from tests.models.lock import Line, Place, RLock
from zkconcurrent import DeadlockError


class ReadWriteLock(RLock):
    """Wants are "read" and "write". A reader waits for each writer that came before it."""

    def together(self, places: Sequence[Place], size: int) -> bool:
        writers = sum(each.wants == "write" for each in places)
        return writers == 0 or (writers == 1 and len({each.actor for each in places}) == 1)

    def admits(self, line: Line, place: Place, ahead: tuple[Place, ...]) -> bool:
        before = (*line.inside, *ahead)
        return not before or (place.wants == "read" and super().admits(line, place, ahead))

    def reenter(self, line: Line, place: Place) -> tuple[Outcome, Line] | None:
        """Add a level, refuse a reader that wants to write, or let a writer read, too."""
        held = {each.wants for each in line.inside if each.actor == place.actor and not each.gone}
        if place.wants in held or not held:
            return super().reenter(line, place)
        return (DeadlockError, line) if place.wants == "write" else (True, self.enter(line, place))
