"""`Lock`: `threading.Lock` for every process that opens the same path."""

from __future__ import annotations

from typing import Final

from .._protocol.blocking_rules import MUTEX
from .._runtime.stacks import in_generator
from .base.revocable import RevocableLock


class Lock(RevocableLock):
    """A lock that one thread of one process holds at a time. Any thread of that process may release it.

    Layout:
        `<path>/_c_<uuid>-lock-<sequence>`, EPHEMERAL_SEQUENTIAL, one for each thread that holds or waits: the znodes of
        Curator's InterProcessMutex. The path itself is a container.

    Invariant:
        The contender with the lowest sequence number holds the lock; each waiter watches only the node ahead of it.

    Cost:
        An uncontended `acquire` takes one write and one read, in one round trip; a `release` takes one write, and wakes
        one waiter. With `fair=False`, most hand-overs between threads of one process take no request.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the lock's path; missing nodes are created as containers.
        fair: True: all threads of all processes acquire in the order of arrival. False: the threads of this process
            hand the lock to each other without ZooKeeper, in any order, for at most 50 ms or 1,000 times; then other
            processes get their turn. These holds share one node, so they have the same fencing token.
        on_lost: called with the lock, on a thread of its own, once for each hold that is lost.
        on_suspect: called with the lock, and the number of seconds that its hold is sure to last, on a thread of its
            own, each time `suspect` becomes True.
        on_revoke: called with the lock, on a thread of its own, once each time a client asks the holder to let go, by
            `revoke()` or by Curator's `Revoker`.
        on_deadlock: what to do about a wait that closes a deadlock with other waits in any process. "warn" logs it.
            "raise" also ends a wait with `DeadlockError`: this one or, if the wait that closed the deadlock has "warn",
            another with "raise".
        hold_limit: how many seconds a hold should last at most; None sets no limit. It counts from the first level of a
            hold, and anew for each hold, even after a condition's wait or a hand-over between threads.
        on_hold_limit: "warn" logs a warning, once, when a hold lasts longer. "lose" ends the hold: others get in while
            its holder still works, until the holder checks `lost`, or calls the lock. So "lose" needs fencing.
        label: what the lock is for, or what the program does with it, in at most 60 bytes. It is written into the
            lock's nodes; the log, `owner()`, `inspect()`, events and the command show it. In metrics it is the lock's
            name.

    Raises:
        TypeError: the path or the label is not a string, `hold_limit` is not a number, or a callback is not callable,
            or is a coroutine function.
        ValueError: the path is invalid, or this client already uses it for another primitive or with other fairness; or
            `hold_limit` is not above 0, `on_deadlock` or `on_hold_limit` is an unknown word, or the label is empty, too
            long or not printable.

    Source:
        `threading.Lock`; ZooKeeper's lock recipe; Curator's `InterProcessMutex`.
    """

    _kind = "Lock"
    _rule = MUTEX

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; wait for it in the order of arrival across all processes.

        Args:
            blocking: whether to wait. If False, the call makes one attempt.
            timeout: how long to wait, in seconds; -1 waits forever, 0 makes one attempt.

        Returns:
            Whether the lock was acquired. If False, the attempt leaves no node behind.

        Raises:
            TypeError: the timeout is None, or not a number.
            ValueError: a timeout with `blocking=False`, or a negative one other than -1.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            LockLostError: this thread has lost a hold and has not acknowledged the loss by `release()`.
            DeadlockError: the call would wait for a hold that only this thread can end; or, with `on_deadlock="raise"`,
                it has waited in a deadlock.
            WaitCancelledError: `cancel_waits()` has ended the wait.
            ClientError: the client can't be used here.
            ZkConcurrentError: the path can't be used as a lock.
        """
        return self._acquire(blocking, timeout, False)

    def _acquire_for_block(self, blocking: bool = True, timeout: float | None = None) -> bool:
        # A program's subclass may define its own `acquire`.
        if getattr(self.acquire, "__func__", None) is not Lock.acquire:
            return super()._acquire_for_block(blocking, timeout)
        return self._acquire(blocking, -1 if timeout is None else timeout, not in_generator())

    def _acquire(self, blocking: bool, timeout: float, for_block: bool) -> bool:
        core = self._lock_core
        core.reenter_or_check()
        deadline = self._deadline(blocking, timeout)
        call, steps = core.new_acquire(blocking and timeout != 0, deadline, for_block=for_block)
        return self._await(call, steps)

    def release(self, *, wait: bool = True) -> None:
        """Release the lock; the next waiter in the queue gets it.

        If ZooKeeper is out of reach, the call returns, and the library deletes the lock's node after the reconnect.

        Args:
            wait: whether to wait until the lock is free. If False, the call returns once the request is sent, or is
                left to the library. This client's next `acquire` is sent after the request; another client's attempt
                may still find the lock held for a moment. If the hold turns out to have been lost already, no call
                raises an error: `lost` is set, `on_lost` is called, and a warning is logged.

        Raises:
            LockLostError: the hold was lost. Or the caller has acquired nothing, and another thread has lost a hold
                that no `with` block there will end. The call changes nothing else.
            RuntimeError: no thread of this process holds the lock.
            RefusedError: this client is not allowed to delete the lock's node; the library keeps trying.
            ClientError: the process was forked; the hold belongs to its parent.
        """
        core = self._lock_core
        hold = core.hold_to_release()
        if (call := core.begin_release(hold)) is not None:
            if wait:
                self._await(call, core.released(call, hold))
            else:
                core.end_with_reply(hold)

    # The names that `_thread.lock` had in Python 1, and still has.
    acquire_lock = acquire
    release_lock = release
    locked_lock: Final = RevocableLock.locked
