"""What listeners are told, checked against the order that `add_listener` promises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from zkconcurrent import (
    Acquired,
    Cancelled,
    DeadlockFound,
    DeadlockVictim,
    Failed,
    HoldLimit,
    LockEvent,
    Lost,
    Recovered,
    Released,
    Suspect,
    TimedOut,
    Waiting,
    WouldBlock,
)

NOT_ACQUIRED = (TimedOut, WouldBlock, Cancelled, DeadlockVictim, Failed)
# One thread may hold several permits, and act for several owners of detached locks.
MANY = ("Semaphore", "BoundedSemaphore", "DetachedLock")


class Owner:
    """What one owner does at one lock.

    Attributes:
        waits: it has begun to wait.
        held: its holds, by token, and whether each is suspect.
        limited: the holds of which it was told that they last too long.
        seq: the number of the last event.
    """

    def __init__(self) -> None:
        self.waits = False
        self.held: dict[int, bool] = {}
        self.limited: set[int] = set()
        self.seq = 0

    def hear(self, event: LockEvent) -> str | None:
        """Return what is wrong with an event."""
        seq, self.seq = self.seq, event.seq
        return self._hear(event) or (f"comes after number {seq}" if event.seq <= seq else None)

    def _hear(self, event: LockEvent) -> str | None:
        if isinstance(event, Waiting):
            if self.waits:
                return "waits twice"
            self.waits = True
        elif isinstance(event, Acquired):
            waited, self.waits = self.waits, False
            if event.contended is not waited:
                return "was told otherwise"
            if self.held and event.primitive not in MANY:
                return f"holds already: {self.held}"
            self.held[event.token] = False
            self.limited.discard(event.token)
        elif isinstance(event, NOT_ACQUIRED):
            self.waits = False
        elif isinstance(event, DeadlockFound):
            return None if self.waits else "does not wait"
        elif event.token not in self.held:
            return f"holds only {self.held}"
        elif isinstance(event, Released | Lost):
            del self.held[event.token]
        elif isinstance(event, Suspect | Recovered):
            before, self.held[event.token] = self.held[event.token], isinstance(event, Suspect)
            if before is isinstance(event, Suspect):
                return "is told twice"
        elif isinstance(event, HoldLimit):
            if event.token in self.limited:
                return "is told twice"
            self.limited.add(event.token)
        else:
            return "is no event"
        return None


class Grammar:
    """A listener that checks the order of what it is told.

    Args:
        also: called for each event, too.

    Attributes:
        events: what it was told.
        wrong: what was wrong.
    """

    def __init__(self, also: Callable[[LockEvent], object] = id) -> None:
        self._also = also
        self._owners: dict[tuple[str, ...], Owner] = defaultdict(Owner)
        self.events: list[LockEvent] = []
        self.wrong: list[str] = []

    def __call__(self, event: LockEvent) -> None:
        """Check an event."""
        self.events.append(event)
        why = self._owners[event.by, event.path, event.mode].hear(event)
        if why is not None:
            self.wrong.append(f"{event}: {why}")
        self._also(event)

    def kinds(self) -> list[str]:
        """Return the names of the events."""
        return [type(event).__name__ for event in self.events]

    def open(self) -> list[tuple[str, ...]]:
        """Return the owners that wait or hold, by what was told."""
        return [key for key, owner in self._owners.items() if owner.waits or owner.held]
