"""The wire: how requests get onto a kazoo client's connection, and answers and events off it.

kazoo has each request sent by its connection thread, which is woken by a byte in a pipe. That works everywhere, and
everywhere it is the way for what can't go the quick way. On plain sockets and kazoo's own threads there is one, which
takes a third less of the processor's time: whoever has a request sends it, and the connection thread reads ahead.

Two rules keep requests and answers in step. Callers send only while kazoo does not: not before its handshake is over,
not while requests are queued, not once the connection is lost. And where a caller was interrupted while it sent, so
that nobody knows what was, the connection is dropped before the next answer is taken.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.handlers.utils import selector_select
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import CloseInstance
from kazoo.protocol.states import KeeperState

log = logging.getLogger("zkconcurrent")

DONT_WAIT = getattr(socket, "MSG_DONTWAIT", 0)
READ_AHEAD = 65536
HEAD = struct.Struct("!iii")  # the length of what follows, the request's number, its type
LAST_XID = 2**31 - 1


class Wire:
    """The connection of one client, which keeps it over all reconnects."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self._handler = client.handler
        self._connection = client._connection
        self._lock = self._handler.rlock_object()  # held for moments, never while waiting
        self._socket: socket.socket | None = None  # what callers may send on, now
        self._sending = False  # with the lock free: who knows what the last caller sent: it failed, or was interrupted
        self._rest = b""  # of a request, for which there was no room
        self._ahead = bytearray()  # what was read of the next answers
        self._ahead_of: socket.socket | None = None  # and from where
        self._xid = 0  # of the last request
        if isinstance(self._connection, ConnectionHandler):
            self._keep_in_step()
        self._quick = type(self._handler) is SequentialThreadingHandler
        if self._quick:
            self._quicken()

    @staticmethod
    def of(client: KazooClient) -> Wire:
        """Return the client's wire; there is one, as it changes the client."""
        wire = vars(client).get("_zkconcurrent_wire")
        if wire is None:
            wire = client._zkconcurrent_wire = Wire(client)
        return wire  # type: ignore[no-any-return]

    def send(self, request: Any, answer: Any) -> None:
        """Send a request, or have it sent; never waits. The answer's `set` or `set_exception` is called once."""
        if self._socket is None or not self._send_now(request, answer):
            self._queue(request, answer)

    def nudge(self) -> None:
        """Wake kazoo's connection thread if requests wait.

        It sends one request for each byte in its pipe: one byte too few, kept back by an interrupt, and every last
        request would wait for the next one. A byte too many does no harm.
        """
        pipe = self._connection._write_sock
        if (self._client._queue or self._rest) and pipe is not None:
            with contextlib.suppress(OSError):  # the client is being closed
                pipe.send(b"\0")

    @property
    def next_answer(self) -> int | None:
        """The number of the request to be answered next, which is the oldest; None if all were answered."""
        try:
            return self._client._pending[0][2]  # type: ignore[no-any-return]
        except IndexError:
            return None

    def drop(self) -> None:
        """Cut a connection that does not answer, so that kazoo connects anew."""
        with contextlib.suppress(AttributeError, OSError):  # it may be down already
            self._connection._socket.shutdown(socket.SHUT_RDWR)

    # -- answers and requests in step ------------------------------------------------------------------------------

    def _keep_in_step(self) -> None:
        """Number the requests of all connections as one row, and take no answer for that of another request.

        kazoo begins anew on each connection. The server tells the changes of a session apart by their numbers, also
        those of its last connection that are on their way still: answers then come for the wrong request, or never.
        And kazoo's thread ends with the first answer that it did not expect; no other is begun for the client.
        """
        connection = self._connection
        self._xid = connection._xid or 0  # the client may have been in use before
        self._kazoo_send_request = connection._send_request
        self._kazoo_read_response = connection._read_response
        connection._send_request = self._send_request
        connection._read_response = self._read_response

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Send the next request of the queue, on kazoo's connection thread: its handshake is over."""
        connection = self._connection
        self._stop_callers(connect_timeout)
        connection._xid = self._xid
        try:
            self._kazoo_send_request(read_timeout, connect_timeout)
        finally:
            self._xid = connection._xid
        self._let_callers(connection._socket)

    def _read_response(self, header: Any, buffer: bytes, offset: int) -> Any:
        """Take an answer, on kazoo's connection thread."""
        pending = self._client._pending
        if not pending or pending[0][2] != header.xid:
            raise kazoo_errors.ConnectionDropped("an answer came for another request than the next")
        return self._kazoo_read_response(header, buffer, offset)

    # -- by kazoo's queue ----------------------------------------------------------------------------------------

    def _queue(self, request: Any, answer: Any) -> None:
        """Queue a request as kazoo's `_call` does, whose bare `except` would take a Ctrl-C for a closed connection."""
        pipe = self._pipe()
        refusal = _REFUSALS.get(self._client._state)
        if refusal is not None or pipe is None:
            answer.set_exception((refusal or kazoo_errors.ConnectionClosedError)())
            return
        self._client._queue.append((request, answer))
        try:
            pipe.send(b"\0")
        except OSError:  # the client is being closed
            answer.set_exception(kazoo_errors.ConnectionClosedError())

    def _pipe(self) -> Pipe | None:
        """Return what wakes kazoo's connection thread; None where the client is closed."""
        pipe = self._connection._write_sock
        if pipe is not None and not isinstance(pipe, Pipe):
            pipe = self._connection._write_sock = Pipe(pipe, self._handler)
        return pipe  # type: ignore[no-any-return]

    # -- the quick way -------------------------------------------------------------------------------------------

    def _quicken(self) -> None:
        """Take the place of what kazoo's connection thread calls."""
        client, connection, handler = self._client, self._connection, self._handler
        self._kazoo_submit = connection._submit
        self._kazoo_read = connection._read
        self._kazoo_notify_pending = client._notify_pending
        self._kazoo_dispatch = handler.dispatch_callback
        self._select = vars(handler).get("select", wait_for_files)  # of another client with the same handler
        connection._submit = self._submit
        connection._read = self._read
        client._notify_pending = self._notify_pending
        handler.dispatch_callback = self._dispatch
        handler.select = self._wait

    def _send_now(self, request: Any, answer: Any) -> bool:
        """Send a request on the calling thread; return False, and nothing was done, where kazoo must."""
        body = request.serialize()
        with self._lock:
            client, sock = self._client, self._socket
            if sock is None or client._queue or self._sending:
                return False
            self._sending = True
            xid = self._xid = self._xid % LAST_XID + 1
            client._pending.append((request, answer, xid))  # first: the answer may be there before `send` returns
            message = HEAD.pack(len(body) + 8, xid, request.type) + body
            try:
                sent = sock.send(message)  # does not wait: kazoo made it so
            except BlockingIOError:
                sent = 0
            except OSError:  # it is broken: kazoo is to find that, and tells all who wait
                return True
            if sent < len(message):
                self._rest, self._socket = message[sent:], None
            self._sending = False
        if sent < len(message):
            self.nudge()
        self._connection.logger.debug("Sending request(xid=%s): %s", xid, request)
        return True

    # These are called by kazoo's connection thread.

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        """Send a request of kazoo's own, a ping or one of the handshake."""
        sock = self._stop_callers(timeout)
        self._kazoo_submit(request, timeout, xid)
        self._let_callers(sock)

    def _notify_pending(self, state: str) -> None:
        """Fail all requests: the connection is lost, or the session is over."""
        with self._lock:
            self._socket, self._sending, self._rest = None, False, b""
        self._kazoo_notify_pending(state)

    def _stop_callers(self, timeout: float) -> socket.socket | None:
        """Have kazoo alone send, what the last caller had no room for first; return what callers sent on."""
        with self._lock:
            self._check_sent()
            sock, self._socket = self._socket, None
        if self._rest:
            self._connection._write(self._rest, timeout)
            self._rest = b""
        return sock

    def _let_callers(self, sock: Any) -> None:
        if self._quick and type(sock) is socket.socket:  # TLS has one state for both directions
            with self._lock:
                self._socket = sock

    def _check_sent(self) -> None:
        """Give the connection up if a caller could not send, or was interrupted meanwhile; the lock is held."""
        if self._sending:
            raise kazoo_errors.ConnectionDropped("a request was not sent, or nobody knows")

    def _read(self, length: int, timeout: float) -> bytes:
        """Read so many bytes; kazoo waits and reads for the length of each answer, and then again for the rest."""
        sock, ahead = self._connection._socket, self._ahead
        if type(sock) is not socket.socket:
            return self._kazoo_read(length, timeout)  # type: ignore[no-any-return]
        if sock is not self._ahead_of:
            self._ahead_of = sock
            ahead.clear()
        while len(ahead) < length:
            try:
                more = sock.recv(READ_AHEAD)
            except BlockingIOError:
                if not wait_for_files([sock], [], [], timeout)[0]:
                    raise self._handler.timeout_exception("socket time-out during read") from None
                continue
            except OSError as error:
                raise kazoo_errors.ConnectionDropped(f"socket connection error: {error}") from None
            if not more:
                raise kazoo_errors.ConnectionDropped("socket connection broken")
            ahead += more
        if self._sending:  # or there is a caller that sends just now
            with self._lock:
                self._check_sent()
        answer = bytes(ahead[:length])
        del ahead[:length]
        return answer

    def _wait(
        self, readers: Sequence[Any], writers: Sequence[Any], others: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait for files, one of which is ready if something was read ahead from it; the others get their turn too."""
        if not self._ahead or self._ahead_of not in readers:
            return self._select(readers, writers, others, timeout)  # type: ignore[no-any-return]
        rest = [file for file in readers if file is not self._ahead_of]
        readable, writable, other = self._select(rest, writers, others, 0)
        return [self._ahead_of, *readable], writable, other

    def _dispatch(self, callback: Any) -> None:
        """Call a watcher of ours; kazoo has a thread of its own for them, as any may take its time."""
        if callback.args[0].path is None or not getattr(callback.func, "at_once", False):
            self._kazoo_dispatch(callback)
            return
        try:
            callback.func(*callback.args)
        except Exception:  # the connection must go on
            log.exception("a watch event was not taken: %r", callback.args)


class Pipe:
    """The socket that wakes kazoo's connection thread with a byte for each request, made so that no caller waits.

    It has room for few bytes (278 on Linux). Whoever waits for room with a lock that an answer needs, or on the
    connection thread, which alone empties the pipe, waits for ever.
    """

    def __init__(self, sock: Any, handler: Any) -> None:
        self._sock = sock
        self._direct = getattr(sock, "_sock", sock)  # gevent's own would wait
        self._spawn = handler.spawn
        self._lock = handler.lock_object()
        self._owed = 0  # bytes that had no room

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def send(self, byte: bytes) -> None:
        """Send a byte; what has no room is sent by a thread that may wait."""
        try:
            self._direct.send(byte, DONT_WAIT)
        except BlockingIOError:
            with self._lock:
                if not self._owed:
                    self._spawn(self._send_owed, byte)
                self._owed += 1

    def _send_owed(self, byte: bytes) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                with self._lock:
                    if not self._owed:
                        return
                self._sock.send(byte)
                with self._lock:
                    self._owed -= 1


def wait_for_files(
    readers: Sequence[Any], writers: Sequence[Any], others: Sequence[Any], timeout: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """Wait as `handler.select` of kazoo's threads does, by one system call.

    kazoo makes, fills and closes a selector each time, while everybody else waits for the interpreter's lock. What is
    out of the ordinary is left to kazoo. What TLS has decrypted already is ready too, of which the socket says nothing:
    kazoo would leave the second of two answers that came in one record until something else comes.
    """
    if not hasattr(select, "poll"):
        return selector_select(readers, writers, others, timeout)  # type: ignore[no-any-return]
    poll, files = select.poll(), {}
    for file in readers:
        if (pending := getattr(file, "pending", None)) is not None and pending():
            return [each for each in readers if getattr(each, "pending", int)()], [], []
        fd = file.fileno()
        if fd < 0 or fd in files:
            return selector_select(readers, writers, others, timeout)  # type: ignore[no-any-return]
        files[fd] = file
        poll.register(fd, select.POLLIN)
    for file in writers:
        fd = file.fileno()
        if fd < 0 or fd in files:
            return selector_select(readers, writers, others, timeout)  # type: ignore[no-any-return]
        files[fd] = file
        poll.register(fd, select.POLLOUT)
    readable: list[Any] = []
    writable: list[Any] = []
    for fd, event in poll.poll(None if timeout is None else max(timeout, 0.0) * 1000):
        if event & select.POLLNVAL:
            return selector_select(readers, writers, others, timeout)  # type: ignore[no-any-return]
        file = files[fd]
        (readable if file in readers else writable).append(file)
    return readable, writable, []


def at_once(watcher: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Have a watcher, which must not wait, called on the connection thread itself."""
    watcher.at_once = True  # type: ignore[attr-defined]
    return watcher


def hang_up(client: KazooClient) -> Any:
    """Ask for the end of the session, as `client.stop()` does, which waits ten seconds for it; return the event."""
    stopped = client._connection.connection_stopped
    if not client._stopped.is_set():
        client._stopped.set()
        client._queue.append((CloseInstance, None))
        with contextlib.suppress(AttributeError, OSError):  # it is down
            client._connection._write_sock.send(b"\0")
    return stopped


# A client in one of these states answers no request.
_REFUSALS = {
    KeeperState.AUTH_FAILED: kazoo_errors.AuthFailedError,
    KeeperState.CLOSED: kazoo_errors.ConnectionClosedError,
    KeeperState.EXPIRED_SESSION: kazoo_errors.SessionExpiredError,
}
