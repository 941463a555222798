"""The leases of one client's sessions: each connection begins a lease anew, and the replies on the connection renew it.

kazoo's connection thread writes here. It notes what a reply proves before any other thread learns of the reply.
"""

from __future__ import annotations

from .._protocol.session_lease import MARGIN, NEVER, Lease
from .._runtime.clock import boot_clock
from .old_connection import connected_since
from .opening import Opening
from .private_parts import PrivateParts
from .reply import Reply


class Leases:
    """The leases of one client's sessions."""

    def __init__(self, parts: PrivateParts, opening: Opening) -> None:
        self._parts = parts
        self._opening = opening
        # By session.
        self._leases: dict[int, Lease] = {}

    def begin_connection(self, session: int) -> Lease | None:
        """Note a connection that was just made, on kazoo's connection thread; return its session's lease.

        None if the connection was requested before the transport was there: see `adopt`.
        """
        handshake = self._opening.handshake
        if handshake is None:
            return None
        lease = self._leases.setdefault(session, self._new_lease(session))
        lease.note_opened(*handshake)
        return lease

    def adopt(self, session: int) -> Lease | None:
        """Return the lease of a connection older than the transport; None while its timeout is unknown."""
        timeout = self._opening.negotiated
        if not timeout:
            return None
        lease = self._new_lease(session)
        routine = self._parts.routine
        lease.note_opened(connected_since(routine) if self._opening.clock is boot_clock else NEVER, timeout)
        # R4: kazoo's thread may have made the lease first.
        return self._leases.setdefault(session, lease)

    def end_with_session(self) -> None:
        """End the lease with its session, on kazoo's connection thread."""
        for lease in list(self._leases.values()):
            lease.note_ended()
        self._leases.clear()

    def as_write(self, reply: Reply) -> Reply:
        """Mark and return the reply to a write made now: its success renews the lease, as a majority must agree."""
        reply.on_reply = self.note_write
        reply.sent = self._opening.clock()
        return reply

    def as_sync(self, reply: Reply) -> Reply:
        """Mark and return the reply to a `sync` made now: its success helps later writes, as it goes by the leader."""
        reply.on_reply = self._note_sync
        reply.sent = self._opening.clock()
        return reply

    def note_write(self, reply: Reply) -> None:
        """Note the reply to a write, if it is a success."""
        if reply.error is None and (lease := self._leases.get(self._parts.session_id)) is not None:
            lease.note_answered(reply.sent, self._opening.clock(), write=True)

    def _note_sync(self, reply: Reply) -> None:
        if reply.error is None and (lease := self._leases.get(self._parts.session_id)) is not None:
            lease.note_answered(reply.sent, self._opening.clock(), write=False)

    def _new_lease(self, session: int) -> Lease:
        client = self._parts.client
        return Lease(
            session,
            getattr(client, "tick", None),
            getattr(client, "margin", MARGIN),
            getattr(client, "survive", None),
        )
