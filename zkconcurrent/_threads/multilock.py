"""`MultiLock`: several locks as one; a thread holds all of them or none.

A `MultiLock` has no recipe. It acquires its locks in the order of their full paths, chroot and servers included, which
is the same in all processes, so its waits can't form a circle. To give locks back after a failure, it compares the
thread's holds with the holds from before the call. It keeps no list of what it has acquired, as an interrupt may strike
between the return of an `acquire` and the entry into the list. At the end it checks all holds once more, and so finds a
lock that was lost during the wait for the rest.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NoReturn, TypeAlias, TypeVar

from .._arguments.functions import check_callbacks
from .._engine.call import Call
from .._engine.call_group import Calls
from .._engine.holds import Hold
from .._engine.loss_signal import JointLoss
from .._errors import ZkConcurrentError
from .._protocol.blocking_rules import READ
from .._protocol.ticket import State
from .._runtime.identity import Task
from .._runtime.interrupts import insist
from .._runtime.public import Named
from .._runtime.stacks import in_generator
from .._runtime.wait_loops import Steps, ends_by_itself
from .base.callbacks import Callbacks
from .base.cancel import cancel_waits
from .base.contender import Contender
from .base.held import Held
from .base.lock_base import Acquirable, LockBase, core_of
from .base.lock_core import LockCore
from .base.primitive import OnLost, OnSuspect, kind_of
from .lock import Lock
from .rlock import RLock

T = TypeVar("T")
HoldDepths: TypeAlias = "list[tuple[LockCore, Hold, int]]"
"""Holds of locks, and the depth of each: what an acquire or a release changes."""

EndingHolds: TypeAlias = "list[tuple[LockCore, Hold, Call]]"
"""Holds that are being released, and the calls that wait until their nodes are gone."""


class MultiLock(Named, Acquirable[tuple[Held, ...]], Callbacks):
    """A lock that is held when all its locks are held.

    The locks may be of different kinds, clients and ZooKeeper services. A MultiLock is re-entrant if all its locks are.
    It takes no semaphores: a thread may hold several permits of one, so a release would not know which to give back.

    `hold()` gives its block the handles of all holds, in the order of `locks`.

    It has `lost`, `on_lost`, `suspect`, `on_suspect`, `remaining()`, `owner()` and `hold_count()`, each for all its
    locks together. It has no `fencing_token`, as each lock fences its own resource and the tokens of two services have
    no order. It has no `guard()` and no `waiters()`. Ask each of its `locks` for these, and give each its `hold_limit`.

    Invariant:
        All processes acquire the locks in one order, the order of their paths, so no two MultiLocks can wait for each
        other. An `acquire` that fails, is interrupted or finds a lock lost gives back all that it acquired.

    Cost:
        To acquire: the sum of its locks' costs, one lock after the other. To release: one write for each lock, all in
        one round trip.

    Args:
        locks: each a `Lock`, an `RLock`, a read or write lock, or a MultiLock, which stands for its locks.
        on_lost: called with the MultiLock, on a thread of its own, once for each acquire after which one of its
            locks is lost before all are released.
        on_suspect: called with the MultiLock, and the number of seconds that its holds are sure to last, on a thread of
            its own, each time `suspect` becomes True.

    Raises:
        TypeError: a lock is of another type, such as a semaphore; or a callback is not callable.
        ValueError: there is no lock, or one occurs twice (two have the same path, role and service); or their clients
            have handlers of different kinds.

    Source:
        Curator's `InterProcessMultiLock`, which acquires in the order given.
    """

    def __init__(
        self,
        locks: Iterable[Lock | RLock | MultiLock],
        *,
        on_lost: OnLost | None = None,
        on_suspect: OnSuspect | None = None,
    ) -> None:
        check_callbacks(on_lost=on_lost, on_suspect=on_suspect)
        flat: list[LockBase] = []
        for lock in listed(locks):
            flat += lock.locks if isinstance(lock, MultiLock) else [_checked(lock)]
        if not flat:
            raise ValueError("a MultiLock needs at least one lock")
        # All processes must agree on the order. The write lock of a pair comes first: a writer may also read.
        self._locks = tuple(sorted(flat, key=_order))
        for one, other in itertools.pairwise(self._locks):
            if _order(one) == _order(other):
                raise ValueError(f"{one.path!r} is in the MultiLock twice: it would wait for itself")
        self._cores = tuple(map(core_of, self._locks))
        if len({type(core.session.link.handler) for core in self._cores}) > 1:
            raise ValueError(
                "the clients of a MultiLock's locks must have the same kind of handler: one call waits for all"
            )
        self._on_lost, self._on_suspect = on_lost, on_suspect
        self._session = self._cores[0].session
        self._watch(core.session for core in self._cores)

    @property
    def locks(self) -> tuple[LockBase, ...]:
        """The locks, in the order in which this object acquires them."""
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
                has lost a hold before and has not acknowledged the loss by `release()`.
            ZkConcurrentError: a lock can't be acquired.
        """
        return self._acquire(blocking, timeout, False)

    def _acquire_for_block(self, blocking: bool = True, timeout: float | None = None) -> bool:
        # A program's subclass may define its own `acquire`.
        if getattr(self.acquire, "__func__", None) is not MultiLock.acquire:
            return super()._acquire_for_block(blocking, timeout)
        return self._acquire(blocking, -1 if timeout is None else timeout, not in_generator())

    def _acquire(self, blocking: bool, timeout: float, for_block: bool) -> bool:
        limit = self._deadline(blocking, timeout)
        before = levels(self._holds())
        calls = Calls(self._session, partial(restore, before))
        return self._await(calls, self._acquire_all(calls, before, blocking and timeout != 0, limit, for_block))

    def _acquire_all(
        self, calls: Calls, before: HoldDepths, wait: bool, deadline: float | None, for_block: bool
    ) -> Steps[bool]:
        try:
            for core in self._cores:
                if core.reenter_or_check():
                    continue
                call = calls.add(core.call())
                if wait:
                    calls.waits_for = self, core.queue_key
                # After the deadline, a free lock is still acquired.
                attempt = core.attempt(core.identity(), wait, deadline, for_block=for_block)
                if not (yield from core.acquire_steps(call, attempt)):
                    yield from _give_back(calls, before)
                    return False
            self._check_all(before)
        except GeneratorExit:
            raise
        except BaseException:
            ends_by_itself(calls)
            yield from _give_back(calls, before)
            raise
        return True

    def _lock_cores(self) -> Sequence[LockCore]:
        return self._cores

    def _handle(self) -> tuple[Held, ...]:
        return tuple(Held(core, hold, is_part=True) for core, hold in self._holds())

    def _holds(self) -> list[tuple[LockCore, Hold]]:
        """Return the caller's holds."""
        return [(core, hold) for core in self._cores if (hold := core.mine()) is not None]

    def _check_all(self, before: HoldDepths) -> None:
        """Refuse to go on if a lock was lost during the acquire; `before` has the caller's earlier holds."""
        holds = self._holds()
        if self._on_lost is not None:
            # The tickets are recorded before the last check, so that every later loss is reported.
            self._joint_loss().tickets = [hold.ticket for _, hold in holds]
        owed = {id(hold): depth for _, hold, depth in before}
        for core, hold in holds:
            # The caller need not release a level that this call has acquired: the call gives it back.
            core.check(hold, owed.get(id(hold), 0))

    def release(self) -> None:
        """Release the locks that the caller's last `acquire` has acquired, all at once.

        An error of one lock does not keep the call from releasing the others.

        Raises:
            LockLostError: a hold was lost. The call does nothing else to a lock whose hold is lost.
            RuntimeError: the caller does not hold one of its locks.
            RefusedError: a client is not allowed to delete its node; the library keeps trying.
            ClientError: the process was forked; the hold belongs to its parent.
        """
        calls = Calls(self._session)
        calls.settled = True
        return self._await(calls, self._released_all(calls, *self._begin_release()))

    def _begin_release(self) -> tuple[EndingHolds, list[Exception]]:
        """Release a level of each lock, without waiting; return the holds that are being released, and the errors."""
        holds: list[tuple[LockCore, Hold]] = []
        errors: list[Exception] = []
        for core in reversed(self._cores):
            try:
                holds.append((core, core.hold_to_release()))
            except (ZkConcurrentError, RuntimeError) as error:
                # Do not catch `Exception`: a signal handler may raise any error, which must leave this call.
                if not isinstance(error, ZkConcurrentError) and core.releasable() is not None:
                    raise  # as in `_give_up_each`
                errors.append(error)
        release = partial(give_up, levels(holds), errors)
        if self._on_lost is not None:
            release = partial(self._joint_loss().giving_up, [hold.ticket for _, hold in holds], release)
        return release(), errors

    def _released_all(self, calls: Calls, ending: EndingHolds, errors: list[Exception]) -> Steps[None]:
        """Wait until all nodes are gone; raise the first error, with the others as its notes."""
        # All deletes are sent already, so the order of the waits costs no time.
        waits = [core.released(calls.add(call), hold) for core, hold, call in ending]
        for each in waits:
            try:
                yield from each
            except ZkConcurrentError as error:
                errors.append(error)
        if errors:
            raise first_error(errors)

    def cancel_waits(self) -> int:
        """End the waits of all threads or tasks for this object: each gives back the locks that it has acquired.

        `cancel_waits()` of one of the locks also ends the waits for this object that have reached that lock. In all
        other respects see `Lock.cancel_waits`.

        Returns:
            How many waits it has ended.

        Raises:
            ClientError: the process was forked; the waits belong to its parent.
        """
        self._session.check_not_forked(self._locks[0].path)
        sessions = {id(core.session): core.session for core in self._cores}.values()
        return cancel_waits((call for session in sessions for call in session.calls), self)

    def _holding_tasks(self) -> Iterable[tuple[str, Task | None]]:
        return (each for core in self._cores for each in core.holding_tasks())

    def locked(self) -> bool:
        """Return whether every lock is held, by any process; asks the leader. Cost: up to 2 reads for each lock."""
        calls = Calls(self._session)

        def ask() -> Steps[bool]:
            for core in self._cores:
                if not (yield from calls.add(Call(core.session, core.path)).run(core.is_held())):
                    return False
            return True

        return self._await(calls, ask())

    # -- the extras ----------------------------------------------------------------------------------------------

    def _joint_loss(self) -> JointLoss:
        """Return the `JointLoss` of the current holds of all locks or, as each lock's `lost` does, of the next ones."""
        return JointLoss.of(self, [(core.session, core.loss()) for core in self._cores])

    @property
    def lost(self) -> threading.Event:
        """A `threading.Event` that is set once any of the current holds is lost. Each set of holds has its own event.

        Keep a reference to the MultiLock while you use the event.
        """
        return self._joint_loss().event

    @property
    def suspect(self) -> bool:
        """Whether all locks are held while the ZooKeeper service of one of them is out of reach."""
        return self._outlook_of([core.current() for core in self._cores])[0]

    def remaining(self) -> float:
        """Return how many seconds all locks are sure to stay held: the least of their own `remaining()`."""
        return self._outlook_of([core.current() for core in self._cores])[1]

    def _suspect_and_remaining(self) -> tuple[bool, float]:
        return self._outlook_of([core.newest() for core in self._cores])

    def _outlook_of(self, holds: Iterable[Hold | None]) -> tuple[bool, float]:
        parts = list(zip(self._cores, holds, strict=True))
        suspect = any(core.session.suspect for core in self._cores)
        held = all(hold is not None and hold.alive for _, hold in parts)
        return suspect and held, min(core.left(hold) for core, hold in parts)

    def hold_count(self) -> int:
        """Return how often the caller holds all locks: the least of their own counts. Sends nothing."""
        return min(lock.hold_count() for lock in self._locks)

    def owner(self) -> Contender | None:
        """Return the contender that holds all locks, as the first lock's node describes it; None if no single one does.

        The call recognizes a thread or task by `Contender.by`, as containers may have the same host and process id, and
        threads the same name. It recognizes a Curator client by its address and session. Cost: the sum of all locks'
        `owner`.
        """
        calls = Calls(self._session)

        def ask() -> Steps[Contender | None]:
            holders: list[list[Contender]] = []
            for core in self._cores:
                call = calls.add(Call(core.session, core.path))
                line = yield from call.run(core.contenders())
                holders.append(line[0] if line is not None else [])
            first, *others = holders
            parties = [set(map(_party, held)) for held in others]
            return next((each for each in first if all(_party(each) in held for held in parties)), None)

        return self._await(calls, ask())

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle this object by name, like its locks.

        Raises:
            TypeError: this object has a callback, or one of its locks can't be pickled.
        """
        for callback in ("on_lost", "on_suspect"):
            if getattr(self, f"_{callback}") is not None:
                raise TypeError(
                    f"cannot pickle {self!r}: it has {callback}, which is called in this process; make the object in "
                    "the other process, of its locks"
                )
        return type(self), (self._locks,)

    def __deepcopy__(self, memo: object = None) -> NoReturn:
        raise TypeError(f"cannot copy {self!r}: make another object, of the same locks")

    __copy__ = __deepcopy__

    def __repr__(self) -> str:
        held = all(hold is not None and hold.alive for hold in (core.newest() for core in self._cores))
        paths = [lock.path for lock in self._locks]
        return f"<{'locked' if held else 'unlocked'} {kind_of(self)} object paths={paths} at {id(self):#x}>"


def _checked(lock: object) -> LockBase:
    if not isinstance(lock, Lock | RLock):
        raise TypeError(
            "a MultiLock takes locks of zkconcurrent (of a ReadWriteLock, its read_lock or write_lock), not "
            f"{kind_of(lock)}"
        )
    return lock


def _order(lock: LockBase) -> tuple[object, ...]:
    core = core_of(lock)
    path, servers = core.session.link.location(core.path)
    return path, servers, core.rule is READ, core.rule.role


def listed(locks: Iterable[T]) -> list[T]:
    """Return the locks as a list.

    Raises:
        TypeError: it is not a collection of locks, but one lock or a client.
    """
    try:
        return list(locks)
    except TypeError:
        if hasattr(locks, "__iter__"):
            raise
        raise TypeError(f"a MultiLock takes a list of locks, such as [one, other], not {kind_of(locks)}") from None


def levels(holds: Iterable[tuple[LockCore, Hold]]) -> HoldDepths:
    """Return the current depth of each hold."""
    return [(core, hold, hold.depth) for core, hold in holds]


def restore(before: HoldDepths) -> None:
    """Undo re-entrant acquires."""
    for _, hold, depth in before:
        hold.depth = depth


def give_up(left: HoldDepths, errors: list[Exception]) -> EndingHolds:
    """Release a level of each hold, without waiting, and take the hold off the list; return the calls to wait for.

    Errors of signal handlers do not end this call, however many come: no later call could release the rest together.
    """
    calls: EndingHolds = []
    insist(lambda: _give_up_each(left, calls, errors))
    return calls


def _give_up_each(left: HoldDepths, calls: EndingHolds, errors: list[Exception]) -> None:
    """Release a level of each hold that is still at its recorded level."""
    while left:
        core, hold, depth = left[0]
        try:
            there = hold.ticket.state is not State.DISCARDED and core.path_state.has(hold)
            if there and hold.depth == depth and (call := core.begin_release(hold)) is not None:
                calls.append((core, hold, call))
        except ZkConcurrentError as error:
            # Do not catch `Exception`: a signal handler may raise any error, and `insist` must see it.
            errors.append(error)
        except RuntimeError as error:
            if hold.claimant in (None, core.identity()):
                # No other thread is releasing the hold, so the error comes from a signal handler, or from too deep a
                # recursion.
                raise
            errors.append(error)
        left.pop(0)


def first_error(errors: list[Exception]) -> BaseException:
    """Return the first of the errors, with the others as its notes."""
    first, *others = errors
    for error in others:
        note = f"also: {type(error).__name__}: {error}"
        if sys.version_info >= (3, 11):
            first.add_note(note)
        else:
            vars(first).setdefault("__notes__", []).append(note)
    return first


def _give_back(calls: Calls, before: HoldDepths) -> Steps[None]:
    """Undo all acquires, and wait until the nodes are gone."""
    restore(before)
    for call in reversed(calls.calls):
        yield from call.give_up()


def _party(contender: Contender) -> tuple[object, ...]:
    """Return the fields that identify a contender in every queue."""
    if contender.by is not None:
        return (contender.by,)
    who = contender.host, contender.pid, contender.thread
    return who if contender.pid is not None else (*who, contender.session)
