"""`Semaphore` and `BoundedSemaphore`: those of `threading`, for every process that opens the same path."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ._engine.driver import UNANSWERED, Call
from ._engine.event_loop import warn
from ._engine.holds import Hold, lost_error
from ._engine.session import log
from ._engine.waiting import Steps
from ._kazoo.link import KazooClient
from ._limits import check_int, most_together
from ._lock_base import Contender, LockBase
from ._primitive import node_data
from ._recipes.destroy import Users, destroy, users
from ._recipes.operations import Recipe, Sync
from ._recipes.rules import LEASE, MUTEX
from ._recipes.semaphore import ADDED, Layout, acquire, add, is_locked, look, read


class Semaphore(LockBase):
    """A number of permits that threads of all processes take and give back.

    A permit that is held goes back by itself when its process ends. It should be released in the process that acquired
    it: `release()` where nothing is held adds a permit for everybody, as `threading.Semaphore` does.

    Layout:
        `<path>/locks/_c_<uuid>-lock-<sequence>`, EPHEMERAL_SEQUENTIAL, one for each thread that waits, and
        `<path>/leases/_c_<uuid>-lease-<sequence>`, the same, one for each permit held: the znodes of Curator's
        InterProcessSemaphoreV2. `<path>/permits` is PERSISTENT and has the value; so are its children
        `<uuid>-<n>`, each of which adds n permits. All else are containers.

    Invariant:
        There are never more leases than permits. Only the first in the queue makes leases, and only in a step that
        removes it from the queue.

    Cost:
        Acquire, uncontended, is two writes in two round trips; release is one write. A release wakes one.

    Args:
        client: a `kazoo.client.KazooClient`; it may be started later.
        path: the path that is the semaphore; missing nodes are made.
        value: how many permits there are; all processes must say the same.
        on_lost: called with the semaphore, on a thread of its own, once for each `acquire` whose permits are lost.

    Raises:
        TypeError: the value is no int.
        ValueError: the value is negative, or larger than 2**63 - 1; the path is bad, or is another primitive of
            this client already.

    Source:
        `threading.Semaphore`; Curator's `InterProcessSemaphoreV2`.
    """

    _kind = "Semaphore"
    _rule = LEASE

    def __init__(
        self, client: KazooClient, path: str, value: int = 1, *, on_lost: Callable[[Any], object] | None = None
    ) -> None:
        value = check_int("value", value)
        if value < 0:
            raise ValueError("semaphore initial value must be >= 0")
        super().__init__(client, path, on_lost=on_lost)
        self._layout = Layout(path, value)

    def acquire(self, blocking: bool = True, timeout: float | None = None, *, permits: int = 1) -> bool:
        """Take permits, all or none, in the order of arrival across all processes.

        To wait for more permits than there are, those counted that were added so far, is a RuntimeWarning: only permits
        that somebody adds can end it. It is none where the value is 0: all permits of such a semaphore are added.

        Args:
            blocking: whether to wait for permits; if not, they are taken if there are enough for those ahead, too.
            timeout: how long to wait, in seconds; None for ever; 0 or less is as `blocking=False`.
            permits: how many; 1,000 at most, and fewer where the path has more than 400 bytes.

        Returns:
            Whether the permits were taken. If not, nothing of the attempt is left.

        Raises:
            TypeError: `permits` is no int.
            ValueError: a timeout with `blocking=False`, less than one permit or more than one request can take; or
                other processes use the path with another value.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            LockLostError: this thread has lost a permit and not acknowledged that by `release()`.
            ClientError: the client can't be used here.
            ZkConcurrentError: the path can't be used.
        """
        if not blocking and timeout is not None:
            raise ValueError("can't specify timeout for non-blocking acquire")
        permits = check_int("permits", permits)
        if permits < 1:
            raise ValueError("permits must be one or more")
        if permits > (most := most_together(self._session.link.full(self._path))):
            raise ValueError(
                f"permits must be at most {most:,} in one call, as it takes them in one request: {permits}"
            )
        wait = blocking and (timeout is None or timeout > 0)
        deadline = self._until(timeout if blocking else 0)
        hurried = timeout is not None and timeout < (self._session.timeout or UNANSWERED) / 3
        self._acquire_again()
        call = Call(self._session, self._path, self._path_state)
        return self._await(call, self._taking_permits(call, permits, wait, hurried, deadline, self._identity()))

    def _taking_permits(
        self, call: Call, permits: int, wait: bool, hurried: bool, deadline: float | None, owner: int
    ) -> Steps[bool]:
        if wait and 0 < self._layout.value < permits:  # a wait for more permits than there are
            sight = yield from call.run(look(self._layout, None, Sync(self._path)), deadline)
            if sight is not None:
                self._warn_of_waiting(permits, sight.value + sight.added)
        recipe = acquire(self._layout, permits, node_data(owner), wait=wait, hurried=hurried)
        taken = yield from call.run(recipe, deadline)
        if taken is None:
            return False
        leases, self._path_state.last_seen = taken
        self._path_state.take_more(leases, LEASE.role, owner)
        if leases[0].late:
            log.warning("the sequence numbers of %s are running out: let it fall idle", self._path)
        log.debug("acquired %s", leases)
        return True

    def _warn_of_waiting(self, permits: int, there: int) -> None:
        if permits > there:
            warn(
                f"acquire() waits for {permits} permits, and the semaphore {self._path!r} has {there}: it waits until "
                "somebody adds permits, by a release() of more than is held"
            )

    def release(self, n: int = 1) -> None:
        """Give back permits: this thread's own, the newest first, then those of other threads of this process.

        What is released beyond those is added to the permits that all processes share.

        Returns also while the service is out of reach, if nothing is added: the permits are then free as soon as it is
        back.

        Args:
            n: how many; 2**63 - 1 at most.

        Raises:
            TypeError: n is no int.
            ValueError: n is less than one, or too large.
            LockLostError: this thread has lost permits, up to n of which this acknowledges; or this process has nothing
                but permits that another thread of it has lost. Nothing else is touched.
            ClientError: the process was forked, and the permits are its parent's.
        """
        call, holds = self._give_up_permits(n)
        return self._await(call, self._giving_back(call, n, holds))

    def _give_up_permits(self, n: int) -> tuple[Call, list[Hold]]:
        """Delete as many leases as there are to release, without waiting for it; return their holds."""
        n = check_int("n", n)
        if n < 1:
            raise ValueError("n must be one or more")
        self._session.check_not_forked(self._path)
        self._session.check_lease()
        call = Call(self._session, self._path, self._path_state)
        with self._session.lock:  # of two threads, each releases something else
            holds = self._to_release(n)
            if holds and not holds[0].alive:
                for hold in holds:
                    self._path_state.drop(hold)
                raise lost_error(holds[0])
            self._check_bounds(n - len(holds))
            self._give_back(holds)
        call.settled = True
        return call, holds

    def _giving_back(self, call: Call, n: int, holds: list[Hold]) -> Steps[None]:
        """Wait until the leases are gone, and add the permits that are released beyond them."""
        if holds:
            log.debug("released %s", [hold.ticket for hold in holds])
            yield from call.gone(holds[-1].ticket)  # its delete was sent last
        for hold in holds:
            self._path_state.check_given_up(hold)
        if n > len(holds):
            adding = add(self._layout, n - len(holds), str(uuid.uuid4()))
            self._path_state.last_seen = yield from call.run(adding)

    def _to_release(self, n: int) -> list[Hold]:
        """Return what to release next, or to settle: all of it is alive, or all is lost."""
        me = self._identity()
        holds = self._path_state.all(LEASE.role)
        holds.sort(key=lambda hold: (hold.owner == me, hold.ticket.token), reverse=True)
        alive, lost = ([hold for hold in holds if hold.alive is each] for each in (True, False))
        mine = [hold for hold in lost if hold.owner == me]
        return (mine or alive or lost)[:n]

    def _check_bounds(self, more: int) -> None:
        """Refuse to add permits, where there is a bound."""

    def _give_back(self, holds: Sequence[Hold]) -> None:
        """Delete the leases, without waiting for it; also those left by an interrupt in between: all, or none."""
        try:
            for hold in holds:
                self._end(hold)
        except BaseException:
            for hold in holds:
                self._end(hold)
            raise

    def _end(self, hold: Hold) -> None:
        if hold.alive:
            self._session.discard(hold.ticket)
        self._path_state.drop(hold)

    def locked(self) -> bool:
        """Return whether no permit is left, asked of the leader. Cost: 5 reads, pipelined."""
        return self._run(is_locked(self._layout), bool)

    def destroy(self) -> None:
        """Remove what outlives all who use the semaphore; the next to use it makes it anew, with any value.

        Raises:
            RuntimeError: somebody holds a permit, or waits for one. If that one came meanwhile, and permits were added
                more than 1,000 times, some of those may be gone.
            ForeignNodeError: something else is there; nothing is deleted.
        """

        def done(using: Users) -> None:
            if using:
                raise RuntimeError(f"the semaphore {self._path!r} is in use: {', '.join(map(str, _contenders(using)))}")
            self._path_state.last_seen = 0

        at = self._layout
        return self._run(destroy(at.permits, partial(read, at), ADDED, (at.locks, at.leases)), done)

    # -- the extras ----------------------------------------------------------------------------------------------

    def _mine(self) -> Hold | None:
        me = self._identity()
        return next((hold for hold in self._to_release(1) if hold.owner == me), None)

    def _own(self) -> Hold | None:
        return next(iter(self._to_release(1)), None)

    def _contenders(self) -> Recipe[tuple[list[Contender], list[Contender]]]:
        leases, queue = yield from users(self._path, (self._layout.leases, self._layout.locks))
        return (
            sorted(_contenders(leases), key=lambda each: each.token),
            sorted(_contenders(queue), key=lambda each: MUTEX.key(each.node)),
        )

    def __repr__(self) -> str:
        left = (
            self._layout.value
            + (self._path_state.last_seen or 0)
            - sum(hold.alive for hold in self._path_state.all(LEASE.role))
        )
        return f"<zkconcurrent.{type(self).__name__} at {id(self):#x} path={self._path!r}: value={left}{self._bound()}>"

    def _bound(self) -> str:
        return ""


class BoundedSemaphore(Semaphore):
    """A semaphore that can't be released more often than it was acquired, in each process.

    Everything else is as with `Semaphore`. To ask for more permits than there are is a ValueError, at once.
    """

    _kind = "BoundedSemaphore"

    def acquire(self, blocking: bool = True, timeout: float | None = None, *, permits: int = 1) -> bool:
        """Take permits; see `Semaphore.acquire`."""
        permits = check_int("permits", permits)
        if permits > self._layout.value:
            raise ValueError(f"there are no {permits} permits, but value={self._layout.value}: {self._path}")
        return super().acquire(blocking, timeout, permits=permits)

    def _check_bounds(self, more: int) -> None:
        if more > 0:
            raise ValueError("Semaphore released too many times")

    def _bound(self) -> str:
        return f"/{self._layout.value}"


def _contenders(nodes: Users) -> list[Contender]:
    parts = [(path.rpartition("/"), node) for path, node in nodes]
    return [Contender.of(above, name, node) for (above, _, name), node in parts]
