"""`Queue`, `LifoQueue`, `PriorityQueue`, `DelayQueue`, `SimpleQueue`: queues that all processes share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .._arguments.codec import BYTES, Codec
from .._arguments.functions import check_callbacks
from .._engine.call import Call
from .._kazoo.link import KazooClient
from .._protocol.operations import SessionExpired
from .._recipes.queue import manage
from .._recipes.queue.order import DELAY, FLOAT, LIFO, PRIORITY, delayed_prefix, ranked_prefix
from .._runtime.wait_loops import Steps
from .base.primitive import check_delay, discard_result
from .base.queue_base import QueueBase

T = TypeVar("T")


class Queue(QueueBase[T]):
    """A queue that all processes share: the first item in is the first out.

    Layout:
        `<path>`, PERSISTENT, with the order, `maxsize` and whether the queue is open; `<path>/items/queue-<number>`,
        PERSISTENT_SEQUENTIAL, one for each item; `<path>/claims/<the item's name>`, EPHEMERAL: the znodes of Curator's
        DistributedQueue with a lock path. `<path>/consumers` and `<path>/producers`: the consumers and the producers
        that wait, each laid out as a `Lock`. `<path>/members/_c_<uuid>-member-<number>`, EPHEMERAL, and
        `<path>/receipts/<uuid>`, PERSISTENT, one of each for every concurrent call of a client; `<path>/dead`, the
        items that were claimed too often.

    Invariant:
        Each item is acknowledged once. Each change is one request, which checks that its session lives, and writes a
        receipt on condition of the receipt's version. So each change is applied once, even if replies are lost.

    Cost:
        `put`: one write, in one round trip; with a `maxsize`, two writes and four reads, in three round trips. `get`:
        one read and one write, in two round trips; one listing, of four reads, serves 64 items or more. `claim`: as
        `get`, and a write to acknowledge. However many consumers wait, a new item wakes one of them, and so does the
        end of a claim.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the queue's path; missing nodes are created.
        maxsize: how many items the queue may have, claimed ones included; zero or less sets no limit. All processes
            must give the same.
        codec: turns items into bytes and back: `BYTES`, `TEXT`, `JSON`, `MSGPACK`, or any object with `encode` and
            `decode`.
        max_attempts: how often an item may be claimed; after that, the item is moved to `<path>/dead`. None sets no
            limit.

    Raises:
        TypeError: the path is not a string, a number is not an int, or the codec lacks a method.
        ValueError: `max_attempts` is less than 1; the path is invalid; or this client already uses it for another
            primitive, or with another `maxsize`. The first use raises it if the queue was made with another order or
            `maxsize`.

    Source:
        `queue.Queue`; Curator's `DistributedQueue`.
    """

    _kind = "Queue"

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Queue[bytes], client: KazooClient, path: str, maxsize: int = 0, *, max_attempts: int | None = None
        ) -> None: ...
        @overload
        def __init__(
            self, client: KazooClient, path: str, maxsize: int = 0, *, codec: Codec[T], max_attempts: int | None = None
        ) -> None: ...
        def __init__(self, *_: object, **__: object) -> None: ...

    @property
    def maxsize(self) -> int:
        """How many items the queue may have; 0 if there is no limit."""
        return self._layout.maxsize

    def full(self) -> bool:
        """Return whether the queue has `maxsize` items, claimed ones included. Asks the leader."""
        most = self._layout.maxsize
        return self._ask(lambda snapshot: 0 < most <= len(snapshot.listed))

    @property
    def is_shutdown(self) -> bool:
        """Whether the queue is shut down. Asks the leader."""
        return self._ask(lambda snapshot: snapshot.closed)

    def task_done(self) -> None:
        """Mark one item that `get()` has returned as done; `join()` waits until all items are done.

        Items that this client took in an earlier session and has not marked yet come first.

        Raises:
            ValueError: all items that this process has taken are done.
            ClientError: the client can't be used here.
        """
        # Without this check, a forked child would count its parent's items as items of an earlier session.
        self._session.check_not_forked(self._path)
        item_call = self._item_call("count")
        state = self._path_state

        def steps(call: Call) -> Steps[None]:
            while not state.finish_before(item_call):
                with suppress(SessionExpired):
                    yield from call.run(manage.done(item_call))
                    return

        try:
            if not state.begin_to_finish(item_call):
                raise ValueError("task_done() called too many times")
            return self._do(item_call, steps)
        except BaseException:
            # If an interrupt struck before the steps began, nothing else ends the call.
            state.clean_up(item_call)
            raise

    def join(self) -> None:
        """Wait until no item is left, and each item that `get()` returned is done or its consumer's session is over.

        Raises:
            ClientError: the client can't be used here.
            ForeignNodeError: the path belongs to something else.
        """
        return self._run(manage.wait_until_done(self._view), discard_result)

    def shutdown(self, immediate: bool = False) -> None:
        """Shut the queue down for good, for all processes: `put` raises ShutDown, and `get` does once no item is left.

        Args:
            immediate: whether to remove the items, except those that consumers have claimed.
        """
        return self._run(manage.shut_down(self._view, immediate=immediate), discard_result)


class LifoQueue(Queue[T]):
    """A `Queue` whose last item in is the first out.

    Source:
        `queue.LifoQueue`.
    """

    _kind = "LifoQueue"
    _order = LIFO

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
    """A `Queue` whose item with the lowest number is the first out; items with the same number keep their order.

    Args:
        client: see `Queue`.
        path: see `Queue`.
        maxsize: see `Queue`.
        codec: see `Queue`.
        max_attempts: see `Queue`.
        priority: a function that returns an item's priority, an int of 32 bits. By default the priority is the item
            itself or, if the item is a tuple or a list, its first element; items of bytes, the default, need this
            function.
        floats: whether priorities are floats, which Curator's queue can't have. All processes must give the same.

    Source:
        `queue.PriorityQueue`; Curator's `DistributedPriorityQueue`.
    """

    _kind = "PriorityQueue"
    _order = PRIORITY

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
        check_callbacks(priority=priority)
        self._priority = priority
        self._floats = bool(floats)
        if floats:
            self._order = FLOAT
        super().__init__(client, path, maxsize, codec=codec, max_attempts=max_attempts)

    def _prefix_of(self, item: T) -> str:
        return ranked_prefix(item, self._priority, floats=self._floats)


class DelayQueue(Queue[T]):
    """A `Queue` whose items can be taken once they are due: the earliest first; if two are due together, the first put.

    An item is due `delay` seconds after its `put` was called, by the wall clock of the producer's machine. A consumer
    compares that time with its own wall clock. So keep the clocks of all machines in step, with NTP for instance: an
    item comes late, or early, by as much as the two clocks differ. If the clock is changed while a consumer waits, the
    consumer uses the new time within a second.

    `get` and `claim` wait until an item is due; `get_nowait` raises Empty if none is due. As in java.util.concurrent,
    `qsize`, `empty` and `full` count all items, including those that are not due; `join` waits for all items, too. Once
    the queue is shut down, its last items can still be taken when they are due.

    Args:
        client: see `Queue`.
        path: see `Queue`.
        maxsize: see `Queue`.
        codec: see `Queue`.
        max_attempts: see `Queue`.

    Source:
        java.util.concurrent's `DelayQueue`; Curator's `DistributedDelayQueue`.
    """

    _kind = "DelayQueue"
    _order = DELAY

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

    def put(self, item: T, block: bool = True, timeout: float | None = None, *, delay: float = 0.0) -> None:
        """Put an item that consumers can take `delay` seconds from now.

        Args:
            item: the item, as the codec takes it.
            block: whether to wait for a free place, and for ZooKeeper.
            timeout: how long to wait, in seconds; None waits forever.
            delay: after how many seconds the item is due; zero or less makes it due at once.

        Raises:
            TypeError: the delay is not a number.
            ValueError: the delay is not finite, or the timeout is negative.
            OverflowError: the delay is above `threading.TIMEOUT_MAX`.
            Full: the queue had no free place in time, or ZooKeeper was out of reach; the item was not put.
            ShutDown: the queue is shut down.
            RefusedError: the item is too large.
            OutcomeUnknownError: the timeout passed before the client knew whether the item was put.
            ClientError: the client can't be used here.
            ForeignNodeError: the path belongs to something else.
        """
        prefix = delayed_prefix(self._session.wall_clock(), check_delay(delay))
        return self._putting(item, prefix, block, timeout)

    def put_nowait(self, item: T, *, delay: float = 0.0) -> None:
        """Put an item without waiting for a free place: `put(item, block=False, delay=delay)`."""
        return self.put(item, block=False, delay=delay)


class SimpleQueue(QueueBase[T]):
    """A `Queue` without a size, `task_done` or `join`.

    Args:
        client: see `Queue`.
        path: see `Queue`.
        codec: see `Queue`.
        max_attempts: see `Queue`.

    Source:
        `queue.SimpleQueue`.
    """

    _kind = "SimpleQueue"
    _counts = False

    @overload
    def __init__(
        self: SimpleQueue[bytes], client: KazooClient, path: str, *, max_attempts: int | None = None
    ) -> None: ...
    @overload
    def __init__(self, client: KazooClient, path: str, *, codec: Codec[T], max_attempts: int | None = None) -> None: ...
    def __init__(
        self, client: KazooClient, path: str, *, codec: Codec[Any] = BYTES, max_attempts: int | None = None
    ) -> None:
        super().__init__(client, path, codec=codec, max_attempts=max_attempts)
