"""Sockets below kazoo's connection: wait on them, wake a thread, connect to servers; no caller is blocked."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.utils import create_tcp_connection

from .addresses import Addresses

if TYPE_CHECKING:
    from _typeshed import HasFileno

Files: TypeAlias = "Sequence[HasFileno]"
Ready: TypeAlias = "tuple[list[HasFileno], list[HasFileno], list[HasFileno]]"
"""The files that are ready: those to read from, those to write to, and others."""

# Bound at import: a plugin that bans sockets in a test replaces the class, while older connections keep this one.
Socket = socket.socket
DONT_WAIT = getattr(socket, "MSG_DONTWAIT", 0)
# In seconds: `poll` can't take a timeout of years, which results if a test sets the clock back.
_LONGEST_WAIT = 1000.0


class FairHandler:
    """kazoo's handler, but each address gets at most an equal share of the session timeout to accept a connection.

    kazoo waits a whole session timeout until TCP and TLS have connected. So one server whose machine is down, or that
    stands still, could cost the session while all others serve.
    """

    def __init__(self, client: KazooClient, addresses: Addresses) -> None:
        self._client = client
        self._addresses = addresses
        self._handler = client.handler
        # The connection thread looks this up at each of its turns, too often for `__getattr__`.
        self.select: Callable[..., Ready] = client.handler.select

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handler, name)

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **options: object
    ) -> object:
        """Connect as kazoo's handler does; note the error if that fails."""
        if (dial := getattr(self._client, "dial", None)) is not None:
            return dial()
        if timeout is not None:
            timeout = self._addresses.share(timeout)
        self._addresses.trying = (hostname or address[0], address[0], address[1])
        try:
            return self._handler.create_connection(address=address, hostname=hostname, timeout=timeout, **options)
        except Exception as error:
            _close_left(error)
            if isinstance(error, TypeError) and isinstance(error.__context__, Exception):
                # kazoo reads the error's number; for an error without a number that fails, and hides the error.
                error = error.__context__
            self._addresses.note_failed(error)
            raise error


def _close_left(error: Exception) -> None:
    """Close the socket that a failed TLS attempt left in a variable of kazoo's, for the garbage collector to close."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is create_tcp_connection.__code__ and (left := frame.f_locals.get("conn")) is not None:
            left.close()


class WakeupSocket:
    """The socket that wakes kazoo's connection thread with a byte, without ever blocking the caller.

    The socket has room for few bytes (278 on Linux). A caller that waited for room would wait forever if it had a lock
    that a reply needs, or if it ran on the connection thread, as only that thread empties the socket. A byte without
    room is not needed: once the thread has emptied the socket, it looks at everything that waits.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        # gevent's own socket would block.
        self._raw = getattr(sock, "_sock", sock)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def send(self, byte: bytes) -> None:
        """Send a byte, if there is room."""
        with contextlib.suppress(BlockingIOError):
            self._raw.send(byte, DONT_WAIT)

    def wake(self) -> bool:
        """Send a byte; return False if that is too late, as the client is being closed."""
        try:
            self.send(b"\0")
        except OSError as error:
            raise_interrupt(error)
            return False
        return True


def is_open(sock: Any) -> bool:
    """Return whether a socket is open, and its descriptor too, which other code in the process may have closed."""
    try:
        os.fstat(sock.fileno())
    except OSError:
        return False
    return True


def raise_interrupt(error: OSError) -> None:
    """Raise an error again if a signal handler raised it, not a system call: for example an alarm's TimeoutError."""
    if error.errno is None:
        raise error


def receive(sock: socket.socket, most: int) -> bytes | None:
    """Return what has come on a socket, up to `most` bytes; None if nothing has come yet.

    Raises:
        ConnectionDropped: the connection broke.
    """
    try:
        come = sock.recv(most)
    except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return None
    except OSError as error:
        raise ConnectionDropped(f"socket connection error: {error}") from None
    if not come:
        raise ConnectionDropped("socket connection broken")
    return come


class ConnectionPoll:
    """Waits for a connection's socket and for the pipe that wakes its thread, again and again.

    kazoo makes, fills and closes a selector each time, while all other threads wait for the interpreter's lock.

    Args:
        handler: kazoo's handler.
        sock: the connection's socket.
        pipe: the end of the pipe that is read.
        polls: wait in a system call; otherwise as the handler's greenlets do.
    """

    def __init__(self, handler: Any, sock: Any, pipe: Any, *, polls: bool) -> None:
        self._handler = handler
        self._sock, self._pipe = sock, pipe
        self._number = sock.fileno()
        # How much of what comes TLS has decrypted already, which does not show at the socket.
        self._pending: Callable[[], int] = getattr(sock, "pending", int)
        self._writes = False
        self._poll = select.poll() if polls and hasattr(select, "poll") else None
        if self._poll is not None:
            self._poll.register(sock, select.POLLIN)
            self._poll.register(pipe, select.POLLIN)

    def wait(self, timeout: float, *, to_write: bool) -> tuple[bool, bool]:
        """Wait until the socket or the pipe can be read; return which of the two can.

        Args:
            timeout: how many seconds to wait at most.
            to_write: wait for room in the socket, too.

        Raises:
            OSError: something else in the process has closed a descriptor. The error of kazoo's own `select` would end
                kazoo's thread.
        """
        timeout = min(max(timeout, 0.0), _LONGEST_WAIT)
        if self._pending():
            return True, False
        if self._poll is None:
            writers = [self._sock] if to_write else []
            ready = self._handler.select([self._sock, self._pipe], writers, [], timeout)[0]
            return self._sock in ready, self._pipe in ready
        if to_write is not self._writes:
            self._writes = to_write
            self._poll.modify(self._sock, select.POLLIN | select.POLLOUT if to_write else select.POLLIN)
        come = woken = False
        for number, event in self._poll.poll(timeout * 1000):
            if event & select.POLLNVAL:
                raise OSError(errno.EBADF, "something else in this process has closed the descriptor of a socket")
            if number != self._number:
                woken = True
            elif event != select.POLLOUT:
                come = True
        return come, woken
