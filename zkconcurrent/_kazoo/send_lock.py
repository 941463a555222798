"""The right to send on a connection: callers take turns with kazoo's connection thread, which never waits for long.

A caller that keeps its turn is suspended, with a signal handler or a finalizer on top of it, which may wait for the
connection thread. A caller that is interrupted in its turn leaves nothing in doubt: a message joins the others in one
step, and what the system has taken of them is recorded in the step that sends it.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import MutableSequence, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

# How many times the connection thread waits for a turn, and for how many seconds each time.
TURN_TRIES, TURN_TRY = 10, 0.02
ROOM = 65536  # bytes

Entry: TypeAlias = "tuple[Any, Any, int]"
"""A request that was sent and has no reply yet, as kazoo notes it: the request, its reply, its number."""


class SendLock:
    """The right to send on one connection, which one thread has at a time.

    Attributes:
        socket: the connection's socket.
        session: the session that the connection serves.
        direct: callers may send. TLS has one state for both directions, so callers send on plain sockets only.
        lock: held by the thread whose turn it is. A caller takes it after the session's lock, never before.
        owner: the thread whose turn it is, unless it is the connection thread.
        full: the socket's buffer has no room for so much that callers leave their requests to the connection thread.
    """

    __slots__ = ("_noted", "_outgoing", "direct", "full", "lock", "owner", "session", "socket")

    def __init__(self, sock: socket.socket, session: int, *, direct: bool) -> None:
        self.socket = sock
        self.session = session
        self.direct = direct
        self.lock = threading.Lock()
        self.owner: int | None = None
        self.full = False
        # The messages, how many bytes of them each send has taken, and the number of the last request among them.
        self._outgoing: tuple[bytes, list[int], int] = b"", [], 0
        # The requests that are being added, and those among which they are noted.
        self._noted: tuple[Sequence[Entry], MutableSequence[Entry]] | None = None

    def acquire(self, tries: int = TURN_TRIES) -> bool:
        """Take the turn for kazoo's connection thread; return False if a caller keeps it.

        Args:
            tries: how many times to wait for it.
        """
        # Wait many times, but briefly: if the process was stopped, the callers go on before this gives up on them.
        return self.lock.acquire(False) or any(self.lock.acquire(True, TURN_TRY) for _ in range(tries))

    @property
    def unsent(self) -> int:
        """How many bytes wait for room in the socket's buffer, or were left by an interrupt."""
        messages, sent, _ = self._outgoing
        return len(messages) - sum(sent)

    def add(self, message: bytes, entries: Sequence[Entry], pending: MutableSequence[Entry]) -> None:
        """Put requests behind what is unsent, and note them among those without a reply."""
        messages, sent, last = self._outgoing
        if self._noted is not None and self._noted[0][-1][2] != last:
            # An interrupt struck here before the messages of these requests were added.
            left, among = self._noted
            for entry in left:
                with suppress(ValueError):
                    among.remove(entry)
        # R1: the reply may come before `send` returns.
        self._noted = entries, pending
        pending.extend(entries)
        self._outgoing = messages[sum(sent) :] + message, [], entries[-1][2]
        self._noted = None

    def send(self) -> bool:
        """Send what is unsent, as far as there is room; return whether some is left. kazoo's socket does not block.

        Raises:
            OSError: the socket is broken.
        """
        messages, sent, _ = self._outgoing
        # `suppress` would cost more, on every request.
        try:  # noqa: SIM105
            # R4: no signal handler runs between the system call and the record of what it has taken.
            sent.extend(map(self.socket.send, (memoryview(messages)[sum(sent) :],)))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        left = len(messages) - sum(sent)
        self.full = left > ROOM
        return left > 0
