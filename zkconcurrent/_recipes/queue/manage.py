"""Recipes for all items of a queue: count them, wait for them, and drain them.

`put`, `take` and `claim` are about single items.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..._arguments.limits import most_together
from ..._errors import ForeignNodeError
from ..._protocol import operations as op
from ..._protocol.operations import Recipe
from ..._protocol.ticket import Ticket
from ..nodes import get_all
from ..receipts import ready, write
from .order import Header, is_item, items, number, unfinished_by_session, unframe
from .state import ItemCall, QueueView, read_snapshot


def done(item_call: ItemCall) -> Recipe[None]:
    """Count one item as done, once, even if a call that was interrupted is run again (R3).

    Raises:
        SessionExpired: the session has ended; other clients count all items that were taken in it as done.
    """
    receipt, sent = (yield from ready(item_call)), item_call.sent
    session = receipt.session if sent is None else sent.session
    yield from write(item_call, (), count=-1, session=session)


def wait_until_done(view: QueueView) -> Recipe[bool]:
    """Wait until no item is left, and no taken item is unfinished.

    The recipe reads the items before the members' nodes. If a consumer takes an item in between, the members' nodes
    count it when they are read. If a consumer puts an item in between, before it is done with another one, the items'
    parent shows that: the recipe reads the parent before and after.
    """
    yield from view.lay_out()
    at = view.at
    while True:
        ticket: Ticket = yield op.NewTicket(at.path)
        parent = op.Get(at.items, ticket)
        reads = parent, op.Children(at.items, ticket), op.Children(at.members, ticket)
        try:
            _, above, listed, members = yield op.Sync(at.path, ticket), *reads
            while True:
                names = items(at.path, listed, at.order)
                paths = [f"{at.members}/{name}" for name in members]
                nodes: Sequence[op.Node | None]
                *nodes, above_then = yield *(op.Get(path, ticket) for path in paths), parent
                if not names and not any(unfinished_by_session(nodes).values()):
                    if _items_made(above) == _items_made(above_then):
                        yield op.Discard(ticket)
                        return True
                    above, listed, members = yield reads
                    continue
                # One event wakes the waiter: the deletion of the item that consumers take last or, if no item is left,
                # the change of a member's count.
                watched = [f"{at.items}/{names[-1]}"] if names else _counting(paths, nodes)
                seen = yield op.Watch(ticket, tuple(op.Get(path, ticket) for path in watched))
                before = [] if names else [node for path, node in zip(paths, nodes, strict=True) if path in watched]
                unchanged = all(seen) and (bool(names) or list(seen) == before)
                del names, paths, nodes, before, watched, seen, listed, members  # as in `lock.acquire`
                if unchanged:
                    yield op.Wait(ticket)
                above, listed, members = yield reads
        except op.Requeue:
            yield op.Discard(ticket)


def _items_made(above: op.Node | None) -> tuple[int, int] | None:
    """Return a value that changes with each put, even of an old item: the parent's czxid and its count of creations."""
    return None if above is None else (above.czxid, above.created)


def _counting(paths: Sequence[str], nodes: Sequence[op.Node | None]) -> list[str]:
    """Return the nodes of the sessions that have unfinished items."""
    busy = unfinished_by_session(nodes)
    return [path for path, node in zip(paths, nodes, strict=True) if node is not None and busy[node.session]]


def shut_down(view: QueueView, *, immediate: bool) -> Recipe[None]:
    """Shut the queue down for all clients; with `immediate`, remove the items that no consumer has claimed."""
    at = view.at
    while True:
        _, node = yield op.Sync(at.path), op.Get(at.path)
        header = None if node is None else Header.of(at.path, node)
        if header is None:
            yield from view.lay_out()
            continue
        header.check(at.path, at.header)
        if header.state != "open":
            break
        with suppress(op.ConnectionLost):
            if (yield op.SetNode(at.path, header._replace(state="shutdown").data, node.version)):
                break
    view.version = None
    if immediate:
        yield from drain(view)


def drain(view: QueueView) -> Recipe[None]:
    """Remove the items that no consumer has claimed.

    It first removes the items that consumers take last. So consumers, which continue meanwhile, can be in the way of
    the last request only.
    """
    at = view.at
    most = most_together(at.path) // 3
    view.names.clear()
    while True:
        snapshot = yield from read_snapshot(view)
        if not snapshot.free:
            return
        ticket: Ticket = yield op.NewTicket(at.claims)
        try:
            for end in range(len(snapshot.free), 0, -most):
                parts: list[op.Part] = []
                for name in snapshot.free[max(0, end - most) : end]:
                    claim = f"{at.claims}/{name}"
                    parts += op.Create(claim, b"", ephemeral=True), op.Delete(claim), op.Delete(f"{at.items}/{name}")
                yield op.Multi(ticket, tuple(parts))
        except (op.NodeExists, op.ConnectionLost, op.Requeue):
            # A consumer was faster, or the outcome is unknown: read again.
            pass
        except op.NotEmpty as failed:
            raise ForeignNodeError(parts[failed.part].path, "an item's node has children; delete them") from None
        except op.NoNode:
            # A consumer was faster, or an operator has deleted the parent of the claims.
            yield from view.lay_out()
        yield op.Discard(ticket)


def dead(view: QueueView) -> Recipe[list[bytes]]:
    """Return the content of the items that were given back too often, the oldest first."""
    at = view.at
    _, names = yield op.Sync(at.path), op.Children(at.dead)
    paths = [f"{at.dead}/{name}" for name in sorted(filter(is_item, names), key=number)]
    nodes = yield from get_all(paths)
    found = [unframe(path, node.data)[0] for path, node in zip(paths, nodes, strict=True) if node is not None]
    return [payload for payloads in found for payload in payloads]
