"""The queue: items are put, claimed, acknowledged, each in one `multi` that is applied exactly once.

Every `multi` begins with a check of our member, a node of our session, and ends with a write of our receipt, a
persistent node that no other client writes, in the version that we know. So a `multi` that slips into a later session
fails by its first part. One whose reply was lost is settled by the receipt: if it has moved, all was applied. If not,
the same `multi` is sent again, and only one of the two can be applied, as both name the same version.

Consumers take the next item at once, from a listing that they keep. Only a consumer that sees no free item queues, and
only the first in that queue watches.
"""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from .._errors import ForeignNodeError, SequenceExhaustedError
from .._limits import most_together
from .._paths import ancestors
from .operations import (
    BadVersion,
    Check,
    Children,
    ConnectionLost,
    Create,
    CreateEphemeral,
    CreatePersistent,
    Delete,
    Discard,
    EnsureContainer,
    Failure,
    Get,
    Keep,
    MarkDeleted,
    Multi,
    NewTicket,
    Node,
    NodeExists,
    NodeGone,
    NoNode,
    NotEmpty,
    Part,
    Recipe,
    Requeue,
    SessionExpired,
    Set,
    Sync,
    Wait,
    WaitGone,
    Watch,
)
from .orders import (
    LAST_ITEM,
    Header,
    Order,
    due,
    frame,
    free,
    is_item,
    items,
    member_data,
    milliseconds,
    number,
    unfinished,
    unframe,
)
from .queue import find, join
from .rules import MUTEX, blockers
from .ticket import State, Ticket

KEPT = 64  # names of a listing: what is given back meanwhile waits for so many items at most
AHEAD = 8  # items that are read together, while no other consumer is in the way
BURNT = b"burnt"  # a receipt that was used up so that no `multi` can use it
UNTOUCHED = 86_400.0  # seconds after which a receipt is of a client that is gone


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


# -- exactly once ---------------------------------------------------------------------------------------------------


def write(
    errand: Errand, parts: tuple[Part, ...], *, count: int = 0, session: int = 0, doubt: bool = False
) -> Recipe[Sequence[Any] | None]:
    """Apply operations together, exactly once; return their results, or None if these were lost with the reply.

    Args:
        errand: the call.
        parts: the operations.
        count: what to add to the number of unfinished items.
        session: the session in which it must be applied; 0 for any.
        doubt: the same was sent before.

    Raises:
        Failure: nothing was applied, as the operation with the number in `part` failed.
        SessionExpired: nothing was applied, and that session is over.
        Unknown: it is unknown whether it was applied.
    """
    why: Exception | None = None
    while True:
        receipt = yield from ready(errand)
        member = receipt.member
        assert member is not None
        if session not in (0, member.session):
            why = SessionExpired()
        if doubt:
            landed = yield from moved(errand, receipt)
            if landed:
                return None
            doubt = landed is None
        if why is not None:
            if doubt and not (yield from burn(receipt)):
                continue
            errand.sent = None
            try:
                raise why
            finally:
                del (
                    why
                )  # otherwise the traceback and this frame keep each other alive, and the caller's queue with them
        mine: Part = Check(member.node)
        if count:
            mine = Set(member.node, member_data(errand.who, receipt.unfinished + count), -1)
        step = Multi(member, (mine, *parts, Set(receipt.path, b"", receipt.version)), firm=True)
        errand.sent = sent = Sent(receipt.version, receipt.unfinished + count)
        try:
            results = yield step
        except (ConnectionLost, Requeue):
            doubt = True
        except Failure as failed:
            if not doubt:
                errand.sent = None
            part = failed.part or 0
            if part == 0:  # our member is gone: its session is over, or an operator deleted it
                yield Discard(member)
                receipt.member = None
            elif part <= len(parts) and isinstance(failed, NotEmpty):
                why = ForeignNodeError(parts[part - 1].path, "an item's node has children; delete them")
            elif part <= len(parts):
                failed.part = part - 1
                why = failed.with_traceback(None)
            elif not doubt:  # our receipt is gone
                receipt.path = ""
        except Exception:
            if not doubt:  # it was refused: nothing was applied, unless an earlier attempt was
                errand.sent = None
            raise
        else:
            errand.note_applied(receipt, sent)
            return results[1:-1]  # type: ignore[no-any-return]


def moved(errand: Errand, receipt: Receipt) -> Recipe[bool | None]:
    """Return whether the `multi` in doubt was applied: False if it can't be any more, None if it may be still.

    Raises:
        Unknown: the receipt is gone.
    """
    _, node = yield Sync(receipt.path), Get(receipt.path)
    sent = errand.sent
    assert sent is not None
    if node is None:
        receipt.path = ""
        errand.sent = None
        raise Unknown
    if node.version == sent.version:
        return None
    if node.data != BURNT:
        errand.note_applied(receipt, sent)
        return True
    receipt.version = node.version
    errand.sent = None
    return False


def burn(receipt: Receipt) -> Recipe[bool]:
    """Use up the receipt's version, so that the `multi` in doubt can't be applied any more; False: it may have been.

    The data tells this write from that of the `multi`, if its own reply is lost.
    """
    try:
        if (yield Set(receipt.path, BURNT, receipt.version)):
            receipt.version += 1
            return True
    except ConnectionLost:
        pass
    return False


def ready(errand: Errand) -> Recipe[Receipt]:
    """Return a receipt, whose member is of the present session as far as is known."""
    desk, at = errand.desk, errand.desk.at
    if not desk.laid_out:
        yield from lay_out(desk)
    if errand.receipt is None:
        errand.receipt = desk.take_receipt()
    receipt = errand.receipt
    while not receipt.path:
        ticket: Ticket = yield NewTicket(at.receipts)
        yield Discard(ticket)  # only its unique name is needed: a receipt belongs to no session
        path = f"{at.receipts}/{ticket.prefix[len('_c_') : -1]}"
        try:
            yield CreatePersistent(path, b"")
        except NoNode:
            yield from lay_out(desk)
            continue
        receipt.path, receipt.version = path, 0
        if len(desk.receipts) == 1:
            yield from sweep(path)
    while receipt.member is None or receipt.member.changed or receipt.member.state is not State.QUEUED:
        if receipt.member is not None:
            yield Discard(receipt.member)
            receipt.member = None
        ticket = yield NewTicket(at.members)
        try:
            try:
                yield CreateEphemeral(ticket, "member-", member_data(errand.who, receipt.unfinished))
            except ConnectionLost:
                yield from find(ticket)
        except NoNode:
            yield Discard(ticket)
            yield from lay_out(desk)
        except Requeue:
            yield Discard(ticket)
        else:
            yield Keep(ticket)
            receipt.member = ticket
    return receipt


def sweep(mine: str) -> Recipe[None]:
    """Remove the receipts that were not written for a day, by the servers' clock: their clients are gone."""
    above = mine.rpartition("/")[0]
    names, mine_is = yield Children(above), Get(mine)
    paths = sorted(f"{above}/{name}" for name in names)
    at = bisect(paths, mine)  # names are random, so each client looks at others
    paths = [path for path in (paths[at:] + paths[:at])[: most_together(above)] if path != mine]
    nodes: Sequence[Node | None] = (yield tuple(map(Get, paths))) if paths and mine_is is not None else ()
    for path, node in zip(paths, nodes, strict=False):
        if node is not None and node.mtime < mine_is.ctime - UNTOUCHED:
            try:
                yield Delete(path, version=node.version)
            except (BadVersion, NotEmpty):
                continue  # it is in use


def lay_out(desk: Desk) -> Recipe[None]:
    """Make the nodes that every client shares.

    Raises:
        ForeignNodeError: the path is something else's.
        ValueError: the queue was made with another order or size.
    """
    at = desk.at
    while True:
        try:
            *_, node, inside = yield (
                *map(EnsureContainer, ancestors(at.path)),
                CreatePersistent(at.path, at.header.data),
                Get(at.path),
                Children(at.path),
            )
            if node is None:
                continue
            header = Header.of(at.path, node)
            if header is None:  # a program on Curator made it, as the parent of its items; or it is a lock's
                check_folders(at, inside)
                with suppress(ConnectionLost):
                    yield Set(at.path, at.header.data, node.version)
                continue
            header.check(at.path, at.header)
            yield (
                CreatePersistent(at.items, b""),
                CreatePersistent(at.claims, b""),
                EnsureContainer(at.members),
                EnsureContainer(at.receipts),
            )
        except NoNode:
            continue  # a parent was just reaped, or the queue destroyed
        desk.laid_out = True
        return


def check_folders(at: Layout, inside: Sequence[str]) -> None:
    """Refuse a path that has a child which is no queue's.

    Raises:
        ForeignNodeError: it has one.
    """
    for name in inside:
        if f"{at.path}/{name}" not in at.folders:
            raise _not_ours(at.path, name)


# -- putting --------------------------------------------------------------------------------------------------------


def put(errand: Errand, data: bytes, prefix: str, *, wait: bool) -> Recipe[bool]:
    """Put an item; False if the queue is full.

    Args:
        errand: the call.
        data: the content of the item's node.
        prefix: the name of that node, without its number.
        wait: whether to wait for a free place.

    Raises:
        Closed: the queue is shut down.
        SequenceExhaustedError: the server has no more numbers for items.
    """
    desk, at = errand.desk, errand.desk.at
    if desk.last >= LAST_ITEM:
        raise SequenceExhaustedError(
            at.path, f"ZooKeeper has no sequence numbers left here (it gave {desk.last}); use another path"
        )
    item = Create(f"{at.items}/{prefix}", data, sequential=True)
    if at.maxsize:
        return (yield from put_when_first(errand, item, wait=wait))
    while True:
        if (yield from add(errand, item)):
            return True


def add(errand: Errand, item: Create, *leaving: Delete, count: int = 0, after: tuple[Set, ...] = ()) -> Recipe[bool]:
    """Create an item, if the queue is open; False: try again.

    Raises:
        Closed: the queue is shut down.
        NodeGone: the node to be left is gone.
    """
    desk, at = errand.desk, errand.desk.at
    if desk.version is None:
        _, node = yield Sync(at.path), Get(at.path)
        yield from check_open(desk, node)
    assert desk.version is not None
    try:
        results = yield from write(errand, (Check(at.path, desk.version), *leaving, item, *after), count=count)
    except (NoNode, BadVersion) as failed:
        if failed.part == 0:  # shut down, or destroyed
            desk.version = None
        elif failed.part == 1 + len(leaving):
            yield from lay_out(desk)
        else:
            raise NodeGone from None
        return False
    if results is not None:
        desk.last = number(results[1 + len(leaving)][0])
    return True


def put_when_first(
    errand: Errand, item: Create, *, wait: bool, count: int = 0, after: tuple[Set, ...] = ()
) -> Recipe[bool]:
    """Put an item in a queue with a maximal size: only the first of the producers does, and leaves with the same step.

    Once a listing shows us first, only we may create items. So a later listing of the items can only show too many,
    however stale the server is.
    """
    desk, at = errand.desk, errand.desk.at
    if not wait:
        _, node, queue, names = yield Sync(at.path), Get(at.path), Children(at.producers), Children(at.items)
        yield from check_open(desk, node)
        if len(items(at.path, names, at.order)) + len(queue) >= at.maxsize:
            return False
    while True:
        ticket: Ticket = yield NewTicket(at.producers)
        reads = Children(at.producers, ticket), Children(at.items, ticket), Get(at.path, ticket)
        try:
            yield from join(ticket, MUTEX, errand.who)
            queue, names, node = yield reads
            while True:
                yield from check_open(desk, node)
                if ticket.name is None or ticket.name not in queue:
                    raise NodeGone
                ahead = blockers(ticket.name, queue, MUTEX)
                there = len(items(at.path, names, at.order))
                position = sum(MUTEX.key(name) < MUTEX.key(ticket.name) for name in queue)
                if not wait and there + position >= at.maxsize:
                    yield Discard(ticket)
                    return False
                if ahead:
                    seen = yield WaitGone(ticket, ahead[0], reads, not wait)
                    queue, names, node = seen or (yield reads)
                elif there < at.maxsize:
                    if (yield from add(errand, item, Delete(ticket.node, ticket), count=count, after=after)):
                        yield MarkDeleted(ticket)
                        return True
                    queue, names, node = yield reads
                else:
                    names, node = yield Watch(ticket, (Children(at.items, ticket), Get(at.path, ticket)))
                    if len(items(at.path, names, at.order)) >= at.maxsize and is_open(at, node):
                        yield Wait(ticket)
                    queue, names, node = yield reads
        except Requeue:
            yield Discard(ticket)


def is_open(at: Layout, node: Node | None) -> bool:
    """Return whether the queue's node, as read, is that of an open queue."""
    header = None if node is None else Header.of(at.path, node)
    return header is None or header.state == "open"


def check_open(desk: Desk, node: Node | None) -> Recipe[None]:
    """Refuse to put into a queue that is shut down or was made otherwise; make one that does not exist.

    Raises:
        Closed: it is shut down.
        ValueError: it was made otherwise.
    """
    path = desk.at.path
    while node is None or (header := Header.of(path, node)) is None:
        yield from lay_out(desk)
        node = yield Get(path)
    header.check(path, desk.at.header)
    if header.state != "open":
        raise Closed
    desk.version = node.version


# -- taking ---------------------------------------------------------------------------------------------------------


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


def takeable(desk: Desk, sight: Sight) -> list[str]:
    """Return the free items that may be taken: in a timed queue, those that are due by our clock."""
    if not desk.at.order.timed:
        return sight.free
    return sight.free[: bisect(sight.free, milliseconds(desk.clock()), key=due)]


def until_due(desk: Desk, sight: Sight) -> Callable[[], float] | None:
    """Return what tells in how many seconds the first free item is due; None if nothing is to be waited for so."""
    if not (desk.at.order.timed and sight.free):
        return None
    first = due(sight.free[0])
    return lambda: (first - milliseconds(desk.clock())) / 1000


def take(errand: Errand, *, wait: bool) -> Recipe[Taken | None]:
    """Take the next item, or claim it; None if there is none.

    Args:
        errand: the call; its purpose is "get" or "claim".
        wait: whether to wait for an item.

    Raises:
        Closed: the queue is shut down, and no item is left.
    """
    desk, at = errand.desk, errand.desk.at
    if (taken := (yield from seize_kept(errand))) is not None:
        return taken
    sight = yield from look(desk)
    while names := takeable(desk, sight):
        if (taken := (yield from seize_first(errand, names))) is not None:
            return taken
        sight = yield from look(desk)
    if sight.over:
        raise Closed
    if not wait:
        return None
    yield from lay_out(desk)  # what does not exist can't be watched
    while True:
        ticket: Ticket = yield NewTicket(at.consumers)
        listing = Children(at.consumers, ticket)
        try:
            queue: Sequence[str] = yield from join(ticket, MUTEX, errand.who)
            while ahead := blockers(ticket.name, queue, MUTEX):
                seen = yield WaitGone(ticket, ahead[0], (listing,))
                (queue,) = seen or [(yield listing)]
                if ticket.name not in queue:
                    raise NodeGone
            sight = yield from look(desk, ticket)
            while not sight.over:
                if not (names := takeable(desk, sight)):
                    yield Wait(ticket, until_due(desk, sight))
                elif (taken := (yield from seize_first(errand, names, ticket))) is not None:
                    return taken
                # Read without watches first: those of a consumer that now takes an item would only cost events.
                queue, *seen = yield listing, *reads(at, ticket)
                if ticket.name not in queue:
                    raise NodeGone
                sight = sight_of(at, seen)
                if not takeable(desk, sight):
                    sight = yield from look(desk, ticket)
            yield Discard(ticket)
            raise Closed
        except Requeue:
            yield Discard(ticket)


def seize_first(errand: Errand, names: Sequence[str], ticket: Ticket | None = None) -> Recipe[Taken | None]:
    """Take the first of the items that is still there; None if none is."""
    desk = errand.desk
    if not desk.at.order.keeps:
        for first in names:
            desk.read.pop(first, None)
            if (taken := (yield from seize(errand, first, ticket))) is not None:
                return taken
        return None
    desk.keep(names)
    return (yield from seize_kept(errand, ticket))


def seize_kept(errand: Errand, ticket: Ticket | None = None) -> Recipe[Taken | None]:
    """Take the first of the items in the listing that is kept; None if none is still there."""
    desk = errand.desk
    while (name := desk.next_name()) is not None:
        try:
            if (taken := (yield from seize(errand, name, ticket))) is not None:
                return taken
        except BaseException:
            desk.names.appendleft(name)  # the next call begins with it
            raise
    return None


def seize(errand: Errand, name: str, ticket: Ticket | None = None) -> Recipe[Taken | None]:
    """Take or claim one item, and leave the queue of consumers with the same step; None if it is another consumer's.

    Raises:
        NodeGone: our node in that queue is gone.
    """
    desk, at, wanted = errand.desk, errand.desk.at, errand.purpose
    item, claim = f"{at.items}/{name}", f"{at.claims}/{name}"
    leaving = () if ticket is None else (Delete(ticket.node, ticket),)
    while True:
        node = yield from fetch(desk, name)
        if node is None:  # the listing is too old to go on with
            desk.names.clear()
            return None
        payloads = unframe(item, node.data)
        spent = 0 < errand.most <= node.version
        counted = wanted == "claim" and errand.most and not spent
        taken = Taken(name, payloads, node.version + bool(counted), node.version + 1 if errand.most else 1)
        own = Create(claim, errand.who, ephemeral=True)
        parts: tuple[Part, ...]
        if wanted == "get" or spent:
            parts = own, Delete(claim), remove(at, taken, whole=spent)
        elif counted:
            parts = own, Set(item, node.data, node.version)
        else:
            parts = own, Check(item, node.version)
        parts = (*parts, Create(f"{at.dead}/{name}", node.data)) if spent else (*parts, *leaving)
        errand.taken, errand.purpose = taken, "bury" if spent else wanted
        try:
            results = yield from write(errand, parts, count=int(wanted == "get" and errand.counts and not spent))
        except NodeExists as failed:
            errand.purpose, desk.window = wanted, 1
            if failed.part == len(parts) - 1 and spent:
                raise ForeignNodeError(
                    f"{at.dead}/{name}", "an item of this name was moved here before; remove one of the two"
                ) from None
            return None  # claimed
        except (NoNode, BadVersion) as failed:
            errand.purpose, desk.window = wanted, 1
            part = failed.part or 0
            if part == 0:
                yield from lay_out(desk)
            elif type(failed) is BadVersion:
                yield Sync(item)  # it was claimed and given back since it was read
            elif isinstance(parts[part], Create):
                yield CreatePersistent(at.dead, b"")
            elif parts[part] in leaving:
                raise NodeGone from None
            else:
                return None  # gone
            continue
        errand.purpose = wanted
        if spent:
            errand.applied = False
            errand.put_down()
            return None
        desk.window = min(2 * desk.window, AHEAD)
        if ticket is not None:
            yield MarkDeleted(ticket)
        if wanted == "claim":
            taken = yield from identified(errand, taken, results)
            if not taken.session:  # it has ended with its session before its reply came
                errand.applied = False
                errand.put_down()
                return None
        return taken


def fetch(desk: Desk, name: str) -> Recipe[Node | None]:
    """Return an item's node; read those that come next, too, while no other consumer is in the way."""
    read = desk.read
    if name not in read:
        names = [name, *islice(list(desk.names), desk.window - 1)]
        nodes = yield tuple(Get(f"{desk.at.items}/{each}") for each in names)
        read.update(zip(names, nodes, strict=True))
    return read.pop(name, None)


def remove(at: Layout, taken: Taken, *, whole: bool = False) -> Part:
    """Return the operation that takes an item out of the queue; those behind it in the same node stay."""
    item = f"{at.items}/{taken.name}"
    if len(taken.payloads) > 1 and not whole:
        return Set(item, frame(taken.payloads[1:]), taken.version)
    return Delete(item, version=taken.version)


def identified(errand: Errand, taken: Taken, results: Sequence[Any] | None = None) -> Recipe[Taken]:
    """Complete a claimed item by the session and token of its claim; without a session, the claim is over."""
    if results is not None:
        stat = results[0][1]
        taken = taken._replace(session=stat.ephemeralOwner, token=stat.czxid)
    else:
        # Behind the sync by which the receipt was read. A claim of another session may be another client's.
        node: Node | None = yield Get(f"{errand.desk.at.claims}/{taken.name}")
        member = None if errand.receipt is None else errand.receipt.member
        if node is not None and member is not None and node.session == member.session:
            taken = taken._replace(session=node.session, token=node.czxid)
    errand.taken = taken
    return taken


# -- claims ---------------------------------------------------------------------------------------------------------


def acknowledge(errand: Errand, *, doubt: bool = False) -> Recipe[None]:
    """End a claim, and take its item out of the queue.

    Raises:
        Lost: the claim is over: the item may be another consumer's.
        ForeignNodeError: the item's node has children; the item is given back.
    """
    at, taken = errand.desk.at, errand.taken
    assert taken is not None
    parts = Delete(f"{at.claims}/{taken.name}"), remove(at, taken)
    try:
        yield from write(errand, parts, session=taken.session or -1, doubt=doubt)
    except (SessionExpired, NoNode, BadVersion):
        errand.over = True
        raise Lost from None
    except ForeignNodeError:
        errand.purpose = "give back"
        yield from give_back(errand)
        raise


def give_back(errand: Errand, *, doubt: bool = False) -> Recipe[None]:
    """End a claim; the item is free again, in its place. A claim that is over is no error."""
    desk, taken = errand.desk, errand.taken
    assert taken is not None
    try:
        yield from write(errand, (Delete(f"{desk.at.claims}/{taken.name}"),), session=taken.session or -1, doubt=doubt)
    except (SessionExpired, NoNode):
        errand.over = True
        return
    if desk.at.order.keeps:
        desk.read.pop(taken.name, None)
        desk.names.appendleft(taken.name)


def settle(errand: Errand) -> Recipe[bool]:
    """End what a call has left under way, so that no item is lost and none stays claimed.

    An acknowledgement is brought to its end. An item that was claimed is given back, and one that was taken is put back
    in its place. A `put` was applied, or never will be.

    Raises:
        Unknown: the receipt is gone, so that it can't be told what to do.
    """
    while errand.left:
        receipt = errand.receipt
        try:
            if errand.purpose == "acknowledge":
                with suppress(Lost):
                    yield from acknowledge(errand, doubt=errand.sent is not None)
            elif errand.purpose == "give back":
                yield from give_back(errand, doubt=errand.sent is not None)
            elif errand.purpose == "restore":
                yield from restore(errand)
            elif errand.sent and receipt is not None:
                if (yield from moved(errand, receipt)) is None and (yield from burn(receipt)):
                    errand.sent = None
            elif errand.purpose == "get":
                errand.purpose, errand.applied = "restore", False
            else:
                yield from _find_claim(errand)
                errand.purpose, errand.applied = "give back", False
        except Requeue:
            continue
    return True


def _find_claim(errand: Errand) -> Recipe[None]:
    """Find the claim that was made for a call that did not see it."""
    taken = errand.taken
    assert taken is not None
    if not taken.session:
        yield from identified(errand, taken)


def restore(errand: Errand) -> Recipe[None]:
    """Put an item back in its place that was taken for a call that has ended meanwhile.

    If the queue has a maximal size, it waits for a free place, as a producer does.
    """
    desk, at, taken = errand.desk, errand.desk.at, errand.taken
    assert taken is not None
    item, data = f"{at.items}/{taken.name}", frame(taken.payloads)
    count = -1 if errand.counts else 0
    # The version is that of the old node, as it counts the attempts; the last write has the data.
    attempts = min(taken.version, most_together(item))
    again = (*(Set(item, b"", -1) for _ in range(attempts - 1)), *[Set(item, data, -1)][:attempts])
    receipt = errand.receipt
    while errand.sent and receipt is not None:
        landed = yield from moved(errand, receipt)
        if landed:
            return
        if landed is None and (yield from burn(receipt)):
            errand.sent = None
    if len(taken.payloads) > 1:
        with suppress(NoNode, BadVersion):  # else what was behind it in its node was taken, too
            yield from write(errand, (Set(item, data, taken.version + 1),), count=count)
            return
        create, again = Create(f"{at.items}/{taken.name[:-10]}", frame(taken.payloads[:1]), sequential=True), ()
    else:
        create = Create(item, b"" if again else data)
    if at.maxsize:
        with suppress(Closed):
            yield from put_when_first(errand, create, wait=True, count=count, after=again)
            return
    while not errand.applied:
        try:
            yield from write(errand, (create, *again), count=count)
        except NoNode:
            yield from lay_out(desk)


# -- the rest -------------------------------------------------------------------------------------------------------


def done(errand: Errand) -> Recipe[None]:
    """Count one item as done."""
    yield from write(errand, (), count=-1)


def wait_until_done(desk: Desk) -> Recipe[bool]:
    """Wait until no item is left, and none of those taken is unfinished.

    The items are read first: one that is taken in between is counted in the members' nodes by then.
    """
    at = desk.at
    while True:
        ticket: Ticket = yield NewTicket(at.path)
        try:
            _, listed, members = yield Sync(at.path, ticket), Children(at.items, ticket), Children(at.members, ticket)
            while True:
                names = items(at.path, listed, at.order)
                paths = [f"{at.members}/{name}" for name in members]
                nodes: Sequence[Node | None] = (yield tuple(Get(path, ticket) for path in paths)) if paths else ()
                if not names and not unfinished(nodes):
                    yield Discard(ticket)
                    return True
                # One event: when the last item goes or, if none is left, when a member's count changes.
                watched = [f"{at.items}/{max(names, key=number)}"] if names else _counting(paths, nodes)
                seen = yield Watch(ticket, tuple(Get(path, ticket) for path in watched))
                before = [] if names else [node for path, node in zip(paths, nodes, strict=True) if path in watched]
                if all(seen) and (names or list(seen) == before):
                    yield Wait(ticket)
                listed, members = yield Children(at.items, ticket), Children(at.members, ticket)
        except Requeue:
            yield Discard(ticket)


def _counting(paths: Sequence[str], nodes: Sequence[Node | None]) -> list[str]:
    """Return the nodes of the sessions that have unfinished items."""
    counts: dict[int, list[Node]] = {}
    for node in nodes:
        if node is not None:
            counts.setdefault(node.session, []).append(node)
    busy = {session for session, its in counts.items() if unfinished(its)}
    return [path for path, node in zip(paths, nodes, strict=True) if node is not None and node.session in busy]


def sizes(desk: Desk) -> Recipe[Sight]:
    """Look at the queue, behind a `sync`."""
    return (yield from look(desk))


def shut_down(desk: Desk, *, immediate: bool) -> Recipe[None]:
    """Shut the queue down for all clients; with `immediate`, remove the items that no consumer has claimed."""
    at = desk.at
    state = "immediate" if immediate else "shutdown"
    while True:
        _, node = yield Sync(at.path), Get(at.path)
        header = None if node is None else Header.of(at.path, node)
        if header is None:
            yield from lay_out(desk)
            continue
        header.check(at.path, at.header)
        if header.state in (state, "immediate"):
            break
        try:
            if (yield Set(at.path, header._replace(state=state).data, node.version)):
                break
        except ConnectionLost:
            continue
    desk.version = None
    if immediate:
        yield from drain(desk)


def drain(desk: Desk) -> Recipe[None]:
    """Remove the items that no consumer has claimed."""
    at = desk.at
    most = most_together(at.path) // 3
    desk.names.clear()
    while True:
        sight = yield from look(desk)
        if not sight.free:
            return
        ticket: Ticket = yield NewTicket(at.claims)
        try:
            for first in range(0, len(sight.free), most):
                parts: list[Part] = []
                for name in sight.free[first : first + most]:
                    claim = f"{at.claims}/{name}"
                    parts += Create(claim, b"", ephemeral=True), Delete(claim), Delete(f"{at.items}/{name}")
                yield Multi(ticket, tuple(parts))
        except (NodeExists, ConnectionLost, Requeue):
            pass  # a consumer was faster, or it is unknown: look again
        except NoNode:
            yield from lay_out(desk)  # the same; or an operator has deleted the parent of the claims
        yield Discard(ticket)


def dead(desk: Desk) -> Recipe[list[bytes]]:
    """Return the content of the items that were given back too often, the oldest first."""
    at = desk.at
    _, names = yield Sync(at.path), Children(at.dead)
    paths = [f"{at.dead}/{name}" for name in sorted(filter(is_item, names), key=number)]
    nodes: Sequence[Node | None] = (yield tuple(map(Get, paths))) if paths else ()
    found = zip(paths, nodes, strict=True)
    return [payload for path, node in found if node is not None for payload in unframe(path, node.data)]


def destroy(desk: Desk) -> Recipe[list[str]]:
    """Remove the queue, with its items, unless another client uses it; return the members of those that do.

    Raises:
        ForeignNodeError: the path is something else's; nothing is deleted.
    """
    at = desk.at
    mine = {receipt.member.name for receipt in list(desk.receipts) if receipt.member is not None}
    while True:
        _, node, inside, listed, members = yield (
            Sync(at.path),
            Get(at.path),
            Children(at.path),
            Children(at.items),
            Children(at.members),
        )
        if node is not None:
            Header.of(at.path, node)
        check_folders(at, inside)
        for name in listed:
            if not is_item(name):
                raise _not_ours(at.path, f"items/{name}")
        if others := sorted(set(members) - mine):
            return others
        yield from _forget_idle(desk)
        desk.laid_out, desk.version = False, None
        try:
            for folder in at.folders:
                names = yield Children(folder)
                for first in range(0, len(names), most_together(folder)):
                    yield tuple(Delete(f"{folder}/{name}") for name in names[first : first + most_together(folder)])
                yield Delete(folder)
            yield Delete(at.path)
        except NotEmpty:  # a client uses it just now, or a node of ours has children
            names = yield Children(folder)
            for first in range(0, len(names), most_together(folder)):
                paths = [f"{folder}/{name}" for name in names[first : first + most_together(folder)]]
                for path, below in zip(paths, (yield tuple(map(Children, paths))), strict=True):
                    if below:
                        raise _not_ours(path, below[0]) from None
            continue
        return []


def _forget_idle(desk: Desk) -> Recipe[None]:
    """Forget the receipts that no call uses; a call of another thread finds out that its own is gone."""
    receipts: list[Receipt] = []
    try:
        with suppress(IndexError):
            while True:
                receipts.append(desk.idle.pop())
        for receipt in receipts:
            if receipt.member is not None:
                yield Discard(receipt.member)
            receipt.member, receipt.path = None, ""
    finally:
        desk.idle.extend(receipts)


def _not_ours(path: str, child: str) -> ForeignNodeError:
    return ForeignNodeError(
        path, f"the node has a child {child!r}, which is no queue's; delete the child if something else left it behind"
    )
