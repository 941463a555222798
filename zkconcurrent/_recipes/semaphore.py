"""The semaphore: the first in a queue takes permits while there are enough, and makes room for the next in one step."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._paths import ancestors
from .nodes import agreed
from .operations import (
    Children,
    ConnectionLost,
    CreateEphemeral,
    CreatePersistent,
    Delete,
    Discard,
    EnsureContainer,
    Get,
    Grant,
    MarkDeleted,
    Multi,
    NewTicket,
    Node,
    NodeGone,
    NoNode,
    Operation,
    Prove,
    Recipe,
    Requeue,
    SessionExpired,
    Sync,
    Wait,
    WaitGone,
    Watch,
)
from .queue import find
from .rules import LEASE, MUTEX, blockers, check_queue, line_up
from .ticket import State, Ticket

# What `add` calls its nodes: a UUID, and how many permits it adds.
ADDED = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-([0-9]{1,19})")


class Layout(NamedTuple):
    """Where a semaphore has its nodes, and how many permits it began with."""

    path: str
    value: int

    @property
    def locks(self) -> str:
        """The queue: Curator's InterProcessMutex."""
        return f"{self.path}/locks"

    @property
    def leases(self) -> str:
        """One node for each permit that is out."""
        return f"{self.path}/leases"

    @property
    def permits(self) -> str:
        """The value, as text; its children are permits that were added."""
        return f"{self.path}/permits"


class Sight(NamedTuple):
    """What was read of a semaphore: the queue first, then, not before, what is out and what there is."""

    queue: Sequence[str]
    leases: Sequence[str]
    value: int
    added: int

    @property
    def free(self) -> int:
        """How many permits are left."""
        return self.value + self.added - len(self.leases)


def acquire(
    at: Layout, permits: int, data: bytes, *, wait: bool, hurried: bool = False
) -> Recipe[tuple[list[Ticket], int] | None]:
    """Take permits, all or none; return their tickets, and how many permits were added so far.

    Only the first in the queue looks at the leases. From when a listing shows us first, nobody but us may make a lease,
    as all who come later are behind us: a listing of the leases that is asked for after that can only have too many,
    however old it is, and whatever program the others run. (Curator's make theirs before they leave the queue.)

    Args:
        at: the semaphore.
        permits: how many.
        data: what our nodes say of us.
        wait: whether to wait for permits; if not, the answer is None where there are too few for us and for those
            ahead of us who will get theirs, for whom we wait.
        hurried: whether the wait ends soon: while there are enough for those ahead and for us, it has not begun.

    Source: Curator's `InterProcessSemaphoreV2`.
    """
    if not wait:
        sight = yield from look(at, None, Sync(at.path))
        if not (yield from is_room(at, line_up(sight.queue, MUTEX), sight.free, permits)):
            return None
    said = json.dumps({**json.loads(data), "permits": permits, "try": not wait}).encode()
    asks = hurried or not wait
    while True:
        ticket: Ticket = yield NewTicket(at.locks)
        leases: list[Ticket] = []
        try:
            sight = yield from join(ticket, at, said)
            while True:
                if ticket.name not in sight.queue:
                    raise NodeGone
                ahead = blockers(ticket.name, sight.queue, MUTEX)
                if asks:
                    line = line_up(sight.queue, MUTEX)
                    asks = yield from is_room(at, line[: line.index(ticket.name or "")], sight.free, permits)
                    if not (asks or wait):
                        yield Discard(ticket)
                        return None
                seen = None
                if ahead:
                    seen = yield WaitGone(ticket, ahead[0], reads(at, ticket), asks)
                elif sight.free >= permits:
                    yield from take(ticket, leases, at, permits, data)
                    leases[0].late = ticket.late
                    return leases, sight.added
                else:
                    out, added = yield Watch(ticket, (Children(at.leases, ticket), Children(at.permits, ticket)))
                    if at.value + count(added) - len(out) < permits:
                        yield Wait(ticket)
                sight = yield from look(at, ticket, seen=seen)
        except Requeue:
            for each in (ticket, *leases):
                yield Discard(each)


def join(ticket: Ticket, at: Layout, data: bytes) -> Recipe[Sight]:
    """Put the ticket's node at the tail of the queue; return what is seen behind that.

    Raises:
        StartAgain: the ticket's node was not made, or is gone.
    """
    while True:
        try:
            sight = yield from look(at, ticket, CreateEphemeral(ticket, MUTEX.role, data))
            break
        except NoNode:  # never used, or reaped while idle
            yield from lay_out(at)
        except ConnectionLost:
            yield from find(ticket)
            sight = yield from look(at, ticket)
            break
    ticket.check_sequence(MUTEX)
    return sight


def reads(at: Layout, ticket: Ticket | None) -> tuple[Children | Get, ...]:
    """Return what reads all there is of a semaphore."""
    permits = Get(at.permits, ticket), Children(at.permits, ticket)
    return (Children(at.locks, ticket), Children(at.leases, ticket), *permits)


def look(at: Layout, ticket: Ticket | None, *before: Operation, seen: Sequence[Any] | None = None) -> Recipe[Sight]:
    """Read all there is of a semaphore, behind other operations, if any.

    Args:
        at: the semaphore.
        ticket: ours, if there is one.
        before: what is done before.
        seen: what was read already.

    Raises:
        ForeignNodeError: something else is there.
        ValueError: it has another value.
    """
    while True:
        *_, queue, leases, node, added = seen or (yield (*before, *reads(at, ticket)))
        check_value(at, node)
        check_queue(at.locks, queue)
        check_queue(at.leases, leases)
        if node is not None or ticket is None:
            return Sight(queue, leases, at.value, count(added))
        before, seen = (), None
        yield from lay_out(at)  # who comes first says what the value is


def lay_out(at: Layout) -> Recipe[None]:
    """Make the nodes that stay."""
    above = [*ancestors(at.path), at.path, at.locks, at.leases]
    while True:
        try:
            yield (*map(EnsureContainer, above), CreatePersistent(at.permits, str(at.value).encode()))
            return
        except NoNode:
            continue  # reaped just now


def check_value(at: Layout, node: Node | None) -> None:
    """Refuse to go on with a value that is not the one that all others have.

    Raises:
        ForeignNodeError: the node has no value.
        ValueError: the two differ.
    """
    if node is not None and (theirs := read(at, node)) != at.value:
        raise ValueError(f"the semaphore {at.path!r} was made with value={theirs}, and not with value={at.value}")


def read(at: Layout, node: Node) -> int:
    """Return the value that a node says.

    Raises:
        ForeignNodeError: it is no semaphore's.
    """
    return agreed(at.path, node, f"that of {at.permits!r} is a Semaphore's value")


def count(added: Sequence[str]) -> int:
    """Return how many permits were added."""
    return sum(int(match[1]) for match in map(ADDED.fullmatch, added) if match is not None)


def is_room(at: Layout, ahead: Sequence[str], free: int, permits: int) -> Recipe[bool]:
    """Return whether enough permits will be left for us when all those ahead have come and gone.

    Who waits ahead for more than there is, holds us up: then there is no room. Who only tries goes without. The first
    in the queue may be Curator's, and have its lease already; any other of Curator's wants one.
    """
    if free < permits or not ahead:
        return free >= permits
    nodes: Sequence[Node | None] = yield tuple(Get(f"{at.locks}/{name}") for name in ahead)
    for n, node in enumerate(nodes):
        wants, tries = (0, True) if node is None else wanted(node.data, curators=min(n, 1))
        if wants <= free:
            free -= wants
        elif not tries:
            return False
    return free >= permits


def wanted(data: bytes, curators: int) -> tuple[int, bool]:
    """Return how many permits a node in the queue is there for, and whether it only tries."""
    try:
        said = json.loads(data)
        return int(said["permits"]), bool(said["try"])
    except (ValueError, TypeError, KeyError):
        return curators, False


def take(ticket: Ticket, leases: list[Ticket], at: Layout, permits: int, data: bytes) -> Recipe[None]:
    """Make the leases in the place of the ticket's node, all in one step, and hold them.

    That the ticket's node is deleted with it lets the step happen once at most: so it can be asked for again while the
    ticket's node is there, and the leases are found by their unique names when it is not.

    Args:
        ticket: the first in the queue.
        leases: is given the leases' tickets, as soon as there is something to be discarded.
        at: the semaphore.
        permits: how many leases.
        data: what they say of us.

    Raises:
        StartAgain: the ticket's node is gone, or the session is over.
    """
    for _ in range(permits):
        leases.append((yield NewTicket(at.leases)))
        if leases[-1].session != ticket.session:
            raise SessionExpired
    step = Multi(
        leases[0], (Delete(ticket.node, ticket), *(CreateEphemeral(lease, LEASE.role, data) for lease in leases))
    )
    while True:
        try:
            yield step
            break
        except ConnectionLost:
            pass
        except NoNode:  # the ticket's node, or the leases' parent
            yield from lay_out(at)
        if (yield from find_leases(ticket, leases)):
            yield MarkDeleted(ticket)
            break
    for lease in leases:
        while not (yield Grant(lease)):
            yield Prove(lease)
    if any(lease.state is not State.HELD for lease in leases):
        raise Requeue  # it ran out in between


def find_leases(ticket: Ticket, leases: Sequence[Ticket]) -> Recipe[bool]:
    """Return whether the leases were made; if not, they can be still.

    Raises:
        NodeGone: they are not all there in the ticket's session, and the ticket's node is gone.
    """
    _, queue, names = yield (
        Sync(ticket.path, ticket),
        Children(ticket.path, ticket),
        Children(leases[0].path, ticket),
    )
    found = [next((name for name in names if name.startswith(lease.prefix)), "") for lease in leases]
    if ticket.name in queue and not any(found):
        return False
    if not all(found):
        raise NodeGone
    nodes = yield tuple(Get(f"{lease.path}/{name}", ticket) for lease, name in zip(leases, found, strict=True))
    for lease, name, node in zip(leases, found, nodes, strict=True):
        if node is None or node.session != ticket.session:
            raise NodeGone
        lease.queued_as(name, node.czxid)
    return True


def add(at: Layout, permits: int, unique: str) -> Recipe[int]:
    """Add permits, once, whatever is lost on the way; return how many were added so far.

    Args:
        at: the semaphore.
        permits: how many.
        unique: a UUID.
    """
    while True:
        node, added = yield Get(at.permits), Children(at.permits)
        check_value(at, node)
        try:
            yield CreatePersistent(f"{at.permits}/{unique}-{permits}", b"")
            return count(added) + permits
        except NoNode:
            yield from lay_out(at)


def is_locked(at: Layout) -> Recipe[bool]:
    """Return whether no permit is left, as the leader has it."""
    sight = yield from look(at, None, Sync(at.path))
    return sight.free <= 0
