"""`Condition`: `threading.Condition` for every process that opens the same path."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import TypeVar

from .._arguments.functions import check_callable
from .._arguments.limits import check_seconds
from .._engine.call_group import Calls
from .._engine.holds import Hold
from .._errors import ZkConcurrentError
from .._kazoo.link import KazooClient
from .._recipes.condition import notify, pass_on
from .._runtime.interrupts import TRIES
from .._runtime.public import ErrorKind, Traceback
from .._runtime.wait_loops import Steps
from .base.condition_wait import ConditionWait
from .base.lock_base import core_of
from .base.primitive import Primitive, discard_result, kind_of
from .lock import Lock
from .rlock import RLock
from .rwlock import ReadLock

T = TypeVar("T")


class Condition(Primitive):
    """A lock whose holder can release it and wait until another holder, in any process, notifies it.

    Layout:
        `<path>/waiters/_c_<uuid>-waiter-<sequence>`, EPHEMERAL_SEQUENTIAL, one for each thread that waits. The nodes
        above are containers. The lock, if none is given, is an `RLock` at `<path>/lock`.

    Invariant:
        One transaction deletes the lock's node and creates the waiter's, so every later holder of the lock finds the
        waiter. A notifier deletes the waiter's node; the server's reply shows whether this delete removed the node.

    Cost:
        `wait` takes one write and one read, in two round trips; after the notification, one read and an `acquire` of
        the lock. `notify` takes one read, and one write for each waiter that it wakes, in two round trips.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the parent of the waiters; missing nodes are created as containers.
        lock: a `Lock`, `RLock` or write lock of the same client; several conditions may share it.

    Raises:
        TypeError: the lock is of another type, or the path is not a string.
        ValueError: the path is invalid, or this client already uses it for another primitive; the lock is another
            client's; or this client's other conditions at the path have another lock.

    Source:
        `threading.Condition`.
    """

    _kind = "Condition"
    _part = "lock"

    def __init__(self, client: KazooClient, path: str, lock: Lock | RLock | None = None) -> None:
        if isinstance(lock, ReadLock):
            raise TypeError("a condition can't use a read lock: its holders share it, so none may change anything")
        if lock is not None and not isinstance(lock, Lock | RLock):
            raise TypeError(f"lock must be a zkconcurrent Lock, RLock or write lock, not {kind_of(lock)}")
        if lock is not None and lock.client is not client:
            raise ValueError(f"the lock {lock.path!r} must have the same client as the condition {path!r}")
        super().__init__(client, path)
        self._waiters = f"{self._path}/waiters"
        mine = lock.path if lock is not None else f"{self._path}/{self._part}"
        with self._session.lock:
            theirs = self._path_state.lock = self._path_state.lock or mine
        if mine != theirs:
            raise ValueError(
                f"this client's condition {path!r} has the lock {theirs!r}, not {mine!r}: give all conditions at one "
                "path the same lock, or a notifier would not exclude a waiter"
            )
        self._lock = lock if lock is not None else RLock(client, mine)
        self._lock_core = core_of(self._lock)
        self._path_check = self._share_path_check("Condition")
        if mine == f"{self._path}/{self._part}":
            self._lock_core.path_check = self._path_check

    # -- the lock ------------------------------------------------------------------------------------------------

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; see the lock's `acquire`."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Release the lock; see the lock's `release`."""
        self._lock.release()

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        if kind is not None and issubclass(kind, ZkConcurrentError) and self._lock_core.mine() is None:
            # A wait could not acquire the lock again, and the error that leaves the block says why.
            return
        self._lock.__exit__(kind, error, traceback)

    # -- waiting -------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock at all its levels until notified or until the timeout; then acquire it again at all levels.

        The acquire may outlast the timeout, as in `threading`. If an exception such as KeyboardInterrupt interrupts the
        call, the call raises it once the lock is held again; further interrupts change nothing. Only an error of this
        library leaves the lock released. If ZooKeeper is out of reach for a third of the session timeout after an
        interrupt, the hold is lost instead.

        Args:
            timeout: how long to wait, in seconds; None waits forever.

        Returns:
            False if the timeout passed without a notification; otherwise True. True may also be a spurious wake-up,
            because the session ended during the wait or the outcome is unknown.

        Raises:
            LockLostError: the lock was lost before the call released it.
            RuntimeError: the caller does not hold the lock; or it waits with a write lock and also holds the read lock.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            ClientError: the client can't be used here.
            ZkConcurrentError: the path can't be used, and the caller still holds the lock; or the lock can't be
                acquired again.
        """
        wait, steps = self._begin_wait(timeout)
        try:
            try:
                notified = self._await(wait.call, steps)
            except BaseException as error:
                self._take_back(wait, error)
                raise
            self._take_back(wait)
        except BaseException as error:
            # R3: an interrupt may have struck in `_take_back` itself.
            self._take_back(wait, error)
            raise
        return notified

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Wait until the predicate is true or the timeout passes; return the predicate's last result.

        As in `threading`, a timeout of zero or less still makes one `wait`, during which others may hold the lock.

        Raises:
            TypeError: the predicate is not callable, or is a coroutine function.
            Exception: as `wait`, and what the predicate raises.
        """
        check_callable("predicate", predicate)
        now, left = self._session.now, timeout
        deadline: float | None = None
        while not (result := predicate()):
            if left is not None:
                if deadline is None:
                    check_seconds("timeout", left)
                    deadline = now() + left
                elif (left := deadline - now()) <= 0:
                    break
            self.wait(left)
        return result

    def _begin_wait(self, timeout: float | None) -> tuple[ConditionWait, Steps[bool]]:
        """Return the wait, and the steps of its first part."""
        hold = self._held("wait on")
        self._lock_core.check_may_wait()
        wait = ConditionWait(self._lock_core, self._waiters, hold, self._identity(), self._path_check)
        return wait, wait.steps(self._until(timeout))

    def _take_back(self, wait: ConditionWait, struck: BaseException | None = None) -> None:
        """Restore the caller's hold of the lock and delete the waiter's node, however many interrupts come.

        The program then goes on as the holder, and releases the lock at the end of its block.

        Raises:
            BaseException: the last interrupt of this call, once the lock is held.
            ZkConcurrentError: the lock can't be acquired.
        """
        late, tries = None, 0
        while tries < TRIES:
            begun = wait.begun
            try:
                late = self._restore_hold(wait, struck) or late
                break
            except ZkConcurrentError:
                raise
            except BaseException as error:
                late = struck = error
                # An error that strikes at every try does not come from an interrupt, but, for example, from too deep a
                # recursion. So the tries are limited. Interrupts of the wait do not count: they may come for as long as
                # the wait lasts.
                tries = tries + 1 if wait.begun == begun or isinstance(error, Exception) else 0
        if late is not None:
            raise late

    def _restore_hold(self, wait: ConditionWait, struck: BaseException | None) -> BaseException | None:
        """Restore the hold; return the last interrupt, for the caller to raise: a raise here would undo the grant."""
        if not wait.finish():
            return None
        calls = Calls(self._session)
        return self._await(calls, wait.reacquire(calls, struck))

    # -- notifying -----------------------------------------------------------------------------------------------

    def notify(self, n: int = 1) -> None:
        """Wake the `n` waiters that have waited longest, in all processes, or all if there are fewer.

        The call returns when the server has replied to each delete. If the outcome of a delete stays unknown, the call
        may wake one waiter more than `n`, never one fewer.

        Raises:
            TypeError: `n` is not an int.
            LockLostError: the lock was lost.
            RuntimeError: the caller does not hold the lock.
            ClientError: the client can't be used here.
        """
        return self._notify(operator.index(n))

    def notify_all(self) -> None:
        """Wake all waiters; errors as `notify`."""
        return self._notify(None)

    def notifyAll(self) -> None:  # noqa: N802 - as threading has it
        """Wake all waiters: the old name of `notify_all`."""
        warnings.warn("notifyAll() is deprecated, use notify_all() instead", DeprecationWarning, stacklevel=2)
        self.notify_all()

    def _notify(self, n: int | None) -> None:
        self._held("notify on")
        return self._run(notify(self._waiters, n), discard_result)

    def _pass_on(self) -> None:
        """Notify another waiter, because a waiter that was notified, or may have been, did not return from its wait."""
        return self._run(pass_on(self._waiters), discard_result)

    def _held(self, wanted: str) -> Hold:
        """Return the hold with which the caller may wait and notify."""
        self._session.check_not_forked(self._path)
        core = self._lock_core
        if (hold := core.releasable()) is None:
            raise RuntimeError(core.not_held_message(f"cannot {wanted} un-acquired lock"))
        core.check(hold)
        return hold

    def __repr__(self) -> str:
        waiting = sum(ticket.path == self._waiters for ticket in list(self._session.registry.tickets.values()))
        name = kind_of(self)
        return f"<{name}({self._lock!r}, {waiting}) object path={self._path!r} at {id(self):#x}>"
