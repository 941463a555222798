"""A ticket: one node in one queue, from before its create is sent until it is known to be gone.

::

    QUEUED --grant--> HELD --discard--> DISCARDED --gone-->
       |                |
       |                +--lose--> LOST (its node, if the session lives on, is deleted like a discarded one)
       +--discard--> DISCARDED

A hold that a `Multi` releases goes back to QUEUED before the `Multi` is sent.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from .._errors import LossCause
from .session_lease import Lease
from .way_to_grant import Way

HOLDS = b'"holds": '
"""The key of the owner's holds in a node's data. No text in the JSON contains it, as quotes in a text are escaped."""
REVOKED = b"__REVOKE__"
"""The data that ask a holder to let go, in place of its own; Curator's `Revoker` writes them."""


class State(enum.Enum):
    """The stage of a ticket's life."""

    QUEUED = "queued"
    HELD = "held"
    LOST = "lost"
    DISCARDED = "discarded"


class LossRecord(NamedTuple):
    """The record of a loss: its cause, and how long the hold had lasted.

    Attributes:
        cause: why the hold was lost.
        detail: what ended its lease, if that is the cause.
        held_for: how many seconds the hold had lasted when its loss was noticed.
        unproved_for: how many seconds before that the last request that proved its lease was sent.
        over: when its lease ended, by this machine's clock; None if it had not ended.
    """

    cause: LossCause
    detail: str = ""
    held_for: float | None = None
    unproved_for: float | None = None
    over: datetime | None = None


def _nothing() -> None:
    """Do nothing."""


# No session began this lease, so it never counts.
_OVER = Lease(0)


class Ticket:
    """One contender: a node with a unique name, in one session.

    Attributes:
        path: the queue.
        prefix: the beginning of the node's name; unique, so that the node is found again after a lost reply.
        state: the stage of its life; only `become` changes it.
        lease: the lease of the session in which the node lives.
        live: that lease while the ticket is held, else a lease that is over; a thread checks its hold by this alone.
        session: the id of the session in which the node lives.
        name: the node's name, once known.
        token: the node's creation zxid, once known; the fencing token.
        sent: a request that creates its node was sent, and may have been applied.
        lasting: no session ends its node, so its delete outlives the session.
        awaits: the watched paths, while it waits.
        shown: the nodes for whose end it waits, as the present server shows them.
        listed_on: the connection of its last listing.
        way: what is known of its way to a grant without another listing; None unless it waits for a single contender.
        watched: the connection on which its own node is watched; False if it is not.
        changed: a watched node may be gone, or changed: read again.
        spent: the watch that it awaits has fired, or is about to.
        handed_over: a thread of this process held the watched node and has released it, so it is our turn.
        proving: it waits for its lease to be proved.
        doubted: its lease's `heard` when that wait began; infinite until then.
        unreadable: we may not read the node, or it is gone, so no heartbeat asks for it.
        asked_at: the version of the node's data with the last request to let go.
        deletes: how often its delete was sent.
        refusal: why the delete failed: `NoNode` if the node was gone before the first attempt; otherwise an error.
        granted: when it became a hold, by the lease's clock.
        owner: the thread or task that holds it, or has held it; None until it is held.
        loss: what is known of the loss of the hold; None while it is not lost.
        late: the queue's sequence numbers are running out.
        on_change: called at a change: ends the sleep of the call that waits with this ticket, or sends its next reads.
        story: what the events of its hold report; None if there is no listener.
        limit: how long its hold may last; None for no limit.
        label: the label of the lock that holds it.
        observer: returns the function to call with the ticket when its hold is lost, or None.
    """

    name: str | None = None
    token: int = 0
    sent = False
    lasting = False
    awaits: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    listed_on: object = None
    way: Way | None = None
    watched: object = False
    changed: bool = False
    spent = False
    handed_over = False
    proving = False
    doubted: float = math.inf
    unreadable = False
    asked_at = 0
    deletes = 0
    refusal: Exception | None = None
    granted: float = 0.0
    owner: int | None = None
    loss: LossRecord | None = None
    late: bool = False
    on_change: Callable[[], None] = staticmethod(_nothing)
    # The layers above make this `Story`.
    story: Any = None
    # The layers above make this `Limit`.
    limit: Any = None
    label: str | None = None
    observer: Callable[[], Callable[[Ticket], object] | None] = staticmethod(_nothing)

    def __init__(self, path: str, prefix: str, lease: Lease) -> None:
        self.path = path
        self.prefix = prefix
        self.lease = lease
        self.session: int = lease.session
        self.live: Lease = _OVER
        self.state: State = State.QUEUED

    def __repr__(self) -> str:
        return f"<{self.state.value} ticket {self.node}>"

    def become(self, state: State) -> None:
        """Move to another stage of its life."""
        # The lease is replaced first: wherever an interrupt comes, no thread believes in a hold that is over.
        self.live = _OVER
        self.state = state
        if state is State.HELD:
            self.live = self.lease

    @property
    def node(self) -> str:
        """The node's path; only its beginning until the name is known."""
        return f"{self.path}/{self.name or self.prefix}"

    def queued_as(self, name: str, token: int) -> None:
        """Record the name and token that the server gave the node."""
        self.name, self.token = name, token

    def note_change(self) -> None:
        """Make its recipe read again."""
        self.changed = True
        self.on_change()
