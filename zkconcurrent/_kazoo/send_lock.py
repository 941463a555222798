"""The right to send on a connection: callers take turns with kazoo's connection thread, which never waits for long.

A caller that keeps its turn is suspended, with a signal handler or a finalizer on top of it, which may wait for the
connection thread. A caller that was interrupted in its turn has sent an unknown part of its request.
"""

from __future__ import annotations

import socket
import threading

from kazoo import exceptions as kazoo_errors

# How often the connection thread waits for a turn, and how many seconds each time.
TURN_TRIES, TURN_TRY = 10, 0.02


class SendLock:
    """The right to send on one connection, which one thread has at a time.

    Attributes:
        socket: the connection's socket.
        session: the session that the connection serves.
        direct: callers may send. TLS has one state for both directions, so callers send on plain sockets only.
        lock: held by the thread whose turn it is. A caller takes it after the session's lock, never before.
        owner: the thread whose turn it is, unless it is the connection thread.
        sending: a caller began to send. If the lock is free, the caller failed or was interrupted: it is unknown what
            was sent.
        unsent: requests that the next request of their step will take along, or bytes that had no room in the socket's
            buffer.
    """

    __slots__ = ("direct", "lock", "owner", "sending", "session", "socket", "unsent")

    def __init__(self, sock: socket.socket, session: int, *, direct: bool) -> None:
        self.socket = sock
        self.session = session
        self.direct = direct
        self.lock = threading.Lock()
        self.owner: int | None = None
        self.sending = False
        self.unsent = b""

    def acquire(self, tries: int = TURN_TRIES) -> bool:
        """Take the turn for kazoo's connection thread; return False if a caller keeps it.

        Args:
            tries: how often to wait for it.

        Raises:
            ConnectionDropped: it is unknown what the last caller sent.
        """
        # It waits many times, but briefly: if the process was stopped, its callers go on before this gives up on them.
        if not (self.lock.acquire(False) or any(self.lock.acquire(True, TURN_TRY) for _ in range(tries))):
            return False
        if self.sending:
            self.lock.release()
            raise kazoo_errors.ConnectionDropped("a request failed, or was interrupted, while it was sent")
        return True
