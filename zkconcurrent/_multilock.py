"""`MultiLock`: several locks as one; a thread holds all of them or none."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from ._cancel import Wait, Waits, cancel_all
from ._engine.calls import Calls
from ._engine.driver import Call
from ._engine.holds import Hold, JointLoss, Loss
from ._engine.waiting import Steps
from ._lock import Lock
from ._lock_base import Acquirable, Contender, LockBase
from ._primitive import check_on_lost
from ._recipes.rules import READ
from ._rlock import RLock

_Level: TypeAlias = "tuple[Hold | None, int]"
_GivenUp: TypeAlias = "tuple[LockBase, Hold, Call]"


class MultiLock(Acquirable):
    """A lock that is held when all its locks are.

    The locks may be of different kinds, clients and ZooKeeper services. A MultiLock is re-entrant if all its locks are.
    It takes no semaphores: a thread may hold several permits of one, so a release could not tell which to give back.

    It has `lost`, `on_lost`, `suspect`, `owner()` and `hold_count()`, each for all its locks together. It has no
    `fencing_token`, as each lock fences its own resource and the tokens of two services have no order; and no `guard()`
    or `waiters()`. Ask each of its `locks` for these.

    Invariant:
        All processes acquire the locks in one order, that of their paths, so no two MultiLocks can wait for each other.
        An `acquire` that fails, is interrupted or finds a lock lost gives back all that it acquired.

    Cost:
        To acquire: the sum of its locks' costs, one lock after the other. To release: one write for each lock, all in
        one round trip.

    Args:
        locks: each a `Lock`, an `RLock`, a read or write lock, or a MultiLock, which stands for its locks.
        on_lost: called with the MultiLock, on a thread of its own, once for each time that it was acquired and one of
            its locks was lost before all were released.

    Raises:
        TypeError: a lock is of another type, such as a semaphore; or `on_lost` is not callable.
        ValueError: there is no lock, or one occurs twice: two have the same path, role and service; or their clients
            have handlers of several kinds.

    Source:
        Curator's `InterProcessMultiLock`, which acquires in the order given.
    """

    def __init__(
        self,
        locks: Iterable[Lock | RLock | MultiLock],
        *,
        on_lost: Callable[[Any], object] | None = None,
    ) -> None:
        check_on_lost(on_lost)
        self._on_lost = on_lost
        flat: list[LockBase] = []
        for lock in locks:
            if isinstance(lock, MultiLock):
                flat += lock.locks
            elif isinstance(lock, Lock | RLock):
                flat.append(lock)
            else:
                raise TypeError(
                    f"a MultiLock takes locks of zkconcurrent (of a pair, one of its two), not {type(lock).__name__}"
                )
        if not flat:
            raise ValueError("a MultiLock needs at least one lock")
        # All processes must agree on the order. The write lock of a pair comes first: a writer may also read.
        ordered = sorted(flat, key=_order)
        for one, other in itertools.pairwise(ordered):
            if _order(one) == _order(other):
                raise ValueError(f"{one.path!r} is in the MultiLock twice: it would wait for itself")
        if len({type(lock._session.link.handler) for lock in ordered}) > 1:
            raise ValueError("the clients of a MultiLock's locks must have handlers of one kind: it waits in one way")
        self._locks = tuple(ordered)
        self._session = ordered[0]._session
        self._waits: Waits = WeakValueDictionary()

    @property
    def locks(self) -> tuple[LockBase, ...]:
        """The locks, in the order in which they are acquired."""
        return self._locks

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire all locks, or none.

        Args:
            blocking: whether to wait. If False, the call makes one attempt for each lock.
            timeout: how long to wait for all locks together, in seconds; -1 waits forever, 0 makes one attempt for
                each.

        Returns:
            Whether all locks were acquired. If False, the attempt leaves no node behind.

        Raises:
            ValueError: a timeout with `blocking=False`, or a negative one other than -1.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            LockLostError: one lock was lost before all were acquired, and the call gave back the others; or this thread
                has lost a hold before and has not acknowledged it by `release()`.
            ZkConcurrentError: a lock can't be acquired.
        """
        limit = self._deadline(blocking, timeout)
        before = [_level(lock._mine()) for lock in self._locks]
        calls = Calls(self._session, partial(_restore, before))
        if not blocking or timeout == 0:
            return self._await(calls, self._acquire_all(calls, before, None, limit))
        wait = Wait(self._locks[0].path, calls.calls)
        return self._await(calls, wait.run(self._acquire_all(calls, before, wait, limit), self._waits))

    def _acquire_all(
        self, calls: Calls, before: list[_Level], wait: Wait | None, deadline: float | None
    ) -> Steps[bool]:
        try:
            for lock in self._locks:
                if lock._acquire_again():
                    continue
                call = calls.add(Call(lock._session, lock.path, lock._path_state))
                steps = lock._acquire_steps(call, wait is not None, deadline, lock._identity(), 1)
                if wait is not None:
                    wait.path = lock.path
                    steps = wait.enlist(steps, lock._waits)
                # After the deadline, a free lock is still acquired.
                if not (yield from steps):
                    yield from _give_back(calls, before)
                    return False
            self._check_all()
        except GeneratorExit:
            raise
        except BaseException:
            yield from _give_back(calls, before)
            raise
        return True

    def _check_all(self) -> None:
        """Refuse to go on if a lock was lost during the acquire."""
        holds = [(lock, hold) for lock in self._locks if (hold := lock._mine()) is not None]
        if self._on_lost is not None:
            # Before the last check: every later loss is reported.
            self._joint_loss().tickets = [hold.ticket for _, hold in holds]
        for lock, hold in holds:
            lock._check(hold)

    def release(self) -> None:
        """Release all locks, the last one first. An error of one lock does not keep the call from releasing the others.

        Raises:
            LockLostError: a hold was lost; the call touches nothing else of that lock.
            RuntimeError: a lock is not held.
        """
        calls = Calls(self._session)
        return self._await(calls, self._released_all(calls, *self._begin_release()))

    def _begin_release(self) -> tuple[list[_GivenUp], list[BaseException]]:
        """Release a level of each lock, without waiting; return the calls that wait for it, and the errors."""
        levels = [(lock, _level(lock._own())) for lock in reversed(self._locks)]
        calls: list[_GivenUp] = []
        errors: list[BaseException] = []
        try:
            self._release_each(levels, calls, errors)
        finally:
            self._release_each(levels, calls, errors)  # the locks that an interrupt has left unreleased
        return calls, errors

    def _release_each(
        self, levels: list[tuple[LockBase, _Level]], calls: list[_GivenUp], errors: list[BaseException]
    ) -> None:
        """Release a level of each lock that is still at the recorded level."""
        while levels:
            lock, level = levels[0]
            try:
                hold = lock._hold_to_release() if level[0] is None else lock._own()
                if hold is not None and _level(hold) == level and (call := lock._begin_release(hold)) is not None:
                    calls.append((lock, hold, call))
            except Exception as error:
                errors.append(error)
            levels.pop(0)

    def _released_all(self, calls: Calls, given_up: list[_GivenUp], errors: list[BaseException]) -> Steps[None]:
        """Wait until all nodes are gone; raise the first error, with the others as its notes."""
        for lock, hold, call in given_up:
            try:
                yield from lock._released(calls.add(call), hold)
            except GeneratorExit:
                raise
            except BaseException as error:
                errors.append(error)
        if errors:
            raise first_error(errors)

    def cancel_waits(self) -> int:
        """End the waits for this object of all its threads or tasks: each gives back what it has acquired of the locks.

        The `cancel_waits()` of one of its locks ends those that wait for that lock. In all else as `Lock.cancel_waits`.

        Returns:
            How many waits it has ended.

        Raises:
            ClientError: the process was forked; the waits are its parent's.
        """
        self._session.check_not_forked(self._locks[0].path)
        return cancel_all(self._waits)

    def _holding_tasks(self) -> Iterable[tuple[str, Any]]:
        return (each for lock in self._locks for each in lock._holding_tasks())

    def locked(self) -> bool:
        """Return whether every lock is held, by any process; asks the leader. Cost: up to 2 reads for each lock."""
        calls = Calls(self._session)

        def ask() -> Steps[bool]:
            for lock in self._locks:
                if not (yield from calls.add(Call(lock._session, lock.path)).run(lock._is_held())):
                    return False
            return True

        return self._await(calls, ask())

    # -- the extras ----------------------------------------------------------------------------------------------

    def _joint_loss(self) -> JointLoss:
        """Return the `JointLoss` of the current holds of all locks, or of the next ones; as each lock's `lost`."""
        losses: list[Loss] = []
        for lock in self._locks:
            with lock._session.lock:
                losses.append(lock._loss())
        session = self._session
        joint: JointLoss
        with session.lock:
            for joint in losses[0].listeners:
                if joint.holder() is self and joint.is_of(losses):
                    return joint
        joint = JointLoss(self, losses, session.link.handler.event_object())
        for lock, loss in zip(self._locks, losses, strict=True):
            with lock._session.lock:
                told = loss.add(joint)
            if told:
                joint.tell()
        return joint

    @property
    def lost(self) -> threading.Event:
        """A `threading.Event` that is set when the first of the current holds is lost. Each set of holds has its own.

        Keep a reference to the MultiLock while you use the event.
        """
        return self._joint_loss().event

    @property
    def suspect(self) -> bool:
        """Whether all locks are held while the ZooKeeper service of one of them is out of reach."""
        holds = [lock._own() or lock._newest() for lock in self._locks]
        held = all(hold is not None and hold.alive for hold in holds)
        return held and any(lock._session.suspect for lock in self._locks)

    def hold_count(self) -> int:
        """Return how often the caller holds all locks: the least of their own counts. Sends nothing."""
        return min(lock.hold_count() for lock in self._locks)

    def owner(self) -> Contender | None:
        """Return the contender that holds all locks, as the first lock's node describes it; None if no single one does.

        The call recognizes a contender by its host, process and thread; a Curator client by its address and session.
        Cost: the sum of all locks' `owner`.
        """
        calls = Calls(self._session)

        def ask() -> Steps[Contender | None]:
            holders: list[list[Contender]] = []
            for lock in self._locks:
                call = calls.add(Call(lock._session, lock.path))
                line = yield from call.run(lock._contenders())
                holders.append(line[0] if line is not None else [])
            first, *others = holders
            parties = [set(map(_party, held)) for held in others]
            return next((each for each in first if all(_party(each) in held for held in parties)), None)

        return self._await(calls, ask())

    def __reduce__(self) -> Any:
        return reduce_several(self, self._locks, self._on_lost)

    def __deepcopy__(self, memo: object = None) -> Any:
        raise TypeError(f"cannot copy {self!r}: make another object, of the same locks")

    __copy__ = __deepcopy__

    def __repr__(self) -> str:
        newest = [lock._newest() for lock in self._locks]
        state = "locked" if all(hold is not None and hold.alive for hold in newest) else "unlocked"
        paths = [lock.path for lock in self._locks]
        return f"<{state} zkconcurrent.{type(self).__name__} object paths={paths} at {id(self):#x}>"


def reduce_several(several: Acquirable, locks: Sequence[LockBase], on_lost: object, **options: Any) -> Any:
    """Return what pickles an object of several locks: its class, and the locks, by name.

    Raises:
        TypeError: it has `on_lost`. A lock raises it if it can't be pickled.
    """
    if on_lost is not None:
        raise TypeError(
            f"cannot pickle {several!r}: it has on_lost, which is called in this process; make the object in the other "
            "process, of its locks"
        )
    kind: Any = type(several)
    return partial(kind, locks, **options), ()


def _order(lock: LockBase) -> tuple[Any, ...]:
    return (*lock._session.link.location(lock.path), lock._rule is READ, lock._rule.role)


def _level(hold: Hold | None) -> _Level:
    """Return the part of a hold that an acquire or a release changes."""
    return hold, 0 if hold is None else hold.depth


def _restore(levels: list[_Level]) -> None:
    """Undo re-entrant acquires."""
    for hold, depth in levels:
        if hold is not None:
            hold.depth = depth


def _give_back(calls: Calls, levels: list[_Level]) -> Steps[None]:
    """Undo all acquires, and wait until the nodes are gone."""
    _restore(levels)
    for call in reversed(calls.calls):
        yield from call.give_up()


def _party(contender: Contender) -> tuple[object, ...]:
    """Return the fields that identify a contender in every queue."""
    who = contender.host, contender.pid, contender.thread
    return who if contender.pid is not None else (*who, contender.session)


def first_error(errors: list[BaseException]) -> BaseException:
    """Return the error to raise, an interrupt if there is one, else the first; the others become its notes."""
    first = next((error for error in errors if not isinstance(error, Exception)), errors[0])
    for error in errors:
        if error is not first:
            _note(first, f"also: {type(error).__name__}: {error}")
    return first


def _note(error: BaseException, text: str) -> None:
    """Add a note to an error, also on Python 3.10."""
    if hasattr(error, "add_note"):
        error.add_note(text)
    else:
        error.__notes__ = [*getattr(error, "__notes__", []), text]
