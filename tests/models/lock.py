"""The locks: who may be inside together, and whose fencing token is higher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Place(NamedTuple):
    """A place inside.

    Attributes:
        actor, party: whose it is.
        wants: "read" or "write", or how many permits.
    """

    actor: str
    party: str
    wants: object = None


class Lock:
    """One holds."""

    def together(self, places: Sequence[Place]) -> bool:
        """Return whether these may be inside at once."""
        return len(places) <= 1

    def orders(self, before: Place, after: Place) -> bool:
        """Return whether the later hold has the higher fencing token: it does if they can't be inside at once."""
        return not self.together((before, after))


class UnfairLock(Lock):
    """A lock that the threads of a process hand to each other, with one fencing token."""

    def orders(self, before: Place, after: Place) -> bool:
        return before.party != after.party


class RLock(Lock):
    """A lock that its holder acquires again; each level is released by the holder."""


class ReadWriteLock(RLock):
    """Many that read, or one that writes, and may become a reader without a gap."""

    def together(self, places: Sequence[Place]) -> bool:
        writers = sum(each.wants == "write" for each in places)
        return writers == 0 or (writers == 1 and len({each.actor for each in places}) == 1)


class Semaphore(Lock):
    """Never more permits out than there are; each hold is one."""

    def __init__(self, size: int) -> None:
        self.size = size

    def together(self, places: Sequence[Place]) -> bool:
        return len(places) <= self.size
