"""`Semaphore`, `Condition`, `Event`, `Barrier` and `CountDownLatch` for tasks, over those of threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from .. import _condition, _event, _latch, _semaphore
from .._engine.driver import Call
from .._engine.identity import of_caller
from .._errors import ClientError, ZkConcurrentError
from .._kazoo.link import KazooClient
from .._recipes.event import Flag
from ._locks import REFRESH, Core, LockBase, ReadLock, RLock, _told, settled, tells
from ._tasks import Completion, Pending, Released, Tasks

T = TypeVar("T")


class _SemaphoreCore(Tasks, _semaphore.Semaphore):
    """It, owned by tasks, and released anywhere, as by a callback of the loop."""

    _caller = staticmethod(of_caller)


class _BoundedSemaphoreCore(Tasks, _semaphore.BoundedSemaphore):
    """It, owned by tasks, and released anywhere, as by a callback of the loop."""

    _caller = staticmethod(of_caller)


class Semaphore(LockBase):
    """`asyncio.Semaphore` for every process that opens the same path; see `zkconcurrent.Semaphore`.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: the path that is the semaphore; missing nodes are made.
        value: how many permits there are; all processes must say the same.
        on_lost: called once for each `acquire` whose permits are lost; may be async.
    """

    _owned = False
    _kind: type[_semaphore.Semaphore] = _SemaphoreCore

    def __init__(
        self, client: KazooClient, path: str, value: int = 1, *, on_lost: Callable[[Any], object] | None = None
    ) -> None:
        super().__init__(self._kind(client, path, value, on_lost=tells(self, on_lost)))

    async def acquire(self, *, blocking: bool = True, timeout: float | None = None, permits: int = 1) -> bool:
        """Take permits, all or none, in the order of arrival; arguments and errors as `Lock.acquire`.

        Args:
            blocking: whether to wait.
            timeout: how long to wait, in seconds; None for ever.
            permits: how many.
        """
        self._loop = asyncio.get_running_loop()
        return await settled(self._core.acquire(blocking, timeout, permits=permits))

    def release(self, n: int = 1) -> Completion:
        """Give back permits, or add those that are released beyond what this process holds.

        Args:
            n: how many.

        Raises:
            LockLostError: permits were lost.
            ValueError: n is less than one; or more than was acquired, of a `BoundedSemaphore`.
        """
        core = self._core
        call, holds = core._give_up_permits(n)
        self._seen = False
        if n > len(holds):
            return self._in_background(Pending(call, core._giving_back(call, n, holds)))
        return Released(core._session, core.path, [(hold, _told(core, hold)) for hold in holds])

    def locked(self) -> bool:
        """Return whether no permit is left, as last seen; asks for news, once a second at most."""
        core = self._core
        mine = sum(hold.alive for hold in core._path_state.all(core._rule.role))
        if mine >= core._layout.value + (core._path_state.last_seen or 0):
            return True
        if core._session.now() - self._asked >= REFRESH:
            self._asked = core._session.now()
            self._in_background(self._noting(core.locked()))
        return self._seen

    async def destroy(self) -> None:
        """Remove what outlives all who use the semaphore; see `zkconcurrent.Semaphore.destroy`."""
        await self._core.destroy()


class BoundedSemaphore(Semaphore):
    """A semaphore that can't be released more often than it was acquired, in each process."""

    _kind = _BoundedSemaphoreCore


class _ConditionCore(Tasks, _condition.Condition):
    """It, owned by tasks."""


class Condition(Core):
    """`asyncio.Condition` for every process that opens the same path; see `zkconcurrent.Condition`.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: where the waiters are; missing nodes are made as containers.
        lock: a `Lock`, `RLock` or write lock of `aio` and of the same client; an `RLock` at `<path>/lock` if not given.
    """

    def __init__(self, client: KazooClient, path: str, lock: LockBase | None = None) -> None:
        if lock is not None and (not isinstance(lock, LockBase) or isinstance(lock, ReadLock)):
            raise TypeError(f"lock must be a Lock, RLock or write lock of zkconcurrent.aio, not {type(lock).__name__}")
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
            return  # a wait could not take the lock back, and says why
        await self._lock.__aexit__(kind, error, traceback)

    async def wait(self, timeout: float | None = None) -> bool:
        """Give the lock up, with all its levels, until notified or the time is up; then take it again as it was.

        A cancelled wait takes the lock again before the cancellation goes on, as in asyncio, while the service is in
        reach. If that is out of reach for a third of the session's timeout, the hold is a loss. If a notification met
        the cancellation, another waiter gets it.

        Args:
            timeout: how long to wait, in seconds; None for ever.

        Returns:
            False if the time was up and nobody notified us.

        Raises:
            RuntimeError: the lock is not held.
            LockLostError: the lock was lost before it was given up.
        """
        core = self._core
        hold, call, steps = core._begin_wait(timeout)
        notified = False
        try:
            try:
                notified = await Pending(call, steps)
            except BaseException as error:
                await self._take_back(hold, call, error)
                raise
            await self._take_back(hold, call)
        except BaseException as error:
            try:
                await self._take_back(hold, call, error)
            finally:
                if not isinstance(error, GeneratorExit) and (notified or not self._is_withdrawn(call)):
                    with suppress(ClientError):  # the client is stopped, so its session wakes nobody any more
                        self._in_background(core._pass_on())
            raise
        return bool(notified)

    async def _take_back(self, hold: Any, call: Call, struck: BaseException | None = None) -> None:
        if isinstance(struck, GeneratorExit):
            return
        pending = self._core._take_back(hold, call, struck)
        if pending is not None:
            await pending

    def _is_withdrawn(self, waited: Call) -> bool:
        """Return whether this client has deleted the waiter's node, so that nobody can have notified it."""
        discarded = self._core._session.is_discarded
        return all(
            not waiter.sent or (discarded(waiter) and waiter.deletes == 1 and waiter.refusal is None)
            for waiter in waited.tickets
        )

    async def wait_for(self, predicate: Callable[[], T]) -> T:
        """Wait until the predicate is true; return what it last returned."""
        while not (result := predicate()):
            await self.wait()
        return result

    def notify(self, n: int = 1) -> Completion:
        """Wake the `n` tasks or threads, of all processes, that have waited longest.

        Raises:
            RuntimeError: the lock is not held.
            LockLostError: it was lost.
        """
        return self._in_background(self._core.notify(n))

    def notify_all(self) -> Completion:
        """Wake all who wait; raises as `notify`."""
        return self._in_background(self._core.notify_all())


class _EventCore(Tasks, _event.Event):
    """It, for tasks."""


class Event(Core):
    """`asyncio.Event` for every process that opens the same path; see `zkconcurrent.Event`.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: the path that is the event; made when it is first set or waited for.
    """

    def __init__(self, client: KazooClient, path: str) -> None:
        super().__init__(_EventCore(client, path))
        self._asked = 0.0

    def is_set(self) -> bool:
        """Return whether the flag is set, as last seen; asks for news, once a second at most."""
        core = self._core
        if core._session.now() - self._asked >= REFRESH:
            self._asked = core._session.now()
            self._in_background(core.is_set())
        seen = core._path_state.last_seen
        return isinstance(seen, Flag) and seen.is_set

    async def fetch(self) -> bool:
        """Return whether the flag is set; asks the leader."""
        return bool(await self._core.is_set())

    def set(self) -> Completion:
        """Set the flag; everybody who waits goes on."""
        completion = self._in_background(self._core.set())
        self._core._note(Flag(0, True))
        return completion

    def clear(self) -> Completion:
        """Clear the flag."""
        completion = self._in_background(self._core.clear())
        self._core._note(Flag(0, False))
        return completion

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is set.

        Args:
            timeout: how long to wait, in seconds; None for ever.

        Returns:
            Whether the flag is set, or was at any time since the wait began; False at the deadline.
        """
        return bool(await self._core.wait(timeout))

    async def destroy(self) -> None:
        """Remove the node; see `zkconcurrent.Event.destroy`."""
        await self._core.destroy()


class _LatchCore(Tasks, _latch.CountDownLatch):
    """It, for tasks."""


class CountDownLatch(Core):
    """A count that goes down to zero, once; see `zkconcurrent.CountDownLatch`.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: the path that is the latch.
        count: from where to count; all processes must say the same.
    """

    def __init__(self, client: KazooClient, path: str, count: int) -> None:
        super().__init__(_LatchCore(client, path, count))

    async def fetch_count(self) -> int:
        """Return how much is left to count down; asks the leader."""
        return int(await self._core.count)

    def count_down(self, n: int = 1) -> Completion:
        """Count down by `n`; a latch that is open stays as it is."""
        return self._in_background(self._core.count_down(n))

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to count down; return whether the latch is open."""
        return bool(await self._core.wait(timeout))

    async def destroy(self) -> None:
        """Remove the node and all counts; see `zkconcurrent.CountDownLatch.destroy`."""
        await self._core.destroy()
