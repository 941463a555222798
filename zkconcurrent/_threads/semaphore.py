"""`Semaphore` and `BoundedSemaphore`: permits shared by all processes that open the same path."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from .._arguments.limits import check_int, check_positive, most_together
from .._engine.call import Attempt, Call
from .._engine.holds import Hold, PathState, lost_error
from .._engine.session import log
from .._errors import LockLostError
from .._kazoo.link import KazooClient
from .._observe.hold_limits import AfterLimit
from .._protocol.blocking_rules import MUTEX, PERMIT
from .._protocol.operations import Children, Get, Recipe, Sync
from .._protocol.permits import ADDED
from .._recipes.destroy import Tree, Users, destroy, users
from .._recipes.semaphore import SemaphoreLayout, SemaphoreSnapshot, acquire, add, parse, query, resize
from .._runtime.blocked_loop import warn
from .._runtime.interrupts import FRAMES, check_depth, insist
from .._runtime.stacks import in_generator
from .._runtime.this_process import new_uuid
from .._runtime.wait_loops import Steps
from .base.contender import Contender
from .base.lock_base import LockBase
from .base.lock_core import Line, LockCore
from .base.node_data import node_data, waiter_data
from .base.primitive import OnLost, OnSuspect, discard_result, kind_of

T = TypeVar("T")


class PermitCore(LockCore):
    """The machinery of a semaphore: each permit is a hold.

    Attributes:
        layout: where its nodes are, and the number of permits that it was given.
        bounded: whether to refuse an acquire of more permits than exist, and a release of more than this process holds.
    """

    def __init__(
        self, path_state: PathState, identity: Callable[[], int], layout: SemaphoreLayout, bounded: bool
    ) -> None:
        super().__init__(path_state, PERMIT, identity)
        self.layout = layout
        self.bounded = bounded

    def size(self) -> int | None:
        """Return how many permits there were when last seen or, if never seen, the value; None if neither is known."""
        seen: int | None = self.path_state.last_seen
        return self.layout.value if seen is None else seen

    # -- the holds -----------------------------------------------------------------------------------------------

    def mine(self) -> Hold | None:
        me = self.identity()
        return next((hold for hold in self._to_release(1) if hold.owner == me), None)

    def releasable(self) -> Hold | None:
        return next(iter(self._to_release(1)), None)

    def lost_error(self, hold: Hold, owed: int | None = None) -> LockLostError:  # noqa: ARG002
        me = self.identity()
        return lost_error(hold, sum(each.owner == me and not each.alive for each in self.all()))

    def holding_tasks(self) -> tuple[()]:
        # Other threads may give permits back, so no task keeps an acquire waiting forever.
        return ()

    def _to_release(self, n: int) -> list[Hold]:
        """Return the holds to release or settle next: either all are alive, or all are lost."""
        me = self.identity()
        holds = self.all()
        holds.sort(key=lambda hold: (hold.owner == me, hold.ticket.token), reverse=True)
        alive, lost = ([hold for hold in holds if hold.alive is each] for each in (True, False))
        mine = [hold for hold in lost if hold.owner == me]
        return (mine or alive or lost)[:n]

    # -- to acquire ----------------------------------------------------------------------------------------------

    def acquire_permits(self, call: Call, permits: int, attempt: Attempt) -> Steps[bool]:
        """Take permits, in this call; return whether they were taken. See `reported_steps`."""
        wait, owner, deadline = attempt.wait, attempt.owner, attempt.deadline

        def too_few(size: int) -> None:
            self.path_state.note(size)
            # If there are no permits yet, clients must add them: by releases of more than was acquired, or by a resize.
            if size:
                self._refuse_or_warn(permits, wait, size)

        data = node_data(owner, self.label)
        queued = waiter_data(owner, self.path_state, deadline, label=self.label) if wait else data
        recipe = acquire(
            self.layout,
            permits,
            data,
            queued=queued,
            wait=wait,
            near_deadline=deadline is not None and deadline - self.session.now() < self.session.reply_patience,
            too_few=too_few,
        )
        self.note_wait(call, attempt)
        taken = yield from call.run(recipe, deadline)
        self.observation.long_waits.note_end(call, acquired=taken is not None)
        if taken is None:
            return False
        leases, size = taken
        self.path_state.note(size)
        for lease in leases:
            lease.label = self.label
        self.path_state.new_holds(leases, PERMIT.role, owner, size)
        if self.limit is not None:
            self.observation.hold_limits.add(self.limit, leases)
        self.log_acquired(*leases)
        return True

    def _refuse_or_warn(self, permits: int, wait: bool, size: int) -> None:
        """Refuse an acquire of more permits than exist, or warn about it."""
        if self.bounded:
            raise ValueError(f"permits must be at most value={size} at {self.path}: {permits}")
        # With `value=0`, all permits of the semaphore are added ones, so it is usual to wait for more of them.
        if wait and self.layout.value != 0:
            warn(
                f"acquire() waits for {permits} permits, and the semaphore {self.path!r} has {size}: the wait ends "
                "only when a client adds permits, by resize() or by a release() of more permits than it holds"
            )

    # -- to release ----------------------------------------------------------------------------------------------

    def begin_giving_back(self, n: int) -> tuple[Call, list[Hold]]:
        """Send the deletes of up to `n` leases, without waiting for the replies; return the call and the holds.

        Raises:
            LockLostError: permits were lost.
            ValueError: `n` is less than one, too large, or more than a bounded semaphore may take back.
        """
        n = check_positive("n", n)
        self.session.check_not_forked(self.path)
        check_depth(FRAMES // 2)
        self.session.expired_holds.end_past_lease()
        call = self.call()
        if ended := self.path_state.ended_at_exit(PERMIT.role):
            return call, ended[:n]
        # Two threads that release at once must not release the same permits.
        with self.session.lock:
            holds = self._losses_of_others(n) or self._to_release(n)
            if holds and not holds[0].alive:
                for hold in holds:
                    self.path_state.drop(hold)
                raise self.lost_error(holds[0])
            if self.bounded and n > len(holds):
                raise ValueError(f"Semaphore released too many times: {self.path}")
            # An interrupt in between must not leave some of the permits held.
            insist(lambda: self._drop_all(holds))
        call.settled = True
        return call, holds

    def _losses_of_others(self, n: int) -> list[Hold]:
        """Return lost permits of other threads, if the caller releases in a generator, and so perhaps for them."""
        me, lost = self.identity(), [hold for hold in self.all() if not hold.alive]
        if not lost or any(hold.owner == me for hold in lost) or not in_generator():
            return []
        return lost[:n]

    def _drop_all(self, holds: list[Hold]) -> None:
        for hold in holds:
            self.drop_unreported(hold)

    def given_back(self, call: Call, n: int, holds: list[Hold]) -> Steps[None]:
        """Wait until the leases are gone; then add the rest of the `n` as new permits."""
        rest = self._given_back(call, n, holds)
        for story in {hold.ticket.story for hold in holds} - {None}:
            rest = story.end_by(call, rest)
        return rest

    def _given_back(self, call: Call, n: int, holds: list[Hold]) -> Steps[None]:
        if holds:
            log.debug("released %s", [hold.ticket for hold in holds])
            # This is the last delete that was sent, so its reply comes last.
            yield from call.wait_until_gone(holds[-1].ticket)
        for hold in holds:
            self.path_state.check_given_up(hold)
        if n > len(holds):
            adding = add(self.layout, n - len(holds), new_uuid())
            self.path_state.note((yield from call.run(adding)))

    # -- to look -------------------------------------------------------------------------------------------------

    def head(self) -> Recipe[tuple[int, Contender | None]]:
        leases, queue = f"{self.path}/leases", f"{self.path}/locks"
        _, held, queued = yield Sync(self.path), Children(leases), Children(queue)
        first = min(held, key=PERMIT.key, default=None)
        node = None if first is None else (yield Get(f"{leases}/{first}"))
        return len(queued), None if first is None or node is None else Contender.of(leases, first, node)

    def contenders(self) -> Recipe[Line]:
        leases, queue = yield from users(self.path, (self.layout.leases, self.layout.locks))
        waiting = sorted(_contenders(queue), key=lambda each: MUTEX.key(each.node))
        ahead = [None, *(each.node.rpartition("/")[2] for each in waiting)]
        return (
            self.note_holders(sorted(_contenders(leases), key=lambda each: each.token)),
            [
                each._replace(position=place, mode="permit", blocker=blocker)
                for place, (each, blocker) in enumerate(zip(waiting, ahead, strict=False), 1)
            ],
        )


class Semaphore(LockBase):
    """A number of permits, which threads of all processes take and give back.

    A held permit returns by itself when its process ends. Release it in the process that acquired it: a `release()` in
    a process that holds no permit adds a permit for all, as with `threading.Semaphore`.

    Layout:
        `<path>/locks/_c_<uuid>-lock-<sequence>`, EPHEMERAL_SEQUENTIAL, one for each thread that waits; and
        `<path>/leases/_c_<uuid>-lease-<sequence>`, EPHEMERAL_SEQUENTIAL, one for each held permit: the znodes of
        Curator's InterProcessSemaphoreV2. `<path>/permits`, PERSISTENT, has the value as text; each of its children,
        `<uuid>-<n>`, PERSISTENT, adds n permits. All other nodes are containers.

    Invariant:
        There are never more leases than permits, except those that were held when `resize` left fewer permits. Only the
        first client in the queue creates leases, in the same step in which it leaves the queue.

    Cost:
        An uncontended `acquire`, of any number of permits, takes two writes and four reads, in two round trips; a
        `release` takes one write for each permit, and wakes one waiter.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the semaphore's path; missing nodes are created.
        value: the number of permits. All processes must give the same, until one has called `resize`; from then on, the
            number given to `resize` counts. None takes the current number; the semaphore must then exist at first use.
        on_lost: called with the semaphore, on a thread of its own, once for each `acquire` whose permits are lost.
        on_suspect, hold_limit, on_hold_limit, label: as for `Lock`. The permits of one `acquire` are one hold.

    Raises:
        TypeError: the value is not an int or None, the path is not a string, `hold_limit` is not a number, or a
            callback is not callable.
        ValueError: the value is negative, or larger than 2**63 - 1; the path is invalid; or this client already uses it
            for another primitive.

    Source:
        `threading.Semaphore`; Curator's `InterProcessSemaphoreV2`.
    """

    _kind = "Semaphore"
    _rule = PERMIT
    _bounded = False
    _lock_core: PermitCore

    def __init__(
        self,
        client: KazooClient,
        path: str,
        value: int | None = 1,
        *,
        on_lost: OnLost | None = None,
        on_suspect: OnSuspect | None = None,
        hold_limit: float | None = None,
        on_hold_limit: AfterLimit = "warn",
        label: str | None = None,
    ) -> None:
        if value is not None and (value := check_int("value", value)) < 0:
            raise ValueError("semaphore initial value must be >= 0")
        self._value = value
        limit: Any = {"hold_limit": hold_limit, "on_hold_limit": on_hold_limit}
        super().__init__(client, path, on_lost=on_lost, on_suspect=on_suspect, label=label, **limit)

    def _new_core(self) -> PermitCore:
        layout = SemaphoreLayout(self._path, self._value, self._share_path_check("Semaphore"))
        return PermitCore(self._path_state, self._identity, layout, self._bounded)

    def acquire(self, blocking: bool = True, timeout: float | None = None, *, permits: int = 1) -> bool:
        """Take permits, all or none, in the order of arrival across all processes.

        A call that waits for more permits than exist, added ones included, issues a RuntimeWarning: the wait can only
        end when a client adds permits. There is no warning if no permits exist at all, or with `value=0`: all permits
        of such a semaphore are added ones. A `BoundedSemaphore` raises ValueError instead of the warning.

        Args:
            blocking: whether to wait for permits. If False, the call takes the permits only if enough are free for all
                contenders ahead and for itself.
            timeout: how long to wait, in seconds; None waits forever; zero or less acts as `blocking=False`.
            permits: how many to take; at most 1,000, or fewer if the path has more than 400 bytes.

        Returns:
            Whether the permits were taken. If False, the attempt leaves no node behind.

        Raises:
            TypeError: `permits` is not an int.
            ValueError: a timeout with `blocking=False`; `permits` is less than one, or more than one request can take;
                other processes use the path with another value; or there is no semaphore, and `value` is None.
            OverflowError: a timeout above `threading.TIMEOUT_MAX`.
            LockLostError: this thread has lost a permit and has not acknowledged the loss by `release()`.
            WaitCancelledError: `cancel_waits()` has ended the wait.
            ClientError: the client can't be used here.
            ZkConcurrentError: the path can't be used as a semaphore.
        """
        if not blocking and timeout is not None:
            raise ValueError("can't specify timeout for non-blocking acquire")
        permits = check_positive("permits", permits)
        if permits > (most := most_together(self._session.link.full(self._path))):
            raise ValueError(
                f"permits must be at most {most:,} in one call, which takes them in one request: {permits}"
            )
        deadline = self._until(timeout if blocking else 0)
        wait = blocking and (timeout is None or timeout > 0)
        core = self._lock_core
        if (hold := core.mine()) is not None:
            core.check(hold)
        call, attempt = core.call(cancellable=wait), core.attempt(self._identity(), wait, deadline)
        return self._await(call, core.reported_steps(call, attempt, core.acquire_permits(call, permits, attempt)))

    def release(self, n: int = 1) -> None:
        """Give back permits: this thread's own, the newest first, then those of other threads of this process.

        If `n` is more than this process holds, the call adds the rest as new permits for all processes. A
        `BoundedSemaphore` raises ValueError instead, and changes nothing.

        If ZooKeeper is out of reach and the call adds no permit, it returns, and the permits become free after the
        reconnect.

        Args:
            n: how many permits to give back; at most 2**63 - 1.

        Raises:
            TypeError: `n` is not an int.
            ValueError: `n` is less than one, or too large; or, for a `BoundedSemaphore`, more than this process holds.
            LockLostError: this thread has lost permits; or this process has no permits left, and another of its threads
                has lost some. The call acknowledges the loss of up to `n` permits, and changes nothing else.
            RefusedError: this client is not allowed to delete a permit's node; the library keeps trying.
            ClientError: the process was forked; the permits belong to its parent.
        """
        core = self._lock_core
        call, holds = core.begin_giving_back(n)
        return self._await(call, core.given_back(call, n, holds))

    def locked(self) -> bool:
        """Return whether no permit is free; asks the leader. Cost: 5 reads, pipelined."""
        return self._read(lambda snapshot: snapshot.free <= 0)

    def available(self) -> int:
        """Return how many permits are free; asks the leader. Cost: 5 reads, pipelined.

        The result is negative while more permits are held than `resize` has left.
        """
        return self._read(lambda snapshot: snapshot.free)

    def _read(self, then: Callable[[SemaphoreSnapshot], T]) -> T:
        state = self._path_state
        notes = state.notes

        def looked(snapshot: SemaphoreSnapshot) -> T:
            if state.notes == notes:  # as in `_run_query`
                state.last_seen = snapshot.size
            state.note_holders(PERMIT.role, snapshot.leases)
            return then(snapshot)

        return self._run(query(self._lock_core.layout), looked)

    def resize(self, n: int) -> None:
        """Set the number of permits to `n`, added ones included. Waits for ZooKeeper.

        Processes that wait for permits see the new number at once, all others with their next call. From now on the
        `value` that a client was given no longer counts, so a client with another value continues to work.

        If more permits are held, their holders keep them, and no client gets a permit until fewer than `n` are held.
        With `n=0` no client gets a permit until the next `resize`. Permits that another client adds during the call
        come on top of `n`.

        A waiter for more permits than `n` keeps its place. All clients behind it wait too, even while permits are free,
        until that waiter gives up (at its timeout, or by `cancel_waits()`) or there are enough permits again.

        Args:
            n: the new number of permits; at most 2**63 - 1.

        Raises:
            TypeError: `n` is not an int.
            ValueError: `n` is negative or too large; other processes use the path with another value; or there is no
                semaphore, and `value` is None.
            ForeignNodeError: the path has other nodes.
            ClientError: the client can't be used here.
        """
        n = check_int("n", n)
        if n < 0:
            raise ValueError(f"n must be >= 0: {n}")
        return self._run_and_note(resize(self._lock_core.layout, n), discard_result)

    def destroy(self) -> None:
        """Remove the nodes that outlive the semaphore's users; the next use creates them again, with any value.

        Raises:
            RuntimeError: a client holds a permit or waits for one. If that client arrived during the call, and permits
                had been added more than 1,000 times, some of the added permits may be gone.
            ForeignNodeError: the path has other nodes; none of them is deleted.
        """
        at = self._lock_core.layout
        tree = Tree(at.permits, "Semaphore", partial(parse, at), {at.permits: ADDED.fullmatch}, (at.locks, at.leases))
        return self._run(destroy(tree), self._destroyed)

    # -- the extras ----------------------------------------------------------------------------------------------

    def hold_count(self) -> int:
        """Return how many permits the caller has taken and not given back. Lost permits do not count. Sends nothing."""
        self._session.expired_holds.end_past_lease()
        me = self._identity()
        return sum(hold.alive and hold.owner == me for hold in self._lock_core.all())

    def __repr__(self) -> str:
        size = self._lock_core.size()
        left: object = "?" if size is None else size - sum(hold.alive for hold in self._lock_core.all())
        bound = f"/{'?' if size is None else size}" if self._bounded else ""
        return f"<{kind_of(self)} at {id(self):#x} path={self._path!r}: value={left}{bound}>"


class BoundedSemaphore(Semaphore):
    """A semaphore that refuses a `release()` of more permits than this process holds.

    It also refuses an `acquire` of more permits than exist, with a ValueError, unless no permits exist at all. In all
    other respects it is a `Semaphore`.
    """

    _kind = "BoundedSemaphore"
    _bounded = True


def _contenders(nodes: Users) -> list[Contender]:
    parts = [(path.rpartition("/"), node) for path, node in nodes]
    return [Contender.of(above, name, node) for (above, _, name), node in parts]
