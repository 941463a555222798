"""`Lock`: `threading.Lock` for every process that opens the same path."""

from __future__ import annotations

from ._engine.holds import Hold
from ._lock_base import LockBase
from ._recipes.rules import MUTEX


class Lock(LockBase):
    """A lock that one thread of one process holds at a time; any thread of that process may release it.

    Layout:
        `<path>/_c_<uuid>-lock-<sequence>`, EPHEMERAL_SEQUENTIAL, one for each thread that holds or waits: the znodes
        of Curator's InterProcessMutex. The path itself is a container.

    Invariant:
        The contender with the lowest sequence number holds; each waiter watches only the node ahead of it.

    Cost:
        Uncontended, acquire is one write and one read in one round trip, release one write. A release wakes one.
        Unfair, and contended by threads of one process: no request, most of the time.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: the path that is the lock; missing nodes are made as containers.
        fair: whether all threads of all processes get it in the order in which they came. If not, the threads of this
            process hand it to each other without ZooKeeper, in any order, for at most 50 ms or 1,000 times before
            other processes get their turn. They then share a fencing token, as they share a node.
        on_lost: called with the lock, on a thread of its own, once for each hold that is lost.

    Raises:
        ValueError: the path is bad, or is another primitive of this client already, be it by its fairness.

    Source:
        `threading.Lock`; ZooKeeper's lock recipe; Curator's `InterProcessMutex`.
    """

    _kind = "Lock"
    _rule = MUTEX

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock, waiting for it in the order of arrival across all processes.

        Args:
            blocking: whether to wait; if not, one question is asked.
            timeout: how long to wait, in seconds; -1 for ever.

        Returns:
            Whether the lock was acquired. If not, nothing of the attempt is left.

        Raises:
            ValueError: a timeout with `blocking=False`, or a negative one.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            LockLostError: this thread has lost a hold and not acknowledged that by `release()`.
            ClientError: the client can't be used here.
            ZkConcurrentError: the path can't be used as a lock.
        """
        self._acquire_again()
        return self._acquire_hold(blocking, timeout)

    def release(self) -> None:
        """Release the lock; the next in the queue gets it.

        Returns also while the service is out of reach: the lock's node is then deleted as soon as it is back.

        Raises:
            LockLostError: the hold was lost; nothing else is touched.
            RuntimeError: no thread of this process holds the lock.
            ClientError: the process was forked, and the hold is its parent's.
        """
        self._release_level(self._to_give_up())

    def _own(self) -> Hold | None:
        return self._mine() or self._newest()

    # The names that `_thread.lock` keeps from Python 1.
    acquire_lock = acquire
    release_lock = release
    locked_lock = LockBase.locked
