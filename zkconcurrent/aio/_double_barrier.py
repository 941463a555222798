"""The DoubleBarrier for tasks."""

from __future__ import annotations

import asyncio
from typing import Final

from .._errors import LockLostError
from .._kazoo.link import KazooClient
from .._runtime.identity import release_at_end
from .._runtime.public import ErrorKind, Traceback
from .._threads import double_barrier as _double_barrier
from .._threads.base.primitive import reports_loss
from ._tasks import is_thrown_away, of_tasks
from ._twin import PrimitiveTwin, awaited, is_whole_task

_Core = of_tasks(_double_barrier.DoubleBarrier)


class DoubleBarrier(PrimitiveTwin):
    """A barrier that parties (tasks and threads of any processes) enter together and leave together.

    Otherwise it is a `zkconcurrent.DoubleBarrier`. A cancelled `enter` leaves no node, and after a cancelled `leave`
    the party has left; the cancelled call waits for that, as an interrupted call of a thread does. A task that ends
    inside the barrier stays a party until its session ends: use `async with`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the barrier's path; missing nodes are created as containers.
        parties: how many must arrive before they enter; all processes must give the same.
    """

    def __init__(self, client: KazooClient, path: str, parties: int) -> None:
        super().__init__(_Core(client, path, parties))

    @property
    def parties(self) -> int:
        """How many parties must arrive before they enter."""
        return int(self._core.parties)

    async def enter(self, timeout: float | None = None) -> bool:
        """Enter; wait until enough parties have arrived. Errors as `zkconcurrent.DoubleBarrier.enter`.

        Args:
            timeout: how long to wait for the others, in seconds; None waits forever, zero or less makes one attempt.

        Returns:
            Whether the caller is inside. If False, the attempt leaves no node behind.

        Raises:
            RuntimeError: also if the task consists of this call alone, so that it would end inside; see `Lock.acquire`.
        """
        if is_whole_task(DoubleBarrier.enter):
            raise RuntimeError(
                f"this task does nothing but enter(): it would end inside {self!r}, and nobody else could leave. Await "
                "enter(timeout=...) in the task that leaves"
            )
        inside = bool(await self._core.enter(timeout))
        if inside:
            # If the task is thrown away with its loop, its party leaves the barrier.
            release_at_end(self._core._identity(), self._core._path_state)
        return inside

    async def leave(self, timeout: float | None = None) -> bool:
        """Leave, and wait until all other parties have left; errors as `zkconcurrent.DoubleBarrier.leave`.

        Args:
            timeout: how long to wait for the others, in seconds; None waits forever, zero or less does not wait.

        Returns:
            Whether all parties have left; False if the timeout has passed.

        Raises:
            RuntimeError: also if the task consists of this call alone, so that another task must have entered.
        """
        if is_whole_task(DoubleBarrier.leave):
            raise RuntimeError(
                f"this task does nothing but leave(): it is not inside {self!r}. Await leave(timeout=...) in the task "
                "that has entered"
            )
        return bool(await self._core.leave(timeout))

    async def __aenter__(self) -> bool:
        return await self.enter()

    async def __aexit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        # The same error ends the block if a living task closes a generator; then the party leaves as usual.
        if is_thrown_away(kind) and (self._core._path_state.leave_block() or asyncio._get_running_loop() is None):
            return
        try:
            await self.leave(None if kind is None else 0.0)
        except LockLostError:
            if reports_loss(kind):
                raise

    destroy: Final = awaited(_double_barrier.DoubleBarrier.destroy)
