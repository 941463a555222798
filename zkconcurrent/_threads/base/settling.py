"""Interrupted or cancelled calls leave changes under way, which a thread of the library settles."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from ..._engine.call import Call
from ..._engine.holds import PathState
from ..._engine.session import LeftTickets, Session, log
from ..._errors import ClientError, RefusedError
from ..._protocol.operations import Recipe
from ..._protocol.ticket import Ticket
from ..._recipes.receipts import PendingWrite, Receipt, ReceiptPool
from ..._runtime.interrupts import MEMORY_PAUSE
from ..._runtime.process_exit import waits_for_library
from ..._runtime.wait_loops import Steps
from ..._runtime.worker import Worker

REFUSED_PAUSE = 1.0  # seconds
W = TypeVar("W", bound=PendingWrite)


class SettlingState(PathState, Generic[W]):
    """The state of a path whose calls may leave an unsettled change: a `PendingWrite` whose `left` is true.

    Attributes:
        settler: the thread that settles now; None if there is none.
    """

    def __init__(self, session: Session, path: str, kind: str) -> None:
        super().__init__(session, path, kind)
        self.settler: int | None = None
        self._left: deque[W] = deque()
        self._worker = Worker(self._left)

    def _drop_with(self, pool: ReceiptPool) -> None:
        """When this object is garbage collected, discard the members; leave the idle receipts' nodes to later objects.

        So a program that makes a new object for each use does not leave behind one more node each time.
        """
        session = self.session
        self._pool = pool
        pool.spares = session.spares.left
        # The finalizer gets the containers, not the pool: the pool may refer to the session, through its clock.
        containers = session.dropped, pool.receipts, pool.idle, pool.spares
        weakref.finalize(self, _drop_receipts, *containers).atexit = False

    def leave_receipts(self) -> None:
        """Leave the nodes of the idle receipts to later objects."""
        _leave_to_others(self._pool.idle, self._pool.spares)

    @abstractmethod
    def _settling_of(self, pending_write: W) -> Recipe[bool]:
        """Return the recipe that settles a write."""

    def _finish(self, pending_write: W) -> None:
        """Note that a write is settled."""
        pending_write.finish()

    def _is_tried_again(self, pending_write: W) -> bool:  # noqa: ARG002
        """Return whether to try a refused write again until ZooKeeper allows it."""
        return False

    def _settle_later(self, pending_write: W) -> None:
        if pending_write not in self._left:
            self._left.append(pending_write)
        # Start the thread in any case: an interrupt may have come between an earlier append and the thread's start.
        self._start()

    def _start(self) -> None:
        try:
            spawn = partial(self.session.link.spawn, name=f"settling {self.path}", daemon=False)
            self._worker.start(spawn, self._settle_all)
        except BaseException:
            self.session.keeper.to_start.append(self._start)
            raise

    def _settle_all(self) -> None:
        self.settler = self.session.identity()
        while self._left:
            pending_write = self._left[0]
            try:
                over = self._settle(pending_write)
            except Exception as error:
                over = not self._goes_on(pending_write, error)
                if over:
                    pending_write.unknown, pending_write.receipt = True, None
                    text = "a call at %s was interrupted, and its outcome is unknown: %r"
                    # A log handler of the program may raise. That must not end this loop: other calls wait.
                    with suppress(Exception):
                        log.error(text, self.path, error, extra={"zk_path": self.path})
            if not over:
                # This write may wait for a later one, for example one that frees a place in a full queue.
                self._left.rotate(-1)
                continue
            self._finish(pending_write)
            self._left.popleft()
        self.settler = None

    def _goes_on(self, pending_write: W, error: Exception) -> bool:
        """Return whether to try a failed write again; wait a moment before returning True."""
        if waits_for_library():
            return False
        if isinstance(error, MemoryError):
            self.session.link.handler.sleep_func(MEMORY_PAUSE)
            return True
        if not (isinstance(error, RefusedError) and self._is_tried_again(pending_write)):
            return False
        if not pending_write.refused:
            text = "the end of a call at %s was refused, and is tried again: %r"
            pending_write.refused = True
            with suppress(Exception):
                log.warning(text, self.path, error, extra={"zk_path": self.path})

        def pause() -> Steps[None]:
            yield REFUSED_PAUSE

        Call(self.session, self.path).wait(pause())
        return True

    def _settle(self, pending_write: W) -> bool:
        """Settle a write; return False if ZooKeeper is out of reach."""
        session = self.session
        call = Call(session, self.path)
        done = call.wait(call.run(self._settling_of(pending_write), session.now() + session.longest_reply))
        if done is None and waits_for_library():
            raise exits_out_of_reach(self.path)
        return done is not None


def exits_out_of_reach(path: str) -> ClientError:
    """Return the error for a call that would keep the interpreter from exiting until an outage ends."""
    return ClientError(path, "the interpreter is exiting, and ZooKeeper is out of reach")


class SettleOnAbandon:
    """Leaves an abandoned call's change to be settled. Objects for one path are equal; see `check_not_interrupted`."""

    def __init__(self, state: SettlingState[W], clean_up: Callable[[], object]) -> None:
        self._state: object = state
        self._clean_up = clean_up

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SettleOnAbandon) and other._state is self._state

    __hash__ = None  # type: ignore[assignment]

    def forget_tickets(self, _tickets: Sequence[Ticket]) -> None:
        """Leave the change to be settled."""
        self._clean_up()


def _drop_receipts(
    dropped: deque[LeftTickets], receipts: list[Receipt], idle: deque[Receipt], spares: deque[tuple[str, int]]
) -> None:
    """Finalize the state. Each step is atomic, as a finalizer may run at any line."""
    dropped.append(LeftTickets([], [receipt.member for receipt in receipts if receipt.member is not None]))
    _leave_to_others(idle, spares)


def _leave_to_others(idle: deque[Receipt], spares: deque[tuple[str, int]]) -> None:
    with suppress(IndexError):
        while True:
            # R4: take the receipt from the pool before leaving its node to others: garbage finalized later may still
            # settle a call with a receipt of the pool.
            receipt = idle.popleft()
            if receipt.path:
                spares.append((receipt.path, receipt.version))
