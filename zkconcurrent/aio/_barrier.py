"""`Barrier`: `asyncio.Barrier` for every process that opens the same path."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from .._kazoo.link import KazooClient
from .._recipes.barrier_state import Party
from .._runtime.public import ErrorKind, Traceback
from .._threads import barrier as _barrier
from ._tasks import Pending, Tasks, in_background
from ._twin import PrimitiveTwin, awaited


class _BarrierCore(Tasks, _barrier.Barrier):
    """`zkconcurrent.Barrier`, whose parties are tasks."""

    _broken_error = getattr(asyncio, "BrokenBarrierError", threading.BrokenBarrierError)  # asyncio's since 3.11

    def _withdraw(self, party: Party) -> None:
        in_background(self._session, Pending(*self._withdrawal(party)))


class Barrier(PrimitiveTwin):
    """`asyncio.Barrier` for every process that opens the same path; see `zkconcurrent.Barrier`.

    A task that is cancelled leaves, and the barrier keeps filling, as in asyncio. If the barrier has already tripped,
    or a thread is running the action, the cancelled party still counts as arrived, and the others pass. The cancelled
    call ends when it is decided whether the party leaves, or after a third of the session timeout. If ZooKeeper is out
    of reach, the call ends at once, and the party leaves after the reconnect; if its session ends first, the barrier
    breaks. The threads and tasks of all processes can be parties.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the barrier's path; missing nodes are created, those above it as containers.
        parties: the number of parties that trip the barrier; all processes must give the same.

    Raises:
        TypeError: `parties` is not an integer.
        ValueError: `parties` is less than 1, or too large; the path is invalid; or this client already uses it for
            another primitive.

    Source:
        `asyncio.Barrier`, of Python 3.11 and newer.
    """

    def __init__(self, client: KazooClient, path: str, parties: int) -> None:
        super().__init__(_BarrierCore(client, path, parties))

    async def wait(self, timeout: float | None = None) -> int:
        """Wait until all parties have arrived, and go on together.

        Args:
            timeout: how long to wait for the others, in seconds; None waits forever. A party whose time is up breaks
                the barrier. An asyncio timeout instead cancels the call, so the party only leaves.

        Returns:
            The arrival index, from 0 to `parties - 1`, a different one for each party.

        Raises:
            asyncio.BrokenBarrierError: in the cases in which `zkconcurrent.Barrier.wait` raises
                `threading.BrokenBarrierError`; on Python 3.10 it is that class.
            ValueError: the barrier is for another number of parties.
            ForeignNodeError: the path has other nodes or data.
            ClientError: the client can't be used here.
        """
        return int(await self._core.wait(timeout))

    async def __aenter__(self) -> int:
        return await self.wait()

    async def __aexit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        pass

    reset: Final = awaited(_barrier.Barrier.reset)
    abort: Final = awaited(_barrier.Barrier.abort)
    destroy: Final = awaited(_barrier.Barrier.destroy)

    @property
    def parties(self) -> int:
        """The number of parties that trip the barrier."""
        return int(self._core.parties)

    @property
    def n_waiting(self) -> int:
        """The number of parties that wait, as last seen; updated from the server at most once a second."""
        self._refresh("n_waiting", lambda: self._core.n_waiting)
        return int(self._core._view.waiting)

    @property
    def broken(self) -> bool:
        """Whether the barrier is broken, as last seen; updated from the server at most once a second."""
        self._refresh("broken", lambda: self._core.broken)
        return bool(self._core._view.state.broken)

    async def fetch_n_waiting(self) -> int:
        """Return the number of parties that wait; asks the leader. Cost: 3 reads, in 2 round trips."""
        return int(await self._core.n_waiting)

    async def fetch_broken(self) -> bool:
        """Return whether the barrier is broken; asks the leader. Cost: 2 reads, pipelined."""
        return bool(await self._core.broken)
