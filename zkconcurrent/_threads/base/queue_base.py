"""What all queues share: putting, taking and claiming items, each exactly once."""

from __future__ import annotations

import queue
import sys
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from ..._arguments.codec import BYTES, Codec, check_codec, encoded
from ..._arguments.limits import REQUEST_OVERHEAD, check_int, check_positive, check_seconds
from ..._arguments.paths import check_path
from ..._engine.call import Call
from ..._engine.holds import Possession
from ..._engine.session import Session
from ..._errors import LockLostError, OutcomeUnknownError, RefusedError, ZkConcurrentError
from ..._kazoo.link import KazooClient
from ..._protocol.operations import Recipe, SessionExpired
from ..._recipes.queue import claim, manage, put, take
from ..._recipes.queue.order import FIFO, ITEM, Order, frame
from ..._recipes.queue.state import (
    ClaimedItem,
    ClaimLost,
    ItemCall,
    QueueClosed,
    QueueLayout,
    QueueSnapshot,
    QueueView,
    read_snapshot,
)
from ..._recipes.receipts import OutcomeLost, destroy
from ..._runtime.interrupts import insist
from ..._runtime.live_set import LiveSet
from ..._runtime.public import ErrorKind, Self, Traceback, public
from ..._runtime.wait_loops import Steps, outlast, wait
from .node_data import node_data
from .primitive import Primitive, kind_of
from .settling import SettleOnAbandon, SettlingState

T = TypeVar("T")
R = TypeVar("R")
SETTLE_POLL_INTERVAL = 0.01  # seconds

Empty = queue.Empty
Full = queue.Full
if sys.version_info >= (3, 13):
    ShutDown = queue.ShutDown
else:

    @public
    class ShutDown(Exception):
        """Raised when put/get with shut-down queue."""


class QueueState(SettlingState[ItemCall]):
    """The state of a queue that all objects of one client and path share.

    Attributes:
        view: what this client knows of the queue: its receipts, and the last listing.
        finishing: the `ItemCall`s of the `task_done` calls under way.
    """

    def __init__(self, session: Session, kind: str, at: QueueLayout) -> None:
        super().__init__(session, at.path, kind)
        self.view = QueueView(at, session.wall_clock)
        self.finishing: LiveSet[ItemCall] = LiveSet()
        self._drop_with(self.view)

    def clean_up(self, item_call: ItemCall) -> None:
        """Clean up after a call that has ended early. A change that is under way is settled in the background."""
        item_call.leave_name()
        if not item_call.left:
            item_call.finish()
        else:
            if item_call not in self._left:
                item_call.item_taken = item_call.takes and item_call.applied
            self._settle_later(item_call)

    def _settling(self, item_call: ItemCall, error: BaseException) -> Steps[None]:
        """Wait until the item that a failed `get` may have taken is put back; at most a third of the session timeout.

        An interrupted program often stops its client next. An item that has not been put back by then would be lost.
        """
        if not item_call.takes or (isinstance(error, Exception) and not (item_call.applied or item_call.item_taken)):
            return
        # R3: the abandoned call has done this already, unless an interrupt struck as it returned.
        self.clean_up(item_call)
        session = self.session
        limit = session.now() + session.reply_patience
        while item_call.takes and session.now() < limit and not session.link.stopped:
            yield SETTLE_POLL_INTERVAL

    def settled(self, item_call: ItemCall, error: BaseException) -> tuple[Call, Steps[None]]:
        """Return the call that waits for `_settling`, and its steps. Further interrupts do not end it."""
        call = Call(self.session, self.path)
        # The first call has passed the check of the stack's depth, so this one may wait at any depth.
        call.settled = True

        def steps() -> Steps[None]:
            late: deque[BaseException] = deque(maxlen=1)
            yield from outlast(self._settling(item_call, error), late.append)
            if late:
                raise late.pop()

        return call, steps()

    def begin_to_finish(self, item_call: ItemCall) -> bool:
        """Note a call of `task_done`; return whether there is an item for it."""
        with self.session.lock:
            while True:
                under_way = [each for each in self.finishing if each.counts_yet]
                unfinished = self.view.unfinished
                if under_way == [each for each in self.finishing if each.counts_yet]:  # none was applied meanwhile
                    break
            if unfinished <= len(under_way):
                return False
            self.finishing.add(item_call)
            return True

    def finish_before(self, item_call: ItemCall) -> bool:
        """If an item taken in an earlier session is not done, count it as done, as all other clients already do."""
        with self.session.lock:
            if self.view.count_unfinished_before(self.session.registry.session) <= 0:
                return False
            item_call.applied = True
            self.view.done_before += 1
            return True

    def _settling_of(self, item_call: ItemCall) -> Recipe[bool]:
        return self._finishing(item_call) if item_call.purpose == "count" else claim.settle(item_call)

    def _is_tried_again(self, item_call: ItemCall) -> bool:
        # Without another try, the item would stay claimed as long as this client lives, or would be lost.
        return item_call.purpose in ("acknowledge", "give back", "restore")

    def _finishing(self, item_call: ItemCall) -> Recipe[bool]:
        """Complete a `task_done`: until then, no other call can count its item as done."""
        while not item_call.applied or item_call.sent is not None:
            try:
                yield from manage.done(item_call)
            except SessionExpired:
                if self.finish_before(item_call):
                    break
        return True


class QueueBase(Primitive, Generic[T]):
    """The methods that all queues share."""

    _order: Order = FIFO
    _counts = True
    _empty: type[Exception] = Empty
    _full: type[Exception] = Full
    _shut_down: type[Exception] = ShutDown
    _path_state: QueueState

    def __init__(
        self,
        client: KazooClient,
        path: str,
        maxsize: int = 0,
        *,
        codec: Codec[Any] = BYTES,
        max_attempts: int | None = None,
    ) -> None:
        self._layout = QueueLayout(check_path(path), self._order, max(0, check_int("maxsize", maxsize)))
        self._codec: Codec[T] = check_codec(codec)
        self._most = 0 if max_attempts is None else check_positive("max_attempts", max_attempts)
        self._maxsize, self._max_attempts = self._layout.maxsize, max_attempts
        super().__init__(client, path)
        self._view = view = self._path_state.view
        if view.at != self._layout:
            raise ValueError(
                f"this client has made the queue at {path!r} as {view.at.order.name} with maxsize={view.at.maxsize}, "
                f"not as {self._order.name} with maxsize={self._layout.maxsize}: all must give the same"
            )

    def _new_state(self) -> QueueState:
        return QueueState(self._session, self._kind, self._layout)

    # -- as in `queue` -----------------------------------------------------------------------------------------------

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """Put an item into the queue.

        Args:
            item: the item, as the codec takes it.
            block: whether to wait for a free place, and for ZooKeeper.
            timeout: how long to wait, in seconds; None waits forever.

        Raises:
            ValueError: the timeout is negative.
            Full: the queue had no free place in time, or ZooKeeper was out of reach; the item was not put.
            ShutDown: the queue is shut down.
            RefusedError: the item is too large.
            OutcomeUnknownError: the timeout passed before the client knew whether the item was put.
            ClientError: the client can't be used here; or the caller is a signal handler or finalizer that interrupted
                this thread's call of the same queue, and would wait for it.
            ForeignNodeError: the path belongs to something else.
        """
        return self._putting(item, self._prefix_of(item), block, timeout)

    def _putting(self, item: T, prefix: str, block: bool, timeout: float | None) -> None:
        deadline = self._limit(block, timeout)
        item_call = self._item_call("put")
        data = frame([encoded(self._codec, item, self._path)])
        link = self._session.link
        most = link.transport.max_request - REQUEST_OVERHEAD - 6 * len(link.full(self._path).encode())
        if len(data) > most:
            raise RefusedError(
                self._path,
                f"the item has {len(data):,} bytes; an item of more than {most:,} could not be claimed or given back, "
                "as one request would be larger than the client's `max_request`: store it elsewhere, and put its key",
            )
        wait = block and (timeout is None or timeout > 0)

        def steps(call: Call) -> Steps[None]:
            done = yield from call.run(put.put(item_call, data, prefix, wait=wait), deadline)
            if done is None and item_call.sent:
                raise OutcomeUnknownError(
                    self._path,
                    "the timeout passed, and it is unknown whether the item was put; look for it in the queue, or put "
                    "it again if it may be processed twice",
                )
            if not done and not item_call.applied:
                raise self._full

        return self._do(item_call, steps)

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Take the next item out of the queue. If the process then dies, the item is lost: see `claim`.

        Args:
            block: whether to wait for an item, and for ZooKeeper.
            timeout: how long to wait, in seconds; None waits forever.

        Raises:
            ValueError: the timeout is negative.
            Empty: no item came in time, or ZooKeeper was out of reach.
            ShutDown: the queue is shut down, and no item is left.
            ClientError: the client can't be used here; or the caller is a signal handler or finalizer: see `put`.
            ForeignNodeError: the codec can't decode the item that the error names: the item is moved to `<path>/dead`
                or, with `max_attempts`, stays until that many calls have failed. Or the path belongs to something else.
        """
        return self._taking("get", block, timeout, _item)  # type: ignore[no-any-return]

    def put_nowait(self, item: T) -> None:
        """Put an item without waiting for a free place: `put(item, block=False)`."""
        return self.put(item, block=False)

    def get_nowait(self) -> T:
        """Take the next item without waiting for one: `get(block=False)`."""
        return self.get(block=False)

    def qsize(self) -> int:
        """Return how many items can be taken, as no consumer has claimed them. Asks the leader."""
        return self._ask(lambda snapshot: len(snapshot.free))

    def empty(self) -> bool:
        """Return whether no item can be taken. Asks the leader."""
        return self._ask(lambda snapshot: not snapshot.free)

    # -- claims ------------------------------------------------------------------------------------------------------

    def claim(self, block: bool = True, timeout: float | None = None) -> Claim[T]:
        """Return a context manager that takes the next item, and acknowledges it when its block has ended.

        If the block raises an exception, the process dies or its session is lost, the item is free again for any
        consumer, in its old place in the queue. So each item is acknowledged once, and processed at least once.

        ::

            with jobs.claim(timeout=60) as claim:
                work(claim.item)

        Args:
            block: whether to wait for an item, and for ZooKeeper.
            timeout: how long to wait, in seconds; None waits forever.

        Raises:
            ValueError: the timeout is negative.
            RuntimeError: raised on entering the block, if another block of this claim has not ended. This happens when
                threads share a claim.
        """
        self._limit(block, timeout)
        return Claim(self, block, timeout)

    def dead(self) -> list[T | bytes]:
        """Return the items that were claimed `max_attempts` times and never acknowledged, the oldest first.

        They include the items that the codec could not decode. Such an item is returned as bytes.
        """

        def decoded(payload: bytes) -> T | bytes:
            try:
                return self._codec.decode(payload)
            except ValueError:
                return payload

        return self._run(manage.dead(self._view), lambda found: [decoded(each) for each in found])

    def destroy(self) -> None:
        """Remove the queue's nodes and all items.

        Raises:
            RuntimeError: another client uses the queue, or a call of any client waits for it; no item was deleted. But
                if that client came during the call, and there were more than 1,000 items, some items may be gone.
            ClientError: the client can't be used here.
            ForeignNodeError: the path has other nodes; none of them is deleted.
        """
        return self._run(destroy(self._view), self._destroyed)

    # -- how ---------------------------------------------------------------------------------------------------------

    def _limit(self, block: bool, timeout: float | None) -> float | None:
        """Convert `get(block, timeout)` arguments to a deadline.

        Raises:
            TypeError: the timeout is not a number.
            ValueError: the timeout is negative.
        """
        if not block:
            return self._deadline(False, -1)
        if timeout is not None:
            check_seconds("timeout", timeout)
            if timeout < 0:
                raise ValueError("'timeout' must be a non-negative number")
        return self._until(timeout)

    def _item_call(self, purpose: str) -> ItemCall:
        label = node_data(self._identity())
        decode = self._codec.decode
        return ItemCall(self._view, purpose, label, most=self._most, counts=self._counts, decode=decode)

    def _do(self, item_call: ItemCall, make: Callable[[Call], Steps[R]]) -> R:
        """Run the steps of a call; if they do not come to their end, settle the call."""
        call = Call(
            self._session, self._path, SettleOnAbandon(self._path_state, partial(self._path_state.clean_up, item_call))
        )

        def steps() -> Steps[R]:
            try:
                result = yield from make(call)
            except QueueClosed:
                raise self._shut_down from None
            except OutcomeLost:
                raise OutcomeUnknownError(
                    self._path,
                    "the receipt was removed, or is that of a restored backup, so it is unknown whether the change was "
                    "applied; look at the queue, and decide whether to repeat the call",
                ) from None
            # The call gives back its receipt, but is not finished: an interrupt may still keep the result from reaching
            # the caller, and any item that the call took is then put back.
            item_call.put_down()
            return result

        return self._await_item_call(item_call, call, steps())

    def _await_item_call(self, item_call: ItemCall, call: Call, steps: Steps[R]) -> R:
        try:
            return self._await(call, steps)
        except BaseException as error:
            wait(*self._path_state.settled(item_call, error))
            raise

    def _taking(self, purpose: str, block: bool, timeout: float | None, then: Callable[[ClaimedItem], R]) -> R:
        deadline = self._limit(block, timeout)
        wait = block and (timeout is None or timeout > 0)
        item_call = self._item_call(purpose)

        def steps(call: Call) -> Steps[R]:
            taken = yield from call.run(take.take(item_call, wait=wait), deadline)
            if taken is None:
                raise self._empty
            return then(taken)

        return self._do(item_call, steps)

    def _ask(self, then: Callable[[QueueSnapshot], R]) -> R:
        return self._run(read_snapshot(self._view), then)

    def _prefix_of(self, _item: T) -> str:
        return ITEM

    def __repr__(self) -> str:
        return f"<{kind_of(self)} at {id(self):#x} path={self._path!r}>"


class BaseClaim(Generic[T]):
    """What the claims of threads and of tasks share."""

    item: T
    attempts: int
    fencing_token: int

    def __init__(self, of: QueueBase[T], block: bool, timeout: float | None) -> None:
        # The queue runs this claim's calls; a queue for tasks returns pending calls instead.
        self._queue = of
        self._state = of._path_state
        self._session = self._state.session
        self._block = block
        self._timeout = timeout
        self._taken: ClaimedItem | None = None
        self._giving_back: ItemCall | None = None
        self._owner, self._since = 0, 0.0
        self._state.keeping.add(self)

    if not TYPE_CHECKING:

        def __getattr__(self, name):  # called for missing attributes only
            if name not in ("item", "attempts", "fencing_token"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise AttributeError(
                f"a claim has its {name} only once its block has begun: `with queue.claim() as claim:`, in a coroutine "
                f"`async with`; then `claim.{name}`"
            )

    def _enter(self) -> Self:
        self._check_free()
        return self._queue._taking("claim", self._block, self._timeout, self._entered)

    def _entered(self, taken: ClaimedItem) -> Self:
        with self._session.lock:
            # Another block of this claim may have begun while this one waited. The error ends the call before the
            # caller gets the item, so the item is given back.
            self._check_free()
            self.item, self.attempts, self.fencing_token = taken.item, taken.attempts, taken.token
            self._owner, self._since = self._queue._identity(), self._session.now()
            self._taken = taken
        return self

    def _check_free(self) -> None:
        if self._taken is not None:
            raise RuntimeError(f"this claim is in use: call claim() again for another one: {self!r}")

    def _kept(self) -> Iterable[Possession]:
        """Return this claim, for `inspect()`."""
        if (taken := self._taken) is None:
            return ()
        return (Possession("claim", taken.token, self._owner, self._session.now() - self._since),)

    def _exit(self, *, acknowledges: bool) -> object:
        taken = self._taken
        if taken is None:
            raise RuntimeError(f"this claim has no item, as its block has not begun, or has ended: {self!r}")
        item_call = self._queue._item_call("acknowledge" if acknowledges else "give back")
        item_call.taken = taken

        def steps(call: Call) -> Steps[None]:
            # From here on, an interrupt leaves `item_call` to be settled in the background.
            self._taken = None
            if not acknowledges:
                try:
                    yield from call.run(claim.give_back(item_call))
                except ZkConcurrentError:
                    # This error is dropped, as the error of the block says more. The call fails, for example, if a
                    # generator is garbage collected on kazoo's thread. The library gives the item back later, unless
                    # the client is stopped.
                    if not self._session.link.stopped:
                        self._state.clean_up(item_call)
                return
            try:
                yield from call.run(claim.acknowledge(item_call))
            except ClaimLost as lost:
                raise LockLostError(
                    self._state.path,
                    f"the claim of {taken.name!r} was lost (its session expired, its node was deleted, or the item's "
                    "node was deleted or written), so another consumer may process the item again",
                    lost.cause,
                ) from None

        return self._queue._do(item_call, steps)

    def _leave_to_keeper(self) -> None:
        """Give the item back in the background: the caller can't wait, as it was interrupted or its event loop is gone.

        A second call changes nothing.
        """
        taken = self._taken
        if taken is not None and not self._session.forked:
            if self._giving_back is None or self._giving_back.taken is not taken:
                item_call = self._queue._item_call("give back")
                item_call.taken = taken
                self._giving_back = item_call
            self._state.clean_up(self._giving_back)
            self._taken = None  # R2

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"cannot pickle the claim of {self._state.path!r}: pickle the queue, and claim in the other process"
        )

    def __repr__(self) -> str:
        state = "no item" if self._taken is None else f"{self._taken.name} token={self._taken.token}"
        return f"<{kind_of(self)} {state} path={self._state.path!r}>"


def _item(taken: ClaimedItem) -> Any:
    return taken.item


@public
class Claim(BaseClaim[T]):
    """An item that this process has claimed for the duration of a `with` block; see `Queue.claim`.

    Attributes:
        item: the item.
        attempts: how often it was claimed, including this claim and the claims of killed consumers. A `get` whose
            codec could not decode the item is included, too.
        fencing_token: a later claim of the same item has a greater one.
    """

    def __enter__(self) -> Claim[T]:
        return self._enter()

    def __exit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        try:
            if not self._session.forked:  # the claim is the parent's
                self._exit(acknowledges=kind is None)
        except BaseException:
            # If an interrupt struck before the steps of `_exit`, the item is still claimed; otherwise nothing is left
            # to do.
            insist(self._leave_to_keeper)
            raise
