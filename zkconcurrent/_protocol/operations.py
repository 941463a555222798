"""Operations: everything that a recipe may ask of the driver, and how each can fail.

A recipe yields one operation and receives its result. Or it yields a tuple of operations, which the driver sends back
to back, and receives all results. A failed operation raises at the yield; if several fail, the first failure is raised.

An operation is sent again after a lost connection, unless it is "sent once". A server that is too busy for a request
has certainly not applied it, so the request is sent again even if it is "sent once".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from .ticket import Ticket
from .way_to_grant import Way


class Failure(Exception):
    """An operation that did not succeed.

    Attributes:
        part: which operation of a failed `Multi` did not succeed, counted from 0.
    """

    part = 0


class NoNode(Failure):
    """The node does not exist, or the parent of a node to be created does not."""


class NodeExists(Failure):
    """The node to be created exists."""


class BadVersion(Failure):
    """The node has been written since it was read."""


class NotEmpty(Failure):
    """The node has children."""


class ConnectionLost(Failure):
    """The reply to a create, a write or a multi never came: it is unknown whether the request was applied."""


class Busy(ConnectionLost):
    """The server was too busy for the request, and has not applied it. It may have served later requests."""


class Requeue(Failure):
    """The ticket is no longer valid: the recipe must queue again, at the tail."""


class SessionExpired(Requeue):
    """The session that the operation belongs to is over."""


class NodeGone(Requeue):
    """Our own node is not among the children."""


class DeadlinePassed(BaseException):
    """Raised in a recipe at its deadline; not an `Exception`, so that no recipe handles it as a failure.

    Attributes:
        unsent: the operation that was under way was never sent.
    """

    unsent = False


class OutOfReach(BaseException):
    """Raised in a recipe that must end: the service is out of reach. Like `DeadlinePassed`, not an `Exception`."""


class Node(NamedTuple):
    """A znode as a `Get` reads it; times are the servers'.

    `created` counts all children that were ever created, and `children` those that exist.
    """

    data: bytes
    czxid: int
    ctime: float
    session: int
    version: int = 0
    created: int = 0
    mtime: float = 0.0
    mzxid: int = 0
    children: int = 0


def next_version(version: int) -> int:
    """Return the version that a node has after one more write: a signed number of 32 bits, which wraps around."""
    return (version + 1 + 2**31) % 2**32 - 2**31


MALFORMED = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""The errors that parsing a node's data may raise, as any program may have written the data."""


class NewTicket(NamedTuple):
    """Wait for a connection; return a new `Ticket` of the current session.

    `marked`: the data of its node list its owner's holds; see `node_names`. `detached`: a `DetachedLock` makes it.
    """

    path: str
    marked: bool = False
    detached: bool = False


class CreateEphemeral(NamedTuple):
    """Create the ticket's node, EPHEMERAL_SEQUENTIAL; its name and token are then known. Sent once.

    With a `number` the node is EPHEMERAL, and its name ends in that number.
    """

    ticket: Ticket
    role: str
    data: bytes
    number: str = ""

    @property
    def path(self) -> str:
        """The node's path, without the number that the server adds."""
        return f"{self.ticket.path}/{self.ticket.prefix}{self.role}{self.number}"


class Create(NamedTuple):
    """Create a node that belongs to no ticket; only in a `Multi` or a `CreateTogether`.

    With `sequential`, the server adds a number to the name. The result is the node's full path and its stat.
    """

    path: str
    data: bytes
    ephemeral: bool = False
    sequential: bool = False


class Container(NamedTuple):
    """Create a container node; only in a `Multi` or a `CreateTogether`, with a child: see `nodes.missing`."""

    path: str


class CreateTogether(NamedTuple):
    """Create PERSISTENT nodes and containers, all or none; True if this created them, False if any of them existed."""

    operations: tuple[Container | Create, ...]


class CreatePersistent(NamedTuple):
    """Create a PERSISTENT node; True if this created it, False if it existed, None if unknown (a reply was lost)."""

    path: str
    data: bytes


class SetNode(NamedTuple):
    """Write a node's data if the node still has that version (-1: any); return whether they were written. Sent once.

    In a `Multi`, a different version makes the whole `Multi` fail.
    """

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """Delete a node; True if this deleted it, False if it did not exist, None if unknown (a reply was lost).

    With a ticket, the node is the ticket's own, and the ticket ends. With a version, the delete fails with `BadVersion`
    unless the node has that version.
    """

    path: str
    ticket: Ticket | None = None
    version: int = -1  # any


class Check(NamedTuple):
    """Fail with `NoNode` unless the node exists, with `BadVersion` unless it has that version; only in a `Multi`."""

    path: str
    version: int = -1  # any


class Multi(NamedTuple):
    """Apply all operations or none, in the ticket's session; return their results. Sent once.

    If the operations include a `CreateEphemeral`, the `Multi` has the ticket of one of these. A failure has the number
    of the operation that failed. A delete in a `Multi` does not hand the lock over to a thread of this process: see
    `Rule`. With `awaits_reply_past_deadline`, the driver waits for the reply, and for the reads that follow, even past
    the deadline: for a third of the session timeout at most.
    """

    ticket: Ticket
    operations: tuple[Part, ...]
    awaits_reply_past_deadline: bool = False


def makes_ephemerals(operations: Sequence[Part]) -> bool:
    """Return whether any operation of a `Multi` makes an ephemeral node."""
    return any(
        isinstance(each, CreateEphemeral) or (isinstance(each, Create) and each.ephemeral) for each in operations
    )


class Names(list[str]):
    """The names of a node's children, with the number of bytes of the node's own data."""

    data_length = 0


NOWHERE: Sequence[str] = ()
"""What `Children` returns if the node does not exist; no list is equal to it."""


class Children(NamedTuple):
    """Return the `Names` of the children; `NOWHERE` if the node does not exist."""

    path: str
    ticket: Ticket | None = None


class Sync(NamedTuple):
    """Let the connected server catch up with its leader."""

    path: str
    ticket: Ticket | None = None


class Get(NamedTuple):
    """Return the `Node`, or None if it does not exist."""

    path: str
    ticket: Ticket | None = None


class Exists(NamedTuple):
    """Return whether the node exists. A `Watch` of it also sees the creation of a missing node."""

    path: str
    ticket: Ticket | None = None


class GetWithZxid(NamedTuple):
    """Return the `Node`, or None if it does not exist, and the zxid as of which this is true."""

    path: str


class WaitGone(NamedTuple):
    """Wait until the node ahead is gone, or may be, then read; return the results of the reads.

    If a thread of this process held the node and handed over, the result is None, and nothing was read. Otherwise the
    thread that sees the node go sends the reads at once, so that only their results wake the waiting thread. `asks`
    means that the contender ahead is expected to pass through: the wait is still part of the question whether this
    acquire can succeed at once, and no deadline counts yet. With a `way`, the result is `CLEAR`, and nothing was read,
    if the node ahead is gone and no other contender is in the way.
    """

    ticket: Ticket
    ahead: str
    reads: tuple[Children | Get, ...]
    asks: bool = False
    way: Way | None = None


CLEAR: list[object] = []
"""What `WaitGone` returns if it is the ticket's turn."""


class Watch(NamedTuple):
    """Read, and set watches for the ticket; return the results.

    A node that does not exist gets no watch, except by `Exists`.
    """

    ticket: Ticket
    reads: tuple[Get | Children | Exists, ...]


class WatchRecursive(NamedTuple):
    """While the connection lasts, append to `changes` the path of each changed node below the ticket's path.

    The result identifies the connection: see `WaitRecursive`. Sent once.
    """

    ticket: Ticket
    changes: deque[str]

    @property
    def path(self) -> str:
        """The path whose children are watched."""
        return self.ticket.path


class WaitRecursive(NamedTuple):
    """Wait until `changes` is not empty; return False once the `WatchRecursive`'s connection is gone."""

    ticket: Ticket
    changes: deque[str]
    connection: object


class Wait(NamedTuple):
    """Wait until anything that the ticket's last `Watch` read changes, or may have changed.

    `left` returns how many seconds are left, by a clock that may be set; the wait also ends when the result is 0 or
    less. As the clock may be set, the driver calls `left` again and again.
    """

    ticket: Ticket
    left: Callable[[], float] | None = None


class Grant(NamedTuple):
    """Make the ticket a hold; return whether it is a hold now.

    The result is False if its lease must be proved first, by `ProveLease`, or if its way is no longer clear: then list
    again.
    """

    ticket: Ticket


class ProveLease(NamedTuple):
    """Wait until the ticket's session is proved alive."""

    ticket: Ticket


class SuspendHold(NamedTuple):
    """Stop counting on a hold, as its release is about to be sent; return whether it was held. `Grant` undoes this."""

    ticket: Ticket


class MarkDeleted(NamedTuple):
    """Record that the ticket has no node on the server, and will have none."""

    ticket: Ticket


class MarkMissing(NamedTuple):
    """Record that a hold's node is missing: if still held, the hold is lost."""

    ticket: Ticket


class DetachTicket(NamedTuple):
    """Let the primitive keep the ticket and its node, however the call ends."""

    ticket: Ticket


class Discard(NamedTuple):
    """Delete the node that the ticket has, or may have, on the server; in the background if need be. Never fails."""

    ticket: Ticket


Part: TypeAlias = CreateEphemeral | Create | Container | Delete | SetNode | Check
Operation: TypeAlias = (
    CreateEphemeral
    | CreatePersistent
    | CreateTogether
    | SetNode
    | Delete
    | Multi
    | Children
    | Sync
    | Get
    | Exists
    | GetWithZxid
    | WatchRecursive
    | NewTicket
    | WaitGone
    | Watch
    | Wait
    | WaitRecursive
    | Grant
    | ProveLease
    | SuspendHold
    | MarkDeleted
    | MarkMissing
    | DetachTicket
    | Discard
)
T = TypeVar("T")
Recipe: TypeAlias = Generator[Operation | tuple[Operation, ...], Any, T]
