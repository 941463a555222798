"""`QuorumLock`: a majority of several locks as one lock, which does not depend on any single service.

A `QuorumLock` has no recipe. Each of its locks makes one attempt, with the recipe of `acquire(blocking=False)`,
and `together` (`_threads/base/side_by_side.py`) runs the steps of all attempts side by side in one call. All of them
share the call's wake-up: whichever reply wakes it, each attempt looks for its own. An attempt is left where it is once
the others have decided, and its `Call` is abandoned, as that of an interrupted thread. The hold is a record of the
object, with the hold of each lock that was acquired; so a release knows what to give back, and a lock that the thread
holds besides is not touched. The record counts the losses that its locks report. The hold is lost with the loss that
leaves no quorum.
"""

from __future__ import annotations

import math
import operator
import random
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence

from .._engine.calls import Calls
from .._engine.driver import Call
from .._engine.loss import Loss, listen
from .._errors import ClientError, LockLostError
from .._protocol.ticket import State
from .._runtime.identity import Task, ended, name, owns_nothing
from .._runtime.interrupts import check_not_interrupted
from .._runtime.waiting import Steps, ends_by_itself
from .base.lock_core import LockCore
from .base.primitive import OnLost, OnSuspect
from .base.side_by_side import Branch, together
from .joint_lock import BegunRelease, CompositeLock, HoldDepths, first_error, give_up, levels, listed, restore
from .lock import Lock
from .quorum_hold import AllSessions, QuorumHold, QuorumLosses
from .rlock import RLock

# Once a quorum is acquired, an acquire waits at least this long for the other locks.
GRACE = 0.05  # seconds
# The pause after the first failed try is at most this long; each further try doubles the limit.
FIRST_PAUSE = 0.05  # seconds
LONGEST_PAUSE = 1.0  # seconds
# The limit may grow to this many times the slowest try: with shorter pauses, most tries would collide.
SLOW_TRIES = 2


class QuorumLock(CompositeLock):
    """A lock that is held while more than half of its locks are held; each lock should be in another ZooKeeper service.

    It can be acquired, and stays held, while a minority of the services is down. Two contenders never hold it at once:
    any two quorums have a lock in common, and that lock has one holder.

    It belongs to the thread that acquired it. It is re-entrant if its locks are. It has `lost`, `on_lost`, `suspect`,
    `on_suspect`, `remaining()` and `hold_count()`, each for the quorum. It has no `fencing_token`, as the zxids of two
    services have no order; and no `guard()`, `owner()` or `waiters()`. Ask each of its `locks` for these; and give them
    the `hold_limit`.

    Layout:
        That of its locks.

    Invariant:
        An `acquire` tries all locks at once and keeps all that it gets. If these are too few, it gives all of them
        back, and tries again after a random time. So no two contenders can wait for each other, and there is no order
        of arrival. A release gives back the locks that this object has acquired, and no other lock that the thread
        holds.

    Cost:
        An attempt takes 2 round trips of the slowest of the `quorum` fastest services: a listing and a `sync`, and, if
        the lock is free, one write and one listing. A waiting `acquire` makes an attempt every 0.5 s on average. The
        first pause is at most 50 ms. Each later one may be twice as long as the last, up to 1 s, or to twice the time
        of an attempt if that is more. To release: one write for each lock, in one round trip.

    Args:
        locks: each a `Lock`, an `RLock`, or a read or write lock. All contenders must name the same locks.
        quorum: how many locks must be held; more than half, which is the default.
        on_lost: called with the QuorumLock, on a thread of its own, once for each time that it was acquired and then
            lost so many of its locks that no quorum was left.
        on_suspect: called with the QuorumLock, and for how many seconds it surely lasts, on a thread of its own, each
            time that `suspect` becomes True.

    Raises:
        TypeError: a lock is of another type, or a callback is not callable, or `quorum` is not an integer.
        ValueError: there is no lock; `quorum` is not more than half of the locks, or is more than there are; two locks
            have the same path and service; or their clients have handlers of different kinds.

    Source:
        Redlock's idea, on locks that notice their loss.
    """

    _kind = "QuorumLock"

    def __init__(
        self,
        locks: Iterable[Lock | RLock],
        *,
        quorum: int | None = None,
        on_lost: OnLost | None = None,
        on_suspect: OnSuspect | None = None,
    ) -> None:
        super().__init__([self._checked(lock) for lock in listed(locks, self._kind)], on_lost, on_suspect)
        places = set()
        for core in self._cores:
            place = tuple(core.session.link.location(core.path))
            if place in places:
                raise ValueError(f"{core.path!r} is in the QuorumLock twice: it would count twice")
            places.add(place)
        most = len(self._locks)
        least = most // 2 + 1
        self._quorum = least if quorum is None else operator.index(quorum)
        if not least <= self._quorum <= most:
            raise ValueError(f"a quorum of {most} locks is {least} to {most} of them, not {quorum!r}")
        self._identity = self._caller or self._session.identity
        self._all = AllSessions(self._cores)
        self._held: dict[int, tuple[QuorumHold, ...]] = {}  # by owner, the newest last
        self._acquiring: set[int] = set()
        self._next = Loss(self._session.link.user_event)

    @property
    def quorum(self) -> int:
        """How many of the locks must be held."""
        return self._quorum

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire a quorum of the locks, or none.

        Once the call has a quorum, it waits for the other locks as long again as the quorum took, and for at least 50
        ms. After that, it waits no longer for a service that does not reply.

        Args:
            blocking: whether to wait. If False, the call tries all locks once.
            timeout: how long to wait, in seconds; -1 waits forever, 0 makes one attempt. The first attempt may take
                longer: up to a third of the session timeout, if services that do not reply leave the outcome open.

        Returns:
            Whether a quorum was acquired. If False, the call has given back all locks. If a service does not reply, the
            library deletes the node there when the service is back, unless the node has gone with its session.

        Raises:
            ValueError: a timeout with `blocking=False`, or a negative one other than -1.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            LockLostError: this thread has lost a hold before and has not acknowledged the loss by `release()`.
            DeadlockError: there is no timeout, and the caller holds so many of the locks through other clients that the
                others are no quorum.
            ZkConcurrentError: errors of the locks leave no quorum; this is the first error, with the others as its
                notes.
        """
        limit = self._deadline(blocking, timeout)
        owner = self._identity()
        held = self._mine()
        if held is not None and self._is_lost(held):
            raise held.error(len(self._held.get(owner, ())))
        wait = blocking and timeout != 0
        if wait and owner in self._acquiring:
            raise ClientError(
                self._locks[0].path,
                "this thread was interrupted in an acquire() of this QuorumLock, and continues only when the calling "
                "signal handler or finalizer returns: do not wait there (blocking=False), or use another thread",
            )
        before = self._held.get(owner, ())
        there: HoldDepths = []
        calls = Calls(self._session, lambda: self._undo(owner, before, there, wait))
        steps = self._acquire(calls, owner, wait, limit, there)
        if wait:
            steps = self._acquire_later(calls, owner, limit, steps)
            calls.waits_for = (self,)
        return self._await(calls, steps)

    def _acquire_later(self, calls: Calls, owner: int, deadline: float | None, steps: Steps[bool]) -> Steps[bool]:
        # The acquire sleeps in a call of its own, the first of all: the calls of a try end before the next try.
        sleeper = calls.add(Call(self._session, self._locks[0].path))
        self._acquiring.add(owner)
        sleeper.long_wait = _WaitedFor(self._cores), owner, self._session.now(), deadline
        try:
            acquired = yield from steps
        finally:
            self._acquiring.discard(owner)
        self._cores[0].note_wait_over(sleeper, acquired)
        return acquired

    def _undo(self, owner: int, before: tuple[QuorumHold, ...], there: HoldDepths, waits: bool) -> None:
        """Undo an abandoned acquire, except for what its calls undo themselves."""
        restore(there)
        if waits:
            self._acquiring.discard(owner)
        for quorum in self._held.get(owner, ()):
            if quorum not in before:
                self._forget(quorum)

    def _acquire(self, calls: Calls, owner: int, wait: bool, deadline: float | None, there: HoldDepths) -> Steps[bool]:
        session, longest, until, slowest = self._session, FIRST_PAUSE, math.inf, 0.0
        forever = wait and deadline is None
        while True:
            began = session.now()
            if (yield from self._try_all(calls, owner, until, there, forever)):
                return True
            # A try that took longer than this has met an outage, not a slow link.
            patience = session.reply_patience
            slowest = max(slowest, min(session.now() - began, patience))
            until = math.inf if deadline is None else deadline
            if not wait:
                return False
            if calls.deserted is None:
                self._check_not_interrupted()
            # Contenders that collided must try again at different times.
            again = session.now() + random.uniform(0, longest)
            longest = min(longest * 2, max(LONGEST_PAUSE, SLOW_TRIES * slowest))
            while (left := min(again, until) - session.now()) > 0:
                yield left
            if session.now() >= until:
                return False

    def _check_not_interrupted(self) -> None:
        """Refuse to wait in a signal handler that has interrupted calls of so many locks that the others are no quorum.

        Raises:
            ClientError: the thread was interrupted in these calls.
        """
        left = len(self._locks)
        for core in self._cores:
            try:
                check_not_interrupted(core.call())
            except ClientError:
                left -= 1
                if left < self._quorum:
                    raise

    def _try_all(self, calls: Calls, owner: int, until: float, there: HoldDepths, forever: bool) -> Steps[bool]:
        """Try all locks at once. If the acquired locks are a quorum, keep them; otherwise give them back."""
        there.clear()
        quorum = QuorumHold(owner)
        tries = [_Try(core, calls, quorum, forever, there) for core in self._cores]
        try:
            yield from together(tries, self._session.now, self._ending(tries, until))
            for each in tries:
                if not each.done:
                    each.call.abandon()
                    calls.calls.remove(each.call)
            # The first lock may have been granted long before the last.
            self._all.check_lease()
            if quorum.alive >= self._quorum:
                self._take(quorum)
                return True
            yield from self._give_back(calls, there, tries)
        except GeneratorExit:
            raise
        except BaseException:
            ends_by_itself(calls)
            yield from self._give_back(calls, there, tries)
            raise
        errors: list[BaseException] = [each.error for each in tries if each.error is not None]
        if len(errors) > len(tries) - self._quorum:
            raise first_error(errors)
        return False

    def _ending(self, tries: Sequence[_Try], until: float) -> Callable[[], float]:
        """Return a function that returns the time at which to stop waiting for the tries that have not ended."""
        began, enough = self._session.now(), [until]

        def ends() -> float:
            got = sum(each.done and each.result is True for each in tries)
            failed = sum(each.done for each in tries) - got
            if failed > len(tries) - self._quorum:
                return -math.inf
            if got >= self._quorum and len(enough) == 1:
                now = self._session.now()
                enough.append(now + max(GRACE, now - began))
            return enough[-1]

        return ends

    def _give_back(self, calls: Calls, there: HoldDepths, tries: Sequence[_Try]) -> Steps[None]:
        """Undo all tries at once, and wait until the nodes are gone."""
        restore(there)
        there.clear()
        mine = [each.call for each in tries if each.call in calls.calls]
        yield from together([Branch(call.give_up()) for call in mine], self._session.now)
        for call in mine:
            calls.calls.remove(call)

    def _take(self, quorum: QuorumHold) -> None:
        """Make the quorum a hold of its owner."""
        left = [each for those in list(self._held.values()) for each in those if ended(each.owner)]
        lost = [each for each in left if self._is_lost(each)]
        with self._all.lock:
            for each in lost:
                self._forget(each)
            quorum.losses = QuorumLosses(self, self._quorum, quorum, self._next, self._all)
            self._next = Loss(self._session.link.user_event)
            self._held[quorum.owner] = (*self._all_mine(), quorum)
        # A loss that has come already counts, too.
        listen(quorum.losses, ((core.session, hold.loss) for core, hold in quorum.parts))

    def _forget(self, quorum: QuorumHold) -> None:
        quorum.losses.over = True
        left = tuple(each for each in self._held.get(quorum.owner, ()) if each is not quorum)
        if left:
            self._held[quorum.owner] = left
        else:
            self._held.pop(quorum.owner, None)

    def _begin_release(self) -> BegunRelease:
        self._session.check_not_forked(self._locks[0].path)
        exiting = self._session.exiting
        quorum = self._mine() or (self._newest() if exiting else None)
        if quorum is None:
            others = [name(owner) for owner, held in list(self._held.items()) if held and not ended(owner)]
            why = f" (by this thread or task; {others[-1]!r} has acquired it)" if others else ""
            raise RuntimeError(f"cannot release un-acquired lock{why}: {self!r}")
        if exiting:
            return [], [], 0  # as in `LockCore.begin_release`
        owed = len(self._held.get(quorum.owner, ())) - 1
        errors: list[BaseException] = [quorum.error(owed)] if self._is_lost(quorum) else []
        spare = quorum.alive - self._quorum
        left = levels(reversed(quorum.parts))
        # R1: from the first delete on, another thread may tell of a loss at any moment.
        ending = [hold.ticket for _, hold, depth in left if depth == 1 and hold.alive]
        quorum.losses.given_up, quorum.losses.spare = ending, spare
        found: list[BaseException] = []
        try:
            quorum.left = left
            given_up = give_up(left, found)
        finally:
            if not left:
                self._forget(quorum)
            else:
                # An interrupt came before the first lock was released.
                quorum.losses.given_up, quorum.losses.spare = (), 0
        lost = sum(ticket.state is State.LOST for ticket in ending)
        # Losses count only if they leave no quorum.
        if lost <= max(0, spare):
            found = [error for error in found if not isinstance(error, LockLostError)]
        errors += found
        return given_up, errors, spare - lost

    def _holding_tasks(self) -> Iterable[tuple[str, Task | None]]:
        holding = [list(core.holding_tasks()) for core in self._cores]
        if sum(map(bool, holding)) > len(holding) - self._quorum:
            # Without these locks there is no quorum.
            for each in holding:
                yield from each

    def locked(self) -> bool:
        """Return whether processes hold a quorum of the locks; asks the leaders.

        The call returns as soon as enough replies have come to decide the result. Cost: 2 reads for each lock, all at
        once.
        """
        calls = Calls(self._session)

        def ask() -> Steps[bool]:
            asked = [Branch(calls.add(Call(core.session, core.path)).run(core.is_held())) for core in self._cores]
            most = len(asked) - self._quorum

            def count(result: object) -> int:
                return sum(each.done and each.error is None and each.result is result for each in asked)

            def ends() -> float:
                errors = sum(each.error is not None for each in asked)
                over = count(True) >= self._quorum or count(False) > most or errors > most
                return -math.inf if over else math.inf

            yield from together(asked, self._session.now, ends)
            if count(True) < self._quorum and count(False) <= most:
                raise first_error([each.error for each in asked if each.error is not None])
            return count(True) >= self._quorum

        return self._await(calls, ask())

    # -- the extras ----------------------------------------------------------------------------------------------

    def _mine(self) -> QuorumHold | None:
        """Return the caller's newest quorum."""
        return next(iter(self._all_mine()[::-1]), None)

    def _all_mine(self) -> list[QuorumHold]:
        # A quorum of which nothing is left was released; an interrupt kept that call from forgetting it.
        held = [] if self._session.forked else self._held.get(self._identity(), ())
        return [each for each in held if each.left != []]

    def _newest(self) -> QuorumHold | None:
        """Return the quorum of any thread of this process; one that lives before one that is lost."""
        held = [each for those in list(self._held.values()) for each in those[-1:]]
        return max(held, key=lambda each: each.alive, default=None) if not self._session.forked else None

    def _current(self) -> QuorumHold | None:
        """Return the quorum of which a query tells: the caller's own or, if there is none, one of this process."""
        return (None if owns_nothing(self._identity) else self._mine()) or self._newest()

    def _is_lost(self, quorum: QuorumHold) -> bool:
        self._all.check_lease()
        return quorum.alive < self._quorum

    def _loss(self) -> Loss:
        quorum = self._current()
        return self._next if quorum is None else quorum.losses.whole

    @property
    def lost(self) -> threading.Event:
        """A `threading.Event` that is set when too few current holds are left for a quorum. Each quorum has its own.

        The current quorum is the caller's own or, if the caller has none, one of this process. If there is no quorum,
        this is the event of the next one. Keep a reference to the QuorumLock while you use the event.
        """
        self._all.check_lease()
        with self._all.lock:
            return self._loss().event

    @property
    def suspect(self) -> bool:
        """Whether the lock is held while so many of the services are out of reach that the others are no quorum."""
        return self._outlook(self._current())[0]

    def remaining(self) -> float:
        """Return for how many seconds a quorum of the locks is surely held.

        That is the least `remaining()` of the `quorum` locks that last longest.
        """
        return self._outlook(self._current())[1]

    def _outlook(self, quorum: QuorumHold | None = None) -> tuple[bool, float]:
        quorum, least = quorum or self._newest(), self._quorum
        if quorum is None or quorum.alive < least:
            return False, 0.0
        left = sorted((core.left(hold) for core, hold in quorum.parts), reverse=True)
        return sum(hold.alive and not core.session.suspect for core, hold in quorum.parts) < least, left[least - 1]

    def hold_count(self) -> int:
        """Return how many acquires the caller has not released; 0 if the quorum is lost. Sends nothing."""
        quorum = self._mine()
        return 0 if quorum is None or self._is_lost(quorum) else len(self._all_mine())

    def _options(self) -> dict[str, int]:
        return {"quorum": self._quorum}

    def _is_held(self) -> bool:
        newest = self._newest()
        return newest is not None and newest.alive >= self._quorum


class _WaitedFor:
    """The locks that calls try to acquire, for the log of long waits.

    Attributes:
        queue_key: equal for all objects of the same locks.
    """

    def __init__(self, cores: Sequence[LockCore]) -> None:
        self._cores = cores
        self.queue_key: Hashable = tuple(core.queue_key for core in cores)

    def report_wait(self, owners: Sequence[int], waited: float) -> None:
        """Log who holds each of the locks."""
        for core in self._cores:
            core.report_wait(owners, waited)


class _Try(Branch[bool]):
    """One try for one lock.

    Args:
        core: the lock.
        calls: all calls of the acquire.
        quorum: what the try adds its hold to.
        forever: others follow until there is a quorum, so the caller must not be in its way.
        there: what the try adds the hold to that its thread has already, with its depth.
    """

    def __init__(self, core: LockCore, calls: Calls, quorum: QuorumHold, forever: bool, there: HoldDepths) -> None:
        self.call = calls.add(core.call())
        super().__init__(self._run(core, quorum, forever, there))

    def _run(self, core: LockCore, quorum: QuorumHold, forever: bool, there: HoldDepths) -> Steps[bool]:
        # Only now, as a signal handler may have acquired it a moment ago, and keep it.
        there += levels((core, hold) for hold in (core.mine(),) if hold is not None)
        if not core.reenter_or_check():
            steps = core.acquire_steps(self.call, False, core.session.now(), core.identity(), 1, repeated=forever)
            if not (yield from steps):
                return False
        hold = core.mine()
        assert hold is not None
        quorum.parts.append((core, hold))
        return True
