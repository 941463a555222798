"""Which holders may be in together: the promise of each primitive, in one question.

To check one more primitive, give it a model here and an entry in `workload.PATHS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Inside(Protocol):
    """The facts about a hold that a model must know."""

    @property
    def who(self) -> tuple[str, int]:
        """The process and the thread."""

    @property
    def role(self) -> str:
        """The part of the path that is held."""


class Model(ABC):
    """The promises of one path.

    Attributes:
        reentrant: a thread that holds and is granted again has one hold, a level deeper.
    """

    reentrant = False

    @abstractmethod
    def allows(self, inside: Sequence[Inside]) -> bool:
        """Return whether these holds may be there at once."""

    def orders(self, before: Inside, after: Inside) -> bool:
        """Return whether the later hold's fencing token must be higher: if they could not be there at once."""
        return before.who != after.who and not self.allows([before, after])


@dataclass(frozen=True)
class Mutex(Model):
    """One hold at a time."""

    reentrant: bool = False
    fair: bool = True

    def allows(self, inside: Sequence[Inside]) -> bool:
        """Only one."""
        return len(inside) <= 1

    def orders(self, before: Inside, after: Inside) -> bool:
        """Always, also from a thread's hold to its next; but threads that hand it to each other share a token."""
        return self.fair or before.who[0] != after.who[0]


@dataclass(frozen=True)
class ReadWrite(Model):
    """Many that read, or one thread that writes, and may read as well."""

    reentrant: bool = True

    def allows(self, inside: Sequence[Inside]) -> bool:
        """Nobody but the writer, where there is one."""
        return all(hold.role == "read" for hold in inside) or len({hold.who for hold in inside}) <= 1

    def orders(self, before: Inside, after: Inside) -> bool:
        """Writers among each other, and readers and writers of different threads."""
        if before.role == after.role == "write":
            return True
        return super().orders(before, after)


@dataclass(frozen=True)
class Permits(Model):
    """As many holds as there are permits."""

    permits: int = 1

    def allows(self, inside: Sequence[Inside]) -> bool:
        """No more than that."""
        return len(inside) <= self.permits

    def orders(self, before: Inside, after: Inside) -> bool:  # noqa: ARG002
        """Never: a permit says nothing of the others."""
        return False
