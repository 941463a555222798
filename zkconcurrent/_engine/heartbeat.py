"""The heartbeat renews the lease, and finds dead links, missing nodes, and servers whose copy has diverged.

A *proof* is a `multi` with a check of every node that holds or waits, sent as soon as a `sync` before it is answered,
or without one while the first proof on a connection is wanted. The `multi` is a write, so it proves the lease, and it
shows which node is missing. Each proof costs a transaction of the ensemble. So the keeper sends one only when it is
due: while the client holds, once in each `Lease.spacing`, at the time that `Lease.due` computes; while it only waits,
every third of the session timeout, or more often if the session is a long one; and while a waiter or a new hold needs
the connection's first proof, as soon as that can prove something.

In between, a holder sends a `sync` each `Lease.beat`, which costs no transaction: it finds a dead link, and is the
older request that a later proof needs. The first beat after a grant also sets a watch on the node of the hold. So
the client learns at once that an operator has deleted the node, or that a client asks the holder to let go; if the lock
has `on_revoke`, that watch is set at the grant. Without nodes, the heartbeat is a `sync`, as often as the proofs of
waiters, in place of kazoo's ping. So the first hold finds a request old enough to prove its lease.

A server may lose a part of its log in a crash, and continue to show a node that its leader has deleted. A waiter for
the end of that node would wait forever. So once in each session timeout the keeper asks the leader whether the nodes
for which the client waits exist; if one does not, the next heartbeat asks again. If the damaged server is elected, all
servers may show the node again, except a server whose copy diverges from the leader's. So on each connection the keeper
lists the paths where this client has deleted nodes lately.

A change of a node uses up the watch of a client that may not read the node at that moment, but the server sends that
client no event. So once a minute, all waiters look again, except those that wait for the end of a node: they find what
they have missed, or get the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

from .._arguments.limits import CHECK_BYTES
from .._kazoo.failures import failure, kazoo_errors
from .._kazoo.reply import HandledReply, Reply, Request
from .._kazoo.watches import Watcher
from .._protocol.operations import ConnectionLost
from .._protocol.session_lease import LONGEST_SPACING
from .._protocol.ticket import REVOKED, State, Ticket
from .client_state import ClientState

LATE_CREATE_WATCH = 10  # session timeouts
LOOK_AGAIN = 60.0  # seconds
# The shortest pause between two turns of the keeper.
SHORTEST_PAUSE = 0.01  # seconds
# The most nodes about which the keeper asks the leader at a time.
MOST_ASKED = 1000
# The size of a multi without its checks.
MULTI_BYTES = 9
# How many nodes one multi checks. Such a multi takes about twice as long as one that checks one node.
NODES_PER_MULTI = 100


class Heartbeat:
    """The heartbeat of one session. All methods but `hurry` are called with its lock held.

    Args:
        client: the session.
        watcher: the one watcher of all its watches.
        asked: called with the ticket of a hold, once for each time that a client asks its holder to let go; returns
            whether there is a holder to notify.
    """

    def __init__(self, client: ClientState, watcher: Watcher, asked: Callable[[Ticket], bool]) -> None:
        self._client = client
        self._watcher = watcher
        self._asked = asked
        self._unanswered: set[HandledReply] = set()
        # The number of the oldest request without a reply, as the keeper last saw it; None if there was none.
        self._next: int | None = None
        # Since when the keeper has seen no reply, and no part of a large reply or request.
        self._silent_since = 0.0
        # The connection was cut, and the next has not been opened yet.
        self._cut = False
        # When the last request was sent, when the last regular beat was, and when the last beat was that a proof
        # followed.
        self._sent = self._last = self._checked = -math.inf
        # Until when a create may still arrive, by path.
        self._in_doubt: dict[str, float] = {}
        # When the keeper last asked the leader about the awaited nodes.
        self._asked_leader = -math.inf
        # When all waiters were last made to look again; they also look on each new connection.
        self._looked_again = -math.inf
        # The awaited nodes that the leader lacked when the keeper asked earlier.
        self._unknown: set[str] = set()
        # The paths that the keeper still has to list on this connection.
        self._unlisted: set[str] = set()

    def reset(self) -> None:
        """Forget the outstanding replies, and send the next heartbeat at once: the connection is a new one."""
        self._unanswered.clear()
        self._cut = False
        self._last = self._checked = -math.inf
        # A server's copy diverges when the server restarts, so the leader is asked already after a third of the
        # timeout.
        self._asked_leader = self._client.clock() - self._client.timeout * 2 / 3
        self._looked_again = self._client.clock()
        self._unknown.clear()
        # The leader may be a new one, and this server's copy may have nodes that the last server's lacked.
        self._unlisted.update(self._client.registry.recently_left)

    def hurry(self) -> None:
        """Send the next proof at once."""
        self._last = self._checked = -math.inf
        self._client.wake_keeper()

    def watch_for_late_create(self, path: str) -> None:
        """Watch a path for a while: a create may be applied there after its recipe has looked for the node."""
        self._in_doubt[path] = self._client.clock() + LATE_CREATE_WATCH * self._client.timeout

    def overdue(self, now: float) -> bool:
        """Return whether a reply is overdue, or the connection was cut because one was."""
        return self._cut or (bool(self._unanswered) and now - self._sent > self._client.timeout / 6)

    def beat(self, now: float) -> float:
        """Send what is due; cut a connection on which a reply is overdue. The keeper calls it while connected.

        A connection that is slow, or has many replies or a large one to deliver, is kept: on a new one, all these
        replies would have to be requested again.

        Returns:
            After how many seconds, at most, to call again.
        """
        client = self._client
        if self._unanswered:
            self._check_link(now)
            return client.registry.lease.beat
        proof = self._next_proof()
        beat = min(proof, self._last + self._pause())
        if beat > now:
            return max(SHORTEST_PAUSE, min(client.registry.lease.beat, beat - now))
        if self._last + self._pause() <= now:
            # Proofs do not shift the beats: a later proof needs each beat as its older request (q).
            self._last = now
        # The opening of a connection is itself a q (see `session_lease`). While proofs are wanted soon, each proof is
        # the X of the next: on a slow link, one more round trip could be too long.
        at_once = self._checked == -math.inf or self._proof_is_wanted()
        if proof <= now or not client.registry.known():
            self._checked = now
        self._sent = self._silent_since = now
        if proof <= now and at_once:
            self._prove()
        else:
            client.link.send(client.link.sync("/", self._expected(partial(self._synced, proof <= now))))
        self._watch_holds()
        self._look_around(now)
        self._next = client.link.transport.awaited_xid
        return client.registry.lease.beat

    def _pause(self) -> float:
        """Return the longest time for which nothing is sent."""
        if self._holds() or self._proof_is_wanted():
            return self._client.registry.lease.beat
        return min(self._client.timeout / 3, LONGEST_SPACING)

    def _next_proof(self) -> float:
        """Return when to begin the next proof."""
        registry = self._client.registry
        lease = registry.lease
        if not registry.known():
            return math.inf
        if self._checked == -math.inf:
            return self._checked
        # A proof that proved no more than the last is not repeated at once.
        soon = self._sent + lease.beat / 10
        if self._proof_is_wanted():
            # A write sent earlier may prove no more than the opening of the connection does.
            return max(soon, min(lease.renewable, self._sent + lease.beat))
        if self._holds():
            # The client's other writes prove the lease, too, but do not check its nodes.
            return max(soon, min(lease.due, self._checked + 2 * lease.spacing))
        return self._checked + self._pause()

    def _holds(self) -> bool:
        return any(ticket.state is State.HELD for ticket in list(self._client.registry.tickets.values()))

    def _proof_is_wanted(self) -> bool:
        """Return whether a proof must come soon: for a waiter, or for a hold that rests on the handshake alone.

        Such a hold may begin so late that its lease hardly lasts for the time that a proof takes.
        """
        registry = self._client.registry
        return self._is_proving() or (not registry.lease.renewed and self._holds())

    def _is_proving(self) -> bool:
        """Return whether a waiter needs a proof of the lease to be granted."""
        return any(ticket.proving for ticket in list(self._client.registry.tickets.values()))

    def _check_link(self, now: float) -> None:
        client = self._client
        before, self._next = self._next, client.link.transport.awaited_xid
        # A call asks again after a session timeout, which would make a slow link slower still.
        passes = client.link.transport.large.passed() and now - self._sent < client.timeout
        if self._next is None or before not in (None, self._next) or passes:
            self._silent_since = now
            if now - self._sent > client.timeout:
                # The replies were lost inside kazoo.
                self._unanswered.clear()
        elif now - self._silent_since > client.timeout / 3:
            client.warn_later("no reply for %.1f s; reconnecting", now - self._silent_since)
            self._unanswered.clear()
            self._cut = True
            client.link.transport.drop()

    def _synced(self, proof: bool, reply: HandledReply) -> None:
        if proof and reply.error is None:
            self._prove()

    def _look_around(self, now: float) -> None:
        """Look for nodes that may have come or gone without an event."""
        client = self._client
        self._in_doubt = {path: until for path, until in list(self._in_doubt.items()) if now < until}
        for path in {**self._in_doubt, **dict.fromkeys(self._unlisted)}:
            self._delete_strays(path)
        if now - self._asked_leader >= client.timeout:
            self._asked_leader = now
            self._ask_leader()
        if now - self._looked_again >= LOOK_AGAIN:
            self._looked_again = now
            client.registry.look_again()

    def _prove(self) -> None:
        """Send the checks, now that a `sync` is answered."""
        link, known = self._client.link, self._client.registry.known()
        self._sent = self._client.clock()
        readable = [ticket for ticket in known if not ticket.unreadable]
        for part in self._parts([ticket.node for ticket in readable]):
            self._check_nodes(readable[part])
        if known and not readable:
            # A check of the root proves as much, and the root can't be missing.
            link.send(link.check((), self._expected(lambda _: None)))

    def _watch_holds(self) -> None:
        """Watch the nodes of holds that are not watched on this connection, some at a time."""
        held = (each for each in self._client.registry.known() if each.state is State.HELD)
        connection = self._client.link.connection
        for ticket in [*islice((each for each in held if each.watched is not connection), NODES_PER_MULTI)]:
            self.watch_hold(ticket)

    def watch_hold(self, ticket: Ticket) -> None:
        """Watch the node of a hold; the read shows whether a client asks its holder to let go."""
        link = self._client.link
        ticket.watched = link.connection
        # This read is behind a `sync` or a write. It leaves no watch on a node that is not there.
        reply = HandledReply(partial(self._watch_set, ticket), self._client.post)
        link.send(link.get(ticket.node, reply, self._watcher))

    def _watch_set(self, ticket: Ticket, reply: HandledReply) -> None:
        if isinstance(reply.error, kazoo_errors.NoNodeError):
            self.note_deleted(ticket)
        elif isinstance(reply.error, kazoo_errors.ThrottledOpError):
            # The next beat reads the node.
            ticket.watched = False
        elif reply.error is None and reply.value[0] == REVOKED:
            version = reply.value[1].version
            # On a new connection, the same request to let go is read again.
            if ticket.state is State.HELD and ticket.asked_at != version and self._asked(ticket):
                ticket.asked_at = version

    def own_changed(self, ticket: Ticket, *, deleted: bool) -> None:
        """Take an event of a ticket's own node; with the session's lock held."""
        if ticket.way is not None:
            ticket.note_change()
        if deleted:
            self.note_deleted(ticket)
        elif ticket.state is State.HELD:
            # A client may ask the holder to let go.
            self.watch_hold(ticket)

    def note_deleted(self, ticket: Ticket) -> None:
        """Note that a ticket's node is gone: if the ticket is an unreleased hold, a proof shows what is missing."""
        if ticket.state is State.HELD:
            self.hurry()

    def _parts(self, nodes: Sequence[str]) -> Iterator[slice]:
        """Split a list of nodes into parts that are checked together, so that no request is too large to be sent."""
        link = self._client.link
        first = size = 0
        for n, node in enumerate(nodes):
            more = CHECK_BYTES + len(link.full(node).encode())
            if n - first == NODES_PER_MULTI or (n > first and size + more > link.transport.max_request - MULTI_BYTES):
                yield slice(first, n)
                first, size = n, 0
            size += more
        if nodes:
            yield slice(first, len(nodes))

    def _expected(self, then: Callable[[HandledReply], None]) -> HandledReply:
        def on_reply(reply: HandledReply) -> None:
            if reply in self._unanswered:
                self._unanswered.discard(reply)
                then(reply)
            if self._is_proving():
                self._client.wake_calls()
            if self._proof_is_wanted() or self._next_proof() < self._last + self._pause():
                self._client.wake_keeper()

        reply = HandledReply(on_reply, self._client.post)
        self._unanswered.add(reply)
        return reply

    def _check_nodes(self, known: list[Ticket]) -> None:
        """Check nodes on the server. If a check fails, the checks behind it show nothing, and nothing is proved."""
        link, asked_in = self._client.link, self._client.registry.session

        def checked(reply: HandledReply) -> None:
            if reply.error is not None or self._client.registry.session != asked_in:
                return
            failed = [n for n, result in enumerate(reply.value) if self._note_result(known[n], result)]
            if failed:
                # A check of the root proves the lease in place of the failed `multi`.
                proof = link.check((), self._expected(lambda _: None))
                # Reads behind the `sync` show at once which of the other nodes are missing.
                sync, reads = link.sync("/", Reply()), map(self._read_of, known[failed[0] + 1 :])
                link.send(proof, sync, *reads)
                self.hurry()

        link.send(link.check([ticket.node for ticket in known], self._expected(checked)))

    def _read_of(self, ticket: Ticket) -> Request:
        reply = HandledReply(lambda reply: self._note_result(ticket, reply.error), self._client.post)
        return self._client.link.get(ticket.node, reply)

    def _note_result(self, ticket: Ticket, result: object) -> bool:
        """Note the result for a node; return whether the node is missing or unreadable."""
        if isinstance(result, kazoo_errors.NoNodeError):
            self._client.registry.mark_missing(ticket)
            self._client.wake_keeper()
        elif not isinstance(result, kazoo_errors.NoAuthError):
            return False
        # If the next heartbeat checked this node again, its proof would fail, too.
        ticket.unreadable = True
        return True

    def _ask_leader(self) -> None:
        """Ask the leader whether it still has the nodes whose end the waiters wait for."""
        client, registry = self._client, self._client.registry
        shown = registry.shown()[:MOST_ASKED]
        self._unknown.intersection_update(shown)

        def on_reply(reply: HandledReply, asked: list[str]) -> None:
            for node, result in zip(asked, reply.value or (), strict=False):
                if isinstance(result, kazoo_errors.NoNodeError) and node in registry.shown():
                    self._doubt_server(node)

        for part in self._parts(shown):
            asked = shown[part]
            client.link.send(client.link.check(asked, HandledReply(partial(on_reply, asked=asked), client.post)))

    def _doubt_server(self, node: str) -> None:
        """Have those who wait for a node that the leader lacks look again; the second time, leave the server."""
        client = self._client
        if node not in self._unknown:
            self._unknown.add(node)
            self._asked_leader = -math.inf
            client.registry.note_change(node)
            client.registry.note_change(node.rpartition("/")[0])
            return
        client.warn_later(
            "the server's copy has diverged: it shows %s, and its leader does not; connecting to another", node
        )
        self._unknown.clear()
        client.link.transport.drop()

    def _delete_strays(self, path: str) -> None:
        """Delete nodes of this client that no recipe knows."""
        client, link = self._client, self._client.link
        synced = Reply()

        def listed(reply: HandledReply) -> None:
            error = synced.error or reply.error
            if error is None or not isinstance(failure(error, path), ConnectionLost):
                self._unlisted.discard(path)
            for node in client.registry.strays(path, reply.value or ()):
                link.send(link.delete(node, HandledReply(partial(deleted, node=node), client.post)))

        def deleted(reply: HandledReply, node: str) -> None:
            if reply.error is None:
                text = "deleted a node of this client that belonged to no holder or waiter: %s"
                client.warn_later(text, node, zk_path=path)

        link.send(link.sync(path, synced), link.children(path, HandledReply(listed, client.post)))
