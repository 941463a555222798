"""`Queue`, `LifoQueue`, `PriorityQueue` and `DelayQueue` for tasks, which wrap the classes for threads."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

from .._arguments.codec import BYTES, Codec
from .._engine.call import Call
from .._kazoo.link import KazooClient
from .._recipes.queue.state import ItemCall
from .._runtime.public import ErrorKind, Traceback, public
from .._runtime.wait_loops import Steps, wait_async
from .._threads import queue as _queue
from .._threads.base import queue_base as _queue_base
from ._tasks import AnyTask, Pending, is_thrown_away, of_tasks
from ._twin import PrimitiveTwin, awaited, backgrounded, resolve

T = TypeVar("T")

QueueEmpty = asyncio.QueueEmpty
QueueFull = asyncio.QueueFull
if sys.version_info >= (3, 13):
    QueueShutDown = asyncio.QueueShutDown
else:

    @public
    class QueueShutDown(Exception):
        """Raised when putting on to or getting from a shut-down Queue."""


class _Errors(AnyTask):
    """Raises asyncio's errors."""

    _empty: type[Exception] = QueueEmpty
    _full: type[Exception] = QueueFull
    _shut_down: type[Exception] = QueueShutDown

    def _await_item_call(self, item_call: ItemCall, call: Call, steps: Steps[T]) -> Pending[T]:
        return _PendingItemCall(call, steps, self._path_state, item_call)


class _PendingItemCall(Pending[T]):
    """A call that has not begun. If it is cancelled, the task waits until the item under way is put back."""

    __slots__ = ("item_call", "state")

    def __init__(self, call: Call, steps: Steps[T], state: _queue_base.QueueState, item_call: ItemCall) -> None:
        super().__init__(call, steps)
        self.state = state
        self.item_call = item_call

    def __await__(self) -> Generator[object, object, T]:
        try:
            return (yield from super().__await__())
        except GeneratorExit:
            # The loop is closed, and this task was thrown away with it.
            raise
        except BaseException as error:
            yield from wait_async(*self.state.settled(self.item_call, error)).__await__()
            raise


class Queue(PrimitiveTwin, Generic[T]):
    """`asyncio.Queue` for every process that opens the same path; see `zkconcurrent.Queue`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the queue's path; missing nodes are created.
        maxsize: how many items the queue may have, claimed ones included; zero or less sets no limit.
        codec: turns items into bytes and back.
        max_attempts: how often an item may be claimed; after that, the item is moved to `<path>/dead`. None sets no
            limit.
    """

    _kind: Callable[..., _queue.Queue[Any]] = of_tasks(_queue.Queue, _Errors)

    @overload
    def __init__(
        self: Queue[bytes], client: KazooClient, path: str, maxsize: int = 0, *, max_attempts: int | None = None
    ) -> None: ...
    @overload
    def __init__(
        self, client: KazooClient, path: str, maxsize: int = 0, *, codec: Codec[T], max_attempts: int | None = None
    ) -> None: ...
    def __init__(
        self,
        client: KazooClient,
        path: str,
        maxsize: int = 0,
        *,
        codec: Codec[Any] = BYTES,
        max_attempts: int | None = None,
    ) -> None:
        super().__init__(self._kind(client, path, maxsize, codec=codec, max_attempts=max_attempts))

    @property
    def maxsize(self) -> int:
        """How many items the queue may have; 0 if there is no limit."""
        return int(self._core.maxsize)

    async def put(self, item: T, *, timeout: float | None = None) -> None:
        """Put an item into the queue.

        A cancelled call either has put the item or never will; the caller can't tell which.

        Args:
            item: the item, as the codec takes it.
            timeout: how long to wait for a free place and for ZooKeeper, in seconds; None waits forever.

        Raises:
            QueueFull: the queue had no free place in time.
            QueueShutDown: the queue is shut down.
            Exception: others as `zkconcurrent.Queue.put`.
        """
        await self._core.put(item, timeout=timeout)

    async def get(self, *, timeout: float | None = None) -> T:
        """Take the next item out of the queue.

        A cancelled call takes no item: if an item is under way, the library puts it back in its place. The call raises
        `CancelledError` when the item is back, or after a third of the session timeout.

        Args:
            timeout: how long to wait, in seconds; None waits forever.

        Raises:
            QueueEmpty: no item came in time.
            QueueShutDown: the queue is shut down, and no item is left.
            Exception: others as `zkconcurrent.Queue.get`.
        """
        item: T = await self._core.get(timeout=timeout)
        return item

    # Written out, as `put` is: in a `DelayQueue`, both methods have one more argument.
    async def put_nowait(self, item: T) -> None:
        """Put an item without waiting for a free place."""
        await self._core.put_nowait(item)

    get_nowait: Final = awaited(_queue.Queue[T].get_nowait, "Take the next item without waiting for one.")

    def claim(self, *, block: bool = True, timeout: float | None = None) -> Claim[T]:
        """Return an async context manager that takes the next item, and acknowledges it when its block has ended.

        If the block raises an exception (or is cancelled), the process dies or its session is lost, the item is
        free again for any consumer, in its old place in the queue.

        Args:
            block: whether to wait for an item.
            timeout: how long to wait, in seconds; None waits forever.
        """
        self._core._limit(block, timeout)
        return Claim(self._core, block, timeout)

    qsize: Final = awaited(_queue.Queue[T].qsize)
    empty: Final = awaited(_queue.Queue[T].empty)
    full: Final = awaited(_queue.Queue[T].full)
    task_done: Final = backgrounded(_queue.Queue[T].task_done)
    join: Final = awaited(_queue.Queue[T].join)

    shutdown: Final = backgrounded(
        _queue.Queue[T].shutdown,
        """Shut the queue down for good, for all processes: `put` raises QueueShutDown; `get` does when it is empty.

        Args:
            immediate: whether to remove the items, except those that consumers have claimed.
        """,
    )

    dead: Final = awaited(_queue.Queue[T].dead)
    destroy: Final = awaited(_queue.Queue[T].destroy)


class LifoQueue(Queue[T]):
    """A `Queue` whose last item in is the first out; see `zkconcurrent.LifoQueue`."""

    _kind = of_tasks(_queue.LifoQueue, _Errors)

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: LifoQueue[bytes], client: KazooClient, path: str, maxsize: int = 0, *, max_attempts: int | None = None
        ) -> None: ...
        @overload
        def __init__(
            self, client: KazooClient, path: str, maxsize: int = 0, *, codec: Codec[T], max_attempts: int | None = None
        ) -> None: ...
        def __init__(self, *_: object, **__: object) -> None: ...


class PriorityQueue(Queue[T]):
    """A `Queue` whose item with the lowest number is the first out; see `zkconcurrent.PriorityQueue`.

    Args:
        client: see `Queue`.
        path: see `Queue`.
        maxsize: see `Queue`.
        codec: see `Queue`.
        max_attempts: see `Queue`.
        priority: a function that returns an item's priority, an int of 32 bits. By default the priority is the item
            itself or, if the item is a tuple or a list, its first element; items that are bytes, the default, need it.
        floats: whether priorities are floats, which Curator's queue can't have. All processes must give the same.
    """

    _kind: type[_queue.PriorityQueue[Any]] = of_tasks(_queue.PriorityQueue, _Errors)

    @overload
    def __init__(
        self: PriorityQueue[bytes],
        client: KazooClient,
        path: str,
        maxsize: int = 0,
        *,
        max_attempts: int | None = None,
        priority: Callable[[bytes], float],
        floats: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self,
        client: KazooClient,
        path: str,
        maxsize: int = 0,
        *,
        codec: Codec[T],
        max_attempts: int | None = None,
        priority: Callable[[T], float] | None = None,
        floats: bool = False,
    ) -> None: ...
    def __init__(
        self,
        client: KazooClient,
        path: str,
        maxsize: int = 0,
        *,
        codec: Codec[Any] = BYTES,
        max_attempts: int | None = None,
        priority: Callable[[Any], float] | None = None,
        floats: bool = False,
    ) -> None:
        core = self._kind(
            client, path, maxsize, codec=codec, max_attempts=max_attempts, priority=priority, floats=floats
        )
        PrimitiveTwin.__init__(self, core)


class DelayQueue(Queue[T]):
    """A `Queue` whose items can be taken once they are due, the earliest first; see `zkconcurrent.DelayQueue`."""

    _kind = of_tasks(_queue.DelayQueue, _Errors)

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: DelayQueue[bytes],
            client: KazooClient,
            path: str,
            maxsize: int = 0,
            *,
            max_attempts: int | None = None,
        ) -> None: ...
        @overload
        def __init__(
            self, client: KazooClient, path: str, maxsize: int = 0, *, codec: Codec[T], max_attempts: int | None = None
        ) -> None: ...
        def __init__(self, *_: object, **__: object) -> None: ...

    async def put(self, item: T, *, timeout: float | None = None, delay: float = 0.0) -> None:
        """Put an item that consumers can take `delay` seconds from now.

        A cancelled call either has put the item or never will; the caller can't tell which.

        Args:
            item: the item, as the codec takes it.
            timeout: how long to wait for a free place and for ZooKeeper, in seconds; None waits forever.
            delay: after how many seconds the item is due; zero or less makes it due at once.

        Raises:
            TypeError: the delay is not a number.
            ValueError: the delay is not finite.
            OverflowError: the delay is above `threading.TIMEOUT_MAX`.
            QueueFull: the queue had no free place in time.
            QueueShutDown: the queue is shut down.
        """
        await self._core.put(item, timeout=timeout, delay=delay)

    async def put_nowait(self, item: T, *, delay: float = 0.0) -> None:
        """Put an item without waiting for a free place."""
        await self._core.put_nowait(item, delay=delay)


@public
class Claim(_queue_base.BaseClaim[T]):
    """An item that a task has claimed for the duration of an `async with` block; see `Queue.claim`.

    Attributes:
        item: the claimed item.
        attempts: how often the item was claimed, including this claim and the claims of killed consumers.
        fencing_token: a number that is greater for a later claim of the same item.
    """

    async def __aenter__(self) -> Claim[T]:
        return await resolve(self._enter())

    async def __aexit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        if is_thrown_away(kind):
            self._leave_to_keeper()
        else:
            await resolve(self._exit(acknowledges=kind is None))
