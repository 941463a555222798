"""`CountDownLatch`: processes wait until so many things have happened, wherever they do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ._kazoo.link import KazooClient
from ._limits import check_int
from ._primitive import Primitive, nothing
from ._recipes.destroy import destroy
from ._recipes.latch import CHILD, count_down, look, read, wait
from ._recipes.operations import Recipe

R = TypeVar("R")


class CountDownLatch(Primitive):
    """A count that goes down to zero, once; whoever waits for that goes on then, and so do all who come later.

    Layout:
        `<path>`, PERSISTENT, with the count as text; `<path>/_c_<uuid>-count-<n>`, PERSISTENT, one for each count down
        by `n`. What is above the path are containers.

    Invariant:
        Each `count_down` has one name, so it counts once, whatever answers are lost; and it counts also when the
        process that made it is gone.

    Cost:
        `count`: 3 reads in one round trip. `count_down`: these, and one write after them. A `wait` of an open latch: 3
        reads; until it waits: 5 in 2 round trips. Each count wakes everybody who waits, to two reads.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: the path that is the latch; made when it is first counted down or waited for.
        count: from where it counts; all must give the same.

    Raises:
        TypeError: the count is no int.
        ValueError: it is negative, or larger than 2**63 - 1; the path is bad, or is another primitive of this
            client already. At first use: the latch was made with another count.

    Source:
        java.util.concurrent's `CountDownLatch`.
    """

    _kind = "CountDownLatch"

    def __init__(self, client: KazooClient, path: str, count: int) -> None:
        self._count = check_int("count", count)
        if self._count < 0:
            raise ValueError(f"count must not be negative: {count}")
        super().__init__(client, path)

    @property
    def count(self) -> int:
        """How much is left to count down; asks the leader, and waits until it answers."""
        return self._tell(look(self._path, self._count), int)

    def count_down(self, n: int = 1) -> None:
        """Count down by `n`; a latch that is open stays as it is. Waits for the service.

        Raises:
            TypeError: `n` is no int.
            ValueError: it is less than 1, or larger than 2**63 - 1; or the latch was made with another count.
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path is no latch's.
        """
        n = check_int("n", n)
        if n < 1:
            raise ValueError(f"n must be at least 1: {n}")
        return self._tell(count_down(self._path, self._count, n), nothing)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to count down.

        Args:
            timeout: how long to wait, in seconds; None for ever. Zero or less is one question.

        Returns:
            Whether the latch is open; False at the deadline.

        Raises:
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            ValueError: the latch was made with another count.
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path is no latch's.
        """
        ask = look if timeout is not None and timeout <= 0 else wait
        return self._tell(ask(self._path, self._count), lambda left: left == 0, self._until(timeout))

    def destroy(self) -> None:
        """Remove the node and all counts; the next use begins anew.

        Who waits at that moment has no node that could be seen: it makes the latch anew, and waits on. So destroy it
        when all waits have returned. It goes in one step, but for more than 1,000 counts (fewer where the path has more
        than 400 bytes): these go in pieces before it.

        Raises:
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path is no latch's, or has other children; nothing is deleted.
        """
        return self._run(destroy(self._path, partial(read, self._path), CHILD), lambda _: self._note(None))

    def _tell(self, recipe: Recipe[int], then: Callable[[int], R], deadline: float | None = None) -> R:
        """Run a recipe and note what it saw to be left; return what `then` says of it, or False at the deadline."""

        def noted(left: int) -> R:
            self._note(left)
            return then(left)

        return self._run(recipe, noted, deadline, late=False)

    def _note(self, left: int | None) -> None:
        self._path_state.last_seen = left

    def __repr__(self) -> str:
        known = self._path_state.last_seen
        left = self._count if known is None else known
        return f"<zkconcurrent.{type(self).__name__} at {id(self):#x}: count={left}/{self._count}>"
