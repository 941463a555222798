"""The latch: a node with the count, and a child for each `count_down`; the latch opens when these add up to the count.

A client draws a child's unique name before its first attempt to make the child, and keeps the name for every retry. So
a `count_down` whose reply was lost never counts twice. The name also says how much the child counts, so one listing
gives the sum.

The children are persistent: a count remains after its process has ended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .._protocol import operations as op
from .._protocol.operations import Recipe
from .._protocol.ticket import Ticket
from .nodes import foreign_data, make, watch_until

ROLE = "count-"
_DATA = re.compile(rb"(\d{1,19}) count")
CHILD = re.compile(r"_c_[0-9a-f-]{36}-count-([0-9]{1,19})")
"""Matches the names of the counts; the group matches how much each counts."""


def remaining(path: str, count: int, node: op.Node | None, names: Sequence[str]) -> int:
    """Return how much is left to count down. Children with other names are ignored.

    Raises:
        ForeignNodeError: the node is not a latch's.
        ValueError: the latch was made with another count.
    """
    if node is None:
        return count
    if (theirs := parse(path, node)) != count:
        raise ValueError(
            f"the latch at {path!r} was made with a count of {theirs}, not {count}: all clients must give the same; "
            "destroy() it if no client uses it any more"
        )
    return max(0, count - sum(int(match[1]) for name in names if (match := CHILD.fullmatch(name))))


def parse(path: str, node: op.Node) -> int:
    """Return the count that the latch was made with.

    Raises:
        ForeignNodeError: the node is not a latch's.
    """
    match = _DATA.fullmatch(node.data)
    if match is None:
        raise foreign_data(path, node.data, "a CountDownLatch's is like b'3 count'")
    return int(match[1])


def data(count: int) -> bytes:
    """Return the data of the node."""
    return b"%d count" % count


def read_remaining(path: str, count: int) -> Recipe[int]:
    """Return how much is left, read behind a `sync`. A latch that was never used needs no node."""
    _, node, names = yield op.Sync(path), op.Get(path), op.Children(path)
    return remaining(path, count, node, names)


def count_down(path: str, count: int, n: int) -> Recipe[int]:
    """Count down by `n`, exactly once; return how much was left when last seen."""
    ticket: Ticket = yield op.NewTicket(path)
    # Only the ticket's unique name is needed: the count's node belongs to no session.
    yield op.Discard(ticket)
    mine = f"{path}/{ticket.prefix}{ROLE}{n}"
    while True:
        _, node, names = yield op.Sync(path), op.Get(path), op.Children(path)
        left = remaining(path, count, node, names)
        if not left:
            return 0
        if node is None and not (yield from make(path, data(count))):
            # Another client was faster: its latch may have another count, or its node may be of another kind.
            continue
        try:
            yield op.CreatePersistent(mine, b"")
        except op.NoNode:
            continue  # destroyed meanwhile
        return max(0, left - n)


def wait(path: str, count: int) -> Recipe[int]:
    """Wait until the latch is open; return 0."""

    def accepts(node: op.Node | None, names: Sequence[str]) -> int | None:
        return None if remaining(path, count, node, names) else 0

    return (yield from watch_until(path, accepts, lambda: make(path, data(count)), lists=True))
