"""Putting items into a queue: at once, or in turn if it has a maximal size.

Producers for a queue with a `maxsize` stand in line, as for a semaphore. Once a listing shows a producer first, no
other client creates items, so a later listing of the items can only show too many.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..._errors import SequenceExhaustedError
from ..._protocol import operations as op
from ..._protocol.blocking_rules import MUTEX, blocker
from ..._protocol.operations import Recipe
from ..._protocol.ticket import Ticket
from ..lock import join
from ..receipts import write
from .order import LAST_ITEM, Header, items, number
from .state import ItemCall, QueueClosed, QueueLayout, QueueView

# In a queue of at most this size, a producer lists the items to count them.
LISTED = 1_000


def put(item_call: ItemCall, data: bytes, prefix: str, *, wait: bool) -> Recipe[bool]:
    """Put an item; False if the queue is full.

    Args:
        item_call: the call.
        data: the content of the item's node.
        prefix: the name of that node, without its number.
        wait: whether to wait for a free place.

    Raises:
        QueueClosed: the queue is shut down.
        SequenceExhaustedError: the server has no more numbers for items.
    """
    view, at = item_call.view, item_call.view.at
    if view.last >= LAST_ITEM:
        raise exhausted(view)
    item = op.Create(f"{at.items}/{prefix}", data, sequential=True)
    if at.maxsize:
        return (yield from put_when_first(item_call, item, wait=wait))
    while True:
        if (yield from add(item_call, item)):
            return True


def exhausted(view: QueueView) -> SequenceExhaustedError:
    """Return the error for a queue that has no numbers left."""
    return SequenceExhaustedError(view.at.path, "ZooKeeper has no sequence numbers left here; use another path")


def add(item_call: ItemCall, item: op.Create, *leaving: op.Delete, count: int = 0) -> Recipe[bool]:
    """Create an item if the queue is open; False if the caller must try again.

    Raises:
        QueueClosed: the queue is shut down.
        NodeGone: a node of `leaving` is gone.
        SequenceExhaustedError: the server gives its last number again and again.
    """
    view, at = item_call.view, item_call.view.at
    while (version := view.version) is None:
        _, node = yield op.Sync(at.path), op.Get(at.path)
        yield from check_open(view, node)
    try:
        results = yield from write(item_call, (op.Check(at.path, version), *leaving, item), count=count)
    except op.NodeExists:
        raise exhausted(view) from None
    except (op.NoNode, op.BadVersion) as failed:
        if failed.part == 0:  # shut down, or destroyed
            view.version = None
        elif failed.part == 1 + len(leaving):
            yield from view.lay_out()
        elif failed.part > 1 + len(leaving):
            # Our receipt is gone, and perhaps the queue.
            pass
        else:
            raise op.NodeGone from None
        return False
    if results is not None:
        view.last = number(results[1 + len(leaving)][0])
    return True


def put_when_first(item_call: ItemCall, item: op.Create, *, wait: bool, count: int = 0) -> Recipe[bool]:
    """Put an item in a queue with a maximal size: the first producer in line puts it and leaves the line in one step.

    Once a listing shows that we are first, only we may create items. So a later listing of the items can only show too
    many, however stale the server is.
    """
    view, at = item_call.view, item_call.view.at
    if not wait:
        _, node, queue, inside = yield op.Sync(at.path), op.Get(at.path), op.Children(at.producers), sizing(at)
        yield from check_open(view, node)
        if (yield from size(at, inside, at.maxsize - len(queue))) + len(queue) >= at.maxsize:
            return False
    while True:
        ticket: Ticket = yield op.NewTicket(at.producers)
        reads = op.Children(at.producers, ticket), sizing(at, ticket), op.Get(at.path, ticket)
        try:
            yield from join(ticket, MUTEX, item_call.label, view.lay_out)
            queue, inside, node = yield reads
            while True:
                yield from check_open(view, node)
                if ticket.name is None or ticket.name not in queue:
                    raise op.NodeGone
                ahead = blocker(ticket.name, queue, MUTEX)
                position = sum(MUTEX.key(name) < MUTEX.key(ticket.name) for name in queue)
                there = yield from size(at, inside, at.maxsize - position)
                if not wait and there + position >= at.maxsize:
                    yield op.Discard(ticket)
                    return False
                if ahead:
                    queue = inside = ()  # as in `lock.acquire`
                    seen = yield op.WaitGone(ticket, ahead, reads, not wait)
                    queue, inside, node = seen or (yield reads)
                    del seen
                elif there < at.maxsize:
                    if (yield from add(item_call, item, op.Delete(ticket.node, ticket), count=count)):
                        yield op.MarkDeleted(ticket)
                        return True
                    queue, inside, node = yield reads
                else:
                    listed, node = yield op.Watch(ticket, (op.Children(at.items, ticket), op.Get(at.path, ticket)))
                    there = len(items(at.path, listed, at.order))
                    queue = inside = listed = ()
                    if there >= at.maxsize:
                        yield from check_open(view, node)
                        yield op.Wait(ticket)
                    queue, inside, node = yield reads
        except op.Requeue:
            yield op.Discard(ticket)


def sizing(at: QueueLayout, ticket: Ticket | None = None) -> op.Get | op.Children:
    """Return the operation that counts the items: a listing only for a small `maxsize`, as a long one takes long."""
    return op.Children(at.items, ticket) if at.maxsize <= LISTED else op.Get(at.items, ticket)


def size(at: QueueLayout, seen: op.Node | Sequence[str] | None, most: int) -> Recipe[int]:
    """Return how many items there are, from what `sizing` has read. A result below `most` may be too high.

    The parent's node counts its children. If these are fewer than `most`, so are the items. Otherwise the children are
    listed, as some of them may not be items.
    """
    if isinstance(seen, op.Node) and seen.children < most:
        return seen.children
    names: Sequence[str] = (yield op.Children(at.items)) if isinstance(seen, op.Node) else seen or ()
    return len(items(at.path, names, at.order))


def check_open(view: QueueView, node: op.Node | None) -> Recipe[None]:
    """Refuse a put into a queue that is shut down, or has another order or size; make a queue that does not exist.

    Raises:
        QueueClosed: it is shut down.
        ValueError: it was made with another order or size.
    """
    path = view.at.path
    while node is None or (header := Header.of(path, node)) is None:
        yield from view.lay_out()
        node = yield op.Get(path)
    header.check(path, view.at.header)
    if header.state != "open":
        raise QueueClosed
    view.version = node.version
