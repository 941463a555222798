"""The mark of a job: when, and by whom, it last ran; and whether a call that holds the job's lock is to run it.

The mark is PATH.once. It is not below PATH, where each child is a contender, and not PATH's own data, as the server
removes an idle container. It is written in one `multi` with a check of the writer's node in the queue of the lock. So a
client that was paused, and has lost the lock, writes no mark, and its job does not start.

A period is counted from the time at which a call was made, by the leader's clock. A call may wait long before its job
starts: behind a machine that died, or a job that took long. If periods were counted from the starts, the next period's
calls would come too early, and none would do the work of that period. A call that was made before the mark was written
belongs to the same period, or to an earlier one: it skips.

The leader's clock dates only writes. So the mark says how long its call had `waited`: the call was made that long
before the mark's mtime. The next call writes its own node once more, for a time by the leader's clock. The call was
made as long before that time as it has waited by its own clock, which goes on while the process or the machine sleeps.
So it does not matter in which session a call holds, nor how often it has queued anew. Each wait is measured so that the
time between two calls comes out too short rather than too long.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from .._protocol import operations as op
from .._protocol.node_info import NodeInfo
from .._protocol.operations import Recipe
from .._protocol.ticket import Ticket
from .nodes import foreign_data

T = TypeVar("T")


class Mark(NamedTuple):
    """A mark that was read; times are the leader's.

    Attributes:
        called: when the call that has written it was made.
        written: when it was written.
        by: the words by which messages name the writer.
    """

    called: float
    written: float
    by: str

    @classmethod
    def of(cls, path: str, node: op.Node) -> Mark:
        """Parse a node.

        Raises:
            ForeignNodeError: it is not a mark.
        """
        try:
            waited = json.loads(node.data)["waited"]
            return cls(node.mtime - waited, node.mtime, NodeInfo.parse(node.data).whole_name("unknown"))
        except op.MALFORMED:
            raise foreign_data(path, node.data, "a mark of once_per is JSON with `waited`") from None


def while_held(ticket: Ticket, steps: Recipe[T]) -> Recipe[T | None]:
    """Run `take_turn` or `write`; return None if the hold is lost."""
    try:
        return (yield from steps)
    except (op.Requeue, op.NoNode):
        yield op.MarkMissing(ticket)
        return None


def take_turn(
    ticket: Ticket,
    path: str,
    seconds: float,
    waited: Callable[[], float],
    data: Callable[[], bytes] | None,
    queued: bool = True,
) -> Recipe[tuple[bool, Mark | None]]:
    """Return whether the call that holds the lock is to run the job, and the mark that it has found.

    Args:
        ticket: the hold.
        path: the mark.
        seconds: the shortest time from the call that has written the mark to the next call that may run the job.
        waited: returns how long the call has waited.
        data: returns the data of the mark, which the call writes if it is to run the job; None to write no mark.
        queued: whether the call itself has queued for the hold. Otherwise its caller held the lock already, perhaps
            since long before the mark was written.
    """
    due, mark = yield from _decide(ticket, path, seconds, waited, queued)
    if due and data is not None:
        yield from write(ticket, path, data())
    return due, mark


def _decide(
    ticket: Ticket, path: str, seconds: float, waited: Callable[[], float], queued: bool
) -> Recipe[tuple[bool, Mark | None]]:
    while True:
        _, own, node = yield op.Sync(path, ticket), op.Get(ticket.node, ticket), op.Get(path, ticket)
        if own is None:
            raise op.NodeGone
        if node is None:
            return True, None
        mark = Mark.of(path, node)
        if queued and own.czxid < node.mzxid:
            return False, mark
        # If the reply is lost, or another client has just asked the holder to let go, read again.
        with suppress(op.ConnectionLost, op.BadVersion):
            touch = op.SetNode(ticket.node, own.data, own.version)
            before = waited()
            _, own = yield op.Multi(ticket, (touch,)), op.Get(ticket.node, ticket)
            if own is None:
                raise op.NodeGone
            # The call was made between these two times.
            first, last = own.mtime - waited(), own.mtime - before
            # A mark of a later time was written before the leader's clock was set back.
            is_ahead = mark.written > own.mtime + seconds
            return is_ahead or (last >= mark.written and first - mark.called >= seconds), mark


def write(ticket: Ticket, path: str, data: bytes) -> Recipe[bool]:
    """Write the mark, exactly once, while the lock is held."""
    tried = None
    while True:
        # Behind the `sync`, the data show whether a write whose reply was lost was applied. The version shows that this
        # call wrote them: an earlier call in the same hold may have written the same data a moment before.
        _, node = yield op.Sync(path, ticket), op.Get(path, ticket)
        version = -1 if node is None else node.version
        if node is not None and node.data == data and tried not in (None, version):
            return True
        tried = version
        change = op.Create(path, data) if node is None else op.SetNode(path, data, node.version)
        with suppress(op.ConnectionLost, op.NodeExists, op.BadVersion):
            try:
                yield op.Multi(ticket, (op.Check(ticket.node), change))
            except op.NoNode as failed:
                if not failed.part:
                    raise
                # Another client has just deleted the mark.
                continue
            return True
