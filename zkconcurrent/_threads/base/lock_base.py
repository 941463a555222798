"""`LockBase`: the methods that all locks and semaphores share, from `threading` and from this library."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, TypeVar

from ..._arguments.functions import check_callbacks
from ..._arguments.limits import check_label
from ..._engine.call import Call
from ..._engine.call_group import Calls
from ..._engine.holds import Hold
from ..._engine.local_handoff import LocalHandoff
from ..._engine.patience import CLEAN_UP_PATIENCE
from ..._errors import LockLostError, ZkConcurrentError
from ..._kazoo.link import KazooClient
from ..._observe.deadlock_search import OnDeadlock, check_on_deadlock
from ..._observe.hold_limits import AfterLimit, Limit
from ..._protocol.blocking_rules import Rule
from ..._runtime.identity import Task
from ..._runtime.interrupts import check_depth
from ..._runtime.public import ErrorKind, Traceback
from ..._runtime.wait_loops import Steps
from .callbacks import Callbacks
from .contender import Contender
from .held import Held, TransactionT, guard
from .lock_core import LockCore, QueueCore
from .primitive import BlockingCalls, OnLost, OnSuspect, Primitive, kind_of, not_held, reports_loss

# The frames that the end of a block needs if its hold is lost.
FRAMES_OF_END = 14


H = TypeVar("H", covariant=True)


class Acquirable(BlockingCalls, ABC, Generic[H]):
    """A lock or semaphore: threads acquire and release it, use it in `with` blocks, and may lose it.

    `H` is the type of the handle that the block of `hold()` gives.

    Attributes:
        _missed: the words that describe a failed acquire in an error.
    """

    _missed = "not acquired"

    @abstractmethod
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; see `threading`."""

    @abstractmethod
    def release(self) -> None:
        """Release the lock; see `threading`."""

    def hold(self, timeout: float | None = None, *, blocking: bool = True) -> Holding[H]:
        """Return a `with` block that holds the lock, and runs only if the lock is acquired in time.

        `as` gives the handle of the hold. The block ends as a `with lock` block does.

        Args:
            timeout: how long to wait for the lock, in seconds; None waits forever, 0 makes one attempt.
            blocking: whether to wait. If False, the block makes one attempt.

        Raises:
            TimeoutError: the lock was not acquired in time; the error names the holder, if ZooKeeper replies soon. The
                start of the block raises this, as it raises all errors of `acquire`.
            LockLostError: the hold was lost. The end of the block raises this.
        """
        return Holding(self, timeout, blocking)

    @abstractmethod
    def _lock_cores(self) -> Sequence[QueueCore]:
        """Return the machinery of each lock."""

    @abstractmethod
    def cancel_waits(self) -> int:
        """End the waits of all threads and tasks of this client for the lock, each with `WaitCancelledError`."""

    @abstractmethod
    def hold_count(self) -> int:
        """Return how many acquires the caller has not released yet; 0 if it holds nothing, or its hold is lost."""

    @abstractmethod
    def _handle(self) -> H:
        """Return the handle of the hold that the caller has just acquired."""

    def _acquire_for_block(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire as `acquire` does, for a block: the thread or task that runs the block releases at its end."""
        # Do not pass the arguments by `*`: CPython runs signal handlers right after such a call, and an interrupt there
        # would leave the hold.
        if timeout is not None:
            return self.acquire(blocking, timeout)
        return self.acquire() if blocking else self.acquire(False)

    def __enter__(self) -> bool:
        if not self._acquire_for_block():
            raise not_held(self)
        return True

    def __exit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback, **how: bool) -> None:
        before = None
        try:
            if self._session.forked:
                return  # the hold is the parent's
            before = self._levels_held()
            self.release(**how)
        except LockLostError:
            if reports_loss(kind):
                raise
        except BaseException:
            # If an interrupt struck before the release, the caller still holds the level of this block: release it now.
            if (held := self.hold_count()) and before in (None, held):
                self.release(**how)
            raise

    def _levels_held(self) -> int:
        """Return `hold_count()`; a subclass may count the levels of a lost hold, too."""
        return self.hold_count()

    def _not_acquired(self, timeout: float | None, since: float) -> TimeoutError:
        """Return the error of a block that does not run, because its lock was not acquired in time.

        The error names the holder, if ZooKeeper replies within the time that a clean-up may take.

        Args:
            timeout: the block's timeout; 0 if it made one attempt.
            since: when the acquire began.
        """
        calls = Calls(self._session)
        until = (since + timeout if timeout else self._session.now()) + CLEAN_UP_PATIENCE
        return self._await(calls, self._not_acquired_steps(calls, timeout, until))

    def _not_acquired_steps(self, calls: Calls, timeout: float | None, until: float) -> Steps[TimeoutError]:
        where = ", ".join(core.path for core in self._lock_cores())
        with suppress(ZkConcurrentError):
            for core in self._lock_cores():
                call = calls.add(Call(core.session, core.path))
                # Unlike an acquire, this call does not wait past the deadline for its first replies.
                _, holder = (yield from call.run(core.head(), until, -math.inf)) or (0, None)
                if holder is not None:
                    where = f"{core.path}, held by {holder.whole_name()}"
                    break
        return TimeoutError(f"{self._missed} {f'within {timeout:g} s' if timeout else 'in one attempt'}: {where}")


class Holding(Generic[H]):
    """A `with` block that holds a lock; `lock.hold()` makes it."""

    def __init__(self, lock: Acquirable[H], timeout: float | None, blocking: bool, **how: bool) -> None:
        self._lock = lock
        # The keyword arguments of the lock's `release`.
        self._how = how
        self._timeout = timeout
        self._blocking = blocking
        self._unused = [True]
        self._held: H | None = None

    def __enter__(self) -> H:
        lock, blocking, timeout = self._lock, self._blocking, self._timeout
        try:
            self._unused.pop()  # R4: one thread succeeds
        except IndexError:
            raise RuntimeError("a hold() is for one block: call hold() again for the next") from None
        # If the lock is held already, `acquire` does not check the stack's depth, but the end of the block needs these
        # frames.
        check_depth(FRAMES_OF_END)
        since, before = lock._session.now(), lock.hold_count()
        try:
            if not lock._acquire_for_block(blocking, timeout):
                raise lock._not_acquired(timeout if blocking else 0, since)
            self._held = held = lock._handle()
            return held
        except BaseException:
            # If an interrupt struck after the grant, the block will not run: release the hold.
            if lock.hold_count() > before:
                lock.release(**self._how)
            raise

    def __exit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        begun = False
        try:
            if self._is_released():
                return
            begun = True
            self._lock.__exit__(kind, error, traceback, **self._how)
        except BaseException:
            # If an interrupt struck before the lock's own `__exit__` began, the hold still lasts.
            if not begun and not self._is_released():
                self._lock.__exit__(kind, error, traceback, **self._how)
            raise

    def _is_released(self) -> bool:
        return bool(getattr(self._held, "_released", False))


class QueuedPrimitive(Primitive):
    """A primitive whose contenders queue at its path.

    Attributes:
        _lock_core: its machinery.
    """

    _rule: Rule
    _lock_core: QueueCore

    def __init__(self, client: KazooClient, path: str) -> None:
        super().__init__(client, path)
        # The objects of one client and path share one dictionary of holds.
        with self._session.lock:
            self._lock_core = self._new_core()

    def _new_core(self) -> QueueCore:
        return QueueCore(self._path_state, self._rule)

    def _lock_cores(self) -> Sequence[QueueCore]:
        return (self._lock_core,)

    def locked(self) -> bool:
        """Return whether any process holds the lock; asks the leader. Cost: 2 reads, pipelined."""
        return self._run(self._lock_core.is_held(), bool)

    def owner(self) -> Contender | None:
        """Return the holder, read from the server; None if there is none. Cost: 2 + n reads with n nodes queued."""
        return self._run(self._lock_core.contenders(), lambda line: next(iter(line[0]), None))

    def waiters(self) -> list[Contender]:
        """Return the waiters, the next one first, read from the server; each has its `position`. Cost: as `owner`."""
        return self._run(self._lock_core.contenders(), lambda line: line[1])


class LockBase(QueuedPrimitive, Acquirable[Held], Callbacks):
    """The methods of all locks."""

    _lock_core: LockCore
    _core_type = LockCore

    def __init__(
        self,
        client: KazooClient,
        path: str,
        *,
        fair: bool = True,
        on_lost: OnLost | None = None,
        on_suspect: OnSuspect | None = None,
        on_revoke: OnLost | None = None,
        on_deadlock: OnDeadlock = "warn",
        hold_limit: float | None = None,
        on_hold_limit: AfterLimit = "warn",
        label: str | None = None,
    ) -> None:
        check_label(label)
        check_callbacks(on_lost=on_lost, on_suspect=on_suspect, on_revoke=on_revoke)
        check_on_deadlock(on_deadlock)
        limit = Limit.of(hold_limit, on_hold_limit)
        if not fair:
            self._kind = f"{self._kind}(fair=False)"
        super().__init__(client, path)
        self._fair, self._on_lost, self._on_suspect, self._on_revoke = fair, on_lost, on_suspect, on_revoke
        self._hold_limit, self._on_hold_limit, self._lock_core.limit = hold_limit, on_hold_limit, limit
        self._on_deadlock = self._lock_core.on_deadlock = on_deadlock
        self._label = self._lock_core.label = label
        self._watch([self._session])
        if on_lost is None and fair and on_revoke is None:
            return
        with self._session.lock:
            # The session's lock guards the set of observers, as the report of a loss iterates over it.
            if on_lost is not None:
                self._path_state.observers[self._rule.role].add(self)
            if on_revoke is not None:
                self._path_state.revocable[self._rule.role].add(self)
            if not fair and self._path_state.handoff is None:
                self._path_state.handoff = LocalHandoff(self._session, self._lock_core.holds)

    def _new_core(self) -> LockCore:
        return self._core_type(self._path_state, self._rule, self._identity)

    def _handle(self) -> Held:
        hold = self._lock_core.mine()
        assert hold is not None
        return Held(self._lock_core, hold)

    def _start_on_revoke(self) -> None:
        if self._on_revoke is not None:
            self._start("on_revoke", partial(self._on_revoke, self))

    # -- threading's interface -----------------------------------------------------------------------------------

    def _holding_tasks(self) -> Iterable[tuple[str, Task | None]]:
        return self._lock_core.holding_tasks()

    def cancel_waits(self) -> int:
        """End the waits of all threads and tasks of this client for the lock: each gets a `WaitCancelledError`.

        Waits with a timeout end, too. An `acquire` that makes one attempt does not end. A condition's wait does not end
        either, as it must hold the lock again before it returns. An `acquire` that is granted at the same moment may
        return True. An `acquire` that begins later waits as usual. The call affects no holds.

        The call never waits, so a signal handler may make it. Each waiting thread deletes its own node.

        Returns:
            How many waits it has ended.

        Raises:
            ClientError: the process was forked; the waits belong to its parent.
        """
        return self._lock_core.cancel_waits()

    def _at_fork_reinit(self) -> None:
        """Unlock the lock in a forked child, as `threading` does with its own locks."""
        for hold in self._lock_core.all():
            self._lock_core.drop(hold)

    # -- the extras ----------------------------------------------------------------------------------------------

    def hold_count(self) -> int:
        """Return how many levels of the lock the caller holds: the acquires that it has not released.

        The result is 0 if the thread holds nothing, or its hold is lost. Sends nothing.
        """
        # If an acquire was interrupted, and so was its clean-up, its ticket must still be discarded.
        self._session.sweep()
        self._session.expired_holds.end_past_lease()
        hold = self._lock_core.mine()
        return hold.depth if hold is not None and hold.alive else 0

    @property
    def fencing_token(self) -> int:
        """A number that never decreases from holder to holder: the creation zxid of the holder's node.

        Raises:
            LockLostError: the hold is lost.
            RuntimeError: the caller has no hold that it may release.
        """
        return self._lock_core.must_hold().ticket.token

    @property
    def lost(self) -> threading.Event:
        """A `threading.Event` that is set when the current hold is lost. Each hold has its own event.

        The current hold is the caller's own or, if the caller holds nothing, this process's newest. If there is no
        hold, this is the event of the next hold.
        """
        self._session.expired_holds.end_past_lease()
        with self._session.lock:
            return self._lock_core.loss().event

    @property
    def suspect(self) -> bool:
        """Whether this process holds the lock while ZooKeeper is out of reach."""
        core = self._lock_core
        return core.is_suspect(core.current())

    def remaining(self) -> float:
        """Return how many seconds the current hold is sure to last, even if ZooKeeper no longer replies.

        The heartbeat renews this time. The result is 0 if nothing is held, or the hold is lost. Sends nothing.
        """
        core = self._lock_core
        return core.left(core.current())

    def _suspect_and_remaining(self) -> tuple[bool, float]:
        core = self._lock_core
        newest = core.newest()
        return core.is_suspect(newest), core.left(newest)

    def guard(self, transaction: TransactionT) -> TransactionT:
        """Make a kazoo `TransactionRequest` commit only while this hold lives; return the transaction.

        Raises:
            LockLostError: the hold is already lost.
            RuntimeError: the caller has no hold that it may release.
            ValueError: the transaction's client has another chroot, so it can't see the lock's node.
        """
        return guard(self._lock_core, transaction, self._lock_core.must_hold)

    def _describe(self, hold: Hold | None) -> str:  # noqa: ARG002
        """Return the part of the repr that describes the current hold."""
        return ""

    def __repr__(self) -> str:
        hold = self._lock_core.newest()
        if hold is not None and not hold.alive:
            hold = None
        state = "unlocked" if hold is None else "locked"
        kind = kind_of(self)
        return f"<{state} {kind} object {self._describe(hold)}path={self._path!r} at {id(self):#x}>"


def core_of(lock: LockBase) -> LockCore:
    """Return the machinery of a lock, for an object that consists of locks."""
    return lock._lock_core
