"""`Condition`: `threading.Condition` for every process that opens the same path."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from ._engine.calls import Calls
from ._engine.driver import Call
from ._engine.holds import Hold, lost_error
from ._engine.waiting import Steps
from ._errors import ZkConcurrentError
from ._kazoo.link import KazooClient
from ._lock import Lock
from ._primitive import Primitive, node_data, nothing
from ._recipes.condition import clear, notify, outwait, pass_on, release_and_queue, withdraw
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
        hold, call, steps = self._begin_wait(timeout)
        try:
            try:
                notified = self._await(call, steps)
            except BaseException as error:
                self._take_back(hold, call, error)
                raise
            self._take_back(hold, call)
        except BaseException as error:
            self._take_back(hold, call, error)  # also if what was raised struck in there
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

    def _begin_wait(self, timeout: float | None) -> tuple[Hold, Call, Steps[bool]]:
        """Return the hold that is to be given up, and what gives it up and waits."""
        hold = self._held("wait on")
        self._lock._check_may_wait()
        call = Call(self._session, self._waiters, self._lock._path_state)
        return hold, call, self._outwait(call, hold, self._until(timeout), self._identity())

    def _outwait(self, call: Call, hold: Hold, deadline: float | None, owner: int) -> Steps[bool]:
        """Give up the hold and wait; return whether we were notified, or may have been."""
        path_state = self._lock._path_state
        if not path_state.claim(hold, owner):
            raise RuntimeError("cannot wait on un-acquired lock")  # released by another thread, just now
        path_state.drop(hold)
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

    def _take_back(self, hold: Hold, waited: Call, struck: BaseException | None = None) -> None:
        """Have the lock again as it was before it was given up, whatever strikes, and no node of a waiter."""
        if self._is_given_up(hold, waited):
            calls = Calls()
            return self._await(calls, self._reacquire(calls, hold, waited, struck))
        return None

    def _is_given_up(self, hold: Hold, waited: Call) -> bool:
        """End the wait; return whether the hold is to be taken back, and not there still, or again."""
        if hold.claimant != self._identity():
            return False  # never claimed, or put back already
        waited.abandon()
        if hold.alive or hold.ticket.state is State.LOST:  # it was not given up
            self._lock._path_state.put_back(hold)
            return False
        self._session.discard(hold.ticket)
        return True

    def _reacquire(self, calls: Calls, hold: Hold, waited: Call, struck: BaseException | None) -> Steps[None]:
        """Acquire the lock as it was; what strikes meanwhile is raised once that is done, as in `threading`.

        It does not wait, though, for a service that is out of reach: then the hold is a loss.

        Raises:
            ZkConcurrentError: the lock can't be had.
        """
        lock, owner = self._lock, self._identity()
        late: BaseException | None = None
        while True:
            fragile = not isinstance(late or struck or Exception(), Exception)
            call = calls.add(Call(self._session, lock.path, lock._path_state, fragile=fragile))
            try:
                if lock._mine() is None:
                    yield from lock._acquire_steps(call, True, None, owner, hold.depth)
                for ticket in waited.tickets:
                    if not self._session.is_discarded(ticket):
                        yield from call.run(clear(ticket))
                break
            except (GeneratorExit, ZkConcurrentError):
                raise
            except OutOfReach:
                if lock._mine() is None:
                    hold.ticket.state = State.LOST
                    lock._path_state.put_back(hold)
                break
            except BaseException as error:
                call.abandon()
                late = error
        if late is not None:
            try:
                raise late
            finally:
                del late, struck  # else the traceback and this frame keep each other alive, and so the lock

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
        return self._notify(n)

    def notify_all(self) -> None:
        """Wake all who wait; raises as `notify`."""
        self._held("notify on")
        return self._notify(None)

    def notifyAll(self) -> None:  # noqa: N802 - as threading has it
        """Wake all who wait: the old name of `notify_all`."""
        warnings.warn("notifyAll() is deprecated, use notify_all() instead", DeprecationWarning, stacklevel=2)
        self.notify_all()

    def _notify(self, n: int | None) -> None:
        return self._run(notify(self._waiters, n), nothing)

    def _pass_on(self) -> None:
        """Notify another waiter in the place of one that was, or may have been, notified, and did not return."""
        return self._run(pass_on(self._waiters), nothing)

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
