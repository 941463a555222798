"""Large requests and replies: whether parts of them pass over a slow link, and what is logged if that takes too long.

A link that still passes parts is slow, but not dead: a new connection would have to pass all parts again. kazoo's
thread counts the parts. A request may also wait in the socket's buffer. Linux shows how much of it the other end has
not taken yet.
"""

from __future__ import annotations

import logging
import sys

from .opening import Opening
from .private_parts import PrivateParts

try:
    import fcntl
    import termios
except ImportError:  # pragma: no cover
    # Windows has neither.
    fcntl = termios = None  # type: ignore[assignment]

log = logging.getLogger("zkconcurrent")

LARGE = 1 << 16  # bytes
# A warning is logged at this number of losses, and each time that the number has doubled.
LOSSES = 4


class LargeMessages:
    """The large requests and replies of one client.

    Attributes:
        length: the length of the large reply of which a part has come; 0 if there is none.
        parts: how many parts of large requests and replies have passed.
    """

    def __init__(self, parts: PrivateParts, opening: Opening) -> None:
        self._parts = parts
        self._opening = opening
        self.length = self.parts = 0
        # When the large reply began to pass.
        self._since = 0.0
        # At the last look: how many bytes the other end of the connection had not taken, and the value of `parts`.
        self._untaken = self._seen = 0
        # How many connections in a row were lost with a large message under way.
        self._losses = 0

    def start(self, length: int) -> None:
        """Note that a part of a large reply has come."""
        self.length, self._since = length, self._opening.clock()

    def passed(self) -> bool:
        """Return whether parts have passed since the last call."""
        seen, self._seen = self._seen, self.parts
        before, self._untaken = self._untaken, self.untaken
        return seen != self._seen or LARGE < before > self._untaken

    @property
    def untaken(self) -> int:
        """How many bytes the other end of the connection has not taken yet; 0 if the system does not show that."""
        try:
            left = fcntl.ioctl(self._parts.socket.fileno(), termios.TIOCOUTQ, bytes(4))
        except (AttributeError, OSError, ValueError):
            return 0
        return int.from_bytes(left, sys.byteorder)

    def warn_of_loss(self) -> None:
        """Warn of a large message that has cost the connection, as it may again; call this at the connection's loss."""
        length, self.length = self.length, 0
        pending = [*list(self._parts.pending), *list(self._parts.queue)[:1]]
        if not pending:
            return
        if is_reply := length > 0:
            request, since = pending[0][0], self._since
        else:
            sizes = [len(each[0].serialize()) for each in pending]
            length = max(sizes)
            request, reply = pending[sizes.index(length)][:2]
            since = getattr(reply, "sent", 0.0)
        self._losses = times = self._losses + 1 if length > LARGE else 0
        took, handshake = self._opening.clock() - since, self._opening.handshake
        timeout = self._parts.requested_timeout if handshake is None else handshake.timeout
        if times & (times - 1) or not times:
            return
        # For a transaction, take the largest part.
        request = max(getattr(request, "operations", None) or [request], key=lambda each: len(each.serialize()))
        if since and took > 0.8 * timeout:
            log.warning(
                "a %s of %s bytes (%s) was under way for %.1f s when the connection was lost, and is sent again: give "
                "the client a session timeout that is much longer than it takes (%g s now), or keep less in one node",
                "reply" if is_reply else "request",
                f"{length:,}",
                f"{type(request).__name__} {request.path}",
                took,
                timeout,
            )
        elif times >= LOSSES:
            log.warning(
                "the connection was lost %d times in a row with a %s of %s bytes under way: if the servers' "
                "jute.maxbuffer is smaller, restart this program with a smaller max_request; if the link is slow, with "
                "a longer session timeout",
                times,
                "reply" if is_reply else "request",
                f"{length:,}",
            )
