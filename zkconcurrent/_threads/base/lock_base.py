"""`LockBase`: the methods that all locks and semaphores share, those of `threading` and this library's extras."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

from ..._engine.driver import Call
from ..._engine.holds import Hold, lost_error
from ..._engine.local_handoff import LocalHandoff
from ..._engine.loss import Loss
from ..._engine.session import log
from ..._errors import LockLostError
from ..._kazoo.link import KazooClient
from ..._protocol.operations import MALFORMED, Node, Recipe
from ..._protocol.rules import Rule, holders
from ..._protocol.ticket import State, Ticket
from ..._recipes.lock import acquire, contenders, list_queue, try_acquire
from ..._recipes.nodes import FirstLook
from ..._runtime.identity import ended, name, task_of
from ..._runtime.interrupts import FRAMES, check_depth
from ..._runtime.public import public
from ..._runtime.waiting import Steps
from .cancel import cancel_waits
from .primitive import BlockingCalls, Primitive, check_on_lost, kind_of, node_data, not_held, reports_loss


@public
class Contender(NamedTuple):
    """One node in a queue, and the thread that created it. Fields that the node's data does not give are None.

    Attributes:
        host: the host's name; for a Curator client, the text that it left in the node, usually its address.
        pid: the process id.
        thread: the thread's name.
        session: the ZooKeeper session id, a signed number, as in kazoo's `client_id`; the servers' logs have it in
            hexadecimal, without a sign. 0 for the holder of a `DetachedLock`.
        since: when the contender queued, by the server's clock.
        node: the node's path.
        token: the fencing token of its hold: the creation zxid of the node, or of the node that it replaced.
        position: a waiter's place in the queue, by arrival: 1 for the next, 2 for the one behind it; 0 for a holder.
        owner: the owner's name, if it holds or waits for a `DetachedLock`.
    """

    host: str | None
    pid: int | None
    thread: str | None
    session: int
    since: datetime
    node: str
    token: int
    position: int = 0
    owner: str | None = None

    @classmethod
    def of(cls, path: str, name: str, node: Node, position: int = 0) -> Contender:
        """Parse a node's data."""
        # Programs that ask for no contender never import this module.
        from ..._recipes.detached import read

        try:
            said = json.loads(node.data)
            host, pid, thread = said["host"], said["pid"], said["thread"]
            owner = said.get("owner")
        except MALFORMED:
            host, pid, thread, owner = node.data.decode("utf-8", "replace") or None, None, None, None
        held = read(name, node)
        token = node.czxid if held is None else held.token
        since = datetime.fromtimestamp(node.ctime, timezone.utc)
        return cls(host, pid, thread, node.session, since, f"{path}/{name}", token, position, owner)


class Acquirable(BlockingCalls, ABC):
    """A lock or semaphore: threads acquire and release it, use it in `with` blocks, and may lose it.

    Attributes:
        _on_lost: the user's function to call at each loss.
    """

    _on_lost: Callable[[Any], object] | None

    @abstractmethod
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; see `threading`."""

    @abstractmethod
    def release(self) -> None:
        """Release the lock; see `threading`."""

    def hold(self, timeout: float | None = None, *, blocking: bool = True) -> Holding:
        """Return a `with` block that holds the lock, and runs only if the lock is acquired in time.

        The block may be entered again, also by several threads. It ends as a `with lock` block does.

        Args:
            timeout: how long to wait for the lock, in seconds; None waits forever, 0 makes one attempt.
            blocking: whether to wait. If False, the block makes one attempt.

        Raises:
            TimeoutError: the lock was not acquired in time. The start of the block raises this, as it raises all errors
                of `acquire`.
            LockLostError: the hold was lost. The end of the block raises this.
        """
        return Holding(self, timeout, blocking)

    @abstractmethod
    def cancel_waits(self) -> int:
        """End the waits of all threads and tasks of this client for the lock, each with `WaitCancelledError`."""

    @abstractmethod
    def hold_count(self) -> int:
        """Return how many acquires the caller has not released; 0 if it holds nothing, or its hold is lost."""

    def __enter__(self) -> bool:
        if not self.acquire():
            raise not_held(self)
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        before = None
        try:
            if self._session.forked:
                return  # the hold is the parent's
            before = self._levels_held()
            self.release()
        except LockLostError:
            if reports_loss(kind):
                raise
        except BaseException:
            # If an interrupt struck before the release, the caller still holds the level of this block: release it now.
            if (held := self.hold_count()) and before in (None, held):
                self.release()
            raise

    def _levels_held(self) -> int:
        """Return `hold_count()`; a lost hold may count."""
        return self.hold_count()

    def _start_on_lost(self) -> None:
        if self._on_lost is not None:
            self._session.keeper.spawn(self._call_on_lost, f"on_lost {getattr(self, 'path', type(self).__name__)}")

    def _call_on_lost(self) -> None:
        """Call the user's `on_lost`; runs on a thread of its own."""
        assert self._on_lost is not None
        try:
            self._on_lost(self)
        except Exception:
            log.exception("on_lost of %r failed", self)


class Holding:
    """A `with` block that holds a lock; `lock.hold()` makes it. It has no state, so threads may share it."""

    def __init__(self, lock: Acquirable, timeout: float | None, blocking: bool) -> None:
        self._lock = lock
        self._timeout = timeout
        self._blocking = blocking

    def __enter__(self) -> None:
        lock, blocking, timeout = self._lock, self._blocking, self._timeout
        # Where the lock is held already, `acquire` checks no depth, but the end of the block needs so many frames.
        check_depth(5)
        if not (lock.acquire(blocking) if timeout is None else lock.acquire(blocking, timeout)):
            raise not_acquired(lock, timeout if blocking else 0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.__exit__(kind, error, traceback)


def not_acquired(lock: object, timeout: float | None) -> TimeoutError:
    """Return the error of a block that does not run, because its lock was not acquired in time."""
    return TimeoutError(f"not acquired {f'within {timeout} s' if timeout else 'in one attempt'}: {lock!r}")


class QueuedPrimitive(Primitive):
    """A primitive whose contenders queue at its path."""

    _rule: Rule

    def __init__(self, client: KazooClient, path: str) -> None:
        super().__init__(client, path)
        # All objects whose threads wait in one queue have equal keys.
        self._queue_key = self._path_state, self._rule.role
        # The tuple is made once, not for each task that waits.
        self._line_keys = (self._queue_key,)

    def locked(self) -> bool:
        """Return whether any process holds the lock; asks the leader. Cost: 2 reads, pipelined."""
        return self._run(self._is_held(), bool)

    def _call(self, *, cancellable: bool) -> Call:
        """Return a call that queues here; `cancel_waits()` ends one that is cancellable."""
        call = Call(self._session, self._path, self._path_state)
        if cancellable:
            call.waits_for = self._line_keys
        return call

    def _is_held(self) -> Recipe[bool]:
        grants = self._path_state.grants
        names = yield from list_queue(self._path, self._rule)
        holding = [name for name in holders(names, self._rule) if self._rule.is_ours(name)]
        self._path_state.note_holders(self._rule.role, holding, grants)
        return bool(holding)

    def _contenders(self) -> Recipe[tuple[list[Contender], list[Contender]]]:
        """Return the holders and the waiters."""
        hold, found = yield from contenders(self._path, self._rule)
        line = [
            Contender.of(self._path, name, node, max(0, place)) for place, (name, node) in enumerate(found, 1 - hold)
        ]
        return line[:hold], line[hold:]

    def owner(self) -> Contender | None:
        """Return the holder, read from the server; None if there is none. Cost: 2 + n reads with n nodes queued."""
        return self._run(self._contenders(), lambda line: next(iter(line[0]), None))

    def waiters(self) -> list[Contender]:
        """Return the waiters, the next one first, read from the server; each has its `position`. Cost: as `owner`."""
        return self._run(self._contenders(), lambda line: line[1])


class LockBase(QueuedPrimitive, Acquirable):
    """The methods of all locks, over the holds that a `PathState` keeps."""

    _not_held = "release unlocked lock"
    _first_look: FirstLook | None = None  # of a condition's own lock

    def __init__(
        self, client: KazooClient, path: str, *, fair: bool = True, on_lost: Callable[[Any], object] | None = None
    ) -> None:
        check_on_lost(on_lost)
        if not fair:
            self._kind = f"{self._kind}(fair=False)"
        super().__init__(client, path)
        self._fair, self._on_lost = fair, on_lost
        with self._session.lock:
            self._holds = self._path_state.holds[self._rule.role]
            # The session's lock guards the set of observers, as the report of a loss iterates over it.
            if on_lost is not None:
                self._path_state.observers[self._rule.role].add(self)
            if not fair and self._path_state.handoff is None:
                self._path_state.handoff = LocalHandoff(self._session, self._holds)

    # -- threading's interface -----------------------------------------------------------------------------------

    def _reenter_or_check(self) -> bool:
        """Add a level to the caller's hold, if the lock is re-entrant and the caller holds it; return whether it did.

        Raises:
            LockLostError: the caller has a loss to settle.
        """
        hold = self._mine()
        if hold is not None:
            self._check(hold)
        return False

    def _begin_acquire(self, blocking: bool, timeout: float, restores: int | None = None) -> tuple[Call, Steps[bool]]:
        """Return the call that acquires a new hold for the calling thread, and its steps, which return whether it did.

        If a condition's wait restores its hold, `restores` is the hold's depth, and `cancel_waits()` does not end the
        acquire.

        The steps raise ClientError if the caller is a signal handler or finalizer that interrupted this thread's
        acquire or release of the same lock: the caller would wait for the call that it interrupted.
        """
        limit = self._deadline(blocking, timeout)
        wait = blocking and timeout != 0
        call = self._call(cancellable=wait and restores is None)
        return call, self._acquire_steps(call, wait, limit, self._identity(), restores or 1)

    def _holding_tasks(self) -> Iterable[tuple[str, Any]]:
        rule, holds = self._rule, self._path_state.holds
        for role in list(holds):
            # An acquire waits for a hold only if one of the two is exclusive.
            if rule.alone in rule.role or rule.alone in role:
                yield from ((self._path, task_of(hold.owner)) for hold in self._path_state.all(role) if hold.alive)

    def _acquire_steps(self, call: Call, wait: bool, deadline: float | None, owner: int, depth: int) -> Steps[bool]:
        handoff = self._path_state.handoff
        if handoff is None:
            ticket = yield from call.run(self._new_recipe(wait, owner), deadline)
        else:
            ticket = yield from handoff.run(call, partial(self._new_recipe, wait, owner), deadline, wait)
        if ticket is not None:
            self._path_state.take(ticket, self._rule, owner, depth)
        if handoff is not None:
            handoff.leave(call)
        if ticket is None:
            return False
        self._log_acquired(ticket)
        return True

    def _log_acquired(self, *tickets: Ticket) -> None:
        if tickets[0].late:
            log.warning(
                "the sequence numbers of %s are running out: leave the path idle until it is removed, or use another",
                self._path,
            )
        log.debug("acquired %s", tickets)

    def _new_recipe(self, wait: bool, owner: int) -> Recipe[Ticket | None]:
        return self._recipe(wait, node_data(owner), owner)

    def _recipe(self, wait: bool, data: bytes, owner: int) -> Recipe[Ticket | None]:  # noqa: ARG002
        """Return the recipe that acquires a new hold: it waits, or makes a single attempt."""
        return (acquire if wait else try_acquire)(self._path, self._rule, data, self._first_look)

    def _check(self, hold: Hold, owed: int | None = None) -> None:
        """Refuse to go on with a lost hold. A hold is also lost if its lease has ended by this client's clock.

        Args:
            hold: the hold.
            owed: how many levels the caller has yet to settle if it is lost; all, unless given.

        Raises:
            LockLostError: the hold is lost.
        """
        self._session.check_lease()
        if hold.ticket.state is State.LOST:
            raise self._lost_error(hold, owed)

    def _lost_error(self, hold: Hold, owed: int | None = None) -> LockLostError:
        return lost_error(hold, owed)

    def _hold_to_release(self) -> Hold:
        """Return the hold that `release` applies to.

        Raises:
            RuntimeError: there is none.
            ClientError: the process was forked; the hold belongs to its parent.
        """
        self._session.sweep()
        hold = self._own() or next(iter(self._path_state.ended_at_exit(self._rule.role)), None)
        if hold is None:
            self._session.check_not_forked(self._path)
            raise RuntimeError(self._why_not_held(self._not_held))
        return hold

    def _why_not_held(self, why: str) -> str:
        """Return why the caller has no hold to use, in `threading`'s words, and which other thread or task has one."""
        other = self._newest()
        if other is not None and other.alive and not ended(other.owner):
            why = f"{why} (by this thread or task; {name(other.owner)!r} has acquired it)"
        return f"{why}: {self._path}"

    def _release_level(self, hold: Hold) -> None:
        """Release one level of a hold, or settle one level of a lost one."""
        if (call := self._begin_release(hold)) is not None:
            self._wait_released(call, hold)

    def _begin_release(self, hold: Hold) -> Call | None:
        """Release or settle one level. After the last, return the call that waits until the node is gone.

        Raises:
            LockLostError: the hold is lost.
            RuntimeError: another thread is releasing it.
        """
        if self._session.exiting and hold.ticket.state is State.DISCARDED:
            # The exit handler has deleted the node. Take no lock here: a thread that was stopped at exit may have it.
            return None
        try:
            self._check(hold, hold.depth - 1)
        except LockLostError:
            if hold.depth > 1:
                hold.depth -= 1
            else:
                self._path_state.drop(hold)
            raise
        if hold.depth > 1:
            hold.depth -= 1
            return None
        return self._end_hold(hold)

    def _end_hold(self, hold: Hold) -> Call:
        """End a hold at any depth: send its delete, or leave its node to the next thread."""
        session, owner = self._session, self._identity()
        check_depth(FRAMES // 2)
        call = Call(session, self._path, self._path_state)
        try:
            if not self._path_state.claim(hold, owner):
                raise RuntimeError(f"release unlocked lock: {self._path}")
            # The lock covers both steps. A signal handler in between may leave the node to another thread, which must
            # not take it until this block has ended.
            with session.lock:
                if not self._path_state.hand_on(hold):
                    if session.discard(hold.ticket):
                        call.tickets.append(hold.ticket)
                    self._path_state.drop(hold)
        except BaseException:
            if self._path_state.claim(hold, owner) and self._path_state.has(hold):
                # If the hold is alive, an interrupt came before its delete; `_drop` then sends the delete.
                self._drop(hold)
            raise
        call.settled = True
        return call

    def _drop(self, hold: Hold) -> None:
        """Forget a hold; send its delete first, if it is alive."""
        with self._session.lock:
            if hold.alive and self._path_state.has(hold):
                self._session.discard(hold.ticket)
            self._path_state.drop(hold)

    def _wait_released(self, call: Call, hold: Hold) -> None:
        """Wait until the node of a released hold is gone.

        Raises:
            LockLostError: another client had deleted the node before, so others may have held the lock.
            RefusedError: this client may not delete the node; the keeper goes on trying.
        """
        if call.tickets:
            self._await(call, self._released(call, hold))
        else:
            # The next thread of this process has the node, so no reply can tell anything about this hold.
            log.debug("released %s", hold.ticket.node)

    def _released(self, call: Call, hold: Hold) -> Steps[None]:
        if call.tickets:
            yield from call.gone(hold.ticket)
            self._path_state.check_given_up(hold)
        log.debug("released %s", hold.ticket.node)

    def cancel_waits(self) -> int:
        """End the waits of all threads and tasks of this client for the lock: each gets a `WaitCancelledError`.

        Waits with a timeout end, too. An `acquire` that makes one attempt does not end. Nor does a condition's wait, as
        it must hold the lock again before it returns. An `acquire` that is granted at the same moment may return True.
        An `acquire` that begins later waits as usual. The call affects no holds.

        The call never waits, so a signal handler may make it. Each waiting thread deletes its own node.

        Returns:
            How many waits it has ended.

        Raises:
            ClientError: the process was forked; the waits belong to its parent.
        """
        self._session.check_not_forked(self._path)
        return cancel_waits(self._session.calls, self._queue_key)

    def _check_may_wait(self) -> None:
        """Refuse a condition's wait if the lock, once released, could not be acquired again."""

    def _at_fork_reinit(self) -> None:
        """Unlock the lock in a forked child, as `threading` does with its own locks."""
        for hold in self._path_state.all(self._rule.role):
            self._drop(hold)

    # -- the extras ----------------------------------------------------------------------------------------------

    def _mine(self) -> Hold | None:
        """Return the calling thread's hold, alive or lost."""
        return self._path_state.own(self._rule.role, self._identity())

    def _levels_held(self) -> int:
        hold = self._holds.get(self._identity())
        return 0 if hold is None else hold.depth

    def hold_count(self) -> int:
        """Return how many levels of the lock the caller holds: the acquires that it has not released.

        The result is 0 if the thread holds nothing, or its hold is lost. Sends nothing.
        """
        # An acquire may have been interrupted, and then again as it cleaned up: its ticket is still to be discarded.
        self._session.sweep()
        self._session.check_lease()
        hold = self._mine()
        return hold.depth if hold is not None and hold.alive else 0

    def _newest(self) -> Hold | None:
        """Return the newest hold of any thread of this process."""
        return self._path_state.newest(self._rule.role)

    def _own(self) -> Hold | None:
        """Return the hold that `release` and the extras apply to."""
        return self._mine()

    def _must_hold(self) -> Hold:
        self._session.check_lease()
        hold = self._own()
        if hold is None:
            raise RuntimeError(f"{self._path} is not held: acquire it first")
        self._check(hold)
        return hold

    @property
    def fencing_token(self) -> int:
        """A number that never decreases from holder to holder: the creation zxid of the holder's node.

        Raises:
            LockLostError: the hold is lost.
            RuntimeError: the caller has no hold that it may release.
        """
        return self._must_hold().ticket.token

    def _loss(self) -> Loss:
        """Return the loss of the current hold, or of the next one."""
        with self._session.lock:
            hold = self._own() or self._newest()
            return self._path_state.next_loss[self._rule.role] if hold is None else hold.loss

    @property
    def lost(self) -> threading.Event:
        """A `threading.Event` that is set when the current hold is lost. Each hold has its own event.

        The current hold is the caller's own or, if the caller holds nothing, this process's newest. If there is no
        hold, this is the event of the next hold.
        """
        self._session.check_lease()
        with self._session.lock:
            return self._loss().event

    @property
    def suspect(self) -> bool:
        """Whether this process holds the lock while ZooKeeper is out of reach."""
        hold = self._own() or self._newest()
        return hold is not None and hold.alive and self._session.suspect

    def guard(self, transaction: Any) -> Any:
        """Make a kazoo `TransactionRequest` commit only while this hold lives; return the transaction.

        Raises:
            LockLostError: the hold is already lost.
            RuntimeError: the caller has no hold that it may release.
            ValueError: the transaction's client has another chroot, so it can't see the lock's node.
        """
        return self._guard(transaction, self._must_hold)

    def _guard(self, transaction: Any, held: Callable[[], Hold]) -> Any:
        if transaction.client.chroot != self._client.chroot:
            raise ValueError(f"the transaction's client must have the lock's chroot: {self._client.chroot!r}")
        transaction.check(held().ticket.node, -1)  # exists, in any version
        return transaction

    def _describe(self, hold: Hold | None) -> str:  # noqa: ARG002
        """Return the part of the repr that describes the current hold."""
        return ""

    def __repr__(self) -> str:
        hold = self._newest()
        if hold is not None and not hold.alive:
            hold = None
        state = "unlocked" if hold is None else "locked"
        kind = kind_of(self)
        return f"<{state} {kind} object {self._describe(hold)}path={self._path!r} at {id(self):#x}>"
