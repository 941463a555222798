"""`CountDownLatch`: processes wait until a number of things have happened in any of them."""

from __future__ import annotations

from functools import partial

from .._arguments.limits import check_int, check_positive
from .._kazoo.link import KazooClient
from .._recipes.destroy import Tree, destroy
from .._recipes.latch import CHILD, count_down, parse, read_remaining, wait
from .base.primitive import Primitive, discard_result, kind_of


class CountDownLatch(Primitive):
    """A count that goes down to zero, once; then all waiters go on, and later calls of `wait` return at once.

    Layout:
        `<path>`, PERSISTENT, with `<count> count`; `<path>/_c_<uuid>-count-<n>`, PERSISTENT, one for each
        `count_down(n)`. The nodes above are containers.

    Invariant:
        Each `count_down` keeps one unique name for all its attempts, so it counts once, even if replies are lost. The
        count stays after its process has ended.

    Cost:
        `count`: 3 reads in one round trip. `count_down`: the same, then a write. `wait`: 3 reads if the latch is open;
        otherwise 5 reads in 2 round trips, before it sleeps. Each `count_down` wakes all waiters; each sends two reads.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the latch's path; its node is created by the first `count_down`, or by a `wait` that has to wait.
        count: the number to count down from; all processes must give the same.

    Raises:
        TypeError: the count is not an int, or the path is not a string.
        ValueError: the count is negative, or larger than 2**63 - 1; the path is invalid; or this client already uses it
            for another primitive. The first use raises it if the latch was made with another count.

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
        """How much is left to count down; asks the leader, and waits for the reply."""
        return self._run_query(read_remaining(self._path, self._count), int)

    def count_down(self, n: int = 1) -> None:
        """Count down by `n`; an open latch stays open. Waits for ZooKeeper.

        Raises:
            TypeError: `n` is not an int.
            ValueError: `n` is less than 1, or larger than 2**63 - 1; or the latch was made with another count.
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path is not a latch's.
        """
        n = check_positive("n", n)
        return self._run_and_note(count_down(self._path, self._count, n), discard_result)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to count down.

        Args:
            timeout: how long to wait, in seconds; None waits forever, zero or less reads the count once.

        Returns:
            Whether the latch is open; False at the deadline.

        Raises:
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            ValueError: the latch was made with another count.
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path is not a latch's.
        """
        deadline = self._until(timeout)
        if timeout is not None and timeout <= 0:
            return self._run_query(read_remaining(self._path, self._count), lambda left: left == 0, deadline)
        return self._run_and_note(wait(self._path, self._count), lambda left: left == 0, deadline)

    def destroy(self) -> None:
        """Remove the latch's node and all counts; the next use creates a new latch.

        Waiters have no node, so the call does not see them. A waiter creates the latch again and continues to wait. So
        destroy a latch only after all waits have returned. One request removes everything, unless there are more than
        1,000 counts (fewer if the path has more than 400 bytes): then the call removes the surplus first, in batches.

        Raises:
            ClientError: the client can't be used here.
            ForeignNodeError: the node at the path is not a latch's, or has other children; no such node is deleted.
                If there were more than 1,000 counts, some of them may be gone.
        """
        tree = Tree(self._path, "CountDownLatch", partial(parse, self._path), {self._path: CHILD.fullmatch})
        return self._run(destroy(tree), self._destroyed)

    def __repr__(self) -> str:
        known = self._path_state.last_seen
        left = self._count if known is None else known
        return f"<{kind_of(self)} at {id(self):#x}: count={left}/{self._count}>"
