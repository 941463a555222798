"""The event: a flag that is set and cleared; no wait misses a set, even if it is cleared at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.models.history import QUEUES, Call, Model, Outcome


class Flag(NamedTuple):
    """The state of an event.

    Attributes:
        is_set: whether it is set.
        waiting: the waits that have found it clear, and it was not set since.
        woken: those that have found it clear, and it was.
    """

    is_set: bool = False
    waiting: frozenset[Call] = frozenset()
    woken: frozenset[Call] = frozenset()


class Event(Model):
    """A wait goes on if the flag is set, or was since it looked first."""

    initial = Flag()
    reads = ("is_set",)

    def apply(self, flag: Flag, call: Call) -> Iterator[tuple[Outcome, Flag]]:
        """Set, clear, pulse (set and clear), destroy, ask or wait."""
        if call.what in ("set", "pulse"):
            yield None, Flag(call.what == "set", frozenset(), flag.woken | flag.waiting)
        elif call.what in ("clear", "destroy"):
            yield None, flag._replace(is_set=False)
        elif call.what == "is_set":
            yield flag.is_set, flag
        elif flag.is_set or call in flag.woken:
            yield True, flag._replace(woken=flag.woken - {call})
        else:
            if call not in flag.waiting:
                yield QUEUES, flag._replace(waiting=flag.waiting | {call})
            if call.timeout is not None:
                yield False, flag._replace(waiting=flag.waiting - {call})
