"""`RLock`: `threading.RLock` for every process that opens the same path."""

from __future__ import annotations

from .._engine.holds import Hold
from .._errors import LockLostError
from .._protocol.blocking_rules import MUTEX
from .._protocol.ticket import State
from .._runtime.identity import ident
from .._runtime.interrupts import FRAMES, check_depth
from .._runtime.public import ErrorKind, Traceback
from .base.lock_base import FRAMES_OF_END
from .base.primitive import check_timeout
from .base.reentrant_core import ReentrantCore
from .base.revocable import RevocableLock


class RLock(RevocableLock):
    """A lock that its holder may acquire again. It becomes free after one release for each acquire.

    Re-entrancy counts per client, path and thread: two objects for one path are the same lock. The standard
    `threading.Condition` accepts it.

    Layout:
        As `Lock`: the znodes of Curator's InterProcessMutex.

    Invariant:
        As `Lock`. A thread has at most one node in the queue, however often it acquires.

    Cost:
        As `Lock`. Acquiring again, and releasing any level but the last, takes no request.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the lock's path; missing nodes are created as containers.
        fair: as for `Lock`.
        on_lost: called with the lock, on a thread of its own, once for each hold that is lost.
        on_suspect, on_revoke, on_deadlock, hold_limit, on_hold_limit, label: as for `Lock`. The limit counts from
            the first level of a hold.

    Raises:
        TypeError: the path is not a string, `hold_limit` is not a number, or a callback is not callable.
        ValueError: the path is invalid, or this client already uses it for another primitive or with other fairness; or
            an option has an unknown value.

    Source:
        `threading.RLock`; ZooKeeper's lock recipe; Curator's `InterProcessMutex`.
    """

    _kind = "RLock"
    _rule = MUTEX
    _core_type = ReentrantCore

    # Whether a block counts its level itself. If a program's subclass overrides `acquire` or `release`, its blocks call
    # the overrides.
    _counts = True

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        cls._counts = cls.acquire is RLock.acquire and cls.release is RLock.release

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock, or one level more if this thread holds it; arguments and errors as `Lock.acquire`."""
        # The common case takes no lock and begins no `Call`: the clock alone shows that the hold lives.
        core = self._lock_core
        hold = core.holds.get(core.identity())
        if hold is not None and timeout == -1 and core.session.clock() < hold.ticket.live.end:
            hold.depth += 1
            return True
        check_timeout(blocking, timeout)
        if core.reenter_or_check():
            return True
        call, steps = core.new_acquire(blocking and timeout != 0, self._deadline(blocking, timeout))
        return self._await(call, steps)

    def __enter__(self) -> bool:
        # If the lock is held already, `acquire` does not check the depth of the stack.
        check_depth(FRAMES_OF_END)
        # As in `acquire`, without its frame.
        core = self._lock_core
        hold = core.holds.get(core.identity())
        if hold is not None and self._counts and core.session.clock() < hold.ticket.live.end:
            hold.depth += 1
            return True
        return super().__enter__()

    def __exit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback, **how: bool) -> None:
        before = None
        try:
            core = self._lock_core
            hold = core.holds.get(core.identity())
            before = self._levels_held() if hold is None else hold.depth
            # As in `release`, without its frame.
            if hold is not None and before > 1 and self._counts and core.session.clock() < hold.ticket.live.end:
                hold.depth -= 1
            else:
                super().__exit__(kind, error, traceback, **how)
        except BaseException as struck:
            # An interrupt may have struck before the level was released, even in the call above, before its own `try`.
            if (held := self.hold_count()) and before in (None, held):
                super().__exit__(type(struck), struck, None, **how)
            raise

    def release(self, *, wait: bool = True) -> None:
        """Release one level of the lock. After the last, the next waiter in the queue gets the lock.

        Args:
            wait: whether to wait until the lock is free; see `Lock.release`.

        Raises:
            LockLostError: the hold was lost; the call changes nothing else. Each level needs one `release()`, which
                raises this.
            RuntimeError: this thread does not hold the lock.
            RefusedError: this client is not allowed to delete the lock's node; the library keeps trying.
            ClientError: the process was forked; the hold belongs to its parent.
        """
        core = self._lock_core
        hold = core.holds.get(core.identity())
        # As in `acquire`.
        if hold is not None and hold.depth > 1 and core.session.clock() < hold.ticket.live.end:
            hold.depth -= 1
            return
        hold = core.hold_to_release()
        if (call := core.begin_release(hold)) is not None:
            if wait:
                self._await(call, core.released(call, hold))
            else:
                core.end_with_reply(hold)

    # threading.Condition calls these.

    def _is_owned(self) -> bool:
        self._session.expired_holds.end_past_lease()
        hold = self._lock_core.mine()
        return hold is not None and hold.alive

    def _release_save(self) -> int:
        """Release all levels; return how many there were."""
        # The lock must not be released where the stack has no room to acquire it again.
        check_depth(FRAMES + 5)
        core = self._lock_core
        core.check_may_wait()
        hold = core.hold_to_release()
        core.check(hold)
        try:
            if (call := core.end_hold(hold)) is not None:
                self._await(call, core.released(call, hold))
        except LockLostError:
            # The node was gone. With the hold put back, the `with` block around the condition's wait raises this error
            # at its end.
            hold.ticket.become(State.LOST)
            self._path_state.put_back(hold)
            raise core.lost_error(hold) from None
        return hold.depth

    def _acquire_restore(self, depth: int) -> None:
        call, steps = self._lock_core.new_acquire(True, self._deadline(True, -1), restores=depth)
        self._await(call, steps)

    _recursion_count = RevocableLock.hold_count

    def _describe(self, hold: Hold | None) -> str:
        owner, depth = (0, 0) if hold is None else (ident(hold.owner), hold.depth)
        return f"owner={owner} count={depth} "
