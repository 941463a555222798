"""`Condition`: `threading.Condition` for every process that opens the same path."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from ._engine.driver import Call
from ._engine.holds import Hold, lost_error
from ._engine.waiting import Steps
from ._errors import ZkConcurrentError
from ._kazoo.link import KazooClient
from ._lock import Lock
from ._primitive import Primitive, node_data, until
from ._recipes.condition import clear, notify, outwait, release_and_queue, withdraw
from ._recipes.operations import OutOfReach
from ._recipes.ticket import State
from ._rlock import RLock
from ._rwlock import ReadLock

T = TypeVar("T")


class Condition(Primitive):
    """A lock whose holder can give it up and wait until another holder, in any process, notifies it.

    Layout:
        `<path>/waiters/_c_<uuid>-waiter-<sequence>`, EPHEMERAL_SEQUENTIAL, one for each thread that waits, below
        containers. The lock, if none is given, is an `RLock` at `<path>/lock`.

    Invariant:
        The lock's node goes and the waiter's comes in one change, so that nobody who has the lock after it can miss
        the waiter. To notify is to delete the waiter's node: whoever did it was told so, and nobody else.

    Cost:
        To wait is one write and one read in two round trips, and after the notification one read and whatever it
        costs to acquire the lock. To notify is one read and a write for each waiter, in two round trips.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: where the waiters are; missing nodes are made as containers.
        lock: a `Lock`, `RLock` or write lock of the same client; several conditions may share it.

    Raises:
        TypeError: the lock is none of these.
        ValueError: the path is bad, or is another primitive of this client already; or the lock is another client's,
            or not the one that this client's other conditions of the path have.

    Source:
        `threading.Condition`.
    """

    _kind = "Condition"
    _part = "lock"

    def __init__(self, client: KazooClient, path: str, lock: Lock | RLock | None = None) -> None:
        if isinstance(lock, ReadLock):
            raise TypeError("a read lock can't be a condition's: many hold it together, so who changes nothing waits")
        if lock is not None and not isinstance(lock, Lock | RLock):
            raise TypeError(f"lock must be a zkconcurrent Lock, RLock or write lock, not {type(lock).__name__}")
        if lock is not None and lock.client is not client:
            raise ValueError(f"the lock {lock.path!r} is of another client than the condition {path!r}")
        super().__init__(client, path)
        self._waiters = f"{path}/waiters"
        mine = lock.path if lock is not None else f"{path}/{self._part}"
        with self._session.lock:
            theirs = self._path_state.lock = self._path_state.lock or mine
        if mine != theirs:
            raise ValueError(
                f"the condition {path!r} of this client has the lock {theirs!r}, and not {mine!r}: who notifies with "
                "the one would not exclude who waits with the other"
            )
        self._lock = lock or RLock(client, mine)

    # -- the lock's ----------------------------------------------------------------------------------------------

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, ZkConcurrentError) and self._lock._mine() is None:
            return  # a wait could not take the lock back, and says why
        self._lock.__exit__(kind, error, traceback)

    # -- waiting -------------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Give the lock up, with all its levels, until notified or the time is up; then take it again as it was.

        To take it again may take longer than the timeout, as in `threading`. Whatever is raised meanwhile, such as a
        KeyboardInterrupt, is raised once the lock is held again; only an error of the library leaves it released.

        Args:
            timeout: how long to wait, in seconds; None for ever.

        Returns:
            False if the time was up and nobody notified us; else True, which may also be a wake-up without a
            notification: when the session ended meanwhile, or when it can't be known.

        Raises:
            LockLostError: the lock was lost before it was given up.
            RuntimeError: the lock is not held, or this thread holds its read lock too.
            ClientError: the client can't be used here.
            ZkConcurrentError: the path can't be used, and the lock is held still; or the lock can't be taken again.
        """
        session = self._session
        hold = self._held("wait on")
        self._lock._check_may_wait()
        deadline = until(session, timeout)
        call = Call(session, self._waiters, self._lock._path_state)
        try:
            try:
                notified = call.wait(self._outwait(call, hold, deadline, session.identity()))
            except BaseException as error:
                self._reacquire(hold, call, error)
                raise
            self._reacquire(hold, call)
        except BaseException as error:
            self._reacquire(hold, call, error)  # also if what was raised struck in there
            raise
        return notified

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Wait until the predicate is true, or the time is up; return what it last returned."""
        now = self._session.now
        deadline = None if timeout is None else now() + timeout
        while not (result := predicate()):
            left = None if deadline is None else deadline - now()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def _outwait(self, call: Call, hold: Hold, deadline: float | None, owner: int) -> Steps[bool]:
        """Give up the hold and wait; return whether we were notified, or may have been."""
        place = self._lock._path_state
        if not place.claim(hold, owner):
            raise RuntimeError("cannot wait on un-acquired lock")  # released by another thread, just now
        place.drop(hold)
        # Without the deadline: this must be done, and known, before anybody goes on.
        ticket = yield from call.run(release_and_queue(hold.ticket, self._waiters, node_data(owner)))
        call.settled = True
        if ticket is not None:
            if (yield from call.run(outwait(ticket), deadline)):
                return True
            return bool((yield from call.run(withdraw(ticket))))
        if hold.ticket.state is State.LOST:
            raise lost_error(hold)
        return True

    def _reacquire(self, hold: Hold, call: Call, struck: BaseException | None = None) -> None:
        """Have the lock again as it was before it was claimed, whatever strikes, and no node of a waiter.

        What strikes waits until the lock is had again, as in `threading`; but not for a service that is out of reach:
        then the hold is a loss.

        Raises:
            ZkConcurrentError: it can't be had.
        """
        lock, session = self._lock, self._session
        if hold.claimant != session.identity():
            return  # never claimed, or put back already
        call.abandon()
        if hold.alive or hold.ticket.state is State.LOST:  # it was not given up
            lock._path_state.put_back(hold)
            return
        session.discard(hold.ticket)
        struck_here: BaseException | None = None
        while True:
            fragile = call.fragile = not isinstance(struck_here or struck or Exception(), Exception)
            try:
                if lock._mine() is None:
                    lock._acquire_hold(True, -1, hold.depth, fragile=fragile)
                for ticket in call.tickets:
                    if not session.is_discarded(ticket):
                        call.wait(call.run(clear(ticket)))
                break
            except ZkConcurrentError:
                raise
            except OutOfReach:
                if lock._mine() is None:
                    hold.ticket.state = State.LOST
                    lock._path_state.put_back(hold)
                break
            except BaseException as error:
                struck_here = error
        if struck_here is not None:
            try:
                raise struck_here
            finally:
                del struck_here, struck  # else the traceback and this frame keep each other alive, and so the lock

    # -- notifying -----------------------------------------------------------------------------------------------

    def notify(self, n: int = 1) -> None:
        """Wake the `n` threads, of all processes, that have waited longest; fewer if fewer wait.

        Returns when the server has answered each. Where an answer is lost for good, one more may be woken, never one
        fewer.

        Raises:
            TypeError: n is no int.
            LockLostError: the lock was lost.
            RuntimeError: the lock is not held.
            ClientError: the client can't be used here.
        """
        n = operator.index(n)
        self._held("notify on")
        self._notify(n)

    def notify_all(self) -> None:
        """Wake all who wait; raises as `notify`."""
        self._held("notify on")
        self._notify(None)

    def notifyAll(self) -> None:  # noqa: N802 - as threading has it
        """Wake all who wait: the old name of `notify_all`."""
        warnings.warn("notifyAll() is deprecated, use notify_all() instead", DeprecationWarning, stacklevel=2)
        self.notify_all()

    def _notify(self, n: int | None) -> None:
        call = Call(self._session, self._waiters)
        call.wait(call.run(notify(self._waiters, n)))

    def _held(self, wanted: str) -> Hold:
        """Return the hold that this thread may wait and notify with."""
        self._session.check_not_forked(self._path)
        hold = self._lock._own()
        if hold is None:
            raise RuntimeError(f"cannot {wanted} un-acquired lock")
        self._lock._check(hold)
        return hold

    def __repr__(self) -> str:
        waiting = sum(ticket.path == self._waiters for ticket in list(self._session.registry.tickets.values()))
        name = f"zkconcurrent.{type(self).__name__}"
        return f"<{name}({self._lock!r}, {waiting}) object path={self._path!r} at {id(self):#x}>"
