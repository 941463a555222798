"""The heartbeat: it renews the lease, finds links that are dead, and compares what we have with what the server has.

It is sent while anything is held or waited for: a `sync`, whose answer only a server with a quorum can give, and the
question for all ephemeral nodes of the session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ._kazoo import Callback, kazoo_errors
from ._registry import Ticket

if TYPE_CHECKING:
    from ._session import Session

log = logging.getLogger("zkconcurrent")

LINGER = 10  # session timeouts


class Heartbeat:
    """The heartbeat of one session. All methods are called with its lock held."""

    def __init__(self, session: Session, wake_keeper: Callable[[], None]) -> None:
        self._session = session
        self._wake_keeper = wake_keeper
        self._sent: float | None = None  # the one that is not answered yet
        self._next: int | None = None  # the number of the request to be answered next, when last looked at
        self._silent_since = 0.0  # nothing was answered, as far as the looks tell
        self._last = 0.0
        self._lease_then = 0.0  # until when the lease ran when the last was sent
        self._in_doubt_until = 0.0

    def begin(self) -> None:
        """Wait for no answer: the connection is another."""
        self._sent = None

    def doubt(self) -> None:
        """Go on for a while: a create may linger on its way, and be applied after its recipe has looked for it."""
        self._in_doubt_until = self._session.clock() + LINGER * self._session.timeout

    def overdue(self, now: float) -> bool:
        """Return whether an answer is late."""
        return self._sent is not None and now - self._sent > self._session.timeout / 6

    def beat(self, now: float) -> None:
        """Send what is due; cut a connection on which an answer is due and none comes. For the keeper, connected.

        One that is slow, or has many answers to give, is kept: on the next one, all would have to be asked again.
        """
        session = self._session
        if not session.registry.tickets and now >= self._in_doubt_until:
            self._sent = None
        elif self._sent is None or now - self._sent > session.timeout:  # no lease is renewed by one as old as that
            busy = session.registry.lease_end > self._lease_then  # a write was answered meanwhile
            if now - self._last >= session.timeout / (3 if busy else 6) * 0.9:
                self._send(now)
        else:
            before, self._next = self._next, session.link.wire.next_answer
            if self._next is None or before not in (None, self._next):
                self._silent_since = now
            elif now - self._silent_since > session.timeout / 3:
                log.warning("nothing was answered for %.1f s; connecting anew", now - self._silent_since)
                self._sent = None
                session.link.wire.drop()

    def _send(self, now: float) -> None:
        session, link = self._session, self._session.link
        known = session.registry.known()
        asked_in = session.registry.session

        def synced(answer: Callback) -> None:
            if not link.lists_ephemerals:
                self._sent = None
            if answer.error is None:
                with session.lock:
                    session.registry.renewed(now)
                    self._lease_then = session.registry.lease_end

        def listed(answer: Callback) -> None:
            with session.lock:
                self._sent = None
                if session.registry.session != asked_in:
                    return
                if answer.error is None:
                    self._compare(known, answer.value)
                elif isinstance(answer.error, kazoo_errors.UnimplementedError):
                    link.lists_ephemerals = False  # asked again, the server would close the connection again
            self._wake_keeper()

        self._sent = self._last = self._silent_since = now
        self._lease_then = session.registry.lease_end
        link.sync("/", Callback(synced))
        if link.lists_ephemerals:
            link.ephemerals(Callback(listed))
        else:
            self._ask_each(known)
        self._next = link.wire.next_answer

    def _compare(self, known: list[Ticket], nodes: list[str]) -> None:
        link = self._session.link
        for node in self._session.registry.compare(known, link.own(nodes)):
            log.warning("deleting a node of ours that nobody waits or holds with: %s", node)
            link.delete(node, Callback(lambda _: None))

    def _ask_each(self, known: list[Ticket]) -> None:
        """Compare on a server too old to list a session's nodes (before 3.6)."""
        for ticket in known:

            def answered(answer: Callback, ticket: Ticket = ticket) -> None:
                if isinstance(answer.error, kazoo_errors.NoNodeError):
                    self._session.missing(ticket)

            self._session.link.get(ticket.node, Callback(answered))
