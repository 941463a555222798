"""`LockCore`: the machinery of a lock, for its own methods and for objects that consist of locks.

A lock of threads has a core, and so has a lock of tasks. `MultiLock`, `Condition` and the candidacy of an election use
cores, too. An acquire or release of a core does not wait: it returns the call to wait for, and the call's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from ..._engine.call import Attempt, Call
from ..._engine.expired_holds import losses
from ..._engine.holds import Hold, PathState, all_holds, lost_error, owned_by
from ..._engine.loss_cause import why_lost
from ..._engine.loss_signal import Loss
from ..._engine.session import log
from ..._errors import LockLostError, ZkConcurrentError
from ..._observe.deadlock_search import OnDeadlock
from ..._observe.event_listeners import Story
from ..._observe.event_listeners import registered as listeners
from ..._observe.hold_limits import Limit
from ..._observe.long_waits import log as long_waits
from ..._observe.observation import observation
from ..._protocol.blocking_rules import PERMIT, Rule, holders, nearest
from ..._protocol.operations import Get, NoNode, Recipe
from ..._protocol.ticket import HOLDS, State, Ticket
from ..._recipes.lock import CheckWait, acquire, contenders, list_queue, try_acquire
from ..._recipes.nodes import PathCheck
from ..._runtime.clock import ago, in_words
from ..._runtime.identity import Task, ended, holds_of, label, name, owns_nothing, task_of
from ..._runtime.interrupts import FRAMES, check_depth
from ..._runtime.stacks import in_generator
from ..._runtime.wait_loops import Steps
from .cancel import cancel_waits
from .contender import Contender, note_holders
from .node_data import node_data, waiter_data
from .self_deadlock import refuse_own_hold

Line: TypeAlias = "tuple[list[Contender], list[Contender]]"
"""The holders, and the waiters."""


class QueueCore:
    """The machinery of a primitive whose contenders queue at its path.

    Attributes:
        session: the session of its client.
        observation: the `Observation` of its client.
        path: its path.
        path_state: the state that all objects of this client and path share.
        rule: the rule by which contenders hold and wait.
        queue_key: equal for all objects whose threads wait in one queue.
        label: the program's name for the primitive, or for its use; None if there is none.
        on_deadlock: what happens to a wait that is part of a deadlock across processes.
    """

    label: str | None = None
    on_deadlock: OnDeadlock = "warn"

    def __init__(self, path_state: PathState, rule: Rule) -> None:
        self.session = path_state.session
        self.observation = observation(self.session)
        self.path = path_state.path
        self.path_state = path_state
        self.rule = rule
        self.queue_key = path_state, rule.role
        # The tuple is made once, not for each task that waits.
        self._waits_for = (self.queue_key,)

    def call(self, *, cancellable: bool = False) -> Call:
        """Return a call that queues here; if `cancellable`, `cancel_waits()` may end it."""
        call = Call(self.session, self.path, self.path_state)
        call.label = self.label
        if cancellable:
            call.waits_for = self._waits_for
        return call

    def cancel_waits(self) -> int:
        """End the waits of all threads and tasks of this client in the queue; return how many there were.

        Raises:
            ClientError: the process was forked; the waits belong to its parent.
        """
        self.session.check_not_forked(self.path)
        return cancel_waits(self.session.calls, self.queue_key)

    def attempt(
        self, owner: int, wait: bool, deadline: float | None, *, depth: int = 1, for_block: bool = False
    ) -> Attempt:
        """Return an attempt to acquire here, which begins now."""
        return Attempt(self, owner, self.session.now(), deadline, wait, depth, for_block)

    def reported_steps(
        self, call: Call, attempt: Attempt, steps: Steps[bool], granted: Callable[[Story], object] | None = None
    ) -> Steps[bool]:
        """Return the steps of an acquire; if there are listeners, the steps also report the acquire to them.

        Args:
            call: the call.
            attempt: the attempt.
            steps: the steps that acquire, and return whether they did.
            granted: notes the grant in the story; if it is not given, the tickets of the call make up the hold.
        """
        if not listeners:
            return steps
        mode = "exclusive" if self.rule.exclusive and self.rule is not PERMIT else "shared"
        kind, owner = self.path_state.kind, attempt.owner
        call.story = story = self.observation.teller.new_story(kind, self.path, mode, owner, self.label)
        return steps if story is None else story.acquire_by(call.tickets, attempt.wait, steps, granted)

    def note_wait(self, call: Call, attempt: Attempt) -> None:
        """Note that a call waits here, if it does, so that a long wait is logged."""
        if attempt.wait:
            call.waiting = attempt

    def report_wait(self, owners: Sequence[int], waited: float) -> None:
        """Log that these owners wait, the longest for `waited` seconds, and who holds the lock."""
        call = Call(self.session, self.path)
        by = None
        try:
            found = call.wait(call.run(self.head(), self.session.now()))
        except ZkConcurrentError as error:
            state = f"the holder is unknown: {error}"
        else:
            state = "ZooKeeper is out of reach"
            if found is not None:
                waiting, first = found
                state = f"{waiting} node{'s wait' if waiting != 1 else ' waits'} there"
                if first is not None:
                    by = first.by
                    since = f"queued since {in_words(first.queued)}"
                    # A node shows when it queued. Only the client that holds knows when the hold began.
                    if (own := self._own_holds().get(first.node)) is not None:
                        since = f"held since {in_words(ago(self.session.clock() - own.ticket.granted))}"
                    state = f"held by {first.whole_name()}, {since}; {state}"
                    if any(by == label(owner) for owner in owners):
                        state += "; this thread waits for itself, unless another one releases the lock"
        long_waits.warning(
            "%s for the %s at %s, the longest for %.0f s: %s",
            "1 thread or task waits" if len(owners) == 1 else f"{len(owners)} threads or tasks wait",
            self.path_state.kind,
            self.path,
            waited,
            state,
            extra={"zk_path": self.path, "zk_waited": waited, "zk_by": by},
        )

    def head(self) -> Recipe[tuple[int, Contender | None]]:
        """Return how many nodes wait, and the first holder."""
        names = yield from list_queue(self.path, self.rule)
        holding = holders(names, self.rule)
        first = next(iter(holding), None)
        node = None if first is None else (yield Get(f"{self.path}/{first}"))
        waiting = len(names) - len(holding)
        if first is None or node is None:
            return waiting, None
        return waiting, self._present(Contender.of(self.path, first, node))

    def wait_check(self, call: Call, attempt: Attempt, data: bytes) -> CheckWait | None:
        """Return the function that checks the nodes ahead of a waiter; None if the waiter's owner holds nothing."""
        return partial(self._check_wait, call, attempt, data) if holds_of(attempt.owner) else None

    def _check_wait(self, call: Call, attempt: Attempt, data: bytes, ticket: Ticket, ahead: Sequence[str]) -> None:
        refuse_own_hold(self.path, attempt.owner, attempt.deadline, ahead)
        if attempt.deadline is None and HOLDS in data:
            self.observation.deadlocks.add(call, ticket, data, attempt.owner)

    def is_held(self) -> Recipe[bool]:
        """Return whether any process holds the lock."""
        names = yield from list_queue(self.path, self.rule)
        holding = [name for name in holders(names, self.rule) if self.rule.is_ours(name)]
        self.path_state.note_holders(self.rule.role, holding)
        return bool(holding)

    def contenders(self) -> Recipe[Line]:
        """Return the holders and the waiters."""
        hold, found = yield from contenders(self.path, self.rule)
        blockers = nearest([name for name, _ in found], self.rule)
        line = [
            Contender.of(self.path, name, node, max(0, place), blockers[name])
            for place, (name, node) in enumerate(found, 1 - hold)
        ]
        return self.note_holders(list(map(self._present, line[:hold]))), line[hold:]

    def note_holders(self, holders: Sequence[Contender]) -> list[Contender]:
        """Return the holders of a listing, with the times at which this client first saw them hold."""
        now = self.session.clock()
        granted = {node: ago(now - hold.ticket.granted) for node, hold in self._own_holds().items()}
        self.path_state.holders = noted = note_holders(holders, self.path_state.holders, granted)
        return noted

    def _present(self, holder: Contender) -> Contender:
        """Return a holder; if a thread of this client has handed its node on, name the thread that has it now."""
        hold = None if self.path_state.handoff is None else self._own_holds().get(holder.node)
        if hold is None or label(hold.owner) == holder.by:
            return holder
        thread = name(hold.owner)[:60]
        return holder._replace(thread=thread, by=label(hold.owner), timeout=None, holds=(), label=hold.ticket.label)

    def _own_holds(self) -> dict[str, Hold]:
        """Return the holds of this client, by node."""
        return {hold.ticket.node: hold for hold in all_holds(self.path_state.holds) if hold.alive}


class LockCore(QueueCore):
    """The machinery of a lock, which works on the holds of a `PathState`. Any thread or task may release the lock.

    Attributes:
        identity: returns the number of the caller: a thread, greenlet or task.
        holds: the holds in the lock's role, by owner.
        path_check: the check of a condition's path, for the condition's own lock.
        not_held: the message of `threading` for a release without a hold.
        over: the message for the use of a hold that has ended.
        owned: True if only its owner can end a hold, even a hold that no block has acquired. None if the lock's holds
            can't be part of a deadlock.
        limit: how long its holds may last; None for no limit.
    """

    not_held = "release unlocked lock"
    over = "the hold of {} has ended: acquire again for a new one"
    owned: bool | None = False
    limit: Limit | None = None
    path_check: PathCheck | None = None

    def __init__(self, path_state: PathState, rule: Rule, identity: Callable[[], int]) -> None:
        super().__init__(path_state, rule)
        self.identity = identity
        self.holds = path_state.holds[rule.role]

    # -- the holds -----------------------------------------------------------------------------------------------

    def mine(self) -> Hold | None:
        """Return the caller's hold, alive or lost."""
        return self.path_state.own(self.rule.role, self.identity())

    def newest(self) -> Hold | None:
        """Return the newest hold of any thread of this process."""
        return self.path_state.newest(self.rule.role)

    def releasable(self) -> Hold | None:
        """Return the hold to which `release` and the extras apply."""
        return self.mine() or self.newest()

    def current(self) -> Hold | None:
        """Return the hold to which queries refer: the caller's own or, if there is none, this process's newest."""
        return (None if owns_nothing(self.identity) else self.releasable()) or self.newest()

    def left(self, hold: Hold | None) -> float:
        """Return how many seconds a hold is sure to last; 0 if there is no hold, or this is a forked child."""
        if hold is None or self.session.forked:
            return 0.0
        limit: Limit | None = hold.ticket.limit
        end = hold.ticket.live.end
        return max(0.0, (min(end, limit.due) if limit is not None and limit.loses else end) - self.session.clock())

    def is_suspect(self, hold: Hold | None) -> bool:
        """Return whether there is a hold, and ZooKeeper is out of reach."""
        return hold is not None and hold.alive and self.session.suspect

    def all(self) -> list[Hold]:
        """Return all holds of this process, alive or lost."""
        return self.path_state.all(self.rule.role)

    def check(self, hold: Hold, owed: int | None = None) -> None:
        """Refuse to continue with a lost hold. A hold is also lost if its lease has ended by this client's clock.

        Args:
            hold: the hold.
            owed: how many levels the caller still has to settle if the hold is lost; all levels if not given.

        Raises:
            LockLostError: the hold is lost.
        """
        self.session.expired_holds.end_past_lease()
        if hold.ticket.state is State.LOST:
            raise self.lost_error(hold, owed)

    def lost_error(self, hold: Hold, owed: int | None = None) -> LockLostError:
        """Return the error for a lost hold; for `owed`, see `check`."""
        return lost_error(hold, owed)

    def check_lasts(self, hold: Hold) -> Hold:
        """Return a hold, if it has not ended. Unlike `check`, any thread may call this.

        Raises:
            LockLostError: the hold was lost.
            RuntimeError: the hold has ended.
            ClientError: the process was forked; the hold belongs to its parent.
        """
        self.session.check_not_forked(self.path)
        self.session.expired_holds.end_past_lease()
        if (error := self.why_over(hold)) is not None:
            raise error
        return hold

    def why_over(self, hold: Hold) -> Exception | None:
        """Return the error that says why a hold has ended; None if it has not."""
        # A ticket that was handed on belongs to another hold, so its loss is not a loss of this hold.
        there = self.path_state.has(hold)
        if hold.ticket.state is State.LOST and (there or hold.loss.is_lost):
            return self.lost_error(hold)
        return None if there and hold.alive else RuntimeError(self.over.format(self.path))

    def must_hold(self) -> Hold:
        """Return the hold to which the extras apply.

        Raises:
            LockLostError: the hold is lost.
            RuntimeError: there is none.
        """
        self.session.expired_holds.end_past_lease()
        hold = self.releasable()
        if hold is None:
            raise RuntimeError(f"{self.path} is not held: acquire it first")
        self.check(hold)
        return hold

    def not_held_message(self, why: str) -> str:
        """Return the message for a caller without a hold, which also names the thread or task that has one."""
        other = self.newest()
        if other is not None and other.alive and not ended(other.owner):
            why = f"{why} (by this thread or task; {name(other.owner)!r} has acquired it)"
        return f"{why}: {self.path}"

    def loss(self) -> Loss:
        """Return the loss of the current hold, or of the next one."""
        with self.session.lock:
            hold = self.current()
            return self.path_state.next_loss[self.rule.role] if hold is None else hold.loss

    def holding_tasks(self) -> Iterable[tuple[str, Task | None]]:
        """Return (path, task) for each task of this process that has a hold for which an acquire would wait."""
        rule, holds = self.rule, self.path_state.holds
        for role in list(holds):
            # An acquire waits for a hold only if the acquire or the hold is exclusive.
            if rule.alone in rule.role or rule.alone in role:
                yield from ((self.path, task_of(hold.owner)) for hold in self.path_state.all(role) if hold.alive)

    # -- to acquire ----------------------------------------------------------------------------------------------

    def reenter_or_check(self) -> bool:
        """Add a level to the caller's hold, if the lock is re-entrant and the caller holds it; return whether it did.

        Raises:
            LockLostError: the caller has a loss to settle.
        """
        if self.holds and (hold := self.mine()) is not None:
            self.check(hold)
        return False

    def check_may_wait(self) -> None:
        """Refuse a condition's wait if the lock could not be acquired again after its release."""

    def new_acquire(
        self, wait: bool, deadline: float | None, *, restores: int | None = None, for_block: bool = False
    ) -> tuple[Call, Steps[bool]]:
        """Return the call that acquires a new hold for the caller, and its steps, which return whether they succeeded.

        The steps raise ClientError if the caller is a signal handler or finalizer that interrupted this thread's
        acquire or release of the same lock: the caller would wait for the call that it interrupted.

        Args:
            wait: whether to wait for the lock, or to make a single attempt.
            deadline: when to give up; None waits forever.
            restores: for a condition's wait, the depth of the hold to restore. `cancel_waits()` does not end such an
                acquire.
            for_block: see `Attempt`.
        """
        call = self.call(cancellable=wait and restores is None)
        attempt = self.attempt(self.identity(), wait, deadline, depth=restores or 1, for_block=for_block)
        return call, self.acquire_steps(call, attempt)

    def acquire_steps(self, call: Call, attempt: Attempt) -> Steps[bool]:
        """Acquire a new hold, in this call; return whether it did.

        Raises:
            DeadlockError: the owner would wait forever for its own hold, through another client.
        """
        return self.reported_steps(call, attempt, self.unreported_steps(call, attempt))

    def unreported_steps(self, call: Call, attempt: Attempt) -> Steps[bool]:
        """Acquire as `acquire_steps` does, without a report to the listeners."""
        self.note_wait(call, attempt)
        owner, deadline = attempt.owner, attempt.deadline
        recipe = partial(self.recipe, call, attempt)
        handoff = self.path_state.handoff
        if handoff is not None and any(each.is_at(self.path_state.location) for each in owned_by(owner)):
            # The owner holds the lock through another client. In the hand-off it could wait behind a thread that waits
            # for the owner's hold, and so for itself. The queue on the server shows such a wait; the hand-off does not.
            handoff = None
        if handoff is None:
            ticket = yield from call.run(recipe(), deadline)
        else:
            shown = deadline is None and any(owned_by(owner))
            ticket = yield from handoff.run(call, attempt, recipe, shown=shown)
        if ticket is not None:
            ticket.label = self.label
            self.path_state.new_hold(ticket, self.rule, owner, attempt.depth, owned=self.owned or attempt.for_block)
            if self.limit is not None:
                self.observation.hold_limits.add(self.limit, [ticket])
        if handoff is not None:
            handoff.leave(call)
        self.observation.long_waits.note_end(call, acquired=ticket is not None)
        if ticket is None:
            return False
        self.log_acquired(ticket)
        return True

    def recipe(self, call: Call, attempt: Attempt) -> Recipe[Ticket | None]:
        """Return the recipe that acquires a new hold. The recipe waits until the deadline, or makes one attempt."""
        owner, deadline = attempt.owner, attempt.deadline
        if not attempt.wait:
            return try_acquire(self.path, self.rule, node_data(owner, self.label), self.path_check)
        # A deadlock must not end the acquire of a condition's wait, which must hold the lock again.
        ends = deadline is None and self.on_deadlock == "raise" and bool(call.whole.waits_for)
        data = waiter_data(owner, self.path_state, deadline, label=self.label, ends=ends)
        check_wait = self.wait_check(call, attempt, data)
        return acquire(self.path, self.rule, data, self.path_check, check_wait, marked=HOLDS in data)

    def log_acquired(self, *tickets: Ticket) -> None:
        """Log the tickets of a new hold; warn if their sequence numbers are about to run out."""
        if tickets[0].late:
            log.warning(
                "the sequence numbers of %s are running out: leave the path idle until it is removed, or use another",
                self.path,
                extra={"zk_path": self.path},
            )
        log.debug("acquired %s", tickets)

    # -- to release ----------------------------------------------------------------------------------------------

    def hold_to_release(self) -> Hold:
        """Return the hold to which `release` applies.

        Raises:
            RuntimeError: there is none.
            ClientError: the process was forked; the hold belongs to its parent.
        """
        # This check comes first: a forked child might not run a task, and the search for its owner's hold would fail.
        session = self.session
        session.check_not_forked(self.path)
        if session.dropped:
            session.sweep()
        hold = (self._loss_of_another() if len(self.holds) > 1 else None) or self.releasable()
        hold = hold or next(iter(self.path_state.ended_at_exit(self.rule.role)), None)
        if hold is None:
            raise RuntimeError(self.not_held_message(self.not_held))
        return hold

    def _loss_of_another(self) -> Hold | None:
        """Return the oldest lost hold that another thread has acquired, if the caller's release may be meant for it.

        If threads may release each other's holds, a release that settles a loss must not end a later hold instead.
        """
        if self.owned is not False:
            return None
        mine = self.mine()
        if mine is not None and not (mine.alive and in_generator()):
            return None
        # Leave a hold that a block has acquired to the block's own thread.
        return next((each for each in self.all() if not (each.alive or each.owned)), None)

    def begin_release(self, hold: Hold) -> Call | None:
        """Release one level, or settle one level of a lost hold; return the call for `released`, as `end_hold` does.

        Raises:
            LockLostError: the hold is lost.
            RuntimeError: another thread is releasing it.
        """
        if self.session.exiting and hold.ticket.state is State.DISCARDED:
            # The exit handler has deleted the node. Take no lock here: a thread stopped by the exit may have the lock.
            return None
        try:
            self.check(hold, hold.depth - 1)
        except LockLostError:
            if hold.depth > 1:
                hold.depth -= 1
            else:
                self.path_state.drop(hold)
            raise
        if hold.depth > 1:
            hold.depth -= 1
            return None
        return self.end_hold(hold)

    def end_hold(self, hold: Hold) -> Call | None:
        """End a hold at any depth: send its delete, or leave its node to the next thread.

        Returns:
            The call in which to wait until the node is gone; None if there is nothing to wait for.

        Raises:
            LockLostError: the hold is lost.
            RuntimeError: another thread is releasing it.
        """
        session, owner, story = self.session, self.identity(), hold.ticket.story
        check_depth(FRAMES // 2)
        call = Call(session, self.path, self.path_state)
        try:
            if not self.path_state.claim(hold, owner):
                raise RuntimeError(f"release unlocked lock: {self.path}")
            # The lock covers both steps. Between them, a signal handler may leave the node to another thread, which
            # must not take the node until this block has ended.
            with session.lock:
                if not self.path_state.hand_on(hold):
                    if hold.ticket.state is State.LOST:  # since it was checked
                        raise self.lost_error(hold, 0)
                    if session.discard(hold.ticket):
                        call.tickets.append(hold.ticket)
                    self.path_state.drop(hold)
        except BaseException:
            if self.path_state.claim(hold, owner) and self.path_state.has(hold):
                # If the hold is still alive, the interrupt came before its delete was sent: `drop` sends the delete.
                self.drop(hold)
            raise
        call.settled = True
        if call.tickets:
            # The reply shows whether the hold had been lost.
            return call
        if story is not None:
            story.emit()
        # The next thread of this process has the node, so no reply will show how this hold ended.
        log.debug("released %s", hold.ticket.node)
        return None

    def drop(self, hold: Hold) -> None:
        """Forget a hold, and report its end to the listeners. Unless it is lost, send its delete first."""
        story = hold.ticket.story
        self.drop_unreported(hold)
        if story is not None:
            story.emit()

    def drop_unreported(self, hold: Hold) -> None:
        """Drop a hold as `drop` does, without a report to the listeners."""
        with self.session.lock:
            # If an interrupt struck before the delete was sent, the hold is not alive any more, but still recorded.
            if hold.ticket.state is not State.LOST and self.path_state.has(hold):
                self.session.discard(hold.ticket)
            self.path_state.drop(hold)

    def released(self, call: Call, hold: Hold) -> Steps[None]:
        """Wait until the node of a released hold is gone.

        Raises:
            LockLostError: another client had already deleted the node, so others may have held the lock.
            RefusedError: this client is not allowed to delete the node; the keeper keeps trying.
        """
        story: Story | None = hold.ticket.story
        rest = self._gone(call, hold)
        yield from rest if story is None else story.end_by(call, rest)
        log.debug("released %s", hold.ticket.node)

    def end_with_reply(self, hold: Hold) -> None:
        """Leave the end of a released hold to the reply to its delete; a loss that the reply shows is reported."""
        hold.ticket.on_change = partial(self._note_end, hold)
        # The reply may have come already.
        self._note_end(hold)

    def _note_end(self, hold: Hold) -> None:
        ticket, session = hold.ticket, self.session
        if isinstance(ticket.refusal, NoNode) and not hold.loss.is_lost:
            text = "lost before its release: %s (fencing token %d): %s"
            session.warn_later(text, ticket.node, ticket.token, why_lost(ticket), logger=losses, zk_path=ticket.path)
        # `lost`, `on_lost`, the log and the listeners report the loss.
        with suppress(ZkConcurrentError):
            self.path_state.check_given_up(hold)
        if ticket.story is not None and session.is_gone(ticket):
            ticket.story.emit()

    def _gone(self, call: Call, hold: Hold) -> Steps[None]:
        yield from call.wait_until_gone(hold.ticket)
        self.path_state.check_given_up(hold)
