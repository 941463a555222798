"""The items of a queue together: they are counted, waited for, drained, and destroyed with the queue.

How they come and go is in `putting`, `taking` and `claims`, on `receipts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from .._limits import most_together
from .desk import Desk, Errand, Sight, check_folders, look, not_ours
from .operations import (
    Children,
    ConnectionLost,
    Create,
    Delete,
    Discard,
    Get,
    Multi,
    NewTicket,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Part,
    Recipe,
    Requeue,
    Set,
    Sync,
    Wait,
    Watch,
)
from .orders import Header, is_item, items, number, unfinished, unframe
from .receipts import Receipt, write
from .ticket import Ticket


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
            yield from desk.lay_out()
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
            yield from desk.lay_out()  # the same; or an operator has deleted the parent of the claims
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
                raise not_ours(at.path, f"items/{name}")
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
                        raise not_ours(path, below[0]) from None
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
