"""The soak's other queues: sets, maps and the queues of `aio`. Their items are counted as those of queues are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.helpers.on_tasks import call
from tests.soak.callers.queue_caller import QueueCaller
from tests.soak.checks.items import Stock
from zkconcurrent import Dict, Empty, Full, OutcomeUnknownError, Set, aio


class Bag:
    """A `Set`, or the keys of a `Dict`: an item that is put is taken once, in no order."""

    def __init__(self, of: Set | Dict[bytes]) -> None:
        self.of = of

    def put(self, item: bytes, block: bool = True, timeout: float | None = None) -> None:  # noqa: ARG002
        """Put an item, which is not there yet."""
        if isinstance(self.of, Set):
            self.of.add(item.decode())
        else:
            self.of[item.decode()] = item

    def get(self, block: bool = True, timeout: float | None = None) -> bytes:  # noqa: ARG002
        """Take any item."""
        try:
            return self.of.pop().encode() if isinstance(self.of, Set) else self.of.popitem()[1]
        except KeyError:
            raise Empty from None

    def full(self) -> bool:
        """Return that there is always a place."""
        return False

    def empty(self) -> bool:
        """Return whether there is nothing."""
        return not self.of

    def dead(self) -> list[bytes]:
        """Return that nothing dies."""
        return []


class BagCaller(QueueCaller):
    """One thread at a bag."""

    def unsettled(self) -> bool:
        """Return False: a bag that was empty has told so."""
        return False

    def trade(self) -> None:
        """Put an item: if the call were refused afterwards, an item that its `get` has taken would be lost."""
        self.put()


def visit_bag(caller: BagCaller, plain: bool = False) -> None:
    """Put and get, each as often."""
    for act in (caller.put, caller.get) if plain else [caller.random.choice([caller.put, caller.get])]:
        act()


@dataclass(frozen=True)
class Shelf(Stock):
    """The promises of a bag.

    Attributes:
        kind: its kind of primitive.
    """

    kind: Callable[..., Any] = Set

    def open(self, client: Any, path: str) -> Any:
        """Return the bag."""
        return Bag(self.kind(client, path))

    def left(self, queue: Any) -> bool:
        """Whether anything is there."""
        return not queue.empty()


class TaskQueue:
    """A queue of `aio`: tasks make the calls; half of the timeouts are asyncio's, which cancel the call."""

    def __init__(self, client: Any, path: str) -> None:
        self._queue = aio.Queue[bytes](client, path)
        self._path_state = self._queue._core._path_state
        self._random = Random(path)

    def put(self, item: bytes, block: bool = True, timeout: float | None = None) -> None:
        """Put an item."""
        try:
            self._call(self._queue.put, self._queue.put_nowait, block, timeout, item)
        except aio.QueueFull:
            raise Full from None
        except asyncio.TimeoutError:
            raise OutcomeUnknownError(self._queue.path, "it was cancelled") from None

    def get(self, block: bool = True, timeout: float | None = None) -> bytes:
        """Take an item."""
        try:
            item: bytes = self._call(self._queue.get, self._queue.get_nowait, block, timeout)
        except (aio.QueueEmpty, asyncio.TimeoutError):
            raise Empty from None
        return item

    @contextmanager
    def claim(self, block: bool = True, timeout: float | None = None) -> Iterator[aio.Claim[bytes]]:
        """Claim an item."""
        claim = self._queue.claim(block=block, timeout=timeout)
        try:
            call(claim.__aenter__)
        except aio.QueueEmpty:
            raise Empty from None
        try:
            yield claim
        except BaseException as error:
            failed = error  # which has another name only in here
            call(lambda: claim.__aexit__(type(failed), failed, None))
            raise
        call(lambda: claim.__aexit__(None, None, None))

    def _call(self, wait: Any, try_once: Any, block: bool, timeout: float | None, *items: bytes) -> Any:
        if not block:
            return call(lambda: try_once(*items))
        if timeout is not None and self._random.random() < 0.5:
            return call(lambda: asyncio.wait_for(wait(*items), timeout))
        return call(lambda: wait(*items, timeout=timeout))


class TaskQueueCaller(QueueCaller):
    """One thread at a queue of tasks."""

    def trade(self) -> None:
        """Do nothing: the thread's task may be at what was interrupted."""

    def _limit(self, blocking: bool = True, timeout: float | None = -1) -> float | None:
        limit = super()._limit(blocking, timeout)
        return None if limit is None else limit + self._session / 3  # until the cancelled call is settled
