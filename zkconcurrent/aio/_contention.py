"""`lock.contended` and `lock.revoke()`, for tasks."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from .._engine import contention
from .._runtime.public import public
from .._runtime.waiting import call_soon
from .._threads.base import revocable
from ._twin import LockBase, awaited


@public
class Contention:
    """Whether somebody waits behind one hold, in any process; `lock.contended` returns it.

    It resembles an `asyncio.Event` that is set while somebody waits. It is no longer set once the hold has ended.
    """

    def __init__(self, of_hold: contention.Contention) -> None:
        self._of_hold = of_hold

    def __repr__(self) -> str:
        return repr(self._of_hold)

    @property
    def over(self) -> bool:
        """Whether the hold has ended: it was released or lost."""
        return self._of_hold.over

    def is_set(self) -> bool:
        """Return whether somebody waits behind the hold, as last seen; False once the hold has ended. Sends nothing."""
        return self._of_hold.is_set()

    async def wait(self) -> bool:
        """Wait until somebody waits behind the hold, and return True; False if the hold has ended."""
        told = asyncio.Event()
        wake = partial(call_soon, asyncio.get_running_loop(), told.set)
        self._of_hold.add(wake)
        try:
            while not self.over:
                if self.is_set():
                    return True
                await told.wait()
                told.clear()
        finally:
            self._of_hold.remove(wake)
        return False


class RevocableLock(LockBase):
    """The methods of the locks that have Curator's `makeRevocable`."""

    @property
    def contended(self) -> Contention:
        """Whether somebody waits behind the current hold; see `zkconcurrent.Lock.contended`."""
        return Contention(self._core.contended)

    revoke: Final = awaited(revocable.RevocableLock.revoke)
