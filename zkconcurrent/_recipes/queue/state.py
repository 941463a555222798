"""The nodes of a `Queue`, and the state that a client and each of its calls keep about these nodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from ..._errors import LossCause
from ..._protocol import operations as op
from ..._protocol.operations import Recipe
from ..._protocol.ticket import Ticket
from ..destroy import Tree
from ..nodes import lay_out_marked
from ..receipts import PendingWrite, ReceiptPool
from .order import Header, Order, free, is_item, items

KEPT = 64
"""How many names of a listing a client keeps: the first 64, or one 64th of the listing if that is more.

The client lists again once it has used up the kept names. Only then does it see an item that another client has given
back, so it keeps few names. A long backlog takes long to list, and each thread lists for itself, so the client keeps
more names of a long listing.
"""
# Items that were read ahead may be used for this many seconds: if an operator removes `items`, the server gives their
# names again.
READ_FOR = 1.0


class QueueClosed(Exception):
    """The queue is shut down: nothing can be put, or nothing is left to be taken."""


class ClaimLost(Exception):
    """The claim ended with its session, or an operator deleted it: the item may be another consumer's.

    Attributes:
        cause: why the claim ended.
    """

    def __init__(self, cause: LossCause) -> None:
        super().__init__(cause)
        self.cause = cause


class QueueLayout(NamedTuple):
    """The paths of a queue's nodes, its order and its size."""

    path: str
    order: Order
    maxsize: int = 0

    @property
    def items(self) -> str:
        """The parent of the items; persistent, so that no name is used twice."""
        return f"{self.path}/items"

    @property
    def claims(self) -> str:
        """The parent of the claims: ephemeral nodes, each with the name of its item."""
        return f"{self.path}/claims"

    @property
    def consumers(self) -> str:
        """The queue of the consumers that see no free item."""
        return f"{self.path}/consumers"

    @property
    def producers(self) -> str:
        """The queue of the producers of a queue with a maximal size."""
        return f"{self.path}/producers"

    @property
    def members(self) -> str:
        """The parent of the members: ephemeral nodes, with the number of items that are taken and not done."""
        return f"{self.path}/members"

    @property
    def receipts(self) -> str:
        """The parent of the receipts: persistent nodes, each written by one client."""
        return f"{self.path}/receipts"

    @property
    def dead(self) -> str:
        """The parent of the items that were given back too often."""
        return f"{self.path}/dead"

    @property
    def header(self) -> Header:
        """The content of the queue's node while the queue is open."""
        return Header(self.order.name, self.maxsize)


class QueueView(ReceiptPool):
    """The state of one queue that all threads of a client share.

    Attributes:
        at: the queue.
        clock: the wall clock, by which items are due.
        names: free items of the last listing, the next one first; some may be gone.
        read: the contents of some of these items; None for an item that was gone.
        read_at: when these contents were read, by `clock`.
        window: how many items to read together, unless they are large.
        flight: how many items make about 1 MB, judged by the last read.
        rivals: since the last listing, another consumer has taken, or claimed, items that are in it.
        version: the version of the queue's node while the queue is open; None if unknown.
        last: the number of the newest item that this client has put.
        made_anew: how often the queue was found to have been destroyed.
        done_before: how many items were taken in a session that is over, and done after its end.
    """

    def __init__(self, at: QueueLayout, clock: Callable[[], float]) -> None:
        super().__init__(at.receipts, at.members)
        self.at = at
        self.clock = clock
        self.names: deque[str] = deque()
        self.read: dict[str, op.Node | None] = {}
        self.read_at = 0.0
        self.window = self.flight = 1
        self.rivals = False
        self.version: int | None = None
        self.last = 0
        self.made_anew = 0
        self.done_before = 0

    @property
    def tree(self) -> Tree:
        """The queue's nodes, items included."""
        at = self.at
        return Tree(
            at.path,
            "Queue",
            partial(Header.of, at.path),
            leaves={at.items: is_item, at.claims: bool, at.receipts: bool, at.dead: bool},
            # A client that waits may have no member, but has a node in another folder.
            users=(at.members, at.consumers, at.producers),
            mine=lambda: {each.member.node for each in list(self.receipts) if each.member is not None},
        )

    def forget(self) -> None:
        """Forget all that was seen of the queue, as it was destroyed: the names of its items come again."""
        self.made_anew += 1
        super().forget()
        self.version, self.last, self.window = None, 0, 1
        self.keep(())

    @property
    def unfinished(self) -> int:
        """How many items this client has taken and not done."""
        return sum(receipt.unfinished for receipt in list(self.receipts)) - self.done_before

    def count_unfinished_before(self, session: int | None) -> int:
        """Return how many unfinished items were taken before this session began; other clients count them as done."""
        receipts = list(self.receipts)
        counts = [each.before if each.session == session else each.unfinished for each in receipts]
        return sum(counts) - self.done_before

    def lay_out(self, *also: op.Container) -> Recipe[None]:
        """Make the nodes that all clients share and, if given, the queue of the consumers or producers that wait.

        Raises:
            ForeignNodeError: the path belongs to something else.
            ValueError: the queue was made with another order or size.
        """
        at = self.at
        parts: list[op.Container | op.Create] = [op.Create(at.items, b""), op.Create(at.claims, b"")]
        parts += op.Container(at.members), op.Container(at.receipts), *also
        yield from lay_out_marked("Queue", op.Create(at.path, at.header.data), parts, self._is_queue)
        self.laid_out = True

    def _is_queue(self, node: op.Node) -> bool:
        """Return whether the node at the path is a queue's; False if it has no data.

        Raises:
            ForeignNodeError: it is something else's.
            ValueError: the queue was made with another order or size.
        """
        header = Header.of(self.at.path, node)
        if header is not None:
            header.check(self.at.path, self.at.header)
        return header is not None

    @property
    def fresh(self) -> bool:
        """Whether the items that were read ahead were read a moment ago."""
        return 0 <= self.clock() - self.read_at < READ_FOR

    def meet_rivals(self) -> None:
        """Note that another consumer was faster: the items that were read ahead are old."""
        self.rivals = True
        self.window = 1
        self.read = {}

    def come_back_to(self, name: str) -> None:
        """Have the next call begin with an item: it was given back, or others are behind it in its node."""
        self.read.pop(name, None)
        if self.at.order.keeps:
            self.names.appendleft(name)

    def keep(self, names: Sequence[str]) -> None:
        """Keep a new listing."""
        self.read = {}
        self.names = deque(names[: max(KEPT, len(names) // KEPT)])


class ClaimedItem(NamedTuple):
    """An item that a consumer has taken or claimed.

    Attributes:
        name: its node's name.
        payloads: the item's content; and, if Curator's `putMulti` has put several items in one node, the contents of
            the others.
        version: the version of its node.
        base: that version, less the counted claims of the item, this one included.
        attempts: how often the item was claimed, this time included.
        session: the session of the claim.
        token: the claim's fencing token.
        item: the item, as the codec has decoded it.
    """

    name: str
    payloads: list[bytes]
    version: int
    base: int = 0
    attempts: int = 1
    session: int = 0
    token: int = 0
    item: Any = None


class ItemCall(PendingWrite):
    """The work that one call of a queue has under way.

    Attributes:
        view: what the client knows of the queue.
        purpose: the purpose of the call: "put", "get", "claim", "bury", "acknowledge", "give back", "restore" or
            "count".
        most: how often an item may be claimed; 0 for any number.
        counts: whether items that are taken count as unfinished.
        decode: turns an item's bytes into the item; raises ValueError if it can't.
        taken: the item that the call takes, claims, acknowledges or gives back.
        names: the item of the kept listing that the call is about to take, or has taken; empty if there is none.
        item_taken: the call had taken an item for certain when it ended.
    """

    view: QueueView

    def __init__(
        self,
        view: QueueView,
        purpose: str,
        label: bytes,
        *,
        most: int = 0,
        counts: bool = False,
        decode: Callable[[bytes], object] = bytes,
    ) -> None:
        super().__init__(view, label)
        self.purpose = purpose
        self.decode = decode
        self.most = most
        self.counts = counts
        self.taken: ClaimedItem | None = None
        self.names: list[str] = []
        self.item_taken = False

    def next_name(self) -> str | None:
        """Return the kept listing's next item: the one that this call was already about to take, if there is one."""
        if not self.names:
            # R4: one step moves the name.
            with suppress(IndexError):
                self.names.extend(map(deque.popleft, (self.view.names,)))
        return self.names[0] if self.names else None

    def leave_name(self) -> None:
        """Have the next call begin with the item that this one was about to take, or has taken and puts back."""
        self.view.names.extendleft(self.names)
        self.names.clear()

    @property
    def decides_anew(self) -> bool:  # type: ignore[override]
        """Whether the call decides by what was read of the queue, which another client may have made anew since."""
        return self.purpose in ("put", "get", "claim", "bury")

    @property
    def left(self) -> bool:
        """Whether work is left to be settled, now that its call has ended early."""
        if self.over:
            return False
        if self.purpose in ("acknowledge", "give back", "restore"):
            return not self.applied or self.sent is not None
        return self.sent is not None or (self.applied and self.purpose in ("get", "claim"))

    @property
    def counts_yet(self) -> bool:
        """Whether an item is still to be counted as done. A single assignment ends that: see `note_applied`."""
        sent, receipt = self.sent, self.receipt
        if sent is not None and receipt is not None:
            return not self.over and receipt.unfinished != sent.unfinished
        return not (self.over or self.applied)

    @property
    def takes(self) -> bool:
        """Whether the item would be lost if the client were stopped before the call is settled."""
        return self.left and self.purpose in ("get", "restore")


class QueueSnapshot(NamedTuple):
    """A queue as a client read it.

    Attributes:
        listed: the items, the next one first.
        free: the items that no consumer has claimed.
        closed: the queue is shut down.
    """

    listed: list[str]
    free: list[str]
    closed: bool

    @classmethod
    def of(cls, at: QueueLayout, seen: Sequence[Any]) -> QueueSnapshot:
        """Make a snapshot of what was read.

        Raises:
            ForeignNodeError: the path belongs to something else.
            ValueError: the queue was made with another order or size.
        """
        node, listed, claims = (*seen, ())[:3]
        header = None if node is None else Header.of(at.path, node)
        if header is not None:
            header.check(at.path, at.header)
        names = items(at.path, listed, at.order)
        return cls(names, free(names, claims), header is not None and header.state != "open")

    @property
    def over(self) -> bool:
        """Whether no item will come: none is left, none can be put, and none can be given back."""
        return self.closed and not self.listed


def read_snapshot(view: QueueView, ticket: Ticket | None = None) -> Recipe[QueueSnapshot]:
    """Read a whole queue, behind a `sync`; with a ticket, set watches instead."""
    at, found = view.at, reads(view.at, ticket)
    if ticket is None:
        _, *seen = yield op.Sync(at.path), *found
        return QueueSnapshot.of(at, seen)
    while True:
        seen = yield op.Watch(ticket, found[:2])
        if seen[1] and ticket.changed:
            # The queue has changed since this read. As the snapshot has no free item, the caller reads again. To watch
            # again here would forget the change.
            return QueueSnapshot.of(at, seen)._replace(free=[])
        if seen[1]:
            # The claims are watched, too, as a claimed item may be given back.
            seen = yield op.Watch(ticket, found)
        if seen[0] is not None and op.NOWHERE not in seen[1:]:
            return QueueSnapshot.of(at, seen)
        # An operator has deleted a node of the queue, and a node that does not exist can't be watched.
        yield from view.lay_out()


def reads(at: QueueLayout, ticket: Ticket | None) -> tuple[op.Get | op.Children, ...]:
    """Return the operations that read a whole queue."""
    return op.Get(at.path, ticket), op.Children(at.items, ticket), op.Children(at.claims, ticket)
