"""The detached lock: the first in a lock's queue puts a persistent node, which names the owner, in its own place.

A `DetachedLock` queues as a lock. The first in the queue sends one `multi`, which deletes its node and creates a
persistent node with the same number. So there is no moment in which another client could be first, and a lost reply can
be settled: if the persistent node, whose name is unique, is missing, the same `multi` is sent again, and fails unless
the waiter's node is there.

Nothing needs a lease: the hold is a node, and no session ends it. A call that is given up is the harder case. Until the
reply has come, the persistent node has a ticket, so that an interrupt or a deadline deletes it. That ticket is
*lasting*: its delete outlives the session, as the node does. Meanwhile another process of the owner may find the node
and take it for the owner's hold. So each acquire that finds the owner's hold replaces the node by one of its own, with
the same number and token. The late delete then finds nothing. Therefore a caller follows a hold by its token. If a node
is gone when it is read, the caller looks for its number in another listing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from .._errors import RefusedError
from .._protocol import operations as op
from .._protocol.blocking_rules import MUTEX, blocker, check_queue, in_the_way
from .._protocol.operations import Recipe
from .._protocol.ticket import HOLDS, Ticket
from .lock import CheckWait, join, list_queue, wait_behind


class Detached(NamedTuple):
    """A hold that belongs to an owner, and to no session.

    Attributes:
        name: its node's name.
        token: the fencing token: the creation zxid of the node that queued for the hold. The creation zxid of the
            persistent node would be higher than the tokens of contenders that queued in between.
        owner: the owner's name; None if another program made the node.
    """

    name: str
    token: int
    owner: str | None


def parse(name: str, node: op.Node) -> Detached | None:
    """Return the hold that a node stands for; None if it belongs to a session."""
    if node.session:
        return None
    try:
        fields = json.loads(node.data)
        owner, token = fields["owner"], fields["token"]
    except op.MALFORMED:
        owner = token = None
    if not isinstance(owner, str) or type(token) is not int or not 0 < token < 1 << 63:
        return Detached(name, node.czxid, None)
    return Detached(name, token, owner)


def read_first(path: str, names: Sequence[str]) -> Recipe[tuple[str | None, op.Node | None, Sequence[str]]]:
    """Return the name and node of the first in the queue, both None if the queue is empty, and the listing of it.

    A node that is gone when it is read may have been replaced by one with the same number. Then the hold goes on, so
    the queue is listed again. If no node has that number, its contender has left the queue: the node is None.
    """
    while True:
        name = min(names, key=MUTEX.key, default=None)
        node: op.Node | None = None if name is None else (yield op.Get(f"{path}/{name}"))
        if name is None or node is not None:
            return name, node, names
        names = yield from list_queue(path, MUTEX)
        if all(MUTEX.key(other) != MUTEX.key(name) for other in names):
            return name, None, names


def held_by(path: str, names: Sequence[str], owner: str) -> Recipe[tuple[Detached | None, Sequence[str]]]:
    """Return the hold of an owner, if it is the first in the queue, and the listing that shows that."""
    name, node, names = yield from read_first(path, names)
    held = None if name is None or node is None else parse(name, node)
    return (held if held is not None and held.owner == owner else None), names


def adopt(
    path: str, names: Sequence[str], owner: str, unique: str, data: bytes, mine: str | None
) -> Recipe[tuple[Detached | None, Sequence[str]]]:
    """Find the hold of an owner, and put a new node in the place of its node; None if the owner holds nothing.

    The old node may belong to a call that was given up, whose delete is still to come: see `detach`. That delete then
    finds nothing. Both nodes have the same number and token. So a call that ends early leaves the hold as it was.

    Returns:
        The hold, and the last listing of the queue.
    """
    while True:
        held, names = yield from held_by(path, names, owner)
        if held is None or held.name == mine or unique in held.name:
            return held, names
        ticket: Ticket = yield op.NewTicket(path)
        new = held._replace(name=f"_c_{unique}-{MUTEX.role}{MUTEX.key(held.name)}")
        create = op.Create(f"{path}/{new.name}", with_token(data, held.token))
        try:
            yield op.Multi(ticket, (op.Delete(f"{path}/{held.name}"), create))
            yield op.MarkDeleted(ticket)
            return new, names
        except (op.NoNode, op.NodeExists, op.ConnectionLost, op.Requeue):
            yield op.MarkDeleted(ticket)
        names = yield from list_queue(path, MUTEX)


def with_token(data: bytes, token: int) -> bytes:
    """Return the content of a holder's node: these data, a JSON object, and the fencing token."""
    return b'%b, "token": %d}' % (data[:-1], token)


def acquire(
    path: str,
    owner: str,
    unique: str,
    data: bytes,
    wait: bool,
    mine: str | None,
    *,
    queued: bytes,
    check_wait: CheckWait | None,
) -> Recipe[Detached | None]:
    """Queue, wait for our turn and leave a node there that outlives the session; or return the hold that the owner has.

    Args:
        path: the lock.
        owner: the owner's name.
        unique: a UUID of this call.
        data: the content of the holder's node, in JSON, without the token.
        wait: whether to wait. If not, the result is None if another contender is in the way.
        mine: the name of the node of the hold that the caller has, if any.
        queued: the content of the node that queues.
        check_wait: as for `lock.acquire`.
    """
    names = yield from list_queue(path, MUTEX)
    held, names = yield from adopt(path, names, owner, unique, data, mine)
    if held is not None:
        return held
    if names and not wait:
        return None
    while True:
        ticket: Ticket = yield op.NewTicket(path, HOLDS in queued, detached=True)
        checked = check_wait is None
        try:
            names = yield from join(ticket, MUTEX, queued)
            assert ticket.name is not None
            while ahead := blocker(ticket.name, names, MUTEX):
                held = (yield from adopt(path, names, owner, unique, data, mine))[0]
                if held is not None or not wait:
                    yield op.Discard(ticket)
                    return held
                if not checked and check_wait is not None:
                    check_wait(ticket, in_the_way(ticket.name, names, MUTEX))
                    checked = True
                names = ()  # as in `lock.acquire`
                names = yield from wait_behind(ticket, ahead)
                check_queue(path, names, MUTEX)
            return (yield from detach(ticket, owner, unique, data))
        except op.Requeue:
            yield op.Discard(ticket)
            if not wait:
                return None


def detach(ticket: Ticket, owner: str, unique: str, data: bytes) -> Recipe[Detached]:
    """Put a persistent node in the place of the ticket's node, which is the first in the queue.

    The new node has the ticket's number. So a waiter behind the ticket then finds the new node, and no other contender
    can have got in. One `multi` makes that node and deletes the ticket's. So the node can be made neither in a later
    session nor twice.

    Until the hold is known to be the owner's, the new node belongs to a second ticket: if a deadline or an interrupt
    ends the call earlier, the node is deleted like any ticket's.

    Raises:
        NodeGone: the ticket's node is gone.
        SessionExpired: the ticket's session is over, and no node is left.
        RefusedError: this client is not allowed to delete the ticket's node, or to create the new one.
    """
    assert ticket.name is not None
    path = ticket.path
    held = Detached(f"_c_{unique}-{MUTEX.role}{MUTEX.key(ticket.name)}", ticket.token, owner)
    node = f"{path}/{held.name}"
    left: Ticket = yield op.NewTicket(path)
    left.queued_as(held.name, held.token)
    left.sent = left.lasting = True
    detached = op.Create(node, with_token(data, held.token))
    in_doubt = False
    while True:
        try:
            yield op.Multi(left, (op.Delete(ticket.node, ticket), detached), awaits_reply_past_deadline=True)
            break
        except op.NoNode:
            # The first request may have been applied after the read: if it went through a follower, the leader may have
            # answered the read without it.
            if in_doubt and (yield op.Get(node)) is not None:
                break
            yield op.Discard(left)
            raise op.NodeGone from None
        except op.NodeExists:
            break
        except RefusedError:
            if not in_doubt:
                # The server has refused the request, so there is no node to delete.
                yield op.MarkDeleted(left)
            raise
        except (op.ConnectionLost, op.Requeue) as error:
            in_doubt = True
            _, found = yield op.Sync(path), op.Get(node)
            if found is not None:
                break
            if isinstance(error, op.Requeue):
                yield op.MarkDeleted(left)
                raise
    yield op.MarkDeleted(ticket)
    yield op.MarkDeleted(left)
    return held


def release(path: str, owner: str, held: Detached | None, in_doubt: bool) -> Recipe[bool]:
    """End the owner's hold; return whether it was there, or may have been.

    The delete is sent until it is answered, in any session: no other node ever has that name.

    Args:
        path: the lock.
        owner: the owner's name.
        held: the hold; None for whichever hold is there.
        in_doubt: whether an earlier call may have ended it.
    """
    if held is None:
        names = yield from list_queue(path, MUTEX)
        held, _ = yield from held_by(path, names, owner)
        if held is None:
            return False
    while (deleted := (yield op.Delete(f"{path}/{held.name}"))) is not True:
        in_doubt = in_doubt or deleted is None
        names = yield from list_queue(path, MUTEX)
        there, _ = yield from held_by(path, names, owner)
        if there is None or there.token != held.token:
            return in_doubt
        # Another acquire of the owner has put a new node in the place of the old one.
        held = there
    return True


def force_release(path: str, token: int) -> Recipe[bool | None]:
    """End the hold with that token; return whether it was there, or may have been; None if it belongs to a session."""
    in_doubt = False
    while True:
        names = yield from list_queue(path, MUTEX)
        name, node, _ = yield from read_first(path, names)
        if name is None or node is None:
            return in_doubt
        held = parse(name, node)
        if held is None and node.czxid == token:
            return None
        if held is None or held.token != token:
            return in_doubt
        deleted = yield op.Delete(f"{path}/{name}")
        if deleted:
            return True
        # If there was nothing to delete, the hold has ended meanwhile, or the owner has made a new node: list again.
        in_doubt = in_doubt or deleted is None
