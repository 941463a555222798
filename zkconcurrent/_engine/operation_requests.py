"""Requests: how each is made, and what its reply, or its failure, means to the recipe.

A reply that concerns the recipe alone is a `Reply`. The reply to a create also concerns its ticket, whether or not the
recipe still waits for it: so it is a `HandledReply`, which outlives the call, and keeps the session alive, but not the
call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .._errors import RefusedError
from .._kazoo.failures import kazoo_errors
from .._kazoo.reply import HandledReply, Reply, Request, node_of
from .._kazoo.watches import Watcher
from .._protocol import operations as op
from .._protocol.ticket import Ticket
from .._runtime.wait_loops import Steps, WakeUp
from .patience import Patience
from .session import Session


class RunningCall(Protocol):
    """A `Call`, as the operations of its recipe see it; `Call` of `call.py` implements it.

    Attributes:
        session: the client's session.
        path: the primitive's path.
        tickets: the tickets that the call has begun.
        wake: ends the call's sleep.
        patience: until when the present recipe may wait.
        story: what is reported to listeners about the acquire that the call makes; None without listeners.
    """

    session: Session
    path: str
    tickets: list[Ticket]
    wake: WakeUp
    patience: Patience
    story: Any

    def await_session(self, ticket: Ticket | None) -> Steps[None]:
        """Wait until requests can be sent; see `Call.await_session`."""

    def await_change(self, ticket: Ticket, left: Callable[[], float] | None = None) -> Steps[None]:
        """Wait for a change; see `Call.await_change`."""

    def park(self, bound: float) -> Steps[bool]:
        """Sleep; see `Call.park`."""

    def discard(self, tickets: Sequence[Ticket]) -> Steps[None]:
        """Delete the nodes of tickets; see `Call.discard`."""


# -- how each is made ------------------------------------------------------------------------------------------------


# The reads, which may leave a watcher, have functions of their own: every acquire lists children, and this saves it a
# function call.
def get(call: RunningCall, step: op.Get, watcher: Watcher | None) -> Request:
    """Read a node's data."""
    return call.session.link.get(step.path, Reply(), watcher)


def children(call: RunningCall, step: op.Children, watcher: Watcher | None) -> Request:
    """List a node's children."""
    link = call.session.link
    if step.ticket is not None:
        # Noted before the request is sent: if a later connection answers, it will differ from this one.
        step.ticket.listed_on = link.connection
    return link.children(step.path, Reply(), watcher)


def exists(call: RunningCall, step: op.Exists, watcher: Watcher | None) -> Request:
    """Ask whether a node exists."""
    return call.session.link.exists(step.path, Reply(), watcher)


def plainly(make: Callable[[Any, Any, Reply], Request]) -> Callable[..., Request]:
    """Return a function that makes a request other than the reads above, whose reply concerns the recipe alone.

    Args:
        make: makes the request; called with the link, the operation and the reply.
    """

    def request(call: RunningCall, step: Any, _: object) -> Request:
        return make(call.session.link, step, Reply())

    return request


def create(call: RunningCall, step: op.CreateEphemeral, _: object) -> Request:
    """Create a ticket's node; the reply is noted in the ticket."""
    session, ticket, before = call.session, step.ticket, step.ticket.sent

    def made(reply: HandledReply) -> None:
        session.note_create_reply(ticket, reply.value, reply.error, before)

    ticket.sent = True
    reply = HandledReply(made, session.post)
    reply.session = ticket.session
    return session.link.create(step.path, step.data, reply)


def multi(call: RunningCall, step: op.Multi, _: object) -> Request:
    """Apply several operations at once; the reply is noted in their tickets."""
    session, patience = call.session, call.patience
    if step.awaits_reply_past_deadline and patience.deadline is not None:
        patience.await_replies(patience.deadline + (session.reply_patience if session.link.connected else 0.0))
    operations: Sequence[Any] = step.operations
    # For each create: its index, its ticket, and whether an earlier create of the ticket was sent.
    made = [(n, part.ticket, part.ticket.sent) for n, part in enumerate(operations) if type(part) is op.CreateEphemeral]
    ended = [part.ticket for part in operations if type(part) is op.Delete and part.ticket is not None]

    def done(reply: HandledReply) -> None:
        for n, ticket, before in made:
            session.note_create_reply(ticket, reply.value and reply.value[n], reply.error, before)
        for ticket in ended if reply.error is None else ():
            session.mark_deleted(ticket)

    for _, ticket, _ in made:
        ticket.sent = True
    reply = HandledReply(done, session.post)
    reply.session = step.ticket.session
    return session.link.multi(operations, reply)


# -- what a reply means ----------------------------------------------------------------------------------------------


def true(*_: object) -> bool:
    """Return True."""
    return True


def node(_step: object, replied: tuple[bytes | None, Any]) -> op.Node:
    """Return the node that was read."""
    return node_of(replied)


def node_with_zxid(_step: object, replied: tuple[Any, int]) -> tuple[op.Node | None, int]:
    """Return a node, or None if it does not exist, and the zxid as of which this is true."""
    found, zxid = replied
    return None if found is None else node_of(found), zxid


# -- what a failure means, where that depends on more than its error -------------------------------------------------


def persistent_failure(call: RunningCall, step: op.CreatePersistent, _: Exception, failed: Exception) -> Exception:
    """Return why a persistent node was not made."""
    return no_chroot(call) if isinstance(failed, op.NoNode) and step.path.count("/") == 1 else failed


def together_failure(
    call: RunningCall, step: op.Multi | op.CreateTogether, _: Exception, failed: Exception
) -> Exception:
    """Return why several operations were not applied."""
    part = step.operations[failed.part or 0] if isinstance(failed, op.NoNode) else None
    return no_chroot(call) if isinstance(part, op.Container | op.Create) and part.path.count("/") == 1 else failed


def tree_failure(call: RunningCall, _step: op.WatchRecursive, error: Exception, failed: Exception) -> Exception:
    """Return why a tree is not watched. The messages name the Dict and the Set, as nothing else watches a tree."""
    if isinstance(error, kazoo_errors.UnimplementedError):
        return RefusedError(call.path, "the server is too old: a Dict or Set needs ZooKeeper 3.6 or newer")
    if isinstance(error, kazoo_errors.MarshallingError):
        return RefusedError(
            call.path,
            "ZooKeeper refused the watch: a Dict or Set needs servers whose watchManagerName is not "
            "WatchManagerOptimized",
        )
    return failed


def no_chroot(call: RunningCall) -> RefusedError:
    """Return the error of a client whose chroot does not exist."""
    return RefusedError(
        call.path,
        f"the client's chroot {call.session.link.full('')!r} does not exist: create it, or open the client by "
        "zkconcurrent.connect, which does",
    )
