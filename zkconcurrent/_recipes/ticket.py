"""A ticket: one node in one queue, from before its create is sent until it is known to be gone.

::

    QUEUED --grant--> HELD --discard--> DISCARDED --gone-->
       |                |
       |                +--lose--> LOST (its node, if the session lives on, is deleted like a discarded one)
       +--discard--> DISCARDED

A hold that is given up together with something else (`Multi`) goes back to QUEUED before that is sent.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from .._engine.lease import Lease
from .rules import Rule, check_sequence

PREFIX_LENGTH = len("_c_") + 36 + len("-")  # as Curator's, around a UUID


class State(enum.Enum):
    """Where a ticket is in its life."""

    QUEUED = "queued"
    HELD = "held"
    LOST = "lost"
    DISCARDED = "discarded"


def _nothing() -> None:
    """Wake nobody."""


_OVER = Lease(0)  # as no session began it


class Ticket:
    """One contender: a node with a name of its own, in one session.

    Attributes:
        path: the queue.
        prefix: how the node's name begins; unique, so that it is found again after a lost answer.
        state: where it is in its life.
        lease: the lease of the session that the node lives and dies with.
        live: that lease while it is held; else one that is over. The one look that a thread takes at its hold.
        session: that session.
        name: the node's name, once it is known.
        token: the node's creation zxid, the fencing token, once it is known.
        sent: a request that makes its node was sent, and may have made it.
        awaits: what is watched, while it is waited for.
        shown: the nodes whose end it waits for, as the server in use shows them.
        changed: what was awaited may be gone, or changed: look again.
        handed_over: the thread of ours that held what was awaited has given it up, so our turn has come.
        proving: it waits for its lease to be proved.
        unreadable: we may not read the node, or it is gone, so no heartbeat asks for it.
        deletes: how often its delete was sent.
        refusal: why the node was not ours to delete: `NoNode`, it had gone before the first try; or an error.
        late: the queue's sequence numbers are running out.
        observer: returns what is called, with the ticket, once its hold is lost; None if nobody wants to know.
    """

    __slots__ = (
        "_state",
        "awaits",
        "changed",
        "deletes",
        "handed_over",
        "late",
        "lease",
        "live",
        "name",
        "observer",
        "path",
        "prefix",
        "proving",
        "refusal",
        "sent",
        "session",
        "shown",
        "token",
        "unreadable",
        "wake",
    )

    def __init__(self, path: str, prefix: str, lease: Lease) -> None:
        self.path = path
        self.prefix = prefix
        self.lease = lease
        self.session = lease.session
        self.name: str | None = None
        self.token = 0
        self.state = State.QUEUED
        self.sent = False
        self.awaits: tuple[str, ...] = ()
        self.shown: tuple[str, ...] = ()
        self.changed = False
        self.handed_over = False
        self.proving = False
        self.unreadable = False
        self.deletes = 0
        self.refusal: Exception | None = None
        self.late = False
        self.wake: Callable[[], None] = _nothing
        self.observer: Callable[[], Callable[[Ticket], object] | None] = _nothing

    def __repr__(self) -> str:
        return f"<{self.state.value} ticket {self.node}>"

    @property
    def state(self) -> State:
        """Where it is in its life."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state
        self.live = self.lease if state is State.HELD else _OVER

    @property
    def node(self) -> str:
        """The node's path; its beginning, while the sequence number is not known."""
        return f"{self.path}/{self.name or self.prefix}"

    def queued_as(self, name: str, token: int) -> None:
        """Note what the server called the node."""
        self.name, self.token = name, token

    def check_sequence(self, rule: Rule) -> None:
        """Refuse a number that orders nothing; see `check_sequence` of the rules."""
        assert self.name is not None
        self.late = check_sequence(self.path, self.name, rule)

    def note_change(self) -> None:
        """Have its recipe look again."""
        self.changed = True
        self.wake()
