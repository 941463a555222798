"""`ReentrantCore`: the machinery of a lock that only its owner may release, except for the levels of generators.

A generator of `@synchronized` may be stepped by one thread and closed by another. The thread that runs its first step
owns the hold, so functions that the generator calls may acquire the lock again. But the level belongs to the generator,
and ends with the generator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..._engine.call import Call
from ..._engine.holds import Hold, Lent
from ..._engine.session import LeftTickets
from ..._protocol.ticket import State
from ..._runtime.stacks import generator_locals
from .lock_core import LockCore

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class ReentrantCore(LockCore):
    """The machinery of a re-entrant lock: only the thread or task that acquired the lock may release it."""

    not_held = "cannot release un-acquired lock"
    owned = True

    def mine(self) -> Hold | None:
        hold = self.path_state.own(self.rule.role, self.identity())
        if hold is None and self.path_state.lends:
            lent = (each for levels in generator_locals("levels", Levels) for each in levels.lent)
            hold = next((each.hold for core, each in lent if core.queue_key == self.queue_key), None)
            if hold is not None and hold.ticket.state is State.DISCARDED:
                return None
        return hold

    releasable = mine

    def reenter_or_check(self) -> bool:
        if self.mine() is None:
            return False
        with self.session.lock:
            # Since then, another thread may have ended the level of a generator, and the hold with that level.
            hold = self.mine()
            if hold is None:
                return False
            self.check(hold)
            hold.depth += 1
        return True

    def begin_release(self, hold: Hold) -> Call | None:
        if hold.lent is None:
            return super().begin_release(hold)
        with self.session.lock:
            return super().begin_release(hold)


class Levels:
    """The levels of holds that a generator has, from its beginning to its end.

    The generator keeps this in its local variable `levels`. So the code that runs or closes the generator finds the
    holds, even on another thread, in a task of the event loop, or in the garbage collector.

    Args:
        lock: the lock that the generator has just acquired.
        loop: the event loop that closes an async generator.

    Attributes:
        lent: the core of each re-entrant lock that the generator has acquired, with the `Lent` of the hold.
        over: whether the generator itself ends the levels.
    """

    def __init__(self, lock: Any, loop: AbstractEventLoop | None = None) -> None:
        self.over = True
        self._loop = loop
        self.lent: list[tuple[ReentrantCore, Lent]] = []
        for core in _cores_of(lock):
            if isinstance(core, ReentrantCore) and (hold := core.mine()) is not None:
                lent = hold.lent or Lent(hold)
                core.path_state.lend(hold, lent)
                self.lent.append((core, lent))
        self.over = False

    def __del__(self) -> None:
        # If the event loop of an async generator was closed before the generator, nothing runs the generator's end.
        # Otherwise the end has run, or runs later: in a cycle, the garbage collector may call this finalizer first.
        if self.over or self._loop is None or not self._loop.is_closed():
            return
        for core, lent in self.lent:
            core.session.dropped.append(LeftTickets([], [lent.hold.ticket]))
            core.session.wake_keeper()


def _cores_of(lock: Any) -> Iterable[LockCore]:
    """Return the machinery of each part of a lock of threads or tasks; for any other lock, a single None."""
    # A condition has its lock in this attribute, and so has a block that `hold()` has made.
    lock = getattr(lock, "_lock", lock)
    if (of_tasks := getattr(lock, "_lock_cores", None)) is not None:
        lock_cores: Iterable[LockCore] = of_tasks()
        return lock_cores
    return getattr(lock, "_cores", None) or [getattr(lock, "_lock_core", None)]
