"""The queue's nodes, and what a client and each of its calls know of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .._errors import ForeignNodeError
from .operations import Children, Get, Node, Recipe, Sync, Watch
from .orders import Header, Order, free, items
from .ticket import Ticket

KEPT = 64  # names of a listing: what is given back meanwhile waits for so many items at most


class Closed(Exception):
    """The queue is shut down: nothing can be put, or nothing is left to be taken."""


class Lost(Exception):
    """The claim ended with its session, or an operator deleted it: the item is another consumer's."""


class Unknown(Exception):
    """The receipt was removed before it could tell whether a `multi` was applied."""


class Layout(NamedTuple):
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
        """The parent of the claims: an ephemeral node of the item's name."""
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
    def folders(self) -> tuple[str, ...]:
        """All children of the path; the members' last, as one that is not empty tells of a client."""
        return self.items, self.claims, self.consumers, self.producers, self.receipts, self.dead, self.members

    @property
    def header(self) -> Header:
        """The content of the node of an open queue."""
        return Header(self.order.name, self.maxsize)


class Receipt:
    """What one `multi` at a time is written exactly once by.

    Attributes:
        path: the receipt's node; empty until it is made.
        version: the version in which the next `multi` writes it.
        member: the ticket of the member that goes with it, in the session in which that was made.
        unfinished: how many items were taken with it, less those that were done with it.
    """

    __slots__ = ("member", "path", "unfinished", "version")

    def __init__(self) -> None:
        self.path = ""
        self.version = 0
        self.member: Ticket | None = None
        self.unfinished = 0


class Desk:
    """What all threads of a client share of one queue. Its containers change in single steps, so no lock guards it.

    Attributes:
        at: the queue.
        clock: the wall clock, by which items are due.
        idle: the receipts that no call uses.
        receipts: all receipts.
        names: free items of the last listing, the next one first; some may be gone.
        read: what some of them contain; None for one that was gone.
        window: how many items to read together.
        laid_out: the nodes that every client shares exist, as far as is known.
        version: the version of the queue's node while the queue is open; None if unknown.
        last: the number of the newest item that was put here.
    """

    def __init__(self, at: Layout, clock: Callable[[], float]) -> None:
        self.at = at
        self.clock = clock
        self.idle: deque[Receipt] = deque()
        self.receipts: list[Receipt] = []
        self.names: deque[str] = deque()
        self.read: dict[str, Node | None] = {}
        self.window = 1
        self.laid_out = False
        self.version: int | None = None
        self.last = 0

    @property
    def unfinished(self) -> int:
        """How many items this client has taken and not done."""
        return sum(receipt.unfinished for receipt in list(self.receipts))

    def take_receipt(self) -> Receipt:
        """Return a receipt for one call: the one that was used last, as its member exists."""
        try:
            return self.idle.pop()
        except IndexError:
            receipt = Receipt()
            self.receipts.append(receipt)
            return receipt

    def next_name(self) -> str | None:
        """Take the next name of the last listing."""
        try:
            return self.names.popleft()
        except IndexError:
            return None

    def keep(self, names: Sequence[str]) -> None:
        """Keep a new listing."""
        self.read = {}
        self.names = deque(names[:KEPT])


class Taken(NamedTuple):
    """An item that a consumer has taken or claimed.

    Attributes:
        name: its node's name.
        payloads: its content, and that of those behind it if Curator's `putMulti` put several in one node.
        version: the version of its node.
        attempts: how often it was claimed, this time included, as far as that is counted.
        session: the session of the claim.
        token: the claim's fencing token.
    """

    name: str
    payloads: list[bytes]
    version: int
    attempts: int = 1
    session: int = 0
    token: int = 0


class Sent(NamedTuple):
    """A `multi` of which it is not known whether it was applied.

    Attributes:
        version: the receipt's version before it; a later one, unless burnt, shows that it was applied.
        unfinished: the receipt's number of unfinished items after it.
    """

    version: int
    unfinished: int


class Errand:
    """What one call has under way, so that it can be settled if the call ends before its time.

    Attributes:
        desk: the desk.
        purpose: what it is to do: "put", "get", "claim", "bury", "acknowledge", "give back", "restore" or "count".
        who: the data of this client's nodes: a JSON object.
        most: how often an item may be claimed; 0 for any number.
        counts: whether items that are taken count as unfinished.
        receipt: the receipt in use.
        taken: the item in question.
        sent: the `multi` of which it is not known whether it was applied; cleared last, once the outcome is noted.
        applied: the last `multi` was applied.
        owes: its call ended when it was known to have taken an item.
        over: nothing is left to be done.
    """

    def __init__(self, desk: Desk, purpose: str, who: bytes, *, most: int = 0, counts: bool = False) -> None:
        self.desk = desk
        self.purpose = purpose
        self.who = who
        self.most = most
        self.counts = counts
        self.receipt: Receipt | None = None
        self.taken: Taken | None = None
        self.sent: Sent | None = None
        self.applied = False
        self.owes = False
        self.over = False

    @property
    def left(self) -> bool:
        """Whether something has to be done, now that its call has ended before its time."""
        if self.over:
            return False
        if self.purpose in ("acknowledge", "give back", "restore"):
            return not self.applied
        return self.sent is not None or (self.applied and self.purpose in ("get", "claim"))

    @property
    def takes(self) -> bool:
        """Whether the item would be lost if the client were stopped before this is settled."""
        return self.left and self.purpose in ("get", "restore")

    def note_applied(self, receipt: Receipt, sent: Sent) -> None:
        """Note that a `multi` was applied; again, if that was interrupted."""
        receipt.unfinished = sent.unfinished
        receipt.version = sent.version + 1
        self.applied = True
        self.sent = None

    def finish(self) -> None:
        """Give the receipt back. A second call changes nothing."""
        self.over = True
        self.put_down()

    def put_down(self) -> None:
        """Give the receipt back, and go on without.

        An interrupt in between leaves it to no call, for good: two calls with one receipt would be worse.
        """
        receipt, self.receipt = self.receipt, None
        if receipt is not None:
            self.desk.idle.append(receipt)


class Sight(NamedTuple):
    """A look at a queue.

    Attributes:
        listed: the items, the next one first.
        free: those that no consumer has claimed.
        closed: the queue is shut down.
    """

    listed: list[str]
    free: list[str]
    closed: bool

    @property
    def over(self) -> bool:
        """Whether nothing will come: no item is put, none is left, and none can be given back."""
        return self.closed and not self.listed


def look(desk: Desk, ticket: Ticket | None = None) -> Recipe[Sight]:
    """Read a whole queue: behind a `sync` or, with a ticket, leaving watches."""
    at, found = desk.at, reads(desk.at, ticket)
    if ticket is None:
        _, *seen = yield Sync(at.path), *found
    else:
        seen = yield Watch(ticket, found[:2])
        if seen[1] and ticket.changed:
            return sight_of(at, seen)._replace(free=[])  # look again: the next watch would forget that
        if seen[1]:  # what was claimed may be given back
            seen = yield Watch(ticket, found)
    return sight_of(at, seen)


def reads(at: Layout, ticket: Ticket | None) -> tuple[Get | Children, ...]:
    """Return the operations that read a whole queue."""
    return Get(at.path, ticket), Children(at.items, ticket), Children(at.claims, ticket)


def sight_of(at: Layout, seen: Sequence[Any]) -> Sight:
    """Return what was read of a queue.

    Raises:
        ForeignNodeError: the path is something else's.
        ValueError: the queue was made with another order or size.
    """
    node, listed, claims = (*seen, ())[:3]
    header = None if node is None else Header.of(at.path, node)
    if header is not None:
        header.check(at.path, at.header)
    names = items(at.path, listed, at.order)
    return Sight(names, free(names, claims), header is not None and header.state != "open")


def not_ours(path: str, child: str) -> ForeignNodeError:
    return ForeignNodeError(
        path, f"the node has a child {child!r}, which is no queue's; delete the child if something else left it behind"
    )
