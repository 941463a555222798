"""The heartbeat: it renews the lease, finds links that are dead, and misses nodes that are gone.

While anything is known to be on the server, it is one `multi` with a check of every node that holds or waits: a write,
which proves the lease, and tells which node is missing. It is sent each `Lease.beat` while anything is held, or is to
be, and each third of the session's timeout while we only wait. Where there is no node, it is a `sync` as often, in the
place of kazoo's ping: from then on a request is there that is old enough to prove the first lease.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .._kazoo.replies import HandledReply, kazoo_errors
from .._recipes.ticket import State, Ticket
from .client_state import ClientState

LINGER = 10  # session timeouts
LEAST = 0.01  # seconds between two looks of the keeper
PIECE = 100  # nodes in one multi: it takes about twice as long as one with a single node


class Heartbeat:
    """The heartbeat of one session. All methods are called with its lock held."""

    def __init__(self, client: ClientState) -> None:
        self._client = client
        self._unanswered: set[HandledReply] = set()
        self._next: int | None = None  # the number of the request to be answered next, when last looked at
        self._silent_since = 0.0  # nothing was answered, as far as the looks tell
        self._last = -math.inf  # when the last was sent
        self._in_doubt: dict[str, float] = {}  # where a create may linger on its way, and until when

    def begin(self) -> None:
        """Wait for no answer, and send the next at once: the connection is another."""
        self._unanswered.clear()
        self._last = -math.inf

    def hurry(self) -> None:
        """Send the next at once."""
        self._last = -math.inf
        self._client.wake_keeper()

    def doubt(self, path: str) -> None:
        """Look after a path for a while: a create may be applied after its recipe has looked for its node there."""
        self._in_doubt[path] = self._client.clock() + LINGER * self._client.timeout

    def overdue(self, now: float) -> bool:
        """Return whether an answer is late."""
        return bool(self._unanswered) and now - self._last > self._client.timeout / 6

    def beat(self, now: float) -> float:
        """Send what is due; cut a connection on which an answer is due and none comes. For the keeper, connected.

        One that is slow, or has many answers to give, is kept: on the next one, all would have to be asked again.

        Returns:
            After how many seconds, at most, to call again.
        """
        client = self._client
        if self._unanswered:
            self._look_at_link(now)
        elif self._due(now) <= now:
            self._send(now)
        most = client.registry.lease.beat
        return most if self._unanswered else max(LEAST, min(most, self._due(now) - now))

    def _due(self, now: float) -> float:
        """Return when the next is to be sent."""
        client, lease = self._client, self._client.registry.lease
        if any(ticket.state is State.HELD for ticket in client.registry.tickets.values()):
            return self._last + lease.beat
        if not self._is_wanted():
            return self._last + client.timeout / 3
        # Two prove a lease: one that has another before it that is old enough, and one behind that.
        soon = self._last + lease.beat / 10
        return soon if now >= lease.renewable else min(self._last + lease.beat, lease.renewable)

    def _is_wanted(self) -> bool:
        """Whether a proof is waited for, to be granted by it."""
        return any(ticket.proving for ticket in self._client.registry.tickets.values())

    def _look_at_link(self, now: float) -> None:
        client = self._client
        before, self._next = self._next, client.link.transport.next_xid
        if self._next is None or before not in (None, self._next):
            self._silent_since = now
            if now - self._last > client.timeout:
                self._unanswered.clear()  # they were lost inside kazoo
        elif now - self._silent_since > client.timeout / 3:
            client.warn_later("nothing was answered for %.1f s; connecting anew", now - self._silent_since)
            self._unanswered.clear()
            client.link.transport.drop()

    def _send(self, now: float) -> None:
        client, link = self._client, self._client.link
        self._last = self._silent_since = now
        known = client.registry.known()
        readable = [ticket for ticket in known if not ticket.unreadable]
        for first in range(0, len(readable), PIECE):
            self._check(readable[first : first + PIECE])
        if not known:
            link.sync("/", self._expected(lambda _: None))
        elif not readable:
            link.check_root(self._expected(lambda _: None))  # proves as much, and misses none
        self._in_doubt = {path: until for path, until in self._in_doubt.items() if now < until}
        for path in self._in_doubt:
            self._look_after(path)
        self._next = link.transport.next_xid

    def _expected(self, then: Callable[[HandledReply], None]) -> HandledReply:
        def on_reply(reply: HandledReply) -> None:
            if reply in self._unanswered:
                self._unanswered.discard(reply)
                then(reply)
            if self._is_wanted():
                self._client.wake_calls()
                self._client.wake_keeper()  # what is sent behind this one may prove the lease

        reply = HandledReply(on_reply, post=self._client.post)
        self._unanswered.add(reply)
        return reply

    def _check(self, known: list[Ticket]) -> None:
        """Ask for nodes. Where one fails, nothing is said of those behind it, and nothing is proved."""
        asked_in = self._client.registry.session

        def checked(reply: HandledReply) -> None:
            if reply.error is not None or self._client.registry.session != asked_in:
                return
            failed = [n for n, result in enumerate(reply.value) if self._take(known[n], result)]
            if failed:
                link = self._client.link
                link.check_root(self._expected(lambda _: None))  # proves in the place of it: the others are not to wait
                link.sync("/", HandledReply(lambda _: None))
                for ticket in known[failed[0] + 1 :]:  # and which others are missing, all at once
                    self._look_at(ticket)
                self.hurry()

        self._client.link.check([ticket.node for ticket in known], self._expected(checked))

    def _look_at(self, ticket: Ticket) -> None:
        client = self._client
        client.link.get(ticket.node, HandledReply(lambda reply: self._take(ticket, reply.error), post=client.post))

    def _take(self, ticket: Ticket, result: object) -> bool:
        """Take what was answered of a node; return whether it is missing, or may not be asked for."""
        if isinstance(result, kazoo_errors.NoNodeError):
            self._client.registry.mark_missing(ticket)
            self._client.wake_keeper()
        elif not isinstance(result, kazoo_errors.NoAuthError):
            return False
        ticket.unreadable = True  # asked for again, it would let that proof fail too
        return True

    def _look_after(self, path: str) -> None:
        """Delete nodes of ours that no recipe knows."""
        client, link = self._client, self._client.link

        def listed(reply: HandledReply) -> None:
            for node in client.registry.strays(path, reply.value or ()):
                client.warn_later("deleting a node of ours that nobody waits or holds with: %s", node)
                link.delete(node, HandledReply(lambda _: None))

        link.sync(path, HandledReply(lambda _: None))
        link.children(path, HandledReply(listed, post=client.post))
