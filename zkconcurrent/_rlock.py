"""`RLock`: `threading.RLock` for every process that opens the same path."""

from __future__ import annotations

from ._engine.holds import Hold
from ._engine.identity import ident
from ._errors import LockLostError
from ._lock_base import LockBase
from ._primitive import check_timeout
from ._recipes.rules import MUTEX
from ._recipes.ticket import State


class RLock(LockBase):
    """A lock that its thread may acquire again; it is free once it was released as often.

    Re-entrancy counts per client, path and thread: two objects for one path are the same lock. The standard
    `threading.Condition` accepts it.

    Layout:
        As `Lock`: the znodes of Curator's InterProcessMutex.

    Invariant:
        As `Lock`; and a thread has at most one node in the queue, however often it acquires.

    Cost:
        As `Lock`; no request to acquire again, or to release what was acquired again.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: the path that is the lock; missing nodes are made as containers.
        fair: as `Lock`'s.
        on_lost: called with the lock, on a thread of its own, once for each hold that is lost.

    Raises:
        ValueError: the path is bad, or is another primitive of this client already.

    Source:
        `threading.RLock`; ZooKeeper's lock recipe; Curator's `InterProcessMutex`.
    """

    _kind = "RLock"
    _rule = MUTEX
    _not_held = "cannot release un-acquired lock"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock, once more if this thread holds it; arguments and errors as `Lock.acquire`."""
        # What is done most often goes without a lock, and without a call: a look at the clock says that the hold lives.
        hold = self._holds.get(self._identity())
        if hold is not None and timeout == -1 and self._session.time() < hold.ticket.live.end:
            hold.depth += 1
            return True
        check_timeout(blocking, timeout)
        return self._acquire_again() or self._acquire_hold(blocking, timeout)

    def _acquire_again(self) -> bool:
        hold = self._own()
        if hold is None:
            return False
        self._check(hold)
        hold.depth += 1
        return True

    def release(self) -> None:
        """Release the lock once; at the last time, the next in the queue gets it.

        Raises:
            LockLostError: the hold was lost; nothing else is touched. Raised once for each level.
            RuntimeError: this thread does not hold the lock.
            ClientError: the process was forked, and the hold is its parent's.
        """
        hold = self._holds.get(self._identity())
        if (  # as in `acquire`
            hold is not None and hold.depth > 1 and self._session.time() < hold.ticket.live.end
        ):
            hold.depth -= 1
            return
        self._release_level(self._to_give_up())

    _own = LockBase._mine

    # What threading.Condition asks of a lock.

    def _is_owned(self) -> bool:
        self._session.check_lease()
        hold = self._own()
        return hold is not None and hold.alive

    def _release_save(self) -> int:
        """Give up all levels; return how many there were."""
        hold = self._to_give_up()
        self._check(hold)
        try:
            self._wait_given_up(self._give_up(hold), hold)
        except LockLostError:  # its node had gone: the `with` block that waits for a condition is told so at its end
            hold.ticket.state = State.LOST
            self._path_state.put_back(hold)
            raise
        return hold.depth

    def _acquire_restore(self, depth: int) -> None:
        self._acquire_hold(True, -1, depth)

    def _recursion_count(self) -> int:
        hold = self._own()
        return hold.depth if hold is not None and hold.alive else 0

    def _describe(self, hold: Hold | None) -> str:
        owner, depth = (0, 0) if hold is None else (ident(hold.owner), hold.depth)
        return f"owner={owner} count={depth} "
