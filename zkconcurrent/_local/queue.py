"""The queues of a local namespace that the standard library lacks: by priority with ties by arrival, and by time."""

from __future__ import annotations

import asyncio
import itertools
import queue
import sys
import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from .._recipes.queue.order import ranked_prefix
from .._threads.base.primitive import check_delay


class Entry(NamedTuple):
    """An item in its place.

    Attributes:
        key: the sort key: the beginning of the item's name, or the time at which it is due by the wall clock.
        number: each later entry has a greater number, so two items are never compared.
        item: the item.
    """

    key: Any
    number: int
    item: Any


class _Heap:
    """The storage of a queue, for both modules: their queues put, get and count by these methods."""

    _queue: list[Entry]  # as asyncio has it
    _numbers: Iterator[int]

    def _init(self, _maxsize: int) -> None:
        self._queue = []
        self._numbers = itertools.count()

    def _put(self, entry: Entry) -> None:
        heappush(self._queue, entry)

    def _get(self) -> Any:
        return heappop(self._queue).item

    def _qsize(self) -> int:
        return len(self._queue)

    def _left(self) -> float | None:
        """Return in how many seconds the first item is due; None if there is none."""
        return self._queue[0].key - time.time() if self._queue else None


class _Ranked(_Heap):
    _priority: Callable[[Any], float] | None = None
    _floats = False

    def _put(self, item: Any) -> None:
        super()._put(Entry(ranked_prefix(item, self._priority, floats=self._floats), next(self._numbers), item))


class PriorityQueue(_Ranked, queue.PriorityQueue[Any]):
    """A `queue.PriorityQueue` whose items of the same priority keep their order."""

    def __init__(self, maxsize: int, priority: Callable[[Any], float] | None, floats: bool) -> None:
        super().__init__(maxsize)
        self._priority, self._floats = priority, floats


class DelayQueue(_Heap, queue.Queue[Any]):
    """A `queue.Queue` whose items can be taken once they are due, the earliest first."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None, *, delay: float = 0.0) -> None:
        """Put an item that is due in `delay` seconds."""
        entry = Entry(time.time() + check_delay(delay), next(self._numbers), item)
        super().put(entry, block, timeout)

    def put_nowait(self, item: Any, *, delay: float = 0.0) -> None:
        """Put an item without waiting for a free place."""
        self.put(item, block=False, delay=delay)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the next item; wait until it is due."""
        if block and timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        until = None if timeout is None else time.monotonic() + timeout
        with self.not_empty:
            try:
                while (left := self._left()) is None or left > 0:
                    if sys.version_info >= (3, 13) and left is None and self.is_shutdown:
                        raise queue.ShutDown
                    rest = None if until is None else until - time.monotonic()
                    if not block or (rest is not None and rest <= 0):
                        raise queue.Empty
                    self.not_empty.wait(min((each for each in (left, rest) if each is not None), default=None))
                item = self._get()
                self.not_full.notify()
                return item
            finally:
                # Another consumer may have to wait for another item now.
                self.not_empty.notify()


class AsyncPriorityQueue(_Ranked, asyncio.PriorityQueue[Any]):
    """An `asyncio.PriorityQueue` whose items of the same priority keep their order."""

    def __init__(self, maxsize: int, priority: Callable[[Any], float] | None, floats: bool) -> None:
        super().__init__(maxsize)
        self._priority, self._floats = priority, floats


class AsyncDelayQueue(_Heap, asyncio.Queue[Any]):
    """An `asyncio.Queue` whose items can be taken once they are due, the earliest first."""

    def _init(self, maxsize: int) -> None:
        super()._init(maxsize)
        self._changed = asyncio.Event()

    async def put(self, item: Any, *, delay: float = 0.0) -> None:
        """Put an item that is due in `delay` seconds."""
        await super().put(Entry(time.time() + check_delay(delay), next(self._numbers), item))

    def put_nowait(self, item: Any, *, delay: float = 0.0) -> None:
        """Put an item without waiting for a free place."""
        if not isinstance(item, Entry):  # `put` calls this with one
            item = Entry(time.time() + check_delay(delay), next(self._numbers), item)
        super().put_nowait(item)
        self._changed.set()

    async def get(self) -> Any:
        """Take the next item; wait until it is due."""
        while True:
            try:
                return self.get_nowait()
            except asyncio.QueueEmpty:
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), self._left())
                except asyncio.TimeoutError:
                    continue

    def get_nowait(self) -> Any:
        """Take the next item, if it is due."""
        if (self._left() or 0.0) > 0:
            raise asyncio.QueueEmpty
        return super().get_nowait()

    if sys.version_info >= (3, 13):

        def shutdown(self, immediate: bool = False) -> None:
            """Shut the queue down."""
            super().shutdown(immediate)
            self._changed.set()
