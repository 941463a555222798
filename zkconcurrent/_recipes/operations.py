"""Operations: all that a recipe may ask of a driver, and how each can fail.

A recipe yields one operation and is sent its answer, or a tuple of operations, which the driver sends back to back
and answers together. An operation that failed raises at the yield; of several, the first.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from .ticket import Ticket


class Failure(Exception):
    """An operation that did not succeed."""


class NoNode(Failure):
    """The node, or the parent of one to be created, does not exist."""


class NodeExists(Failure):
    """The node that was to be made is there."""


class BadVersion(Failure):
    """The node was written since it was read."""


class NotEmpty(Failure):
    """The node has children."""


class ConnectionLost(Failure):
    """The answer to a create, a write or a multi never came: it may or may not have been applied."""


class Requeue(Failure):
    """The ticket is worth nothing any more: queue anew, at the tail."""


class SessionExpired(Requeue):
    """The session that the operation belongs to is over."""


class NodeGone(Requeue):
    """Our own node is not among the children."""


class DeadlinePassed(BaseException):
    """Thrown into a recipe whose time is up; no `Exception`, so that no recipe takes it for a failure."""


class OutOfReach(BaseException):
    """Thrown into a recipe that is to end with the connection; no `Exception`, as `DeadlinePassed`."""


class Node(NamedTuple):
    """A znode as a `Get` sees it; `created` is how many children were ever made in it."""

    data: bytes
    czxid: int
    ctime: float
    session: int
    version: int = 0
    created: int = 0


class NewTicket(NamedTuple):
    """Wait for the service; answer a new `Ticket` of the present session."""

    path: str


class CreateEphemeral(NamedTuple):
    """Make the ticket's node, EPHEMERAL_SEQUENTIAL; its name and token are then known. Never retried.

    With a `number` it is EPHEMERAL, and takes that in the place of one of its own.
    """

    ticket: Ticket
    role: str
    data: bytes
    number: str = ""

    @property
    def path(self) -> str:
        """The node's path; its beginning, where the server adds the number."""
        return f"{self.ticket.path}/{self.ticket.prefix}{self.role}{self.number}"


class CreatePersistent(NamedTuple):
    """Make a PERSISTENT node; answer whether it was not there; None: it is there, and whether by us can't be known."""

    path: str
    data: bytes


class Set(NamedTuple):
    """Write a node's data, if it has that version still; answer whether it had. Never retried.

    In a `Multi`, a node that has not fails the whole.
    """

    path: str
    data: bytes
    version: int


class Delete(NamedTuple):
    """Delete a node; answer whether it was there; None: it is gone, and whether by us can't be known.

    With a ticket, the node is the ticket's own, and the ticket is done with. With a version, it fails with `BadVersion`
    unless the node has that one.
    """

    path: str
    ticket: Ticket | None = None
    version: int = -1  # any


class Check(NamedTuple):
    """Fail with `NoNode` unless the node exists, with `BadVersion` unless it has that version; only in a `Multi`."""

    path: str
    version: int = -1  # any


class Multi(NamedTuple):
    """Do all of it or nothing, in the ticket's session; answered as a whole. Never retried.

    The ticket is one whose node is made, if one is. Who is deleted in it hands over to nobody of ours: see `Rule`.
    """

    ticket: Ticket
    operations: tuple[CreateEphemeral | Delete | Set | Check, ...]


class EnsureContainer(NamedTuple):
    """Make a container node; that it exists already is success."""

    path: str


class Children(NamedTuple):
    """Answer the names of the children; a path that does not exist has none."""

    path: str
    ticket: Ticket | None = None


class Sync(NamedTuple):
    """Let the server in use catch up with its leader."""

    path: str
    ticket: Ticket | None = None


class Get(NamedTuple):
    """Answer a `Node`, or None if there is none."""

    path: str
    ticket: Ticket | None = None


class WaitGone(NamedTuple):
    """Wait until the node ahead is gone, or may be, and read; answer what each read answers.

    The answer is None, and nothing was read, if the node's holder is a thread of ours that handed over. Otherwise the
    reads are sent as soon as the node goes, by whoever sees that: the thread that waits is woken once, by the answers.
    It `asks` if the contender ahead only passes through: then the wait is a part of the question whether we get in at
    once, and no deadline counts yet.
    """

    ticket: Ticket
    ahead: str
    reads: tuple[Children | Get, ...]
    asks: bool = False


class Watch(NamedTuple):
    """Read, and leave watches for the ticket; answer what each read answers. What does not exist is not watched."""

    ticket: Ticket
    reads: tuple[Get | Children, ...]


class Wait(NamedTuple):
    """Wait until what the ticket's last `Watch` has read changes, or may have."""

    ticket: Ticket


class Grant(NamedTuple):
    """Take the ticket for a hold; answer whether its session is surely alive. If not, `Prove` that and ask again."""

    ticket: Ticket


class Prove(NamedTuple):
    """Wait until the ticket's session is proved to be alive."""

    ticket: Ticket


class SuspendHold(NamedTuple):
    """Count on a hold no more, as it is being given up; answer whether it was one still. `Grant` takes that back."""

    ticket: Ticket


class MarkDeleted(NamedTuple):
    """Take note that nothing of the ticket is on the server, nor will be."""

    ticket: Ticket


class MarkMissing(NamedTuple):
    """Take note that the node of what was a hold is not there: if it is a hold still, that is lost."""

    ticket: Ticket


class Discard(NamedTuple):
    """Delete whatever the ticket has, or may have, on the server; in the background if need be. Never fails."""

    ticket: Ticket


class Policy(NamedTuple):
    """What becomes of a request that fails.

    Attributes:
        repeats: it is sent again after a lost connection; else the recipe is told `ConnectionLost`.
        answers: the failures that are an answer, and which; all others are raised.
    """

    repeats: bool
    answers: Mapping[type[Exception], Any] = {}


POLICIES = {
    CreateEphemeral: Policy(repeats=False),
    Multi: Policy(repeats=False),
    Set: Policy(repeats=False, answers={NoNode: False, BadVersion: False}),
    # Repeated, a False is no answer: it was there, or gone, by our own doing perhaps. Then it is None.
    CreatePersistent: Policy(repeats=True, answers={NodeExists: False}),
    Delete: Policy(repeats=True, answers={NoNode: False}),
    EnsureContainer: Policy(repeats=True, answers={NodeExists: None}),
    Children: Policy(repeats=True, answers={NoNode: ()}),
    Get: Policy(repeats=True, answers={NoNode: None}),
    Sync: Policy(repeats=True, answers={NoNode: None}),
}

Request: TypeAlias = CreateEphemeral | CreatePersistent | Set | Delete | Multi | EnsureContainer | Children | Sync | Get
Operation: TypeAlias = (
    Request | NewTicket | WaitGone | Watch | Wait | Grant | Prove | SuspendHold | MarkDeleted | MarkMissing | Discard
)
T = TypeVar("T")
Recipe: TypeAlias = Generator[Operation | tuple[Operation, ...], Any, T]
