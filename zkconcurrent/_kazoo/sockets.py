"""The sockets below kazoo's connection: wait for sockets, wake a thread, connect to a server; no caller is blocked."""

from __future__ import annotations

import errno
import operator
import os
import select
import socket
import ssl
import traceback
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.utils import create_tcp_connection, selector_select

from .addresses import Addresses

if TYPE_CHECKING:
    from _typeshed import HasFileno

Files: TypeAlias = "Sequence[HasFileno]"
Ready: TypeAlias = "tuple[list[HasFileno], list[HasFileno], list[HasFileno]]"
"""The files that are ready: those to read from, those to write to, and others."""

# Bound at import: a plugin that forbids sockets to a test replaces the class while connections of this one serve on.
Socket = socket.socket
DONT_WAIT = getattr(socket, "MSG_DONTWAIT", 0)
# In milliseconds: `poll` takes an int of C.
_LONGEST_POLL = 2**31 - 1
_FILENO = operator.methodcaller("fileno")


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
                # kazoo looks for the number of an error, and so hides one that has none.
                error = error.__context__
            self._addresses.failed(error)
            raise error


def _close_left(error: Exception) -> None:
    """Close the socket that an attempt by TLS has left to a variable of kazoo's, and so to the garbage collector."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is create_tcp_connection.__code__ and (left := frame.f_locals.get("conn")) is not None:
            left.close()


class WakeupSocket:
    """The socket that wakes kazoo's connection thread with a byte for each request, without ever blocking the caller.

    The socket has room for few bytes (278 on Linux). A caller that waited for room would wait forever if it had a lock
    that a reply needs, or if it ran on the connection thread, as only that thread empties the socket.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        # gevent's own would block.
        self._raw = getattr(sock, "_sock", sock)
        # Whether a byte has had no room.
        self._owes_byte = False

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def send(self, byte: bytes) -> None:
        """Send a byte; if it has no room, owe it."""
        try:
            self._raw.send(byte, DONT_WAIT)
        except BlockingIOError:
            self._owes_byte = True

    def wake(self) -> bool:
        """Send a byte; return False if that is too late, as the client is being closed."""
        try:
            self.send(b"\0")
        except OSError as error:
            raise_interrupt(error)
            return False
        return True

    def send_owed(self, more: bool) -> None:
        """Send an owed byte, in the place of the one just taken, if more requests wait."""
        if self._owes_byte:
            self._owes_byte = more
            if more:
                self.send(b"\0")


def is_open(sock: Any) -> bool:
    """Return whether a socket is open, and its descriptor too, which anything in the process may have closed."""
    try:
        os.fstat(sock.fileno())
    except OSError:
        return False
    return True


def _closed() -> OSError:
    """Return the error of a socket whose descriptor is closed. That of kazoo's `select` would end its thread."""
    return OSError(errno.EBADF, "something else in this process has closed the descriptor of a socket")


def raise_interrupt(error: OSError) -> None:
    """Raise an error again if a signal handler raised it, not a system call: for example an alarm's TimeoutError."""
    if error.errno is None:
        raise error


def receive(sock: socket.socket, most: int) -> bytes | None:
    """Return what has come on a socket, `most` bytes of it; None if nothing has come yet.

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


def decrypted(readers: Files) -> list[HasFileno]:
    """Return those that TLS has decrypted data of: they are ready, although their sockets do not show it.

    kazoo would leave the second of two replies in one record until more data arrives.
    """
    return [file for file in readers if getattr(file, "pending", int)()]


def wait_for_files(readers: Files, writers: Files, others: Files, timeout: float | None = None) -> Ready:
    """Wait as `handler.select` of kazoo's threads does, with one system call.

    kazoo makes, fills and closes a selector each time, while all other threads wait for the interpreter's lock. Unusual
    cases are left to kazoo.
    """
    if found := decrypted(readers):
        return found, [], []
    to_read, to_write = list(map(_FILENO, readers)), list(map(_FILENO, writers))
    if (poll := _poll_of(to_read, to_write)) is not None:
        events = dict(poll.poll(None if timeout is None else _milliseconds(timeout)))
        if any(event & select.POLLNVAL for event in events.values()):
            raise _closed()
        readable = [file for number, file in zip(to_read, readers, strict=True) if number in events]
        return readable, [file for number, file in zip(to_write, writers, strict=True) if number in events], []
    return selector_select(readers, writers, others, timeout)  # type: ignore[no-any-return]


def _poll_of(to_read: Sequence[int], to_write: Sequence[int] = ()) -> select.poll | None:
    """Return a poll object that waits for the files of these numbers; None if one such object can't."""
    numbers = [*to_read, *to_write]
    if not hasattr(select, "poll") or min(numbers, default=0) < 0 or len(set(numbers)) < len(numbers):
        return None
    poll = select.poll()
    for number in to_read:
        poll.register(number, select.POLLIN)
    for number in to_write:
        poll.register(number, select.POLLOUT)
    return poll


def _milliseconds(timeout: float) -> float:
    """Return a timeout for `poll`, which takes none that is longer than 24 days; kazoo waits again."""
    return min(max(timeout, 0.0) * 1000, _LONGEST_POLL)


class Poller:
    """Waits like `wait_for_files`, for one thread that waits for the same plain sockets again and again."""

    def __init__(self) -> None:
        self._files: list[HasFileno] = []
        self._numbers: list[int] = []
        # A poll object with all the files; None if one of them is not a plain socket.
        self._poll: select.poll | None = None

    def wait(self, readers: Files, writers: Files, others: Files, timeout: float | None = None) -> Ready:
        """Wait until one of the files is ready, or the time is up."""
        # A socket that was closed has another number.
        numbers = list(map(_FILENO, readers))
        if readers != self._files or numbers != self._numbers:
            plain = readers and all(type(file) is Socket for file in readers)
            self._files, self._numbers = list(readers), numbers
            self._poll = _poll_of(numbers) if plain else None
        if self._poll is None or writers or timeout is None:
            return wait_for_files(readers, writers, others, timeout)
        readable = []
        for number, event in self._poll.poll(_milliseconds(timeout)):
            if event & select.POLLNVAL:
                raise _closed()
            readable.append(readers[numbers.index(number)])
        return readable, [], []
