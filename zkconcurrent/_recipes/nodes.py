"""The nodes that clients share: containers, and persistent nodes with flags, counts and agreed numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from .._arguments.limits import MOST_TOGETHER
from .._arguments.paths import ancestors
from .._errors import ForeignNodeError
from .._protocol import operations as op
from .._protocol.layout import FOLDERS, has_data, other_folder, other_kind, role_of
from .._protocol.operations import Recipe
from .._protocol.ticket import Ticket

R = TypeVar("R")
FIRST_FLIGHT = 50
"""How many nodes of unknown size the first flight reads."""

FLIGHT = 1_000_000
"""About how many bytes of data a flight may read."""

Lacking: TypeAlias = tuple[op.Container | op.Create, ...]
"""The operations that create the missing nodes, in order."""


def missing(*parts: op.Container | op.Create) -> Recipe[Lacking]:
    """Return the operations that create the missing nodes, and the missing containers above them; the highest first.

    The caller creates all of these in one request, with a child of the lowest container. A server removes an empty
    container only if it once had a child. So a container that was made alone would stay for good if its client were
    killed, or its call ended, before the child came.

    Args:
        parts: the nodes, each after the nodes above it.
    """
    return (yield from missing_beside(parts))[0]


def missing_beside(
    parts: Sequence[op.Container | op.Create], *reads: op.Get | op.Children
) -> Recipe[tuple[Lacking, list[Any]]]:
    """Return what `missing` returns, and what the reads return, behind the same `sync`."""
    wanted: dict[str, op.Container | op.Create] = {}
    for part in parts:
        for above in ancestors(part.path):
            wanted.setdefault(above, op.Container(above))
        wanted[part.path] = part
    seen = yield (op.Sync(parts[0].path), *map(op.Exists, wanted), *reads)
    found = zip(wanted.values(), seen[1:], strict=False)
    return tuple(part for part, there in found if not there), seen[len(wanted) + 1 :]


def next_flight(nodes: Sequence[op.Node | None]) -> int:
    """Return how many nodes the next flight may read: about 1 MB, judged by the last flight.

    A heartbeat's reply queues behind the flight: if that took too long, as over a slow link, the lease would end, and
    with it all holds. The number grows step by step, as small nodes may stand before large ones.
    """
    size = sum(len(node.data) for node in nodes if node is not None)
    return max(1, min(MOST_TOGETHER, 4 * len(nodes), len(nodes) * FLIGHT // max(1, size)))


def get_all(paths: Sequence[str]) -> Recipe[list[op.Node | None]]:
    """Read nodes of unknown number and size, in several flights: see `next_flight`."""
    found: list[op.Node | None] = []
    most = FIRST_FLIGHT
    while some := paths[len(found) : len(found) + most]:
        nodes = yield tuple(map(op.Get, some))
        found += nodes
        most = next_flight(nodes)
    return found


# The data by which the kinds of primitives recognize their own nodes: see `kind_of`.
_MARKS = {
    "an Event": rb"\d{1,19} (?:set|clear)",
    "a CountDownLatch": rb"\d{1,19} count",
    "a Barrier": rb'\{"parties": \d+, "generation": .*\}',
    "a Queue": rb"(?:fifo|lifo|priority|float|delay) \d+ (?:open|shutdown)",
    "a Dict": rb"dict (?:persistent|ephemeral)",
    "a Set": rb"set (?:persistent|ephemeral)",
}


class PathCheck:
    """Checks, once for each client, that a primitive's path is not used by another kind.

    The primitive's own nodes lie in folders below its path, and its contenders list only these folders. So the client's
    first call lists the path, after it has created its own nodes: if two kinds come at the same moment, at least one of
    them sees the other.

    Attributes:
        path: the primitive's path.
        kind: the kind of primitive.
        done: the client has checked the path.
    """

    __slots__ = ("done", "kind", "path")

    def __init__(self, path: str, kind: str) -> None:
        self.path = path
        self.kind = kind
        self.done = False

    def reads(self) -> tuple[op.Children, ...]:
        """Return the operations that read the path; no operations once the check is done."""
        return () if self.done else (op.Children(self.path),)

    def check_listing(self, listed: Sequence[Sequence[str]]) -> None:
        """Check the results of `reads`.

        Raises:
            ForeignNodeError: another kind of primitive uses the path.
        """
        for names in listed:
            if length := getattr(names, "data_length", 0):
                raise ForeignNodeError(self.path, has_data(length))
            check_folders(self.path, names, self.kind)
            self.done = True

    def check_now(self) -> Recipe[None]:
        """Read the path and check it, unless that is done; errors as `check_listing`."""
        if not self.done:
            self.check_listing([(yield op.Children(self.path))])

    def missing(self, *parts: op.Container | op.Create) -> Recipe[Lacking]:
        """Return the operations that create our own missing nodes; errors as `check_listing`.

        The path is checked before they are created, so a refused primitive leaves no nodes. It is checked again
        afterwards.
        """
        lacking, listed = yield from missing_beside(parts, op.Children(self.path))
        self.check_listing(listed)
        self.done = False
        return lacking


def lay_out(*parts: op.Container | op.Create, path_check: PathCheck | None = None) -> Recipe[bool]:
    """Create the nodes that are missing, and the missing containers above them, all in one request.

    Args:
        parts: the nodes, each after the nodes above it.
        path_check: refuses a path that another kind of primitive uses.

    Returns:
        Whether this call has certainly created the missing nodes. Otherwise another kind of primitive may have created
        them.
    """
    find_missing = missing if path_check is None else path_check.missing
    while lacking := (yield from find_missing(*parts)):
        # The server has just removed the parent, which was empty: read again.
        with suppress(op.NoNode):
            if made := (yield op.CreateTogether(lacking)):
                return made is True
    return False


def lay_out_marked(
    kind: str,
    top: op.Create,
    parts: Sequence[op.Container | op.Create],
    is_marked: Callable[[op.Node], bool],
    check_more: Callable[[op.Node, Sequence[str]], Recipe[None]] | None = None,
) -> Recipe[None]:
    """Create, in one request, the missing nodes of a primitive whose node at its path is marked by its data.

    Args:
        kind: the kind of primitive.
        top: creates the node at the path.
        parts: create the nodes below it.
        is_marked: returns whether the node at the path has a mark; if not, the node gets the mark of `top`. It raises
            an error for a mark that is not ours.
        check_more: a recipe that, given the node at the path and its children, reads more, and refuses a node that is
            not ours.

    Raises:
        ForeignNodeError: the path belongs to something else.
    """
    path = top.path
    while True:
        lacking, (node, names) = yield from missing_beside((top, *parts), op.Get(path), op.Children(path))
        marked = node is None or is_marked(node)
        if node is not None and check_more is not None:
            yield from check_more(node, names)
        check_folders(path, names, kind)
        if not marked:
            # An operator has made the node, or a program on Curator has, as the parent of its items.
            with suppress(op.ConnectionLost):
                yield op.SetNode(path, top.data, node.version)
            continue
        # The server has just removed the parent, or a client has destroyed the primitive: read again.
        with suppress(op.NoNode):
            made, names = (yield op.CreateTogether(lacking), op.Children(path)) if lacking else (True, names)
            if made:
                # A primitive of another kind may have come just then.
                check_folders(path, names, kind)
                return


def make(path: str, data: bytes) -> Recipe[bool]:
    """Make the node unless it exists; return whether this call has certainly made it. If not, another kind may have.

    Its ancestors are containers, so that they disappear once it is destroyed.
    """
    try:
        return (yield op.CreatePersistent(path, data)) is True
    except op.NoNode:
        # The parent was never made, or the server has removed it.
        return (yield from lay_out(op.Create(path, data)))


def watch_until(
    path: str, accepts: Callable[..., R | None], makes: Callable[[], Recipe[object]], *, lists: bool = False
) -> Recipe[R]:
    """Wait until a node is accepted; return what `accepts` returns.

    The first read is behind a `sync`, so that a change from before the call does not count as one during the call.
    Later reads in the same session are never older.

    Args:
        path: the node.
        accepts: called after each read with the node, or None if it is missing; with `lists`, also with the names of
            its children. It returns None to continue the wait.
        makes: returns the recipe that makes the node: a missing node can't be watched.
        lists: whether to watch the children, too.
    """
    while True:
        ticket: Ticket = yield op.NewTicket(path)
        reads = (op.Get(path, ticket), op.Children(path, ticket))[: 1 + lists]
        try:
            _, *seen = yield op.Sync(path, ticket), *reads
            watched = False
            while (accepted := accepts(*seen)) is None:
                absent = seen[0] is None
                seen = []  # as in `lock.acquire`
                if absent:
                    yield from makes()
                elif watched:
                    yield op.Wait(ticket)
                seen = yield op.Watch(ticket, reads)
                watched = True
            yield op.Discard(ticket)
            return accepted
        except op.Requeue:
            yield op.Discard(ticket)


def check_folders(path: str, names: Sequence[str], kind: str) -> None:
    """Refuse a path with a child that is not a folder of its kind of primitive.

    Raises:
        ForeignNodeError: the path has such a child.
    """
    folders = FOLDERS[kind]
    for name in names:
        if name not in folders:
            raise foreign_child(path, name, kind)


def kind_of(data: bytes) -> str | None:
    """Return the kind of primitive whose node has such data; None if no kind has."""
    return next((kind for kind, mark in _MARKS.items() if re.fullmatch(mark, data, re.DOTALL)), None)


def foreign_data(path: str, data: bytes, ours: str) -> ForeignNodeError:
    """Return the error for a node that has another program's data; `ours` describes the expected data."""
    # Any program may have made a node without data, but a lock's or semaphore's nodes never have data.
    kind = kind_of(data) if data else "a lock or semaphore, say"
    return ForeignNodeError(
        path,
        f"the node's data is {data[:100]!r}{f', that of {kind}' if kind else ''}, but {ours}; delete the node if "
        "something else left it behind, or use another path",
    )


def foreign_child(path: str, child: str, kind: str) -> ForeignNodeError:
    """Return the error for a node of this kind of primitive that has another program's child."""
    if (role := role_of(child)) is not None:
        return ForeignNodeError(path, other_kind(child, role))
    if (folder := other_folder(child)) is not None:
        return ForeignNodeError(path, folder)
    return ForeignNodeError(
        path,
        f"the node has a child {child!r}, which is no {kind}'s; delete the child if something else left it behind, or "
        "use another path",
    )
