"""The base of atomic numbers and shared values: the threads of a process make their changes together.

A thread that changes a value takes its turn. While one thread's change is under way, the other threads' changes gather.
Then one of those threads applies all gathered changes together, in their order of arrival. Many threads thus need few
requests, and do not compete with each other. Turns are for speed alone: correctness rests on the recipe
(`_recipes/value.py`). So a signal handler or finalizer that interrupts a call at the same path makes its change without
a turn.

If the thread that makes a batch is interrupted, a thread of the library finds out from the receipt whether the batch
was applied. The other threads then get their results, or take the next turn. The tasks of each event loop take turns
of their own, so a loop that is stuck keeps no thread waiting. An `update` is a batch of its own, as only the caller's
thread may call its function. The function may run long, or wait for another thread's local lock. So other changes
wait only a moment for the function, and then go on without a turn; the function is called again.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

from ..._arguments.limits import REQUEST_OVERHEAD
from ..._engine.call import Call
from ..._engine.session import Session
from ..._errors import ClientError, OutcomeUnknownError, RefusedError
from ..._kazoo.link import KazooClient
from ..._protocol.operations import Recipe
from ..._recipes.receipts import OutcomeLost, destroy, settle
from ..._recipes.value import Change, Decide, ValueBatch, ValueLayout, ValueView, apply
from ..._runtime.interrupts import check_not_interrupted
from ..._runtime.wait_loops import Steps, call_user
from .node_data import node_data
from .primitive import Primitive
from .settling import SettleOnAbandon, SettlingState

T = TypeVar("T")
R = TypeVar("R")
# How long a change waits while another thread's `update` runs its function.
FUNCTION_PATIENCE = 0.1  # seconds


class Combiner:
    """The changes of threads, or of one event loop's tasks, that are made together.

    Attributes:
        pending: the changes, in the order in which they came. Any thread or signal handler may add or remove its
            own change at any time, so iterate only over a copy.
        batch: the changes that are under way. Only `ValueState` changes it, with the session's lock held.
    """

    def __init__(self) -> None:
        self.pending: deque[Change] = deque()
        self.batch: ValueBatch | None = None


class ValueState(SettlingState[ValueBatch]):
    """The state of a value that all objects of one client and path share.

    Attributes:
        view: the receipts of this client.
        combiner: the combiner of the threads.
        loop_combiners: a combiner for the tasks of each event loop, so that a stuck loop delays only its own tasks.
        updating: the threads and tasks whose `update` is running its function, each with the time when that began.
    """

    def __init__(self, session: Session, kind: str, at: ValueLayout) -> None:
        super().__init__(session, at.path, kind)
        self.view = ValueView(at)
        self.combiner = Combiner()
        self.loop_combiners: weakref.WeakKeyDictionary[object, Combiner] = weakref.WeakKeyDictionary()
        self.updating: dict[int, float] = {}
        self._drop_with(self.view)

    def changing(self, call: Call, combiner: Combiner, change: Change, label: bytes) -> Steps[Any]:
        """Make a change in its turn; return the change's result."""
        self.session.check_usable(self.path)
        change.wake = call.wake
        combiner.pending.append(change)
        while not change.done:
            batch = self._lead(combiner, change, label)
            if batch is None and (self._interrupts(call) or self._waits_for_function(combiner)):
                batch = self._lead_alone(combiner, change, label)
            if batch is None:
                self.session.check_usable(self.path)
                # Nothing wakes the call while a function runs.
                yield FUNCTION_PATIENCE if any(each.alone for each in list(combiner.pending)) else None
                continue
            try:
                yield from call.run(apply(batch))
            except OutcomeLost:
                raise self._unknown() from None
            self._end_batch(combiner, batch)
        if change.error is None:
            return change.result
        try:
            raise change.error
        finally:
            # Otherwise the traceback, its frames and the change would keep each other alive.
            change.error = None

    def _lead(self, combiner: Combiner, change: Change, label: bytes) -> ValueBatch | None:
        """Begin the next batch if this change comes first; otherwise return None.

        Another thread may have made this change meanwhile, so `done` can be relied on only under the lock.
        """
        with self.session.lock:
            if (led := combiner.batch) is not None:
                if led.leader.gone:
                    # A second interrupt may have struck the leader's own `clean_up`.
                    self.clean_up(combiner, led.leader)
                return None
            waiting = [each for each in list(combiner.pending) if not each.gone]
            if change.done or change is not waiting[0]:
                return None
            changes = [change] if change.alone else list(takewhile(lambda each: not each.alone, waiting))
            change.batch = combiner.batch = ValueBatch(self.view, label, changes)
            return change.batch

    def _lead_alone(self, combiner: Combiner, change: Change, label: bytes) -> ValueBatch | None:
        """Begin a batch of this change alone, without a turn or a place in the queue, unless it is done or under way.

        The interrupted call may have both the turn and the place, and continues only when the call of this change
        returns.
        """
        with self.session.lock:
            if change.done or (combiner.batch is not None and change in combiner.batch.changes):
                return None
            _remove(combiner, change)
            change.batch = ValueBatch(self.view, label, [change], queues=False)
            return change.batch

    def _waits_for_function(self, combiner: Combiner) -> bool:
        """Return whether an `update` has the turn, and its function may be waiting for this very thread."""
        led, now = combiner.batch, self.session.now()
        return (
            led is not None
            and led.leader.alone
            and any(now - began >= FUNCTION_PATIENCE for began in list(self.updating.values()))
        )

    def _interrupts(self, call: Call) -> bool:
        if self.settler == self.session.identity():
            # A finalizer makes the call, on the thread that settles. That thread continues only when the call returns.
            return True
        try:
            check_not_interrupted(call)
        except ClientError:
            return True
        return False

    def _end_batch(self, combiner: Combiner, batch: ValueBatch) -> None:
        """End a batch that was applied, or never will be, and wake the leader of the next batch. May run twice (R3)."""
        with self.session.lock:
            if batch.applied:
                batch.deliver()
                self.notes += 1
                self.last_seen = batch.data
            elif batch.unknown:
                for change in batch.changes:
                    change.error, change.done = self._unknown(), True
            for change in [each for each in list(combiner.pending) if each.done or each.gone]:
                _remove(combiner, change)
            batch.finish()
            if combiner.batch is batch:
                combiner.batch = None
            for change in (*batch.changes[1:], *list(combiner.pending)[:1]):
                change.wake()
            # Otherwise the leader and the batch would keep each other alive, and also the caller's object.
            batch.leader.batch = None

    def clean_up(self, combiner: Combiner, change: Change) -> None:
        """End a change whose call has ended early. If the change is under way, settle it in the background."""
        change.gone = True
        batch = change.batch
        if batch is not None and batch.left:
            batch.combiner = combiner
            self._settle_later(batch)
        elif batch is not None:
            # R3: the batch has not ended, or an interrupt cut its ending short.
            self._end_batch(combiner, batch)
        elif not change.done:
            with self.session.lock:
                if combiner.batch is None and combiner.pending:
                    self._pass_on(combiner)

    def _pass_on(self, combiner: Combiner) -> None:
        """Wake the first change, as the change that was woken for its turn is gone."""
        for change in [each for each in list(combiner.pending) if each.gone]:
            _remove(combiner, change)
        for change in list(combiner.pending)[:1]:
            change.wake()

    def _settling_of(self, pending_write: ValueBatch) -> Recipe[bool]:
        return settle(pending_write)

    def _finish(self, pending_write: ValueBatch) -> None:
        self._end_batch(pending_write.combiner, pending_write)

    def _unknown(self) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            self.path,
            "the receipt was removed, or is that of a restored backup, or the client was stopped, so it is unknown "
            "whether the change was applied; get() the value, and decide whether to repeat the change",
        )


def _remove(combiner: Combiner, change: Change) -> None:
    # A signal handler may just have removed the change.
    with suppress(ValueError):
        combiner.pending.remove(change)


class BaseValue(Primitive):
    """The methods that atomic numbers and shared values share."""

    _path_state: ValueState
    _at: ValueLayout

    def __init__(self, client: KazooClient, path: str) -> None:
        super().__init__(client, path)
        if (at := self._path_state.view.at) != self._at and not self._begins_equal(at):
            raise ValueError(
                f"this client has made the {self._kind} at {path!r} with the initial data {at.initial[:100]!r}, not "
                f"{self._at.initial[:100]!r}: all must give the same"
            )

    def _new_state(self) -> ValueState:
        return ValueState(self._session, self._kind, self._at)

    def _begins_equal(self, at: ValueLayout) -> bool:  # noqa: ARG002
        """Return whether that layout's initial data encode this object's initial value, in other bytes."""
        return False

    def _combiner(self) -> Combiner:
        """Return the combiner to which the caller adds its change."""
        return self._path_state.combiner

    def _update(self, func: Callable[[T], T], decode: Callable[[bytes], T], encode: Callable[[T], bytes]) -> T:
        """Replace the value with the result of the user's function, run on the caller's thread; return the result."""
        me, updating = self._identity(), self._path_state.updating

        def decide(data: bytes, _: int) -> tuple[bytes, T]:
            updating[me] = self._session.now()
            try:
                new = func(decode(data))
                return encode(new), new
            finally:
                updating.pop(me, None)

        # `_change` refuses a call that this caller's own function makes. The mark of that function must then stay until
        # the function returns.
        within = me in updating
        try:
            return self._change(decide, alone=True)
        finally:
            if not within:
                # R3: an interrupt may have kept `decide` from removing the mark.
                updating.pop(me, None)

    def _change(self, decide: Decide[R], *, alone: bool = False) -> R:
        """Make a change; return its result. A change with `alone` is not made together with others."""
        state, combiner, me = self._path_state, self._combiner(), self._identity()
        if me in state.updating:
            raise RuntimeError(
                f"the function given to update() changes {self._path!r} itself, and would be called forever: it must "
                "only return the new value"
            )
        # The user's function or `==` may raise StopIteration.
        change = Change(partial(call_user, decide), alone=alone)
        call = Call(self._session, self._path, SettleOnAbandon(state, partial(state.clean_up, combiner, change)))
        try:
            steps: Steps[R] = state.changing(call, combiner, change, node_data(me))
            return self._await(call, steps)
        except BaseException:
            # R3: the abandoned call has done this, unless a second interrupt struck.
            state.clean_up(combiner, change)
            raise

    def _check_size(self, data: bytes) -> bytes:
        """Return the data, if one request can write it.

        Raises:
            RefusedError: it is too large.
        """
        link = self._session.link
        most = link.transport.max_request - REQUEST_OVERHEAD - 3 * len(link.full(self._path).encode())
        if len(data) > most:
            raise RefusedError(self._path, f"the value has {len(data):,} bytes; one request has room for {most:,}")
        return data

    def destroy(self) -> None:
        """Remove the value's nodes; the next use begins with the initial value.

        Raises:
            RuntimeError: a client is queued to change the value.
            ClientError: the client can't be used here.
            ForeignNodeError: the path has other nodes; none of them is deleted.
        """
        return self._run(destroy(self._path_state.view), self._destroyed)
