"""The latch: a node with the count, and a child for each count down; it is open once there are enough.

A child has a name of its own, drawn before it is made and the same however often that is tried. So a count whose answer
was lost is not counted twice. How much it counts is in the name too: one listing tells it all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .nodes import agreed, make
from .operations import (
    Children,
    CreatePersistent,
    Discard,
    Get,
    NewTicket,
    Node,
    NoNode,
    Recipe,
    Requeue,
    Sync,
    Wait,
    Watch,
)
from .ticket import Ticket

ROLE = "count-"
CHILD = re.compile(r"_c_[0-9a-f-]{36}-count-([0-9]{1,19})")
"""The names of the counts."""


def remaining(path: str, count: int, node: Node | None, names: Sequence[str]) -> int:
    """Return how much is left to count down; children that are no counts do not count.

    Raises:
        ForeignNodeError: the node is no latch's.
        ValueError: it was made with another count.
    """
    if node is None:
        return count
    if (theirs := read(path, node)) != count:
        raise ValueError(
            f"the latch at {path!r} was made with a count of {theirs}, not {count}: all must give the same; "
            "destroy() it if nobody uses it any more"
        )
    return max(0, count - sum(int(said[1]) for name in names if (said := CHILD.fullmatch(name))))


def read(path: str, node: Node) -> int:
    """Return the count that the latch was made with.

    Raises:
        ForeignNodeError: the node is no latch's.
    """
    return agreed(path, node, "a CountDownLatch's is its count")


def look(path: str, count: int) -> Recipe[int]:
    """Return how much is left, as the leader has it; a latch that nobody used needs no node."""
    _, node, names = yield Sync(path), Get(path), Children(path)
    return remaining(path, count, node, names)


def count_down(path: str, count: int, n: int) -> Recipe[int]:
    """Count down by `n`, once; return how much was left when it was last seen."""
    ticket: Ticket = yield NewTicket(path)
    yield Discard(ticket)  # of it we need the unique name only: what is made is no session's
    mine = f"{path}/{ticket.prefix}{ROLE}{n}"
    while True:
        _, node, names = yield Sync(path), Get(path), Children(path)
        left = remaining(path, count, node, names)
        if not left:
            return 0
        if node is None:
            yield from make(path, b"%d" % count)
        try:
            yield CreatePersistent(mine, b"")
        except NoNode:
            continue  # destroyed meanwhile
        return max(0, left - n)


def wait(path: str, count: int) -> Recipe[int]:
    """Wait until nothing is left to count down."""
    while True:
        ticket: Ticket = yield NewTicket(path)
        try:
            _, node, names = yield Sync(path, ticket), Get(path, ticket), Children(path, ticket)
            watched = False
            while remaining(path, count, node, names):
                if node is None:
                    yield from make(path, b"%d" % count)  # what is not there can't be watched
                elif watched:
                    yield Wait(ticket)
                node, names = yield Watch(ticket, (Get(path, ticket), Children(path, ticket)))
                watched = True
            yield Discard(ticket)
            return 0
        except Requeue:
            yield Discard(ticket)
