"""The Condition for tasks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from .._arguments.functions import check_callable
from .._arguments.limits import check_seconds
from .._arguments.paths import check_path
from .._engine.call import Call
from .._errors import ClientError, ZkConcurrentError
from .._kazoo.link import KazooClient
from .._runtime.public import ErrorKind, Traceback
from .._threads import condition as _condition
from .._threads.base.condition_wait import ConditionWait
from .._threads.base.lock_base import core_of
from .._threads.base.primitive import kind_of
from ._rlock import RLock
from ._rwlock import ReadLock
from ._tasks import Pending, of_tasks
from ._twin import LockBase, PrimitiveTwin, backgrounded, is_whole_task, resolve, wrapped

T = TypeVar("T")


_Core = of_tasks(_condition.Condition)


class Condition(PrimitiveTwin):
    """`asyncio.Condition` for every process that opens the same path; see `zkconcurrent.Condition`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the parent of the waiters; missing nodes are created as containers.
        lock: a `Lock`, `RLock` or write lock of `aio` and of the same client; None makes an `RLock` at `<path>/lock`.
    """

    def __init__(self, client: KazooClient, path: str, lock: LockBase | None = None) -> None:
        if lock is not None and (not isinstance(lock, LockBase) or isinstance(lock, ReadLock)):
            raise TypeError(f"lock must be a Lock, RLock or write lock of zkconcurrent.aio, not {kind_of(lock)}")
        # Check the path first: the default lock's path is below it.
        path = check_path(path)
        self._lock: LockBase = lock if lock is not None else RLock(client, f"{path}/{_condition.Condition._part}")
        core = wrapped(self._lock)
        super().__init__(_Core(client, path, core))
        self._lock_core = core_of(core)
        self.acquire: Final = self._lock.acquire
        self.release: Final = self._lock.release
        self.locked: Final = self._lock.locked
        self.fetch_locked: Final = self._lock.fetch_locked

    async def __aenter__(self) -> None:
        await self._lock.__aenter__()

    async def __aexit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        failed = kind is not None and issubclass(kind, ZkConcurrentError)
        if failed and not self._session.forked and self._lock_core.mine() is None:
            # A wait could not acquire the lock again; its error says why.
            return
        await self._lock.__aexit__(kind, error, traceback)

    async def wait(self, timeout: float | None = None) -> bool:
        """Release the lock at all its levels until notified or until the timeout; then acquire it again at all levels.

        A cancelled wait acquires the lock again before it raises the cancellation, as in asyncio, while ZooKeeper is in
        reach; further cancellations change nothing. If ZooKeeper is out of reach for a third of the session timeout,
        the hold is lost instead. If a notification arrives together with the cancellation, another waiter gets the
        notification.

        Args:
            timeout: how long to wait, in seconds; None waits forever.

        Returns:
            False if the timeout passed without a notification; otherwise True, which may also be a spurious wake-up.

        Raises:
            RuntimeError: the caller does not hold the lock. A task that consists of this call alone never holds an
                `RLock` or a write lock; see `RLock.acquire`.
            LockLostError: the lock was lost before the call released it.
        """
        if is_whole_task(Condition.wait):
            self._check_not_whole("wait")
        core = self._core
        wait, steps = core._begin_wait(timeout)
        call = wait.call
        notified = False
        try:
            try:
                notified = await Pending(call, steps)
            except BaseException as error:
                await self._take_back(wait, error)
                raise
            await self._take_back(wait)
        except BaseException as error:
            try:
                await self._take_back(wait, error)
            finally:
                if not isinstance(error, GeneratorExit) and (notified or not self._is_withdrawn(call)):
                    # If the client is stopped, its session no longer wakes tasks.
                    with suppress(ClientError):
                        self._in_background(core._pass_on())
            raise
        return bool(notified)

    def _check_not_whole(self, call: str) -> None:
        if self._lock._owned:
            raise RuntimeError(
                f"this task does nothing but {call}(): it does not hold {self._lock!r}. Await {call}(timeout=...) in "
                "the task that does, or give the condition a Lock, which belongs to no task"
            )

    async def _take_back(self, wait: ConditionWait, struck: BaseException | None = None) -> None:
        if isinstance(struck, GeneratorExit):
            # A hold without a claimant still belongs to the task.
            if wait.hold.claimant is not None:
                wait.call.abandon_by_loop()
                self._lock_core.path_state.end_blocks_of(wait.hold)
            return
        if (late := await resolve(self._core._restore_hold(wait, struck))) is not None:
            raise late

    def _is_withdrawn(self, waited: Call) -> bool:
        """Return whether this client has deleted the waiter's node, so that no notifier can have deleted it."""
        discarded = self._lock_core.session.is_gone
        return all(
            not waiter.sent or (discarded(waiter) and waiter.deletes == 1 and waiter.refusal is None)
            for waiter in waited.tickets
        )

    async def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Wait until the predicate is true or the timeout passes; return the predicate's last result.

        A timeout of zero or less makes one `wait`, during which others may hold the lock.

        Raises:
            TypeError: the predicate is not callable, or is a coroutine function, which would never be awaited.
            Exception: the errors of `wait`, and what the predicate raises.
        """
        if is_whole_task(Condition.wait_for):
            self._check_not_whole("wait_for")
        check_callable("predicate", predicate)
        now, left = self._lock_core.session.now, timeout
        deadline: float | None = None
        while not (result := predicate()):
            if left is not None:
                if deadline is None:
                    check_seconds("timeout", left)
                    deadline = now() + left
                elif (left := deadline - now()) <= 0:
                    break
            await self.wait(left)
        return result

    notify: Final = backgrounded(
        _condition.Condition.notify,
        """Wake the `n` waiters, tasks or threads of all processes, that have waited longest.

        Raises:
            TypeError: `n` is not an int.
            RuntimeError: the caller does not hold the lock.
            LockLostError: the lock was lost.
        """,
    )

    notify_all: Final = backgrounded(_condition.Condition.notify_all)
