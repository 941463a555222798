"""The election: the queue of a lock, whose nodes name the candidates; the first in the queue leads.

A candidate queues by the recipes of `lock`. These recipes read the leader, follow it, and rewrite the leader's data.

An observer watches the leader's node for its end and its data, not the list of the candidates. No later candidate can
come in front of the leader, which therefore leads as long as its node exists. `publish` names the version that it has
read; a lost reply is settled by another read, and an attempt that arrives late fails.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias

from .._protocol import operations as op
from .._protocol.blocking_rules import Rule, check_queue
from .._protocol.operations import Recipe
from .._protocol.ticket import Ticket
from .lock import list_queue

Leader: TypeAlias = tuple[str, op.Node] | None
"""The name and content of the first node in the queue; None if there is none."""


def read_leader(path: str, rule: Rule) -> Recipe[Leader]:
    """Return the leader, read behind a `sync`."""
    while names := (yield from list_queue(path, rule)):
        first = min(names, key=rule.key)
        node = yield op.Get(f"{path}/{first}")
        if node is not None:
            return first, node
    return None


def is_same(one: Leader, other: Leader) -> bool:
    """Return whether the same node leads in both, with the same data."""
    if one is None or other is None:
        return one is other
    return (one[1].czxid, one[1].data) == (other[1].czxid, other[1].data)


def follow(path: str, rule: Rule, seen: tuple[Leader] | None) -> Recipe[Leader]:
    """Return the leader once it differs from the leader that was last seen, or has other data.

    While there is a leader, only its node is watched: as later candidates get higher numbers, none can come in front.
    So a new candidate wakes no observer.

    Args:
        path: the election's path.
        rule: how the candidates line up.
        seen: the leader as last seen, in a tuple; None to return the leader at once.
    """
    while True:
        ticket: Ticket = yield op.NewTicket(path)
        listing = op.Children(path, ticket)
        try:
            _, names = yield op.Sync(path, ticket), listing
            while True:
                check_queue(path, names, rule)
                leader: Leader = None
                first = min(names, key=rule.key, default=None)
                if first is not None:
                    (node,) = yield op.Watch(ticket, (op.Get(f"{path}/{first}", ticket),))
                    if node is None:
                        names = yield listing
                        continue
                    leader = first, node
                if seen is None or not is_same(leader, seen[0]):
                    yield op.Discard(ticket)
                    return leader
                names = ()  # as in `lock.acquire`
                if first is None:
                    # The election's existence is read, and watched, first, so that no creation of its node is missed.
                    _, names = yield op.Watch(ticket, (op.Exists(path, ticket), listing))
                if first is not None or not names:
                    yield op.Wait(ticket)
                    names = yield listing
        except op.Requeue:
            yield op.Discard(ticket)


def publish(ticket: Ticket, data: bytes) -> Recipe[None]:
    """Write the data of the leader's own node, once; a missing node is a loss.

    Every attempt names the version that was read, so an attempt that arrives late never overwrites a newer write.
    """
    # After a `Requeue`, the session is over, or the leader has resigned.
    with suppress(op.Requeue):
        while True:
            _, node = yield op.Sync(ticket.path, ticket), op.Get(ticket.node, ticket)
            if node is None:
                yield op.MarkMissing(ticket)
                return
            if node.data == data:
                return
            # If it is unknown whether the data was written, read again.
            with suppress(op.ConnectionLost):
                if (yield op.SetNode(ticket.node, data, node.version)):
                    return
