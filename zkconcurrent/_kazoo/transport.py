"""The transport: sends requests on a kazoo client's connection, and takes replies and events from it.

kazoo's connection thread opens a connection. Then it waits at one place, `handler.select`, for the connection's socket
and for the pipe that wakes it. The transport takes the place of that `select`, and serves the connection there, on the
same thread, until the connection breaks or the client is closed: it sends what waits in kazoo's queue, takes replies
and events, and pings. The replies to the program's own requests, and events for its watchers, go to kazoo's methods.

On plain sockets with kazoo's own threads, a caller sends its request itself, which takes a third less processor time.
Two rules keep requests and replies in step, and kazoo's thread alive:

* A caller sends only in its `SendLock`, and only while kazoo's queue is empty.
* The connection thread waits only a moment for a caller's turn. A caller that keeps its turn longer is suspended: a
  signal handler, or a finalizer, runs on top of it, and may wait for the connection thread. The connection is then
  dropped, and the turn with it; so the code on top of a caller cannot stop the client for good.

No thread waits for room in the socket. What has no room stays in the `SendLock`, and goes out when there is room. If
an interrupt leaves requests there unsent, the keeper's `nudge` has kazoo's thread send them. With TLS, and with kazoo's
handler for gevent or another one, callers put their requests into kazoo's queue.

One series of numbers serves all connections of a client, as in the Java and C clients. kazoo would begin a new series
on each connection; but the server tells the changes of a session apart by their numbers, and changes of the last
connection may still be on their way. A reply to any but the oldest request costs the connection; in kazoo it would end
the connection thread, and the client for good. The soak test saw such replies after a leader had stood still.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import (
    _CONNECTION_DROP,
    _SESSION_EXPIRED,
    AUTH_XID,
    CLOSE_RESPONSE,
    PING_XID,
    ConnectionHandler,
    RWServerAvailable,
)
from kazoo.protocol.serialization import Auth, CloseInstance, PingInstance
from kazoo.protocol.states import KeeperState

from .._runtime.clock import monotonic
from .large import LARGE, LargeMessages
from .opening import Opening
from .private_parts import PrivateParts, Replaced, check_kazoo
from .reply import Request
from .reply_reader import ReplyReader
from .requests import TooLarge, refuse_of_other_sessions
from .send_lock import ROOM, Entry, SendLock
from .socket_swap import Renewal
from .sockets import ConnectionPoll, Files, Ready, Socket, WakeupSocket, raise_interrupt, receive
from .watches import withdraw_removals

log = logging.getLogger("zkconcurrent")

READ_SIZE = 65536
# The length of the rest of the request, the request's number, and its type.
REQUEST_HEADER = struct.Struct("!iii")
XIDS = 2**31 - 1
# In bytes. A server closes the connection at a request above its jute.maxbuffer, by default 1,048,575.
MAX_REQUEST = 1_000_000
CALLER_PATIENCE = 0.005  # seconds
MOST_AT_ONCE = 100  # requests
# How often in each session timeout the connection thread checks whether a ping is due.
CHECKS = 6
# It pings after QUIET_CHECKS without a request, and drops the connection after DEAF_CHECKS in which a reply was awaited
# and no byte came.
QUIET_CHECKS, DEAF_CHECKS = 2, 3


class Transport:
    """The connection of one client, over all reconnects.

    Attributes:
        parts: the private parts of the client.
        opening: how its connections are opened.
        reader: takes replies and events.
        on_close: called on kazoo's thread before the thread asks for the end of the session.
        on_renewed: called on kazoo's thread when another connection has replaced one that is older than the transport.
        large: the large requests and replies.
        max_request: how many bytes a request may have.
    """

    def __init__(self, client: KazooClient) -> None:
        if getattr(client, "_connection", None) is None or isinstance(client._connection, ConnectionHandler):
            check_kazoo(client)
            # Any other connection is simulated.
        self._client = client
        self.parts = PrivateParts(client)
        self._handler = client.handler
        self._connection = self.parts.connection
        # kazoo's own methods, which those of this class replace.
        self._kazoo = Replaced()
        self.opening = Opening(self.parts)
        # The right to send on the connection that is being served; None if there is none.
        self._send_lock: SendLock | None = None
        self.large = LargeMessages(self.parts)
        # How many checks there were since a request was sent; and, since a byte came, how many at which a reply was
        # awaited.
        self._quiet = self._deaf = 0
        # The last request of all has been sent.
        self._closing = False
        # How many bytes the other end had not taken at the last check.
        self._untaken = 0
        self._direct = type(self._handler) is SequentialThreadingHandler
        self.on_close: Callable[[], None] = lambda: None
        self.on_renewed: Callable[[], object] = lambda: None
        self._renewal = Renewal(self.parts, self.opening, self.drop)
        self.reader = ReplyReader(self.parts, self.opening, self.large, self._renewal.note_event)
        self.max_request: int = getattr(client, "max_request", MAX_REQUEST)
        self._xids = itertools.count()

    @staticmethod
    def of(client: KazooClient) -> Transport:
        """Return the client's transport; there is only one, as it changes the client."""
        found: Transport | None = vars(client).get("_zkconcurrent_transport")
        # R4: of two threads, or a thread and its signal handler, one makes it. R3: either may install it.
        transport = found or vars(client).setdefault("_zkconcurrent_transport", Transport(client))
        if not found:
            transport.install()
        return transport

    def send(self, *requests: Request) -> None:
        """Send requests together, or queue them; never wait. Each reply's `set` or `set_exception` is called once."""
        fitting, bodies = [], []
        for each in requests:
            body = each[0].serialize()
            if len(body) > self.max_request:
                each[1].set_exception(TooLarge(len(body), self.max_request))
            else:
                fitting.append(each)
                bodies.append(body)
        if fitting and not self._send_directly(fitting, bodies):
            self.send_by_kazoo(*fitting)

    def nudge(self) -> None:
        """Wake kazoo's connection thread if requests wait, or to learn the timeout of an older connection.

        An interrupt may have kept the byte that wakes the thread from being sent.
        """
        pipe, send_lock = self._wakeup_socket(), self._send_lock
        if pipe is not None and (
            self.parts.queue or (send_lock is not None and send_lock.unsent) or self.opening.timeout_unknown
        ):
            pipe.wake()

    def renew(self) -> bool:
        """Have a connection older than the library replaced, if possible; return whether it is possible."""
        self._renewal.wanted = self._renewal.possible
        if self._renewal.wanted and (pipe := self._wakeup_socket()) is not None:
            pipe.wake()
        return self._renewal.wanted

    @property
    def awaited_xid(self) -> int | None:
        """The number of the oldest request without a reply; None if there is none."""
        try:
            return self.parts.pending[0][2]  # type: ignore[no-any-return]
        except IndexError:
            return None

    def drop(self) -> None:
        """Cut a connection without replies, so that kazoo reconnects."""
        with contextlib.suppress(AttributeError, OSError):  # it may be down already
            sock = self.parts.socket
            # `SSLSocket.shutdown` would end the decryption too: in the middle of a reply, kazoo's thread would take the
            # rest undecrypted, or end with an error that it does not know.
            plain: Any = super(ssl.SSLSocket, sock) if isinstance(sock, ssl.SSLSocket) else sock
            plain.shutdown(socket.SHUT_RDWR)

    # -- on the caller's thread ----------------------------------------------------------------------------------

    def _send_directly(self, requests: Sequence[Request], bodies: Sequence[bytes]) -> bool:
        """Send requests on the calling thread; send none and return False if kazoo's thread must send them."""
        parts, send_lock, me = self.parts, self._send_lock, threading.get_ident()
        if send_lock is None or not send_lock.direct or parts.queue or send_lock.owner == me:
            return False
        if not send_lock.lock.acquire(True, CALLER_PATIENCE):
            return False
        lost = left = False
        entries: list[Entry] = []
        try:
            send_lock.owner = me
            if self._send_lock is not send_lock or parts.queue or send_lock.full:
                return False
            messages, pending = b"", parts.pending
            for (request, reply), body in zip(requests, bodies, strict=True):
                if reply.session not in (None, send_lock.session):
                    # kazoo's thread refuses the request, in its turn.
                    return False
                xid = next(self._xids) % XIDS + 1
                messages += REQUEST_HEADER.pack(len(body) + 8, xid, request.type) + body
                entries.append((request, reply, xid))
            send_lock.add(messages, entries, pending)
            # The connection may have been lost meanwhile, and these entries may have come too late to fail with the
            # others.
            if not (lost := self._send_lock is not send_lock):
                self._quiet = 0
                left = send_lock.send()
        except OSError as error:
            # The socket is broken. kazoo's thread will find that, and all requests fail.
            raise_interrupt(error)
        finally:
            send_lock.owner = None
            send_lock.lock.release()
        for entry in entries if lost else ():
            # If the entry is not there, it has failed with the others.
            with contextlib.suppress(ValueError, IndexError):
                pending.remove(entry)
                entry[1].set_exception(kazoo_errors.ConnectionLoss())
        if left or parts.queue:
            self.nudge()
        return True

    def send_by_kazoo(self, *requests: Request) -> None:
        """Queue requests like kazoo's `_call`, whose bare `except` would take a Ctrl-C for a closed connection."""
        pipe = self._wakeup_socket()
        refusal = _REFUSALS.get(self._client.client_state)
        if refusal is None and pipe is not None:
            self.parts.queue.extend(requests)
            if pipe.wake():
                return
        for _, reply in requests:
            reply.set_exception((refusal or kazoo_errors.ConnectionClosedError)())

    def _wakeup_socket(self) -> WakeupSocket | None:
        """Return the socket that wakes kazoo's connection thread; None if the client is closed."""
        pipe = self.parts.write_sock
        if pipe is not None and not isinstance(pipe, WakeupSocket):
            pipe = self.parts.write_sock = WakeupSocket(pipe)
        return pipe  # type: ignore[no-any-return]

    # -- on kazoo's connection thread: in the place of kazoo's methods ---------------------------------------------

    def install(self) -> None:
        """Take the place of kazoo's `select`. A second call changes nothing."""
        connection = self._connection
        if not isinstance(connection, ConnectionHandler):
            return  # a simulated one
        self.opening.install()
        self._kazoo.replace(connection, _send_request=self._send_request, _read_socket=self._read_socket)
        connection.handler.select = self._select

    def _select(self, readers: Files, writers: Files, others: Files, timeout: float | None = None) -> Ready:
        """Serve the open connection if kazoo waits on it; otherwise call kazoo's `select`, as in a handshake."""
        if len(readers) != 2 or readers[1] is not self.parts.read_sock:
            return self._handler.select(readers, writers, others, timeout)  # type: ignore[no-any-return]
        if self.opening.negotiated is None:
            # Connected before the transport was there: have kazoo pass its read timeout to `_send_request`.
            return [readers[1]], [], []
        return self._serve()

    def _send_request(self, read_timeout: float, _connect_timeout: float) -> None:
        """Note the session timeout of a connection older than the transport: only kazoo's local variables have it."""
        self.opening.note_old_timeout(read_timeout * 1.5)

    def _read_socket(self, _timeout: float) -> object:
        """Return kazoo's mark of the end, once the server has confirmed that the session is closed."""
        return CLOSE_RESPONSE if self.reader.closed else None

    # -- on kazoo's connection thread: an open connection ----------------------------------------------------------

    def _serve(self) -> Ready:
        """Serve the open connection until its end is confirmed, or another one takes its place.

        Raises:
            ConnectionDropped: the connection broke. An error that kazoo does not know would end its thread for good.
        """
        parts, sock, pipe = self.parts, self.parts.socket, self.parts.read_sock
        if parts.xid:
            # kazoo sent on this connection before the transport was there.
            self._xids = itertools.count(parts.xid)
        self.reader.begin_connection()
        self._closing = False
        self._quiet = self._deaf = 0
        poll = ConnectionPoll(self._handler, sock, pipe, polls=self._direct)
        self._send_lock = send_lock = SendLock(sock, parts.session_id, direct=self._direct and type(sock) is Socket)
        pause = (self.opening.negotiated or 0.0) / CHECKS
        now = monotonic()
        check_at = now + pause
        try:
            while not self.reader.closed:
                unsent = self._send_queued(send_lock)
                if self._renewal.wanted and self._renew_if_idle(send_lock):
                    # kazoo then calls `_send_request`, which does nothing, and waits for the new socket.
                    return [pipe], [], []
                more = parts.queue and not self._closing and unsent <= ROOM
                come, woken = poll.wait(0.0 if more else check_at - now, to_write=unsent > 0)
                if woken:
                    pipe.recv(READ_SIZE)
                if come and (received := receive(sock, READ_SIZE)) is not None:
                    self._deaf = 0
                    self.reader.read(received)
                if (now := monotonic()) >= check_at:
                    check_at = now + pause
                    self._check_alive(send_lock)
            return [sock], [], []
        except (kazoo_errors.KazooException, RWServerAvailable, OSError):
            self._lost()
            raise
        except Exception:
            log.exception("dropping the connection after an error")
            self._lost()
            raise kazoo_errors.ConnectionDropped("an unexpected error, which the log of zkconcurrent shows") from None
        finally:
            self._send_lock = None
            self.reader.leave_to_kazoo()

    def _lost(self) -> None:
        """Note that the connection is lost, before kazoo fails all requests."""
        self._send_lock = None
        # No error may escape: it would end this thread.
        with contextlib.suppress(Exception):
            self.large.warn_of_loss()
        self.opening.addresses.note_lost()

    def _send_queued(self, send_lock: SendLock) -> int:
        """Send the next requests of kazoo's queue, and what callers have left unsent; return how many bytes are left.

        Replies have their turn, too, however fast the program adds requests.
        """
        parts = self.parts
        for _ in range(MOST_AT_ONCE if parts.queue else 0):
            refuse_of_other_sessions(parts)
            if not parts.queue or self._closing or send_lock.unsent > ROOM:
                break
            request, reply = parts.queue[0]
            closes = request is CloseInstance
            if closes:
                # Other clients may acquire before the reply is here.
                self.on_close()
            try:
                body = request.serialize()
            except Exception as error:
                parts.queue.popleft()
                if not hasattr(request, "type"):
                    _raise_for_tests(request)
                reply.set_exception(error)
                continue
            with self._sending(send_lock):
                if withdraw_removals(parts):
                    # Look at the new head of the queue: it may be the last request of all.
                    continue
                xid = AUTH_XID if request.type == Auth.type else next(self._xids) % XIDS + 1
                self._connection.logger.debug("Sending request(xid=%s): %s", xid, request)
                parts.queue.popleft()
                pending = self.reader.pending_auths if xid == AUTH_XID else parts.pending
                message = REQUEST_HEADER.pack(len(body) + 8, xid, request.type) + body
                send_lock.add(message, [(request, reply, xid)], pending)
                if closes:
                    self._closing, send_lock.direct = True, False
        if not send_lock.unsent:
            return 0
        # In one call: at each, other threads take the interpreter's lock for some milliseconds.
        with self._sending(send_lock):
            self._send(send_lock)
            return send_lock.unsent

    def _send(self, send_lock: SendLock) -> None:
        """Send what is unsent; in the turn of this thread."""
        self._quiet, unsent = 0, send_lock.unsent
        try:
            send_lock.send()
        except OSError as error:
            raise kazoo_errors.ConnectionDropped(f"socket connection error: {error}") from None
        self.large.parts += LARGE < unsent > send_lock.unsent

    @contextlib.contextmanager
    def _sending(self, send_lock: SendLock) -> Iterator[None]:
        """Have the block send in this thread's turn; once the client is stopped, beside a caller that keeps its own."""
        if send_lock.acquire():
            try:
                yield
            finally:
                send_lock.lock.release()
        elif self.parts.stopped.is_set():
            yield
        else:
            raise kazoo_errors.ConnectionDropped("a caller was interrupted while sending")

    def _check_alive(self, send_lock: SendLock) -> None:
        """Ping if no request was sent for a while; drop the connection if the server replies to nothing.

        A large request may take its time while the other end takes parts of it.
        """
        parts, before, self._untaken = self.parts, self._untaken, self.large.untaken
        self._quiet += 1
        awaits = bool(parts.pending or self.reader.pending_auths or self._deaf)
        if parts.read_only or (self._quiet >= QUIET_CHECKS and self._untaken <= LARGE):
            with self._sending(send_lock):
                send_lock.add(REQUEST_HEADER.pack(8, PING_XID, PingInstance.type), [(PingInstance, None, PING_XID)], [])
                self._send(send_lock)
            awaits = True
        self._deaf = 0 if LARGE < before > self._untaken else self._deaf + awaits
        if self._deaf > DEAF_CHECKS:
            raise kazoo_errors.ConnectionDropped("the server has replied to nothing for half of the session timeout")
        if parts.read_only and (found := next(parts.read_only)):
            parts.rw_server = found
            raise RWServerAvailable

    def _renew_if_idle(self, send_lock: SendLock) -> bool:
        """Replace the connection, as `renew` asks, if nothing waits for a reply; return whether that was done."""
        parts, renewal = self.parts, self._renewal
        with self._sending(send_lock):
            if parts.queue or parts.pending or self.reader.pending_auths:
                return False
            if renewal.ask():
                self.nudge()
                return False
            if not renewal.replace():
                return False
            self._send_lock = None
        self.on_renewed()
        return True


def _raise_for_tests(request: object) -> None:
    """Raise the error for which a mark in kazoo's queue stands: tests of programs put it there, among the requests."""
    if request is _SESSION_EXPIRED:
        raise kazoo_errors.SessionExpiredError("Session expired: Testing")
    if request is _CONNECTION_DROP:
        raise kazoo_errors.ConnectionDropped("Connection dropped: Testing")


# A client in one of these states refuses all requests.
_REFUSALS = {
    KeeperState.AUTH_FAILED: kazoo_errors.AuthFailedError,
    KeeperState.CLOSED: kazoo_errors.ConnectionClosedError,
    KeeperState.EXPIRED_SESSION: kazoo_errors.SessionExpiredError,
}
