"""The handle of one hold, for all who work for it: on any thread, and whoever holds the lock later.

`lock.fencing_token` and its like are about the caller's hold, or else this process's newest. A handle is about its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar

from ..._engine.driver import Call
from ..._engine.holds import Hold
from ..._kazoo.link import KazooClient, TransactionRequest
from ..._protocol.ticket import State
from ..._runtime.clock import ago
from ..._runtime.public import public
from ..._runtime.waiting import wait
from .lock_core import LockCore
from .primitive import kind_of


class Transaction(Protocol):
    """A kazoo `TransactionRequest`."""

    @property
    def client(self) -> KazooClient: ...

    def check(self, path: str, version: int, /) -> object: ...


TransactionT = TypeVar("TransactionT", bound=Transaction)


def guard(core: LockCore, transaction: TransactionT, held: Callable[[], Hold]) -> TransactionT:
    """Make a transaction commit only while a hold lives, which `held` returns; return the transaction.

    Raises:
        TypeError: it is no kazoo `TransactionRequest`.
        ValueError: its client has another chroot, so it can't see the hold's node.
    """
    if not isinstance(transaction, TransactionRequest):
        raise TypeError(
            f"transaction must be a kazoo TransactionRequest, as `client.transaction()` returns one, not "
            f"{kind_of(transaction)}"
        )
    chroot = core.session.link.client.chroot
    if transaction.client.chroot != chroot:
        raise ValueError(f"the transaction's client must have the lock's chroot: {chroot!r}")
    transaction.check(held().ticket.node, -1)  # exists, in any version
    return transaction


class BaseHeld:
    """What the handles of threads and of tasks share."""

    # `Any`: the machinery is no part of the public types.
    def __init__(self, core: Any, hold: Hold) -> None:
        self._core: LockCore = core
        self._hold: Hold = hold
        # Its level was released, so the end of its block has nothing to do.
        self._released: bool = False

    @property
    def fencing_token(self) -> int:
        """A number that never decreases from holder to holder: the creation zxid of the holder's node.

        Raises:
            LockLostError: the hold was lost.
            RuntimeError: the hold has ended.
            ClientError: the process was forked; the hold belongs to its parent.
        """
        return self._core.check_lasts(self._hold).ticket.token

    @property
    def since(self) -> datetime:
        """When the hold began, by this machine's clock; of a re-entrant lock, its first level."""
        return ago(self._core.session.clock() - self._hold.ticket.granted)

    def remaining(self) -> float:
        """Return for how many seconds the hold surely lasts; 0 if it is over. See `Lock.remaining`. Sends nothing."""
        return self._core.left(self._hold) if self._core.path_state.has(self._hold) else 0.0

    def guard(self, transaction: TransactionT) -> TransactionT:
        """Make a kazoo `TransactionRequest` commit only while this hold lasts; return the transaction.

        Raises:
            LockLostError: the hold was lost.
            RuntimeError: the hold has ended.
            ValueError: the transaction's client has another chroot, so it can't see the holder's node.
        """
        return guard(self._core, transaction, lambda: self._core.check_lasts(self._hold))

    def _begin_release(self) -> Call | None:
        core, hold = self._core, self._hold
        core.session.check_not_forked(core.path)
        if self._released or hold.owner != core.identity():
            raise RuntimeError(core.why_not_held(core.not_held))
        before = hold.depth
        try:
            return core.begin_release(hold)
        finally:
            self._released = hold.depth < before or not core.path_state.has(hold)

    def __repr__(self) -> str:
        hold = self._hold
        state = "lasts" if hold.alive else "lost" if hold.ticket.state is State.LOST else "over"
        return f"<{kind_of(self)} at {id(self):#x}: {state} token={hold.ticket.token} node={hold.ticket.node!r}>"


class HeldByThread(BaseHeld):
    """What the handles of threads share."""

    @property
    def lost(self) -> threading.Event:
        """A `threading.Event` that is set when the hold is lost.

        Raises:
            ClientError: the process was forked; the hold belongs to its parent.
        """
        session = self._core.session
        session.check_not_forked(self._core.path)
        session.check_lease()
        with session.lock:
            return self._hold.loss.event


@public
class Held(HeldByThread):
    """One hold of a lock, or of a permit, as `with lock.hold() as held` gives it. Any thread may use it."""

    def release(self) -> None:
        """Release the hold before its block ends, on the block's own thread; the end of the block then does nothing.

        Of a re-entrant lock, this releases the level of the block. Errors are those of the lock's `release`.
        """
        if (call := self._begin_release()) is not None:
            wait(call, self._core.released(call, self._hold))
