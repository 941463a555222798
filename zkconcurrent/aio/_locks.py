"""`Lock`, `RLock`, `ReadWriteLock` and `MultiLock` for tasks, over those of threads.

Each class here has a primitive of threads inside, whose owners are tasks and whose calls are awaited. So threads and
tasks of one process, other processes and Java exclude each other on one path.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from .. import _lock, _multilock, _rlock, _rwlock
from .._engine.holds import Loss
from .._engine.identity import ended, of_caller
from .._engine.session import Dropped, Session
from .._errors import LockLostError
from .._kazoo.link import KazooClient
from .._lock_base import Contender
from .._primitive import entered
from ._tasks import Completion, Pending, Released, Tasks, in_background, told_of_loss

T = TypeVar("T")
REFRESH = 1.0  # seconds between two questions of a query that is asked often


async def settled(result: T | Pending[T]) -> T:
    """Return a result, or wait for it."""
    return await result if isinstance(result, Pending) else result


class Core:
    """Something of threads, whose owners are tasks."""

    def __init__(self, core: Any) -> None:
        self._core = core

    @property
    def client(self) -> KazooClient:
        """The kazoo client."""
        return self._core.client

    @property
    def path(self) -> str:
        """The path that all processes share it by."""
        return str(self._core.path)

    def __reduce__(self) -> Any:
        return self._core.__reduce__()

    def __repr__(self) -> str:
        return repr(self._core).replace(
            f"zkconcurrent.{type(self._core).__name__}", f"zkconcurrent.aio.{type(self).__name__}"
        )

    def _in_background(self, pending: Any) -> Completion:
        session = self._core._session
        session.check_usable(self._core.path)
        return in_background(session, pending)


class LockBase(Core):
    """What all locks share: `asyncio.Lock`'s interface, and the extras of `zkconcurrent`."""

    _owned = True  # by its task alone

    def __init__(self, core: Any) -> None:
        super().__init__(core)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._seen = False  # somebody held it, when last asked
        self._asked = 0.0

    async def acquire(self, *, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock, waiting for it in the order of arrival across all tasks, threads and processes.

        A cancelled acquire leaves nothing: its node is deleted, by the session if need be, and the cancellation waits
        for nothing.

        Args:
            blocking: whether to wait; if not, one question is asked.
            timeout: how long to wait, in seconds; None for ever.

        Returns:
            Whether the lock was acquired.

        Raises:
            RuntimeError: the task was made for this call alone, so that it would own the lock and end:
                `create_task(lock.acquire())`, or, before Python 3.12, `wait_for(lock.acquire(), ...)`.
            ValueError: a timeout with `blocking=False`, or a negative one.
            LockLostError: this task has lost a hold and not acknowledged that by `release()`.
            ClientError: the client can't be used here.
            ZkConcurrentError: the path can't be used as a lock.
        """
        task = asyncio.current_task()
        if self._owned and task is not None and getattr(task.get_coro(), "cr_frame", None) is sys._getframe():
            raise RuntimeError(
                f"acquire() is all that its task does, which would own "
                f"{getattr(self._core, 'path', self)} and end: await acquire(timeout=...) "
                "in the task that uses the lock"
            )
        self._loop = asyncio.get_running_loop()
        return await settled(self._core.acquire(blocking, -1 if timeout is None else timeout))

    def release(self) -> Completion:
        """Release the lock; the next in line gets it.

        It sends the delete, or leaves it to the session, before it returns. To await what it returns is to wait until
        the next in line has its turn; nobody needs to.

        Raises:
            LockLostError: the hold was lost; nothing else is touched.
            RuntimeError: it is not held.
        """
        core = self._core
        hold = core._to_give_up()
        call = core._give_up_level(hold)
        self._seen = False
        holds = [] if call is None or not call.tickets else [(hold, _told(core, hold))]
        return Released(core._session, core.path, holds)

    async def __aenter__(self) -> None:
        entered(await self.acquire(), self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is GeneratorExit and asyncio._get_running_loop() is None:
            self._forsake()
            return
        try:
            self.release()
        except LockLostError:
            if kind is None or (issubclass(kind, Exception) and not issubclass(kind, LockLostError)):
                raise

    def _forsake(self) -> None:
        """Leave the holds of tasks that are gone to the keeper: the loop is closed, and its tasks are thrown away."""
        for core in getattr(self._core, "locks", (self._core,)):
            holds = core._path_state.all(core._rule.role)
            core._session.dropped.append(Dropped([], [hold.ticket for hold in holds if ended(hold.owner)]))
            core._session.wake_keeper()

    def locked(self) -> bool:
        """Return whether the lock is held, as last seen; asks for news, once a second at most.

        What this process does itself is seen at once. `fetch_locked()` asks and waits for the answer.
        """
        core = self._core
        if any(hold.alive for hold in core._path_state.all(core._rule.role)):
            return True
        if core._session.now() - self._asked >= REFRESH:
            self._asked = core._session.now()
            self._in_background(self._noting(core.locked()))
        return self._seen

    async def fetch_locked(self) -> bool:
        """Return whether the lock is held, in any process; asks the leader. Cost: 2 reads, pipelined."""
        return await self._noting(self._core.locked())

    def _noting(self, pending: Pending[bool]) -> Pending[bool]:
        steps = pending.steps

        def noting() -> Any:
            self._seen = yield from steps
            return self._seen

        return Pending(pending.call, noting())

    @property
    def fencing_token(self) -> int:
        """A number that never decreases from holder to holder: the creation zxid of the holder's node.

        Raises:
            LockLostError: the hold is lost.
            RuntimeError: nothing is held.
        """
        return int(self._core.fencing_token)

    @property
    def lost(self) -> Lost:
        """Set when the present hold is lost; a fresh one with the next hold."""
        core = self._core
        core._session.check_lease()
        with core._session.lock:
            return Lost((core._session, core._loss()))

    @property
    def suspect(self) -> bool:
        """Whether the lock is held, but the service is out of reach at the moment."""
        return bool(self._core.suspect)

    async def owner(self) -> Contender | None:
        """Return the holder, asked of the server; None if nobody holds. Cost: 2 + n reads for n in the queue."""
        return await self._core.owner()  # type: ignore[no-any-return]

    async def waiters(self) -> list[Contender]:
        """Return the waiters, the next one first, asked of the server. Cost: as `owner`."""
        return await self._core.waiters()  # type: ignore[no-any-return]

    def guard(self, transaction: Any) -> Any:
        """Let a kazoo `TransactionRequest` commit only while this hold lives; return the transaction."""
        return self._core.guard(transaction)


class Lost:
    """Whether a hold is lost, or the first of several."""

    def __init__(self, *losses: tuple[Session, Loss]) -> None:
        self._losses = losses

    def is_set(self) -> bool:
        """Return whether it is lost, by the clock too."""
        for session, _ in self._losses:
            session.check_lease()
        return any(loss.told for _, loss in self._losses)

    async def wait(self) -> bool:
        """Wait until it is lost."""
        loop = asyncio.get_running_loop()
        listener = _Listener(loop)
        for session, loss in self._losses:
            with session.lock:
                loss.wholes = (*(each for each in loss.wholes if not each.over), listener)
        try:
            if not any(loss.told for _, loss in self._losses):
                await listener.future
        finally:
            listener.over = True
        return True


class _Listener:
    """A task that waits for a loss; told of it as a whole of which the hold is a part."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.event = self
        self.future: asyncio.Future[None] = loop.create_future()
        self.over = False

    def set(self) -> None:
        """Wake the task; on any thread."""

        def end() -> None:
            if not self.future.done():
                self.future.set_result(None)

        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(end)

    def of(self) -> None:
        """Belong to nothing."""

    def tell(self) -> None:
        """Do no more."""


def _told(core: Any, hold: Any) -> Callable[[], None]:
    return told_of_loss(partial(core._path_state.check_given_up, hold))


def tells(lock: Any, on_lost: Callable[[Any], object] | None) -> Any:
    """Return what calls a user's `on_lost`, plain or async, on the loop that acquired last."""
    if on_lost is None or not callable(on_lost):
        return on_lost
    ref = weakref.ref(lock)

    def told(_: Any) -> None:
        there = ref()
        loop = None if there is None else there._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(_call, on_lost, there)

    return told


def _call(on_lost: Callable[[Any], object], lock: Any) -> None:
    result = on_lost(lock)
    if isinstance(result, Awaitable):
        task = asyncio.ensure_future(result)
        _running.add(task)
        task.add_done_callback(_running.discard)


_running: set[asyncio.Future[Any]] = set()


class _LockCore(Tasks, _lock.Lock):
    """It, owned by tasks, and released anywhere, as by a callback of the loop."""

    _caller = staticmethod(of_caller)


class Lock(LockBase):
    """`asyncio.Lock` for every process that opens the same path.

    One task holds it at a time; any task of that process may release it. Layout, invariant and cost are those of
    `zkconcurrent.Lock`, with which it shares the path.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: the path that is the lock; missing nodes are made as containers.
        fair: as `zkconcurrent.Lock`'s.
        on_lost: called with the lock, on the loop that acquired it, once for each hold that is lost; may be async.

    Raises:
        ValueError: the path is bad, or is another primitive of this client already.

    Source:
        `asyncio.Lock`.
    """

    _owned = False

    def __init__(
        self, client: KazooClient, path: str, *, fair: bool = True, on_lost: Callable[[Lock], object] | None = None
    ) -> None:
        super().__init__(_LockCore(client, path, fair=fair, on_lost=tells(self, on_lost)))


class _RLockCore(Tasks, _rlock.RLock):
    """It, owned by tasks."""


class RLock(LockBase):
    """A lock that one task of one process holds at a time, as often as it likes.

    As `Lock`, but that it belongs to the task that acquired it, which alone releases it.
    """

    def __init__(
        self, client: KazooClient, path: str, *, fair: bool = True, on_lost: Callable[[RLock], object] | None = None
    ) -> None:
        super().__init__(_RLockCore(client, path, fair=fair, on_lost=tells(self, on_lost)))


class _ReadCore(Tasks, _rwlock.ReadLock):
    """It, owned by tasks."""


class _WriteCore(Tasks, _rwlock.WriteLock):
    """It, owned by tasks."""


class ReadLock(LockBase):
    """The lock of a `ReadWriteLock` that any number of tasks, threads and processes may hold together."""


class WriteLock(LockBase):
    """The lock of a `ReadWriteLock` that one task of one process holds alone."""


class ReadWriteLock:
    """A pair of locks: `read_lock`, which any number may hold together, and `write_lock`, which one task holds alone.

    All else is as with `zkconcurrent.ReadWriteLock`, with which it shares the path.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: the path that is the pair; missing nodes are made as containers.
        on_lost: called with the read or the write lock, once for each hold that is lost; may be async.
    """

    def __init__(self, client: KazooClient, path: str, *, on_lost: Callable[[Any], object] | None = None) -> None:
        self._read_lock, self._write_lock = ReadLock.__new__(ReadLock), WriteLock.__new__(WriteLock)
        ReadLock.__init__(self._read_lock, _ReadCore(client, path, on_lost=tells(self._read_lock, on_lost)))
        WriteLock.__init__(self._write_lock, _WriteCore(client, path, on_lost=tells(self._write_lock, on_lost)))

    @property
    def read_lock(self) -> ReadLock:
        """The lock that any number may hold together."""
        return self._read_lock

    @property
    def write_lock(self) -> WriteLock:
        """The lock that one task holds alone."""
        return self._write_lock

    def __repr__(self) -> str:
        return f"<zkconcurrent.aio.{type(self).__name__} object path={self._read_lock.path!r} at {id(self):#x}>"


class _MultiCore(Tasks, _multilock.MultiLock):
    """It, owned by tasks."""


class MultiLock(LockBase):
    """Several locks as one, all or none of which are held; see `zkconcurrent.MultiLock`.

    Args:
        locks: each a `Lock`, an `RLock`, a read or write lock, or a MultiLock, of `aio`.
        on_lost: called with the MultiLock once for each time that the first of its locks was lost; may be async.
    """

    def __init__(self, locks: Iterable[Any], *, on_lost: Callable[[Any], object] | None = None) -> None:
        given = list(locks)
        for lock in given:
            if not isinstance(lock, LockBase):
                raise TypeError(f"a MultiLock is of locks of zkconcurrent.aio, not {type(lock).__name__}")
        self._given = tuple(given)
        super().__init__(_MultiCore([lock._core for lock in given], on_lost=tells(self, on_lost)))

    def locked(self) -> bool:
        """Return whether all locks are held, as last seen; asks for news, once a second at most."""
        seen = [lock.locked() for lock in self._given]  # each asks
        return all(seen)

    @property
    def lost(self) -> Lost:
        """Set when the first of the present holds is lost; a fresh one with the next."""
        losses: list[tuple[Session, Loss]] = []
        for core in self._core.locks:
            core._session.check_lease()
            with core._session.lock:
                losses.append((core._session, core._loss()))
        return Lost(*losses)

    def release(self) -> Completion:
        """Release all locks; each is released whatever becomes of the others. Errors as the locks' own."""
        given_up, errors = self._core._give_up_all()
        if errors:
            raise _multilock._first(errors)
        return Released(self._core._session, "", [(hold, _told(lock, hold)) for lock, hold, _ in given_up])
