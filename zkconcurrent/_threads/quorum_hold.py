"""What a `QuorumLock` holds: the holds of one acquire, and the count of their losses."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import ref

from .._engine.holds import Hold, lost_error
from .._engine.loss import Loss, ReportsOnce
from .._engine.loss_cause import was_lost, why_lost
from .._errors import LockLostError, LossCause
from .._protocol.ticket import State, Ticket
from .base.lock_core import LockCore
from .joint_lock import CompositeLock, HoldDepths


class QuorumHold:
    """The holds of one acquire.

    Attributes:
        owner: the thread that acquired them.
        parts: the cores of its locks, and the hold of each.
        left: the holds that a release under way has yet to release; None before a release.
        losses: what listens to the losses of its locks, once it is a hold.
    """

    losses: QuorumLosses

    def __init__(self, owner: int) -> None:
        self.owner = owner
        self.parts: list[tuple[LockCore, Hold]] = []
        self.left: HoldDepths | None = None

    @property
    def alive(self) -> int:
        """How many of its locks are held."""
        return sum(hold.alive for _, hold in self.parts)

    def error(self, owed: int) -> LockLostError:
        """Return the error for the loss; `owed` is how many acquires its thread has yet to settle after it."""
        lost = {
            hold.path: why_lost(hold.ticket) if was_lost(hold.ticket) else "it was released by itself"
            for _, hold in self.parts
            if not hold.alive
        }
        first = next((hold for _, hold in self.parts if not hold.alive), self.parts[0][1])
        causes = "; ".join(f"{path}: {why}" for path, why in lost.items())
        return lost_error(first, owed, LossCause.PARTS_LOST, f"no quorum of its locks is left: {causes}")


class QuorumLosses(ReportsOnce):
    """Receives each loss of a quorum's locks. It refers to none of the locks, so that a dropped one can be collected.

    Attributes:
        whole: the loss of the quorum.
        over: whether the quorum was released.
        given_up: the tickets that its release gives up.
        spare: how many of these may turn out to have been lost before.
    """

    def __init__(self, lock: CompositeLock, least: int, quorum: QuorumHold, whole: Loss, sessions: AllSessions) -> None:
        self.whole = whole
        self.over = False
        self.given_up: Sequence[Ticket] = ()
        self.spare = 0
        self._lock = ref(lock)
        self._quorum = ref(quorum)
        self._all = sessions
        self._least = least
        self._tickets = [hold.ticket for _, hold in quorum.parts]

    def set(self) -> None:
        """Do nothing: `tell` follows."""

    def tell(self) -> None:
        """If no quorum is left, set the loss and have `on_lost` called. If this was interrupted, it is called again."""
        if self.over or self.given_up:
            quorate = sum(map(was_lost, self.given_up)) <= self.spare
        else:
            quorate = sum(ticket.state is State.HELD for ticket in self._tickets) >= self._least
        if quorate:
            return
        with self._all.lock:
            self.whole.tell()
        if (lock := self._lock()) is not None:
            self.report_soon(lock)

    def follow(self, before: Hold, now: Hold) -> bool:
        """Put a hold into the place of the one that a condition's wait has given up: a release must end that one."""
        self._tickets = [now.ticket if each is before.ticket else each for each in self._tickets]
        if (quorum := self._quorum()) is not None:
            quorum.parts = [(core, now if hold is before else hold) for core, hold in quorum.parts]
        return True


class AllSessions:
    """Guards the losses of all quorums, as a session guards those of its own holds.

    Attributes:
        lock: may be taken while a session's lock is held, never the other way round.
    """

    def __init__(self, cores: Sequence[LockCore]) -> None:
        self._sessions = {id(core.session): core.session for core in cores}
        self.lock = cores[0].session.link.handler.rlock_object()

    def check_lease(self) -> None:
        """End the holds whose lease ran out by the local clock."""
        for session in self._sessions.values():
            session.check_lease()
