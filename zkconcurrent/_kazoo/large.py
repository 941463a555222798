"""Large requests and replies: whether parts of them pass over a slow link, and a warning if one costs the connection.

A link that still passes parts is slow, but not dead: a new connection would have to pass all parts again. kazoo's
thread counts the parts. A request may also wait in the socket's buffer. Linux shows how much of it the other end has
not taken yet.
"""

from __future__ import annotations

import logging
import sys

from .private_parts import PrivateParts

try:
    import fcntl
    import termios
except ImportError:  # pragma: no cover
    # Windows has neither.
    fcntl = termios = None  # type: ignore[assignment]

log = logging.getLogger("zkconcurrent")

LARGE = 1 << 16  # bytes


class LargeMessages:
    """The large requests and replies of one client.

    Attributes:
        length: the length of the large reply of which a part has come; 0 if there is none.
        parts: how many parts of large requests and replies have passed.
    """

    def __init__(self, parts: PrivateParts) -> None:
        self._parts = parts
        self.length = self.parts = 0
        # At the last look: how many bytes the other end of the connection had not taken, and the value of `parts`.
        self._untaken = self._seen = 0

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
        """Warn of a large message under way as the connection was lost: sent again, it may cost the next one, too."""
        length, self.length = self.length, 0
        pending = [*list(self._parts.pending), *list(self._parts.queue)[:1]]
        sizes = [len(each[0].serialize()) for each in pending]
        size = length or max(sizes, default=0)
        if size <= LARGE:
            return
        request = pending[0 if length else sizes.index(size)][0]
        # For a transaction, take the largest part.
        request = max(getattr(request, "operations", None) or [request], key=lambda each: len(each.serialize()))
        log.warning(
            "the connection was lost with a %s of %s bytes (%s %s) under way, which is sent again. If that repeats: "
            "restart this program with a smaller max_request, if the servers' jute.maxbuffer is smaller; with a longer "
            "session timeout, if the link is slow; or keep less in one node",
            "reply" if length else "request",
            f"{size:,}",
            type(request).__name__,
            request.path,
        )
