"""`Semaphore`, `Condition`, `Event` and `CountDownLatch` for tasks, over those of threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from .. import _condition, _event, _latch, _semaphore
from .._condition_wait import ConditionWait
from .._engine.driver import Call
from .._engine.identity import of_caller
from .._errors import ClientError, ZkConcurrentError
from .._kazoo.link import KazooClient
from .._paths import check_path
from .._primitive import discard_result, kind_of
from .._recipes.event import Flag, turn
from ._locks import LockBase, PrimitiveTwin, ReadLock, RLock, resolve
from ._losses import follow, on_loop
from ._tasks import Completion, Pending, Released, Tasks

T = TypeVar("T")


class _SemaphoreCore(Tasks, _semaphore.Semaphore):
    """`zkconcurrent.Semaphore`, owned by tasks; a callback of the loop may release it, too."""

    _caller = staticmethod(of_caller)


class _BoundedSemaphoreCore(Tasks, _semaphore.BoundedSemaphore):
    """`zkconcurrent.BoundedSemaphore`, owned by tasks; a callback of the loop may release it, too."""

    _caller = staticmethod(of_caller)


class Semaphore(LockBase):
    """`asyncio.Semaphore` for every process that opens the same path; see `zkconcurrent.Semaphore`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the semaphore's path; missing nodes are created.
        value: the number of permits. All processes must give the same, until one has called `resize`; None takes the
            current number.
        on_lost: called with the semaphore, once for each `acquire` whose permits are lost; may be async.
    """

    _owned = False
    _kind: type[_semaphore.Semaphore] = _SemaphoreCore

    def __init__(
        self, client: KazooClient, path: str, value: int | None = 1, *, on_lost: Callable[[Any], object] | None = None
    ) -> None:
        super().__init__(self._kind(client, path, value, on_lost=on_loop(self, on_lost)))

    async def acquire(self, *, blocking: bool = True, timeout: float | None = None, permits: int = 1) -> bool:
        """Take permits, all or none, in the order of arrival; errors as `zkconcurrent.Semaphore.acquire`.

        Args:
            blocking: whether to wait for permits. If False, the call takes them only if enough are free for the
                contenders ahead and for itself.
            timeout: how long to wait, in seconds; None waits forever; zero or less acts as `blocking=False`.
            permits: how many to take.

        Returns:
            Whether the permits were taken. If False, the attempt leaves no node behind.
        """
        self._loop = asyncio.get_running_loop()
        return await resolve(self._core.acquire(blocking, timeout, permits=permits))

    def release(self, n: int = 1) -> Completion:
        """Give back permits; add new permits for all, if `n` is more than this process holds.

        Args:
            n: how many permits.

        Raises:
            TypeError: `n` is not an int.
            LockLostError: permits were lost; the call acknowledges the loss of up to `n`.
            ValueError: `n` is less than one, or too large; or, for a `BoundedSemaphore`, more than this process holds.
        """
        core = self._core
        call, holds = core._release_permits(n)
        if n > len(holds):
            return self._in_background(Pending(call, core._giving_back(call, n, holds)))
        return Released([(core, hold) for hold in holds])

    def locked(self) -> bool:
        """Return whether no permit is free, as last seen; updated from the server at most once a second."""
        size = self._core._size()
        self._refresh("locked", self._core.locked)
        return size is not None and self._held_here() + self._held_elsewhere() >= size

    async def available(self) -> int:
        """Return how many permits are free; asks the leader. See `zkconcurrent.Semaphore.available`."""
        return int(await self._core.available())

    async def resize(self, n: int) -> None:
        """Set the number of permits; see `zkconcurrent.Semaphore.resize`.

        A waiter for more permits than `n` keeps all clients behind it waiting, until it gives up or there are enough
        permits again.
        """
        await self._core.resize(n)

    async def destroy(self) -> None:
        """Remove the nodes that outlive the semaphore's users; see `zkconcurrent.Semaphore.destroy`."""
        await self._core.destroy()


class BoundedSemaphore(Semaphore):
    """A semaphore that refuses a `release()` of more permits than this process holds."""

    _kind = _BoundedSemaphoreCore


class _ConditionCore(Tasks, _condition.Condition):
    """`zkconcurrent.Condition`, whose waiters are tasks."""


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
        path = check_path(path)  # first: the default lock has a path below it
        self._lock: LockBase = lock if lock is not None else RLock(client, f"{path}/{_condition.Condition._part}")
        super().__init__(_ConditionCore(client, path, self._lock._core))
        self.acquire = self._lock.acquire
        self.release = self._lock.release
        self.locked = self._lock.locked
        self.fetch_locked = self._lock.fetch_locked

    async def __aenter__(self) -> None:
        await self._lock.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, ZkConcurrentError) and self._lock._core._mine() is None:
            return  # a wait could not acquire the lock again; its error says why
        await self._lock.__aexit__(kind, error, traceback)

    async def wait(self, timeout: float | None = None) -> bool:
        """Release the lock at all its levels until notified or until the timeout; then acquire it again at all levels.

        A cancelled wait acquires the lock again before it raises the cancellation, as in asyncio, while ZooKeeper is in
        reach; further cancels change nothing. If ZooKeeper is out of reach for a third of the session timeout, the hold
        is lost instead. If a notification arrives together with the cancellation, another waiter gets the notification.

        Args:
            timeout: how long to wait, in seconds; None waits forever.

        Returns:
            False if the timeout passed without a notification; otherwise True, which may also be a spurious wake-up.

        Raises:
            RuntimeError: the caller does not hold the lock.
            LockLostError: the lock was lost before the call released it.
        """
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
                    with suppress(ClientError):  # the client is stopped, so its session wakes nobody any more
                        self._in_background(core._pass_on())
            raise
        return bool(notified)

    async def _take_back(self, wait: ConditionWait, struck: BaseException | None = None) -> None:
        if isinstance(struck, GeneratorExit):
            if wait.hold.claimant is not None:  # else it is the task's still
                wait.call.desert()
                self._lock._core._path_state.end_blocks_of(wait.hold)
            return
        late = await resolve(self._core._restore_hold(wait, struck))
        follow(self._lock._core, wait.hold)
        if late is not None:
            try:
                raise late
            finally:
                late = None  # or the traceback and this frame keep each other alive

    def _is_withdrawn(self, waited: Call) -> bool:
        """Return whether this client has deleted the waiter's node, so that no notifier can have."""
        discarded = self._core._session.is_discarded
        return all(
            not waiter.sent or (discarded(waiter) and waiter.deletes == 1 and waiter.refusal is None)
            for waiter in waited.tickets
        )

    async def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Wait until the predicate is true or the timeout passes; return the predicate's last result."""
        now = self._core._session.now
        deadline = None if timeout is None else now() + timeout
        while not (result := predicate()) and (deadline is None or now() < deadline):
            await self.wait(None if deadline is None else deadline - now())
        return result

    def notify(self, n: int = 1) -> Completion:
        """Wake the `n` waiters, tasks or threads of all processes, that have waited longest.

        Raises:
            TypeError: `n` is not an int.
            RuntimeError: the caller does not hold the lock.
            LockLostError: the lock was lost.
        """
        return self._in_background(self._core.notify(n))

    def notify_all(self) -> Completion:
        """Wake all waiters; errors as `notify`."""
        return self._in_background(self._core.notify_all())


class _EventCore(Tasks, _event.Event):
    """`zkconcurrent.Event`, for tasks."""

    def _begin_turn(self, wanted: bool) -> Any:
        """Note the flag as it will be; return the call that changes it. Its reply may come after the next change."""
        self._session.check_usable(self._path)
        self._note(Flag(0, wanted))
        return self._run_query(turn(self._path, wanted), discard_result)


class Event(PrimitiveTwin):
    """`asyncio.Event` for every process that opens the same path; see `zkconcurrent.Event`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the event's path; its node is created by the first `set`, or by a `wait` that has to wait.
    """

    def __init__(self, client: KazooClient, path: str) -> None:
        super().__init__(_EventCore(client, path))

    def is_set(self) -> bool:
        """Return whether the flag is set, as last seen; updated from the server at most once a second."""
        self._refresh("is_set", self._core.is_set)
        seen = self._core._path_state.last_seen
        return isinstance(seen, Flag) and seen.is_set

    async def fetch(self) -> bool:
        """Return whether the flag is set; asks the leader."""
        return bool(await self._core.is_set())

    def set(self) -> Completion:
        """Set the flag and wake all waiters."""
        return self._in_background(self._core._begin_turn(True))

    def clear(self) -> Completion:
        """Clear the flag."""
        return self._in_background(self._core._begin_turn(False))

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set.

        Args:
            timeout: how long to wait, in seconds; None waits forever, zero or less reads the flag once.

        Returns:
            True if the flag is set, or was set at any time since the wait began; False at the deadline.
        """
        return bool(await self._core.wait(timeout))

    async def destroy(self) -> None:
        """Remove the event's node; see `zkconcurrent.Event.destroy`."""
        await self._core.destroy()


class _CountDownLatchCore(Tasks, _latch.CountDownLatch):
    """`zkconcurrent.CountDownLatch`, for tasks."""


class CountDownLatch(PrimitiveTwin):
    """A count that goes down to zero, once; see `zkconcurrent.CountDownLatch`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the latch's path; its node is created by the first `count_down`, or by a `wait` that has to wait.
        count: the number to count down from; all processes must give the same.
    """

    def __init__(self, client: KazooClient, path: str, count: int) -> None:
        super().__init__(_CountDownLatchCore(client, path, count))

    async def fetch_count(self) -> int:
        """Return how much is left to count down; asks the leader."""
        return int(await self._core.count)

    def count_down(self, n: int = 1) -> Completion:
        """Count down by `n`; an open latch stays open."""
        return self._in_background(self._core.count_down(n))

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to count down; return whether the latch is open.

        Args:
            timeout: how long to wait, in seconds; None waits forever, zero or less reads the count once.
        """
        return bool(await self._core.wait(timeout))

    async def destroy(self) -> None:
        """Remove the latch's node and all counts; see `zkconcurrent.CountDownLatch.destroy`."""
        await self._core.destroy()
