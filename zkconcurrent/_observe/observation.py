"""All observers of one client: the engine calls them through hooks, and locks use them directly."""

from __future__ import annotations

from .._engine.hooks import Hooks
from .._engine.session import Session
from .deadlock_search import Deadlocks
from .event_listeners import Teller
from .hold_limits import HoldLimits
from .long_waits import LongWaits


class Observation(Hooks):
    """All observers of one client.

    Attributes:
        long_waits: the waits that are logged.
        deadlocks: the searches for deadlocks.
        teller: reports acquires and holds to listeners.
        hold_limits: how long holds may last.
    """

    def __init__(self, session: Session) -> None:
        self.long_waits = LongWaits(session, session.keeper)
        self.deadlocks = Deadlocks(session, session.keeper)
        self.teller = Teller(session, session.keeper)
        self.hold_limits = HoldLimits(session, self.teller)
        self.has_left = self.teller.untold
        self.ending = self.teller.note  # type: ignore[method-assign]
        self.end_due = self.hold_limits.end_due  # type: ignore[method-assign]

    def report_due(self, pause: float, *, suspect: bool, changed: bool) -> float:
        """Have the due reports made; see `Hooks.report_due`."""
        self.long_waits.report_due()
        pause = self.deadlocks.search_due(pause)
        self.teller.report_due(suspect=suspect, changed=changed)
        return pause


def observation(session: Session) -> Observation:
    """Return the observation of a client; the first call makes it."""
    if isinstance(session.hooks, Observation):
        return session.hooks
    # R4: if two threads, or a thread and its signal handler, come here at once, all use the object that one of them has
    # made; either may set it.
    session.hooks = made = vars(session).setdefault("_observation", Observation(session))
    return made  # type: ignore[no-any-return]
