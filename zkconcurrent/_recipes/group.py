"""The group: each member has an ephemeral node, whose name is its id.

A member's node has no unique name, so the name does not show which client made the node. After a create whose reply was
lost, the node's session shows this, as no two memberships of a client have the same id at a time. One thread sends all
requests of a membership, one after the other, so no request overtakes another.

A second delete of a node might delete the node of the next member with that id. So a membership has a thread of its
own, which runs one recipe from the first create to the delete; `join` and `leave` only wait for it. An interrupted
`join` notes that the node is not wanted, and the thread deletes it. The membership's ticket gets the node's name once
the reply, or a read, has shown that the node belongs to the ticket's session; from then on the heartbeat checks the
node.

A watch on the node shows its end, even if another client makes it anew at once, which the heartbeat would not see.
After a reconnect the thread reads again.

Source: Curator's `GroupMember`, whose nodes these are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress

from .._errors import ForeignNodeError, LossCause
from .._protocol import operations as op
from .._protocol.layout import FOLDERS, has_data, other_kind, role_of
from .._protocol.operations import Recipe
from .._protocol.ticket import Ticket
from .nodes import FLIGHT, Lacking, foreign_child, get_all, missing

_FOLDERS = {name for names in FOLDERS.values() for name in names}  # of other kinds


class Member:
    """A membership, as its recipes see it.

    Attributes:
        path: the group's path.
        id: the name of the member's node.
        data: the content of that node.
        clock: a function that returns the time, in seconds.
        patience: how long to wait for an id that another member has, in seconds.
        wanted: the client wants to be a member; once this is False, the node must be deleted.
        ticket: the node's ticket, while the node exists as far as is known.
        sessions: the sessions in which a create was sent.
        joined: the client was a member once, and no other kind of primitive used the path then.
        beside: the names of all the group's nodes, as listed behind the create.
        cause: why the node was last lost; None if it was never lost.
    """

    def __init__(self, path: str, name: str, data: bytes, clock: Callable[[], float], patience: float) -> None:
        self.path = path
        self.id = name
        self.data = data
        self.clock = clock
        self.patience = patience
        self.wanted = True
        self.ticket: Ticket | None = None
        self.sessions: set[int] = set()
        self.joined = False
        self.beside: Sequence[str] | None = None
        self.cause: LossCause | None = None
        self._until: float | None = None

    @property
    def node(self) -> str:
        """The path of its node."""
        return f"{self.path}/{self.id}"

    def left(self) -> float:
        """Return how many seconds are left to wait for an id that another member has, counted from the first call."""
        if not self.wanted or self.joined:
            return 0.0
        if self._until is None:
            self._until = self.clock() + self.patience
        return self._until - self.clock()

    def left_for_own(self) -> float:
        """Return how long to wait for a node of an older session of this client, which ends with that session."""
        return math.inf if self.wanted else 0.0


def stay(member: Member, joined: Callable[[], object]) -> Recipe[bool]:
    """Be a member until the membership is given up; False if another member has the id.

    If the session expires, or another client deletes the node, it is created again.

    Args:
        member: the membership.
        joined: called each time the node has been created.
    """
    while member.wanted:
        if member.ticket is None:
            if not (yield from _join(member)):
                break
            if not member.joined:
                yield from _check_alone(member)
                member.joined = True
            joined()
        else:
            yield from _outlast(member, member.ticket)
    taken = member.wanted
    yield from _delete_node(member)
    return not taken


def _join(member: Member) -> Recipe[bool]:
    """Create the node; False if another member has the id, or the membership is not wanted any more.

    Raises:
        ForeignNodeError: the node is persistent, so it would never go.
    """
    while member.wanted:
        ticket: Ticket = yield op.NewTicket(member.path)
        with suppress(op.Requeue):
            while member.wanted:
                czxid, session, ours = yield from _create(member, ticket)
                if ours:
                    yield op.DetachTicket(ticket)
                    ticket.queued_as(member.id, czxid)
                    # From here on, the heartbeat checks the node, and the interpreter's exit deletes it.
                    ticket.sent = True
                    member.ticket = ticket
                    return True
                if not session:
                    raise ForeignNodeError(
                        member.path,
                        f"the node has a persistent child {member.id!r}, which is no member's; delete it if something "
                        "else left it behind, or give another id",
                    )
                # A node that an older session of ours has made goes with that session.
                own_of_old = session in member.sessions and session != ticket.session
                left = member.left_for_own if own_of_old else member.left
                if left() <= 0:
                    yield op.Discard(ticket)
                    return False
                (there,) = yield op.Watch(ticket, (op.Get(member.node, ticket),))
                if there is not None:
                    yield op.Wait(ticket, left)
        yield op.Discard(ticket)
    return False


def _check_alone(member: Member) -> Recipe[None]:
    """Refuse a path that another kind of primitive uses, and leave it.

    Raises:
        ForeignNodeError: another kind uses it.
    """
    path = member.path
    try:
        names = (yield op.Children(path)) if member.beside is None else member.beside
        member.beside = None
        if length := getattr(names, "data_length", 0):
            raise ForeignNodeError(path, has_data(length))
        refuse_foreign_members(path, names)
        folders = [name for name in names if name in _FOLDERS]
        nodes = (yield tuple(op.Get(f"{path}/{name}") for name in folders)) if folders else ()
        for name, node in zip(folders, nodes, strict=True):
            if node is not None and not node.session:
                raise foreign_child(path, name, "group")
    except ForeignNodeError:
        member.wanted = False
        yield from _delete_node(member)
        raise


def refuse_foreign_members(path: str, names: Sequence[str]) -> None:
    """Refuse the nodes of other kinds' contenders, which would count as members.

    Raises:
        ForeignNodeError: there is such a node.
    """
    for name in names:
        if name.startswith("_c_") and (role := role_of(name)) is not None:
            raise ForeignNodeError(path, other_kind(name, role))


def _create(member: Member, ticket: Ticket) -> Recipe[tuple[int, int, bool]]:
    """Create the node; return the creation zxid and session of the node that is there, and whether it is ours."""
    lacking: Lacking = ()
    doubt = False
    member.sessions.add(ticket.session)
    while True:
        replied = True
        try:
            create = op.Multi(ticket, (*lacking, op.Create(member.node, member.data, ephemeral=True)))
            if member.joined:
                *_, (_, made) = yield create
            else:
                (*_, (_, made)), member.beside = yield create, op.Children(member.path)
            return made.czxid, ticket.session, True
        except (op.NoNode, op.NodeExists) as failed:
            # The group was never used, or the server has removed it while idle; or another client has just made a node
            # above.
            if isinstance(failed, op.NoNode) or failed.part < len(lacking):
                lacking = yield from missing(op.Container(member.path))
                continue
        except op.ConnectionLost:
            replied, doubt = False, True
        _, found = yield op.Sync(member.node, ticket), op.Get(member.node, ticket)
        # A former leader that is cut off still answers a `sync`, and may show a node that is gone. The reply to a
        # create comes from a majority. So without that reply only our own node counts, and finding any other node calls
        # for another create.
        ours = doubt and found is not None and found.session == ticket.session
        if found is not None and (replied or ours):
            return found.czxid, found.session, ours


def _outlast(member: Member, ticket: Ticket) -> Recipe[None]:
    """Wait while the node exists and the membership is wanted."""
    try:
        found: op.Node | None
        (found,) = yield op.Watch(ticket, (op.Get(member.node, ticket),))
        if found is None or (found.czxid, found.session) != (ticket.token, ticket.session):
            member.ticket, member.cause = None, LossCause.NODE_DELETED
            # Another client has deleted our node: a node that is there now is not ours to delete.
            yield op.MarkDeleted(ticket)
        elif member.wanted:
            yield op.Wait(ticket)
    except op.Requeue as why:
        member.cause = LossCause.NODE_DELETED if isinstance(why, op.NodeGone) else LossCause.SESSION_EXPIRED
        member.ticket = None
        yield op.Discard(ticket)


def _delete_node(member: Member) -> Recipe[None]:
    """Delete the node, if there is one."""
    # A membership with a ticket has its node: when the node goes, the watch in `_outlast` wakes the call, which then
    # clears the ticket.
    sure = True
    while (ticket := member.ticket) is not None:
        try:
            if not sure:
                # Once this write is applied, so is all that was sent before it, and the read shows that. A read behind
                # a `sync` need not show it: see `map/write.py`.
                yield op.Multi(ticket, (op.Check(member.path),))
                found = yield op.Get(member.node, ticket)
            if sure or (found is not None and (found.session, found.czxid) == (ticket.session, ticket.token)):
                yield op.Multi(ticket, (op.Delete(member.node),))
        except (op.NoNode, op.Requeue):
            # The node was deleted, or went with its session.
            pass
        except op.ConnectionLost:
            # Read whether it is still there.
            sure = False
            continue
        member.ticket = None
        yield op.MarkDeleted(ticket)


def members(path: str) -> Recipe[dict[str, bytes]]:
    """Return the data of all members by their ids, read behind a `sync`; the longest-standing member first."""
    names = (yield op.Sync(path), op.Children(path))[1]
    refuse_foreign_members(path, names)
    nodes = yield from get_all([f"{path}/{name}" for name in names])
    return _members(dict(zip(names, nodes, strict=True)))


def next_members(path: str, seen: dict[str, bytes] | None) -> Recipe[dict[str, bytes]]:
    """Wait until the members, or their data, differ from those that were last seen; return them."""
    if seen is None:
        return (yield from members(path))
    large = sum(map(len, seen.values())) > FLIGHT
    while True:
        ticket: Ticket = yield op.NewTicket(path)
        try:
            names: Sequence[str] = tuple(seen)
            # Whether `names` is what the last read has listed.
            listed_last = False
            while True:
                # Data that are too large for one flight are read after the watches are set.
                read = op.Exists if large else op.Get
                reads = [read(f"{path}/{name}", ticket) for name in names]
                # The group's existence is read, and watched, first, so that no creation of its node is missed.
                _, listed, *nodes = yield op.Watch(ticket, (op.Exists(path, ticket), op.Children(path, ticket), *reads))
                if large:
                    nodes = yield from get_all([f"{path}/{name}" for name in names])
                complete = set(listed) == set(names)
                if complete or listed_last:
                    # A second listing suffices, even if it has changed again, so that members that come and go all the
                    # time do not delay an observer.
                    found = _members(dict(zip(names, nodes, strict=True)))
                    if list(found.items()) != list(seen.items()):
                        yield op.Discard(ticket)
                        return found
                if complete:
                    yield op.Wait(ticket)
                # Read, and watch, the listed nodes next.
                names, listed_last = listed, not complete
        except op.Requeue:
            yield op.Discard(ticket)


def _members(nodes: dict[str, op.Node | None]) -> dict[str, bytes]:
    there = [(node.czxid, name, node.data) for name, node in nodes.items() if node is not None]
    return {name: data for _, name, data in sorted(there)}
