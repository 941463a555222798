"""Why a hold was lost: the cause is found at the loss, and the error and the log put it into words.

A lease ends when this process cannot prove in time that its session lives. The reason shows an operator where to look:
at this process, at the network, or at the servers.
"""

from __future__ import annotations

import math

from .._errors import LossCause
from .._kazoo.link import Link
from .._protocol.operations import NoNode
from .._protocol.session_lease import Lease
from .._protocol.ticket import LossRecord, State, Ticket
from .._runtime.clock import ago, in_words

PAUSED = "this process was paused, or its threads did not run"
CUT_OFF = "ZooKeeper was out of reach"
SHORTENED = "a reconnect has shortened the session timeout"
SLOW = "ZooKeeper's replies were slow"
_TEXTS = {
    LossCause.SESSION_EXPIRED: "its session expired",
    LossCause.CLIENT_STOPPED: "its client was stopped",
    LossCause.CLIENT_GAVE_UP: "its client has given up connecting",
    LossCause.LEASE_ENDED: "its lease ran out",
    LossCause.NODE_DELETED: "its node was deleted",
    LossCause.NOT_REACQUIRED: "a condition's wait could not acquire it again",
    LossCause.FORCED: "another call ended it",
    LossCause.LIMIT: "it lasted longer than its hold_limit",
}


def of_end(link: Link, lease: Lease, now: float, *, paused: bool, overdue: bool) -> LossRecord:
    """Return why the holds of a session are lost: the session has ended, or its lease has.

    Args:
        link: the client's link.
        lease: the session's lease.
        now: the time, by the lease's clock.
        paused: the keeper takes its turn much later than planned.
        overdue: a reply is late.
    """
    if lease.over:
        if link.stopping:
            return LossRecord(LossCause.CLIENT_STOPPED)
        return LossRecord(LossCause.CLIENT_GAVE_UP if link.gave_up else LossCause.SESSION_EXPIRED)
    if paused:
        detail = PAUSED
    elif overdue or not link.connected:
        detail = CUT_OFF
    else:
        detail = SHORTENED if lease.shortened(now) else SLOW
    return LossRecord(LossCause.LEASE_ENDED, detail)


def complete(ticket: Ticket, now: float) -> None:
    """Record how long a lost hold lasted, how old its last proof was, and since when others may have got in."""
    if (loss := ticket.loss) is not None and loss.held_for is None:
        late = now - ticket.lease.proved_until
        over = ago(late) if 0 <= late < math.inf else None
        ticket.loss = loss._replace(held_for=now - ticket.granted, unproved_for=now - ticket.lease.heard, over=over)


def was_lost(ticket: Ticket) -> bool:
    """Return whether a hold is lost, or was lost before its release, as the reply to its delete shows."""
    return ticket.state is State.LOST or isinstance(ticket.refusal, NoNode)


def record_of(ticket: Ticket) -> LossRecord | None:
    """Return what is known of the loss of a ticket's hold."""
    # A release learns that the node was gone only from the reply to its delete.
    return ticket.loss or (LossRecord(LossCause.NODE_DELETED) if isinstance(ticket.refusal, NoNode) else None)


def cause_of(ticket: Ticket) -> LossCause | None:
    """Return why a ticket's hold was lost; None if no loss is known."""
    return None if (loss := record_of(ticket)) is None else loss.cause


def why_lost(ticket: Ticket) -> str:
    """Return the words of an error for the loss of a ticket's hold."""
    loss = record_of(ticket)
    return "its session expired, its lease ran out, or its node was deleted" if loss is None else words(loss)


def words(loss: LossRecord) -> str:
    """Return the words of an error, or of the log, for a loss."""
    text = _TEXTS[loss.cause]
    if loss.detail:
        text = f"{text}, as {loss.detail}"
    if loss.held_for is not None and loss.unproved_for is not None:
        text += (
            f"; held for {loss.held_for:.1f} s; the last proof of its lease was sent {loss.unproved_for:.1f} s before"
        )
    if loss.over is not None:
        text += f", so others may have held it since {in_words(loss.over)}"
    return text
