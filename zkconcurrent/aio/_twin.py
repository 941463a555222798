"""What all classes for tasks share. Each is the twin of a class for threads, whose object it wraps (`_core`).

The owners of the wrapped primitive are tasks, and its calls are awaited. So threads and tasks of one process, other
processes and Java exclude each other on one path.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from functools import update_wrapper
from inspect import signature
from typing import Any, Concatenate, Final, Generic, NoReturn, ParamSpec, TypeVar

from .._engine.session import Session
from .._errors import LockLostError
from .._kazoo.link import KazooClient
from .._runtime.interrupts import check_depth
from .._runtime.public import ErrorKind, Named, Traceback
from .._threads.base import lock_base
from .._threads.base.lock_core import LockCore
from .._threads.base.primitive import not_held, reports_loss
from ._held import Held
from ._losses import DEPTH_OF_END, H, Holding, Lost
from ._tasks import Completion, Pending, ReleaseCompletion, in_background, leave_to_keeper, release_with_task

T = TypeVar("T")
S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Callable[..., object])

# Seconds between two refreshes of a query that is called often.
REFRESH = 1.0
_acquires = itertools.count(1)


async def resolve(result: T | Pending[T]) -> T:
    """Return a result; await it if it is pending."""
    return await result if isinstance(result, Pending) else result


def awaited(
    method: Callable[Concatenate[S, P], R], doc: str | None = None
) -> Callable[Concatenate[Twin, P], Coroutine[Any, Any, R]]:
    """Declare the method of a twin that awaits this method of its core; `doc` replaces its docstring."""
    name = method.__name__

    async def call(self: Twin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await getattr(self._core, name)(*args, **kwargs)
        return result

    return _described(call, method, doc)


def backgrounded(
    method: Callable[Concatenate[S, P], object], doc: str | None = None
) -> Callable[Concatenate[PrimitiveTwin, P], Completion]:
    """Declare the plain method of a twin that runs this method of its core in the background."""
    name = method.__name__

    def call(self: PrimitiveTwin, /, *args: P.args, **kwargs: P.kwargs) -> Completion:
        completion: Completion = self._in_background(getattr(self._core, name)(*args, **kwargs))
        return completion

    described = _described(call, method, doc)
    described.__annotations__ = {**method.__annotations__, "return": Completion}
    described.__signature__ = signature(method).replace(return_annotation=Completion)  # type: ignore[attr-defined]
    return described


def forwarded(method: Callable[Concatenate[S, P], R], doc: str | None = None) -> Callable[Concatenate[Twin, P], R]:
    """Declare the plain method of a twin that calls this method of its core."""
    name = method.__name__

    def call(self: Twin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = getattr(self._core, name)(*args, **kwargs)
        return result

    return _described(call, method, doc)


def _described(call: C, method: Callable[..., object], doc: str | None) -> C:
    # Do not copy the method's attributes: one may mark the method as abstract.
    update_wrapper(call, method, updated=())
    call.__module__ = "zkconcurrent.aio"
    call.__doc__ = doc or method.__doc__
    return call


def is_whole_task(method: Callable[..., object]) -> bool:
    """Return whether the running task consists only of the calling method, so that the task ends with this call.

    Such a task comes from `create_task(lock.acquire())` and, before Python 3.12, from `wait_for(lock.acquire(), ...)`.
    """
    task = asyncio.current_task()
    # Do not read the frames: CPython would keep each frame as long as the task waits.
    return task is not None and getattr(task.get_coro(), "cr_code", None) is method.__code__


class Twin(Named):
    """The twin of a primitive for threads: it wraps a primitive whose owners are tasks."""

    def __init__(self, core: Any) -> None:
        self._core = core

    def __repr__(self) -> str:
        return repr(self._core)


class PrimitiveTwin(Twin):
    """The twin of a primitive with one client and one path."""

    def __init__(self, core: object) -> None:
        super().__init__(core)
        # For each kind of query: when the last query began, and its completion.
        self._queries: dict[str, tuple[float, Completion]] = {}

    @property
    def client(self) -> KazooClient:
        """The kazoo client."""
        return self._core.client

    @property
    def path(self) -> str:
        """The path. All processes that open it share this primitive."""
        return str(self._core.path)

    @property
    def _session(self) -> Session:
        return self._core._session  # type: ignore[no-any-return]

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"cannot pickle {type(self).__name__} {self.path!r}: open a client in the other process and make the "
            "object there, with the same path"
        )

    def _refresh(self, what: str, query: Callable[[], object]) -> None:
        """Query the server in the background: at most once a second, and never while an earlier query has no reply yet.

        Raises:
            ClientError: the client can't be used here.
        """
        session = self._session
        session.check_usable(self.path)
        now = session.now()
        began, last = self._queries.get(what, (-math.inf, None))
        if now - began >= REFRESH and (last is None or last.done()):
            self._queries[what] = now, in_background(session, query())

    def _in_background(self, pending: object) -> Completion:
        session = self._session
        session.check_usable(self.path)
        return in_background(session, pending)


class Acquirable(Twin, ABC, Generic[H]):
    """A primitive that tasks acquire and release, and use in `async with` blocks; `hold()` gives an `H`."""

    # Whether only the task that acquired it may release it.
    _owned = True

    def __init__(self, core: object) -> None:
        super().__init__(core)
        # The loops that use the lock, each with the serial number of its last acquire; 0 if none has succeeded.
        self._loops: dict[asyncio.AbstractEventLoop, int] = {}

    async def acquire(self, *, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock; wait for it in the order of arrival across all tasks, threads and processes.

        A cancelled acquire leaves no node: the library deletes its node, in the background if need be. The cancellation
        waits for nothing.

        Args:
            blocking: whether to wait. If False, the call makes one attempt.
            timeout: how long to wait, in seconds; None waits forever, 0 makes one attempt.

        Returns:
            Whether the lock was acquired. If False, the attempt leaves no node behind.

        Raises:
            RuntimeError: the task consists of this call alone, so it would end as the lock's owner. This happens with
                `create_task(lock.acquire())` and, before Python 3.12, with `wait_for(lock.acquire(), ...)`.
            TypeError: the timeout is not a number.
            ValueError: a timeout with `blocking=False`, or a negative one other than -1.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            LockLostError: this task has lost a hold and has not acknowledged the loss by `release()`.
            DeadlockError: the call would wait for a hold that only this task can end; or, with `on_deadlock="raise"`,
                it has waited in a deadlock.
            WaitCancelledError: `cancel_waits()` has ended the wait.
            ClientError: the client can't be used here.
            ZkConcurrentError: the path can't be used as a lock.
        """
        if self._owned and is_whole_task(Acquirable.acquire):
            raise RuntimeError(
                f"this task does nothing but acquire(): it would own {self!r} and end. Await acquire(timeout=...) "
                "in the task that uses the lock"
            )
        return await self._acquired(self._core.acquire(blocking, -1 if timeout is None else timeout))

    async def _acquire_for_block(self, *, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire as `acquire` does, for a block: the block's own task releases the lock at the block's end."""
        # A semaphore, or a program's own class, has an `acquire` of its own.
        if getattr(self.acquire, "__func__", None) is not Acquirable.acquire:
            return await self.acquire(blocking=blocking, timeout=timeout)
        limits = () if timeout is None else (timeout,)
        return await self._acquired(self._core._acquire_for_block(blocking, *limits))

    async def _acquired(self, acquired: bool | Pending[bool]) -> bool:
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            for each in [each for each in list(self._loops) if each.is_closed()]:
                self._loops.pop(each, None)
            # A loss may come as soon as the lock is granted.
            self._loops[loop] = 0
        if isinstance(acquired, Pending):
            acquired = await acquired
            for core in self._lock_cores():
                release_with_task(core)
        if acquired:
            self._loops[loop] = next(_acquires)
        return bool(acquired)

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop for callbacks: the open loop that acquired last; None if all loops are closed."""
        loops = {loop: number for loop, number in list(self._loops.items()) if not loop.is_closed()}
        return max(loops, key=loops.__getitem__, default=None)

    @abstractmethod
    def _lock_cores(self) -> Iterable[LockCore]:
        """Return the core of each lock."""

    @abstractmethod
    def release(self) -> Completion:
        """Release the lock; the next waiter in the queue gets it."""

    @abstractmethod
    def _handle(self) -> H:
        """Return the handle of the hold that the task has just acquired."""

    async def __aenter__(self) -> None:
        check_depth(DEPTH_OF_END)
        if not await self._acquire_for_block():
            raise not_held(self)

    async def __aexit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        if any(core.session.forked for core in self._lock_cores()):
            # The hold is the parent's.
            return
        if kind is GeneratorExit and (self._leave_to_keeper() or asyncio._get_running_loop() is None):
            return
        try:
            self.release()
        except LockLostError:
            if reports_loss(kind):
                raise

    def hold(self, timeout: float | None = None, *, blocking: bool = True, cancel_on_loss: bool = True) -> Holding[H]:
        """Return an `async with` block that holds the lock, and ends when the hold is lost.

        `as` gives the handle of the hold.

        When the hold is lost, the block's task is cancelled, and the block raises `LockLostError` in place of the
        cancellation, as `asyncio.timeout()` raises `TimeoutError`.

        Args:
            timeout: how long to wait for the lock, in seconds; None waits forever, 0 makes one attempt.
            blocking: whether to wait. If False, the block makes one attempt.
            cancel_on_loss: whether to cancel the block's task. If False, the block ends with `LockLostError` as
                `async with lock` does, once its body has ended.

        Raises:
            TimeoutError: the lock was not acquired in time. The start of the block raises this, as it raises all errors
                of `acquire`.
            LockLostError: the hold was lost. The end of the block raises this.
        """
        return Holding(self, timeout, blocking, cancel_on_loss)

    cancel_waits: Final = forwarded(
        lock_base.Acquirable.cancel_waits,
        """End the waits of all tasks and threads, each with `WaitCancelledError`; see `zkconcurrent.Lock.cancel_waits`.

        To end the wait of one task, cancel the task.
        """,
    )

    hold_count: Final = forwarded(
        lock_base.Acquirable.hold_count,
        """Return how many acquires the running task has not released; 0 if it holds nothing, or its hold is lost.

        For a semaphore this is its number of permits; for a `MultiLock`, the lowest count of its locks.
        """,
    )

    def _leave_to_keeper(self) -> bool:
        """Hand the holds of a thrown-away task to the keeper; return whether its block ends here.

        The loop of such a task is closed. The garbage collector may end the task in any thread, even in a thread that
        runs another loop, whose tasks may have holds of their own.
        """
        gone = [leave_to_keeper(core) for core in self._lock_cores()]
        return any(gone)


class LockBase(Acquirable[Held], PrimitiveTwin):
    """The methods of all locks: `asyncio.Lock`'s, and the extras of `zkconcurrent`.

    Attributes:
        _lock_core: the core of the wrapped lock.
    """

    def __init__(self, core: lock_base.LockBase) -> None:
        super().__init__(core)
        self._lock_core = lock_base.core_of(core)

    def _lock_cores(self) -> Iterable[LockCore]:
        return (self._lock_core,)

    def _handle(self) -> Held:
        hold = self._lock_core.mine()
        assert hold is not None
        return Held(self._lock_core, hold)

    def release(self) -> Completion:
        """Release the lock; the next waiter in the queue gets it.

        When the call returns, it has sent the delete, or the library will send it in the background. A task may await
        the result, to wait until the next waiter has its turn; no task needs to.

        Raises:
            LockLostError: the hold was lost; the call changes nothing else.
            RuntimeError: the lock is not held, or another task holds it.
        """
        core = self._lock_core
        hold = core.hold_to_release()
        return ReleaseCompletion([] if core.begin_release(hold) is None else [(core, hold)])

    def locked(self) -> bool:
        """Return whether the lock is held, as last seen; asks the leader in the background, at most once a second.

        A hold of this process shows at once. `fetch_locked()` waits for the reply.
        """
        if self._held_here():
            return True
        self._refresh("locked", self._core.locked)
        return self._held_elsewhere() > 0

    def _held_here(self) -> int:
        """Return how many holds this process has."""
        return sum(hold.alive for hold in self._lock_core.all())

    def _held_elsewhere(self) -> int:
        """Return how many holds others had, as last seen."""
        core = self._lock_core
        return core.path_state.elsewhere.get(core.rule.role, 0)

    fetch_locked: Final = awaited(lock_base.LockBase.locked)

    @property
    def fencing_token(self) -> int:
        """A number that never decreases from holder to holder: the creation zxid of the holder's node.

        Raises:
            LockLostError: the hold is lost.
            RuntimeError: the caller has no hold that it may release.
        """
        return int(self._core.fencing_token)

    @property
    def lost(self) -> Lost:
        """The loss of the current hold: ask its `is_set()`, or await its `wait()`. Each hold has a `lost` of its own.

        The current hold is the task's own or, if the task holds nothing, this process's newest. If there is no hold,
        this is the loss of the next hold.
        """
        return Lost([(self._lock_core.session, self._lock_core.loss)])

    @property
    def suspect(self) -> bool:
        """Whether this process holds the lock while ZooKeeper is out of reach."""
        return bool(self._core.suspect)

    owner: Final = awaited(lock_base.LockBase.owner)
    waiters: Final = awaited(lock_base.LockBase.waiters)
    remaining: Final = forwarded(lock_base.LockBase.remaining)
    guard: Final = forwarded(lock_base.LockBase.guard)


def wrapped(twin: Twin) -> Any:
    """Return the object that a twin wraps."""
    return twin._core
