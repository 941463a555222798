"""The handle of one hold, for any thread that works for the hold, even when others hold the lock later.

`lock.fencing_token` and similar attributes refer to the caller's hold or, if the caller has no hold, to this process's
newest hold. A handle always refers to its own hold.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol, TypeVar

from ..._engine.call import Call
from ..._engine.holds import Hold
from ..._errors import LockLostError
from ..._kazoo.link import KazooClient, TransactionRequest
from ..._runtime.clock import ago
from ..._runtime.public import public
from ..._runtime.wait_loops import wait
from .lock_core import LockCore
from .primitive import kind_of


class Transaction(Protocol):
    """A kazoo `TransactionRequest`."""

    @property
    def client(self) -> KazooClient: ...

    def check(self, path: str, version: int, /) -> object: ...


TransactionT = TypeVar("TransactionT", bound=Transaction)


def guard(core: LockCore, transaction: TransactionT, held: Callable[[], Hold]) -> TransactionT:
    """Make a transaction commit only while the hold that `held` returns is alive; return the transaction.

    Raises:
        TypeError: the argument is not a kazoo `TransactionRequest`.
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

    # `Any`, as the machinery is not part of the public types.
    def __init__(self, core: Any, hold: Hold, *, is_part: bool = False) -> None:
        self._core: LockCore = core
        self._hold: Hold = hold
        # The block holds several locks, and releases them together.
        self._is_part: bool = is_part
        # Kept here, as the ticket may be handed on to another hold.
        self._since: datetime = ago(core.session.clock() - hold.ticket.granted)
        # The hold's depth before a release that has begun but is not recorded yet; 0 if there is none.
        self._before: int = 0
        self._noted: bool = False

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
    def node(self) -> str:
        """The path of the holder's node. While the node exists, no other client can acquire what this hold excludes.

        Raises:
            LockLostError: the hold was lost.
            RuntimeError: the hold has ended.
            ClientError: the process was forked; the hold belongs to its parent.
        """
        return self._core.check_lasts(self._hold).ticket.node

    @property
    def since(self) -> datetime:
        """When the hold began, by this machine's clock; for a re-entrant lock, when its first level began."""
        return self._since

    def remaining(self) -> float:
        """Return how many seconds the hold is sure to last; 0 if it is over. See `Lock.remaining`. Sends nothing."""
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
        if self._is_part:
            raise RuntimeError(f"the locks of a MultiLock are released together, at the end of the block: {core.path}")
        if self._released or hold.owner != core.identity():
            raise RuntimeError(core.not_held_message(core.not_held))
        if not core.path_state.has(hold):
            # This hold has ended. Leave the caller's present hold to the end of the block.
            raise RuntimeError(core.over.format(core.path))
        before = self._before = hold.depth
        try:
            return core.begin_release(hold)
        finally:
            # A signal handler may have released the hold in between.
            self._noted = self._noted or self._is_less_than(before)
            self._before = 0

    @property
    def _released(self) -> bool:
        """Whether this handle has released the level of its block, so that the end of the block has nothing to do."""
        # R3: an interrupt may have kept the release from being recorded.
        return self._noted or self._is_less_than(self._before)

    def _is_less_than(self, depth: int) -> bool:
        """Return whether the hold has fewer levels than `depth`, or has ended; False if `depth` is 0."""
        return depth > 0 and (self._hold.depth < depth or not self._core.path_state.has(self._hold))

    def __repr__(self) -> str:
        over, ticket = self._core.why_over(self._hold), self._hold.ticket
        state = "lasts" if over is None else "lost" if isinstance(over, LockLostError) else "over"
        return f"<{kind_of(self)} at {id(self):#x}: {state} token={ticket.token} node={ticket.node!r}>"


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
        session.expired_holds.end_past_lease()
        with session.lock:
            return self._hold.loss.event


@public
class Held(HeldByThread):
    """One hold of a lock, or of a permit, as `with lock.hold() as held` gives it. Any thread may use it.

    A condition's wait in the block ends the hold, and this handle with it. The wait returns with a new hold, which the
    end of the block releases; ask the lock about the new hold. The end of a semaphore's block gives back the thread's
    newest permit, so end the blocks of one thread in reverse order.
    """

    def release(self) -> None:
        """Release the hold before its block ends, on the block's own thread; the end of the block then does nothing.

        For a re-entrant lock, this releases the level of the block. Errors are those of the lock's `release`. A
        `release` that a subclass defines is not called.

        Raises:
            RuntimeError: the hold has ended; or the block belongs to a MultiLock, which releases its locks together.
        """
        if (call := self._begin_release()) is not None:
            wait(call, self._core.released(call, self._hold))
