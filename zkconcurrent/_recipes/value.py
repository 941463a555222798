"""A value in one node: every change names the version that it was decided on, and is applied exactly once.

A change is one `multi`: it writes the node on condition of its version, and a receipt (`receipts`). The receipt lies
below the node. So the `multi` also fails if the node was destroyed and made anew and has that version again. The client
remembers the value that it wrote last, so that the next change needs no read. A change that was decided on an older
value conflicts, and is decided again.

The node of an `AtomicLong` is Curator's, with eight bytes, which have no room for a note of the change that was
applied: hence the receipt.

A call that writes *nothing*, such as a `compare_and_set` that finds another value, must not rely on the remembered
value: it decides again, on a value that was read during the call.

A client that decides on the value in its memory needs one round trip, and a client that has met a conflict needs two.
So the former would win again and again. After three conflicts a client queues, as for a lock, and the first in that
queue goes on trying. The other clients read the queue at each conflict and after eight changes, and queue too if it is
not empty. So each of them overtakes the first one eight times at most. The order is for fairness: it excludes no
client, and needs no lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, TypeVar

from .._errors import ForeignNodeError
from .._protocol import operations as op
from .._protocol.layout import FOLDERS
from .._protocol.operations import Recipe
from .._protocol.ticket import Ticket
from .destroy import Tree
from .lock import come_first
from .nodes import foreign_child, foreign_data, kind_of, lay_out_marked, missing, watch_until
from .receipts import PendingWrite, ReceiptPool, ready, write

R = TypeVar("R")
PATIENCE = 3  # conflicts
RECEIPTS, QUEUE = FOLDERS["SharedValue"]
# After this many changes that were decided without a read, the next call reads the value and the queue.
READ_AFTER = 8

Decide: TypeAlias = Callable[[bytes, int], tuple[bytes | None, R]]
"""Takes the node's data and version; returns the new data, or None for no change, and the call's result."""


class ValueLayout(NamedTuple):
    """The nodes of a value.

    Attributes:
        path: the node.
        kind: the kind of primitive, for error messages.
        initial: the data of a node that no client has set.
        size: how many bytes the data has; 0 for any number.
    """

    path: str
    kind: str
    initial: bytes
    size: int = 0

    @property
    def receipts(self) -> str:
        """The parent of the receipts."""
        return f"{self.path}/{RECEIPTS}"

    @property
    def queue(self) -> str:
        """The queue of the clients that have met conflicts; a path for Curator's `PromotedToLock`, too."""
        return f"{self.path}/{QUEUE}"

    def check(self, node: op.Node) -> None:
        """Refuse a node that does not belong to a value.

        Raises:
            ForeignNodeError: it is not persistent, or its data is not a value's.
        """
        if node.session:
            raise ForeignNodeError(
                self.path, "the node is not persistent, so the value would be lost; delete it, or use another path"
            )
        if not node.created and kind_of(node.data) is not None:
            # No client of a value has used the node.
            raise foreign_data(self.path, node.data, f"the path is used as that of an {self.kind}")
        # Empty data is 0, as for Curator.
        if self.size and node.data and len(node.data) != self.size:
            raise foreign_data(self.path, node.data, f"that of an {self.kind} has {self.size} bytes")


class Seen(NamedTuple):
    """The node as last seen; `age` counts this client's changes since it was read."""

    data: bytes
    version: int
    age: int = 0


def parts(at: ValueLayout) -> tuple[op.Create, op.Container, op.Container]:
    """Return the parts that create value, receipts and queue. The receipts mark the node as a value: see `check`."""
    return op.Create(at.path, at.initial), op.Container(at.receipts), op.Container(at.queue)


class ValueView(ReceiptPool):
    """The state of one value that all threads of a client share.

    Attributes:
        at: the value's nodes.
    """

    def __init__(self, at: ValueLayout) -> None:
        super().__init__(at.receipts)
        self.at = at

    @property
    def tree(self) -> Tree:
        """The value's nodes; the clients in its queue are its users."""
        at = self.at
        return Tree(at.path, at.kind, at.check, {at.receipts: bool}, (at.queue,))

    def lay_out(self, *_queue: op.Container) -> Recipe[None]:
        """Make the nodes that every client shares.

        Raises:
            ForeignNodeError: the path belongs to something else.
        """
        value, *folders = parts(self.at)
        yield from lay_out_marked("SharedValue", value, folders, self._is_value, self._refuse_lock)
        self.laid_out = True

    def _is_value(self, node: op.Node) -> bool:
        self.at.check(node)
        return True

    def _refuse_lock(self, node: op.Node, names: Sequence[str]) -> Recipe[None]:
        """Refuse a condition's lock, whose contenders queue at the same place as a value's."""
        at = self.at
        if not node.data and RECEIPTS not in names and QUEUE in names and (yield op.Children(at.queue)):
            raise foreign_child(at.path, QUEUE, at.kind)


class Change:
    """The change that one call makes to the value.

    Attributes:
        decide: turns the data into new data and a result; may be called several times.
        alone: `decide` is the user's function: only the caller may call it, and no other change goes with it.
        wake: ends the sleep of the call.
        batch: the batch that its call carries out, if the change leads it.
        gone: its call has ended early.
        done: the change was applied, or refused.
        result: what the call returns.
        error: what the call raises.
    """

    __slots__ = ("alone", "batch", "decide", "done", "error", "gone", "result", "wake")

    def __init__(self, decide: Decide[Any], *, alone: bool) -> None:
        self.decide = decide
        self.alone = alone
        self.wake: Callable[[], None] = lambda: None
        self.batch: ValueBatch | None = None
        self.gone = False
        self.done = False
        self.result: object = None
        self.error: BaseException | None = None


class ValueBatch(PendingWrite):
    """Changes that one `multi` applies; each is decided on the value that the change before it leaves.

    Attributes:
        leader: the change whose call carries it out.
        changes: the changes.
        outcomes: the result and the error of each change, as last decided.
        data: the value's data after the changes.
        unchanged: the value as seen when the batch was last decided, if the changes leave it as it is.
        combiner: the `Combiner` in which its changes wait, while the batch is settled.
        queues: the batch may wait in the queue; otherwise it competes until it is applied.
    """

    view: ValueView
    decides_anew = True

    def __init__(self, view: ValueView, label: bytes, changes: Sequence[Change], *, queues: bool = True) -> None:
        super().__init__(view, label)
        self.queues = queues
        self.changes = changes
        self.leader = changes[0]
        self.outcomes: list[tuple[object, BaseException | None]] = []
        self.data = b""
        self.unchanged: Seen | None = None
        self.combiner: Any = None

    @property
    def left(self) -> bool:
        """Whether it is unknown if the batch was applied."""
        return not self.over and self.sent is not None

    def decide(self, seen: Seen) -> bytes | None:
        """Return the data that all changes make of what was seen, or None if they change nothing."""
        data, changed = seen.data, 0
        outcomes: list[tuple[object, BaseException | None]] = []
        for change in self.changes:
            try:
                new, result = change.decide(data, seen.version + changed)
            except Exception as error:
                outcomes.append((None, error))
                continue
            outcomes.append((result, None))
            if new is not None:
                data, changed = new, changed + 1
        self.outcomes, self.data = outcomes, data
        return data if changed else None

    def deliver(self) -> None:
        """Give every change its outcome. An interrupted call does this again (R3)."""
        for change, (result, error) in zip(self.changes, self.outcomes, strict=True):
            change.result, change.error = result, error
            change.done = True


def read_value(at: ValueLayout) -> Recipe[bytes]:
    """Return the value, read behind a `sync`. A value that was never set needs no node."""
    _, node = yield op.Sync(at.path), op.Get(at.path)
    if node is None:
        return at.initial
    at.check(node)
    return node.data  # type: ignore[no-any-return]


def apply(batch: ValueBatch) -> Recipe[bool]:
    """Apply a batch.

    Raises:
        OutcomeLost: the receipt was removed, so it is unknown whether the batch was applied.
        ForeignNodeError: the path belongs to something else.
    """
    at, conflicts = batch.view.at, 0
    while True:
        receipt = yield from ready(batch)
        looked = receipt.seen is None or receipt.seen.age >= READ_AFTER
        if looked:
            _, node, queue = yield op.Sync(at.path), op.Get(at.path), op.Children(at.queue)
            if node is None:
                # The value was destroyed meanwhile.
                batch.view.laid_out = False
                continue
            at.check(node)
            receipt.seen = Seen(node.data, node.version)
            if batch.unchanged is not None and batch.unchanged[:2] == receipt.seen[:2]:
                # The batch is not decided again: a second decision would lose an error that a signal handler has raised
                # in the user's function.
                batch.applied = True
                return True
            if batch.queues and (queue or conflicts >= PATIENCE):
                return (yield from apply_in_turn(batch))
        if (yield from attempt(batch, looked=looked)):
            return True
        conflicts += 1


def attempt(batch: ValueBatch, *leaving: op.Delete, looked: bool) -> Recipe[bool]:
    """Decide and write, once; False if the batch must be decided anew.

    Args:
        batch: the batch.
        leaving: deletes to put in the write's `multi`.
        looked: the value was read during the call, so a decision to change nothing is final.

    Raises:
        NodeGone: a node of `leaving` is gone.
    """
    receipt = batch.receipt
    assert receipt is not None
    seen = receipt.seen
    data = batch.decide(seen)
    if data is None:
        receipt.seen = seen if looked else None
        batch.unchanged = seen
        batch.applied = looked
        return looked
    batch.unchanged = None
    receipt.seen = None  # until the outcome is known
    try:
        yield from write(batch, (*leaving, op.SetNode(batch.view.at.path, data, seen.version)))
    except (op.NoNode, op.BadVersion) as failed:
        if failed.part < len(leaving):
            raise op.NodeGone from None
        return False
    receipt.seen = Seen(data, op.next_version(seen.version), seen.age + 1)
    return True


def apply_in_turn(batch: ValueBatch) -> Recipe[bool]:
    """Apply a batch once its client is first in the queue: then only clients that have not seen the queue compete."""
    at = batch.view.at
    while True:
        ticket: Ticket = yield op.NewTicket(at.queue)
        try:
            yield from come_first(ticket, batch.label, batch.view.lay_out)
            while True:
                receipt = yield from ready(batch)
                _, node = yield op.Sync(at.path), op.Get(at.path)
                if node is None:
                    batch.view.laid_out = False
                    continue
                at.check(node)
                receipt.seen = Seen(node.data, node.version)
                if (yield from attempt(batch, op.Delete(ticket.node, ticket), looked=True)):
                    yield op.MarkDeleted(ticket) if receipt.seen.age else op.Discard(ticket)
                    return True
        except op.Requeue:
            yield op.Discard(ticket)


def make(at: ValueLayout) -> Recipe[None]:
    """Make the value, with the parent of its receipts, unless a node is there, which may be another kind's."""
    value, receipts, _ = parts(at)
    lacking = yield from missing(value, receipts)
    if value in lacking:
        # The server has just removed the parent, which was empty: the caller reads again.
        with suppress(op.NoNode):
            yield op.CreateTogether(lacking)


def read_or_make(at: ValueLayout) -> Recipe[Seen]:
    """Return the value, read behind a `sync`; a node that is missing is made."""
    while True:
        _, node = yield op.Sync(at.path), op.Get(at.path)
        if node is not None:
            at.check(node)
            return Seen(node.data, node.version)
        yield from make(at)


def wait_until(at: ValueLayout, accepts: Callable[[Seen], object]) -> Recipe[Seen]:
    """Wait until the value is accepted; return it. A missing node is made before the wait."""
    last: Seen | None = None

    def accepted(node: op.Node | None) -> Seen | None:
        nonlocal last
        if node is not None:
            at.check(node)
        # A value that was never set counts as the data that its node will have.
        seen = Seen(at.initial, 0) if node is None else Seen(node.data, node.version)
        if seen == last:
            return None
        last = seen
        return seen if accepts(seen) else None

    return (yield from watch_until(at.path, accepted, lambda: make(at)))
