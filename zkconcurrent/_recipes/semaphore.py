"""The semaphore: the first in the queue waits for enough permits, takes them and leaves the queue in one step.

Permits are leases, one node for each, and clients that want permits stand in a queue: Curator's layout. Only the first
in the queue looks at the leases. Once a listing shows it first, no later client may make a lease, as all are behind it;
so a later listing of the leases can only show too many, even from a server that lags. Curator's processes keep to that
too: they make a lease before they know whether they may have it, but only while they are first.

If enough permits are free, one `multi` deletes the node in the queue and creates all leases. So no other client sees
half an acquire, and the delete lets it happen at most once. After a lost reply, a listing shows which of three cases it
is:

* the leases, by their unique names and of this session: they are ours
* the node in the queue: the same `multi` is sent again
* neither: the acquire begins anew

If too few are free, the first leaves one watch on the list of leases and one on the list of added permits. Any released
lease wakes it; all others wait for the node ahead of them.

A try must not fail only because another client is passing through. So each node in the queue says how many permits it
wants. If enough are free for all contenders ahead and for the try, it queues and waits for them; if not, it fails
without a write. A Curator process that is first may already have its lease, so its node in the queue counts as wanting
no further permit.

`release()` first settles the thread's lost permits. If it has lost none, it gives back its newest permit or, if it has
none, one of another thread of the process. Only a process without permits adds one: it creates a node with a unique
name, so a lost reply does no harm. A release hands no permit over between threads, as another process may be first in
the queue.

`resize(n)` is one conditional write: the node says how many permits there are besides the added ones, whose nodes can
stay. If another client writes in between, this `resize` counts as the earlier one, which was overwritten; so after a
lost reply, it is enough to read the version again. Every client that takes permits reads the number after the leases.
So a client that sees that a lease is gone also sees every `resize` before that. The first waiter watches the number
too.

The value and the added permits outlive all clients. `destroy()` removes them in one `multi` together with the queue and
the parent of the leases, which can't be deleted while a client has a node in them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .._protocol import operations as op
from .._protocol.blocking_rules import MUTEX, PERMIT, blocker, check_queue, check_sequence, in_the_way
from .._protocol.operations import Recipe
from .._protocol.permits import count, number_in
from .._protocol.ticket import State, Ticket
from .lock import create
from .nodes import PathCheck, foreign_data, lay_out


class SemaphoreLayout(NamedTuple):
    """The paths of a semaphore's nodes, and its initial number of permits; None takes the existing number.

    `path_check` refuses a path that another kind of primitive uses.
    """

    path: str
    value: int | None
    path_check: PathCheck

    @property
    def locks(self) -> str:
        """The queue: Curator's InterProcessMutex."""
        return f"{self.path}/locks"

    @property
    def leases(self) -> str:
        """The parent of the leases: one node for each acquired permit."""
        return f"{self.path}/leases"

    @property
    def permits(self) -> str:
        """The node with the value, as text; its children are added permits."""
        return f"{self.path}/permits"


class SemaphoreSnapshot(NamedTuple):
    """A semaphore as a client read it: the queue first, then the leases, and only then the number of permits."""

    queue: Sequence[str]
    leases: Sequence[str]
    size: int

    @property
    def free(self) -> int:
        """How many permits are free; negative while more permits are held than a resize has left."""
        return self.size - len(self.leases)


def acquire(
    at: SemaphoreLayout,
    permits: int,
    data: bytes,
    *,
    queued: bytes | None = None,
    wait: bool,
    near_deadline: bool = False,
    too_few: Callable[[int], object] = lambda _: None,
) -> Recipe[tuple[list[Ticket], int] | None]:
    """Take permits, all or none; return their tickets, and how many permits there are.

    Only the first in the queue looks at the leases. Once a listing shows that we are first, only we may make leases, as
    every later client is behind us. So a later listing of the leases can only show too many leases, however stale the
    server is, and whichever program the other clients run. (Curator's processes make their leases before they leave the
    queue.) The number of permits is read after the leases. So once a lease that existed when the semaphore was made
    smaller is gone, the number read is the smaller one.

    Args:
        at: the semaphore.
        permits: how many permits to take.
        data: the content of our leases.
        queued: the content of our node in the queue; by default `data`.
        wait: whether to wait for permits. If not, the result is None when the free permits are too few for us and for
            the contenders ahead of us that will get theirs; if they are enough, we wait for those contenders.
        near_deadline: whether the deadline is near. If so, we wait past the deadline as long as the free
            permits suffice for us and the contenders ahead.
        too_few: called with the number of permits, after the first read, if fewer exist than we take. If it raises an
            error, the attempt ends.

    Source: Curator's `InterProcessSemaphoreV2`.
    """
    if not wait:
        snapshot = yield from query(at)
        if snapshot.size < permits:
            too_few(snapshot.size)
        if not (yield from enough(at, in_the_way(None, snapshot.queue, MUTEX), snapshot.free, permits)):
            return None
    queued_data = json.dumps({**json.loads(queued or data), "permits": permits, "try": not wait}).encode()
    asks, first = near_deadline or not wait, wait
    while True:
        ticket: Ticket = yield op.NewTicket(at.locks)
        leases: list[Ticket] = []
        try:
            snapshot = yield from join(ticket, at, queued_data)
            if first and snapshot.size < permits:
                too_few(snapshot.size)
            first = False
            while True:
                if ticket.name is None or ticket.name not in snapshot.queue:
                    raise op.NodeGone
                ahead = blocker(ticket.name, snapshot.queue, MUTEX)
                if asks:
                    asks = yield from enough(at, in_the_way(ticket.name, snapshot.queue, MUTEX), snapshot.free, permits)
                    if not (asks or wait):
                        yield op.Discard(ticket)
                        return None
                seen = None
                if ahead:
                    del snapshot  # as in `lock.acquire`
                    seen = yield op.WaitGone(ticket, ahead, reads(at, ticket), asks)
                elif snapshot.free >= permits:
                    yield from take_permits(ticket, leases, at, permits, data)
                    leases[0].late = ticket.late
                    return leases, snapshot.size
                else:
                    del snapshot
                    out, node, added = yield op.Watch(ticket, reads(at, ticket)[1:])  # not the queue
                    free = parse_size(at, node, added) - len(out)
                    del out, added
                    if free < permits:
                        yield op.Wait(ticket)
                snapshot = yield from read_snapshot(at, ticket, seen=seen)
                del seen
        except op.Requeue:
            for each in (ticket, *leases):
                yield op.Discard(each)


def join(ticket: Ticket, at: SemaphoreLayout, data: bytes) -> Recipe[SemaphoreSnapshot]:
    """Create the ticket's node at the tail of the queue; return what was read behind that.

    Raises:
        Requeue: the ticket's node was not created, or is gone.
    """
    all_reads = *reads(at, ticket), *at.path_check.reads()
    seen = yield from create(ticket, MUTEX.role, data, all_reads, lambda _: at.path_check.missing(*shared(at)))
    assert ticket.name is not None
    ticket.late = check_sequence(ticket.path, ticket.name, MUTEX)
    snapshot = yield from read_snapshot(at, ticket, seen=seen)
    yield from at.path_check.check_now()
    return snapshot


def reads(at: SemaphoreLayout, ticket: Ticket | None) -> tuple[op.Children | op.Get, ...]:
    """Return the operations that read a whole semaphore."""
    permits = op.Get(at.permits, ticket), op.Children(at.permits, ticket)
    return (op.Children(at.locks, ticket), op.Children(at.leases, ticket), *permits)


def read_snapshot(
    at: SemaphoreLayout, ticket: Ticket | None, *before: op.Sync, seen: Sequence[Any] | None = None
) -> Recipe[SemaphoreSnapshot]:
    """Read a whole semaphore, behind a `sync` if one is given.

    Args:
        at: the semaphore.
        ticket: our ticket, if there is one.
        before: the `sync`.
        seen: the results of the reads, if the reads were sent already.

    Raises:
        ForeignNodeError: the path has other nodes.
        ValueError: the semaphore has another value; or there is no semaphore, and we have no value.
    """
    while True:
        if seen is None:
            seen = (yield (*before, *reads(at, ticket), *at.path_check.reads()))[len(before) :]
        queue, leases, node, added, *listed = seen
        at.path_check.check_listing(listed)
        there = parse_size(at, node, added)
        check_queue(at.locks, queue)
        check_queue(at.leases, leases, PERMIT)
        if node is not None or ticket is None:
            return SemaphoreSnapshot(queue, leases, there)
        before, seen = (), None
        # The first client sets the value.
        yield from lay_out(*shared(at), path_check=at.path_check)


def shared(at: SemaphoreLayout) -> tuple[op.Container | op.Create, ...]:
    """Return the operations that create the nodes that every client shares.

    Raises:
        ValueError: we have no value.
    """
    if at.value is None:
        raise _missing(at)
    return op.Container(at.locks), op.Container(at.leases), op.Create(at.permits, str(at.value).encode())


def parse_size(at: SemaphoreLayout, node: op.Node | None, added: Sequence[str]) -> int:
    """Return how many permits there are.

    Args:
        at: the semaphore.
        node: the node `permits`, if it exists.
        added: the names of its children.

    Raises:
        ForeignNodeError: the node is not a semaphore's.
        ValueError: the semaphore was made with a value that differs from ours, and never resized; or there is no
            semaphore, and we have no value.
    """
    if node is None:
        if at.value is None:
            raise _missing(at)
        return at.value
    number, resized = parse(at, node)
    if not (resized or at.value in (None, number)):
        raise ValueError(
            f"the semaphore {at.path!r} was made with value={number}, not value={at.value}: all clients must give the "
            "same, or value=None; resize() changes it"
        )
    return number + count(added)


def _missing(at: SemaphoreLayout) -> ValueError:
    return ValueError(
        f"there is no semaphore {at.path!r}, so value=None can't take its number of permits: give a value"
    )


def parse(at: SemaphoreLayout, node: op.Node) -> tuple[int, bool]:
    """Return the number in the node `permits`, and whether `resize` has written it.

    Raises:
        ForeignNodeError: the node is not a semaphore's.
    """
    found = number_in(node.data)
    if found is None:
        raise foreign_data(at.path, node.data, f"that of {at.permits!r} is a Semaphore's value")
    return found


def enough(at: SemaphoreLayout, ahead: Sequence[str], free: int, permits: int) -> Recipe[bool]:
    """Return whether enough permits will be left for us after all contenders ahead have taken theirs.

    A contender ahead that waits for more permits than are free holds us up, so the answer is no. A contender that only
    tries leaves without permits. If Curator made the first node in the queue, that node wants 0 permits, as its
    client may already have its lease; any other node of Curator's wants 1.
    """
    if free < permits or not ahead:
        return free >= permits
    nodes: Sequence[op.Node | None] = yield tuple(op.Get(f"{at.locks}/{name}") for name in ahead)
    for n, node in enumerate(nodes):
        wants, tries = (0, True) if node is None else permits_wanted(node.data, curators=min(n, 1))
        if wants <= free:
            free -= wants
        elif not tries:
            return False
    return free >= permits


def permits_wanted(data: bytes, curators: int) -> tuple[int, bool]:
    """Return how many permits a node in the queue wants, and whether it only tries.

    Args:
        data: the node's content.
        curators: how many permits to assume for a node that Curator made, as its data contain no number.
    """
    try:
        fields = json.loads(data)
        return int(fields["permits"]), bool(fields["try"])
    except op.MALFORMED:
        return curators, False


def take_permits(ticket: Ticket, leases: list[Ticket], at: SemaphoreLayout, permits: int, data: bytes) -> Recipe[None]:
    """Replace the ticket's node by the leases, in one `multi`, and hold them.

    The `multi` deletes the ticket's node, so it applies at most once. After a lost reply it is sent again while that
    node exists; when it is gone, the leases are found by their unique names.

    Args:
        ticket: the first in the queue.
        leases: receives each lease's ticket as soon as it exists, so that the caller can discard it.
        at: the semaphore.
        permits: how many leases to make.
        data: the content of their nodes.

    Raises:
        Requeue: the ticket's node is gone, or the session is over.
    """
    for _ in range(permits):
        leases.append((yield op.NewTicket(at.leases)))
        if leases[-1].session != ticket.session:
            raise op.SessionExpired
    step = op.Multi(
        leases[0], (op.Delete(ticket.node, ticket), *(op.CreateEphemeral(lease, PERMIT.role, data) for lease in leases))
    )
    while True:
        try:
            yield step
            break
        except op.ConnectionLost:
            pass
        except op.NoNode:
            # The ticket's node is missing, or the parent of the leases.
            yield from lay_out(*shared(at), path_check=at.path_check)
        if (yield from find_leases(ticket, leases)):
            yield op.MarkDeleted(ticket)
            break
    for lease in leases:
        while not (yield op.Grant(lease)):
            yield op.ProveLease(lease)
    if any(lease.state is not State.HELD for lease in leases):
        # The session's lease has run out in between.
        raise op.Requeue


def find_leases(ticket: Ticket, leases: Sequence[Ticket]) -> Recipe[bool]:
    """Return whether the leases were made. If not, the `multi` can be sent again.

    Raises:
        NodeGone: the ticket's node is gone, and not all leases exist in its session.
    """
    _, queue, names = yield (
        op.Sync(ticket.path, ticket),
        op.Children(ticket.path, ticket),
        op.Children(leases[0].path, ticket),
    )
    found = [next((name for name in names if name.startswith(lease.prefix)), "") for lease in leases]
    if ticket.name in queue and not any(found):
        return False
    if not all(found):
        raise op.NodeGone
    nodes = yield tuple(op.Get(f"{lease.path}/{name}", ticket) for lease, name in zip(leases, found, strict=True))
    for lease, name, node in zip(leases, found, nodes, strict=True):
        if node is None or node.session != ticket.session:
            raise op.NodeGone
        lease.queued_as(name, node.czxid)
    return True


def add(at: SemaphoreLayout, permits: int, unique: str) -> Recipe[int]:
    """Add permits exactly once, even if replies are lost; return how many there are.

    Args:
        at: the semaphore.
        permits: how many permits to add.
        unique: a UUID, the same for every retry.
    """
    while True:
        node, added = yield op.Get(at.permits), op.Children(at.permits)
        there = parse_size(at, node, added)
        if node is None:
            yield from lay_out(*shared(at), path_check=at.path_check)
            continue
        try:
            yield op.CreatePersistent(f"{at.permits}/{unique}-{permits}", b"")
            return there + permits
        except op.NoNode:
            continue  # destroyed meanwhile


def resize(at: SemaphoreLayout, permits: int) -> Recipe[int]:
    """Set the number of permits, the added ones included; return it.

    The write names the version that was read. If another client has resized in between, or may have after a lost reply,
    our change counts as the earlier one, which the other client's has overwritten.
    """
    while True:
        _, node, added = yield op.Sync(at.permits), op.Get(at.permits), op.Children(at.permits)
        parse_size(at, node, added)
        if node is None:
            yield from lay_out(*shared(at), path_check=at.path_check)
            continue
        written, seen = None, None
        try:
            number = permits - count(added)
            written, seen = yield op.SetNode(at.permits, b"%d resized" % number, node.version), op.Get(at.permits)
        except op.ConnectionLost:
            _, seen = yield op.Sync(at.permits), op.Get(at.permits)
        if seen is None or seen.czxid != node.czxid:
            # The semaphore was destroyed meanwhile, and the added permits with it.
            continue
        if written or seen.version != node.version:
            return permits


def query(at: SemaphoreLayout) -> Recipe[SemaphoreSnapshot]:
    """Read a whole semaphore, behind a `sync`."""
    return read_snapshot(at, None, op.Sync(at.path))
