"""Taking items out of a queue, or claiming them.

A consumer takes the next item at once, from a listing that it keeps. A consumer queues only if it sees no free item,
and only the first in that queue watches.

Consumers keep the first 64 names of a listing, or 1/64 of a long one, and read several items at once while no other
consumer is in the way. They pass over items that others have taken or claimed, and list again once all eight items that
they read together are gone. Only a consumer that sees no free item queues; the first in the queue watches the items,
and the claims only if there are items. It leaves the queue in the `multi` that takes an item. So an item costs two
events: one to the first consumer, and one to the next, which is then first. When it wakes, the first consumer reads
without watches, and sets them again only if nothing is free: watches on an item that it takes itself would only cost
events.

In a `DelayQueue` an item's name says when it is due. The first of the waiting consumers sleeps until its watch fires,
or until the earliest free item is due by its own wall clock. The wait itself goes by the monotonic clock, so once a
second the driver asks how much time is left. `Session.wall_clock` is the only wall clock that this module reads; tests
and the simulation set it. All other consumers wait behind the first. So an item that becomes due wakes one consumer.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from ..._errors import ForeignNodeError
from ..._protocol import operations as op
from ..._protocol.operations import Recipe
from ..._protocol.ticket import Ticket
from ..lock import come_first
from ..nodes import next_flight
from ..receipts import ready, write
from .order import due, frame, milliseconds, unframe
from .state import ClaimedItem, ItemCall, QueueClosed, QueueLayout, QueueSnapshot, QueueView, read_snapshot, reads

_NOTHING_SEEN = QueueSnapshot([], [], closed=False)
# This many items are read together while no other consumer is in the way.
AHEAD = 8


def takeable(view: QueueView, snapshot: QueueSnapshot) -> list[str]:
    """Return the free items that may be taken: in a timed queue, those that are due by our clock."""
    if not view.at.order.timed:
        return snapshot.free
    return snapshot.free[: bisect(snapshot.free, milliseconds(view.clock()), key=due)]


def until_due(view: QueueView, snapshot: QueueSnapshot) -> Callable[[], float] | None:
    """Return a function that returns in how many seconds the first free item is due; None if there is no such item."""
    if not (view.at.order.timed and snapshot.free):
        return None
    first = due(snapshot.free[0])
    return lambda: (first - milliseconds(view.clock())) / 1000


def take(item_call: ItemCall, *, wait: bool) -> Recipe[ClaimedItem | None]:
    """Take the next item, or claim it; None if there is no item.

    Args:
        item_call: the call; its purpose is "get" or "claim".
        wait: whether to wait for an item.

    Raises:
        QueueClosed: the queue is shut down, and no item is left.
    """
    view, at = item_call.view, item_call.view.at
    if (taken := (yield from seize_kept(item_call))) is not None:
        return taken
    snapshot = yield from read_snapshot(view)
    while names := takeable(view, snapshot):
        if (taken := (yield from seize_first(item_call, names))) is not None:
            return taken
        snapshot = yield from read_snapshot(view)
    if snapshot.over:
        raise QueueClosed
    if not wait:
        return None
    while True:
        ticket: Ticket = yield op.NewTicket(at.consumers)
        listing = op.Children(at.consumers, ticket)
        try:
            names, snapshot = [], _NOTHING_SEEN  # as in `lock.acquire`
            yield from come_first(ticket, item_call.label, view.lay_out)
            snapshot = yield from read_snapshot(view, ticket)
            while not snapshot.over:
                if not (names := takeable(view, snapshot)):
                    left = until_due(view, snapshot)
                    snapshot, queue = _NOTHING_SEEN, ()
                    yield op.Wait(ticket, left)
                elif (taken := (yield from seize_first(item_call, names, ticket))) is not None:
                    return taken
                # This read leaves no watches: if the consumer takes an item now, watches would only cost events.
                queue, *seen = yield listing, *reads(at, ticket)
                if ticket.name not in queue:
                    raise op.NodeGone
                snapshot = QueueSnapshot.of(at, seen)
                del seen
                if not takeable(view, snapshot):
                    snapshot = yield from read_snapshot(view, ticket)
            yield op.Discard(ticket)
            raise QueueClosed
        except op.Requeue:
            yield op.Discard(ticket)


def seize_first(item_call: ItemCall, names: Sequence[str], ticket: Ticket | None = None) -> Recipe[ClaimedItem | None]:
    """Take the first of the items that is still there; None if all are gone."""
    view = item_call.view
    view.rivals = False
    if not view.at.order.keeps:
        made_anew = view.made_anew
        for first in names:
            view.read.pop(first, None)
            taken = yield from seize(item_call, first, ticket)
            if taken is not None or view.made_anew != made_anew:
                return taken
        return None
    view.keep(names)
    item_call.names.clear()
    return (yield from seize_kept(item_call, ticket))


def seize_kept(item_call: ItemCall, ticket: Ticket | None = None) -> Recipe[ClaimedItem | None]:
    """Take the first item of the kept listing that is still there; None if all are gone."""
    while (name := item_call.next_name()) is not None:
        if (taken := (yield from seize(item_call, name, ticket))) is not None:
            return taken
        item_call.names.clear()
    return None


def seize(item_call: ItemCall, name: str, ticket: Ticket | None = None) -> Recipe[ClaimedItem | None]:
    """Take or claim one item, and leave the queue of consumers in the same step; None if another consumer has it.

    The codec decodes the item first. So an item that it can't decode never leaves the queue without being buried. If
    the codec raises any other error than ValueError, nothing is taken.

    Raises:
        ForeignNodeError: the codec can't decode the item, which was counted as an attempt or, without `max_attempts`,
            buried; or the node is not an item's.
        NodeGone: our node in the queue of consumers is gone.
    """
    view, at, wanted = item_call.view, item_call.view.at, item_call.purpose
    item, claim = f"{at.items}/{name}", f"{at.claims}/{name}"
    leaving = () if ticket is None else (op.Delete(ticket.node, ticket),)
    while True:
        # The receipt is made before the item is read: if the queue is destroyed from here on, our receipt goes with it,
        # and the write fails.
        yield from ready(item_call)
        node = yield from fetch(view, name)
        if node is None:
            return None
        payloads, base = unframe(item, node.data)
        attempts = max(0, node.version - base)
        content, error = None, None
        if not (spent := 0 < item_call.most <= attempts):
            try:
                content = item_call.decode(payloads[0])
            except ValueError as refused:
                error = refused
        buried = spent or (error is not None and not item_call.most)
        taken = ClaimedItem(name, payloads, node.version, base, attempts + 1, item=content)
        own = op.Create(claim, item_call.label, ephemeral=True)
        parts: tuple[op.Part, ...]
        if buried:
            parts = own, op.Delete(claim), remove(at, taken), (yield from bury(at, taken))
        elif error is not None:
            # The attempt is counted, while no other consumer has the item.
            parts = own, op.Delete(claim), op.SetNode(item, node.data, node.version)
        elif wanted == "get":
            parts = own, op.Delete(claim), remove(at, taken), *leaving
        else:
            parts = own, op.SetNode(item, node.data, node.version), *leaving
            taken = taken._replace(version=op.next_version(node.version))
        fails = buried or error is not None
        item_call.taken, item_call.purpose = taken, "bury" if fails else wanted
        try:
            results = yield from write(item_call, parts, count=int(wanted == "get" and item_call.counts and not fails))
        except op.NodeExists as failed:
            item_call.purpose = wanted
            view.meet_rivals()
            if failed.part:
                # An item of this name was just buried.
                continue
            # Another consumer has claimed the item.
            return None
        except (op.NoNode, op.BadVersion) as failed:
            item_call.purpose = wanted
            view.meet_rivals()
            if failed.part == 0:
                yield from view.lay_out()
            elif failed.part == len(parts):
                # Our receipt is gone, and perhaps the whole queue with it.
                return None
            elif type(failed) is op.BadVersion:
                # Since it was read, the item was claimed and given back, or another item of its name was buried.
                yield op.Sync(item)
            elif isinstance(parts[failed.part], op.Create):
                yield op.CreatePersistent(at.dead, b"")
            elif parts[failed.part] in leaving:
                raise op.NodeGone from None
            else:
                # The item is gone.
                return None
            continue
        if fails:
            # This is cleared before `purpose` is reset: otherwise an interrupt in between would have the item put back.
            item_call.applied = False
            item_call.put_down()
            item_call.purpose = wanted
            if len(payloads) == 1 and buried:
                item_call.names.clear()
            if error is not None:
                raise undecodable(item_call, taken, error) from error
            if len(payloads) > 1:
                continue
            return None
        view.window = min(2 * view.window, AHEAD)
        if ticket is not None:
            yield op.MarkDeleted(ticket)
        if wanted == "get" and len(payloads) > 1:
            view.come_back_to(name)
        elif wanted == "claim":
            taken = yield from identified(item_call, taken, results)
            if not taken.session:
                # The claim has ended with its session, before its reply came.
                item_call.applied = False
                item_call.put_down()
                item_call.leave_name()
                return None
        return taken


def undecodable(item_call: ItemCall, taken: ClaimedItem, error: Exception) -> ForeignNodeError:
    """Return the error for an item that the codec can't decode, which was counted as an attempt or buried."""
    at = item_call.view.at
    outcome = f"the item was moved to {at.dead}, where dead() returns its bytes"
    if item_call.most:
        outcome = f"that was attempt {taken.attempts} of {item_call.most}, after which the item is moved to {at.dead}"
    return ForeignNodeError(
        f"{at.items}/{taken.name}",
        f"the codec can't decode the item {taken.payloads[0][:100]!r}: {type(error).__name__}: {error}; {outcome}; "
        "give all clients of the queue the same codec",
    )


def fetch(view: QueueView, name: str) -> Recipe[op.Node | None]:
    """Return an item's node, or None if another consumer has it; also read the items that come next.

    While other consumers are in the way, the call reads few items ahead, and lists the claims. It skips the items that
    those consumers have taken. Listing all items again each time would cost more the longer the queue is. The call also
    reads few items ahead if they are large, or if its consumer takes so long for each that they grow old.
    """
    # Another thread may replace `view.read` at any time, so the call works on the present dict.
    read = view.read
    if name not in read or not view.fresh:
        if read and not view.fresh:
            view.window = 1
        names = [name, *islice(list(view.names), min(view.window, view.flight) - 1)]
        reads = tuple(op.Get(f"{view.at.items}/{each}") for each in names)
        read_at = view.clock()
        if view.rivals:
            claims, *nodes = yield op.Children(view.at.claims), *reads
            nodes = [None if each in claims else node for each, node in zip(names, nodes, strict=True)]
        else:
            nodes = yield reads
        if None in nodes:
            view.rivals = True
        if not any(nodes):
            if view.window == AHEAD:
                # The listing is too old to be used any longer.
                view.names.clear()
            view.window = min(2 * view.window, AHEAD)
        view.flight = next_flight(nodes)
        read = dict(zip(names, nodes, strict=True))
        view.read, view.read_at = read, read_at
    return read.pop(name, None)


def remove(at: QueueLayout, taken: ClaimedItem) -> op.Part:
    """Return the operation that takes an item out of the queue; the items behind it in the same node stay."""
    item = f"{at.items}/{taken.name}"
    if len(taken.payloads) > 1:
        return op.SetNode(item, frame(taken.payloads[1:], taken.version + 1), taken.version)
    return op.Delete(item, version=taken.version)


def bury(at: QueueLayout, taken: ClaimedItem) -> Recipe[op.Part]:
    """Return the operation that puts an item among the dead. Items of one name, from one node, stay side by side."""
    path = f"{at.dead}/{taken.name}"
    node: op.Node | None = yield op.Get(path)
    if node is None:
        return op.Create(path, frame(taken.payloads[:1]))
    return op.SetNode(path, frame([*unframe(path, node.data)[0], taken.payloads[0]]), node.version)


def identified(item_call: ItemCall, taken: ClaimedItem, results: Sequence[Any] | None = None) -> Recipe[ClaimedItem]:
    """Return a claimed item with its claim's session and token; if it has no session, the claim is over."""
    if results is not None:
        stat = results[0][1]
        taken = taken._replace(session=stat.ephemeralOwner, token=stat.czxid)
    else:
        # This read is behind the same `sync` as the read of the receipt. A claim of another session is another client's
        # or, if our session has ended since, another thread's.
        node: op.Node | None = yield op.Get(f"{item_call.view.at.claims}/{taken.name}")
        if node is not None and node.session == item_call.session:
            taken = taken._replace(session=node.session, token=node.czxid)
    item_call.taken = taken
    return taken
