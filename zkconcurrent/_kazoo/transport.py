"""The transport: sends requests on a kazoo client's connection, and takes replies and events from it.

In kazoo, the connection thread sends each request; a byte in a pipe wakes it. That works everywhere, so the library
does this where it cannot send a request directly. On plain sockets with kazoo's own threads, sending directly takes a
third less processor time: the caller sends its request itself, and the connection thread reads ahead.

Three rules keep requests and replies in step, and kazoo's thread alive:

* A caller sends only in its `SendLock`, and while kazoo does not send: not before the handshake is over, not while
  requests are queued, not once the connection is lost.
* If a caller was interrupted while sending, it is unknown what was sent. So the connection is dropped before the next
  reply is taken.
* The connection thread waits only a moment for a caller's turn. A caller that keeps its turn longer is suspended: a
  signal handler, or a finalizer, runs on top of it, and may wait for the connection thread. The connection is then
  dropped, and the turn with it; so code that runs there cannot stop the client for good.

A caller never waits for the socket. If its buffer is full, kazoo's thread sends the rest. The requests of one step of a
recipe go out in one system call: each but the last is only left in `SendLock.unsent`, which the next request takes
along. If an interrupt keeps the next one from coming, the keeper's `nudge` has kazoo's thread send it.

The connection thread reads all that has arrived in one call; kazoo's reads the length of a reply, then the rest. With
TLS, kazoo's handler for gevent or another one, and while kazoo's queue has requests, requests go kazoo's way.

One series of numbers serves all connections of a client, as in the Java and C clients. kazoo would begin anew on each
connection; but the server tells the changes of a session apart by their numbers, and changes of the last connection may
still be on their way. A reply to any but the oldest request costs the connection; in kazoo it would end the connection
thread, and the client for good. The soak has seen such replies after a leader had stood still.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler, RWServerAvailable
from kazoo.protocol.serialization import CloseInstance, Watch
from kazoo.protocol.states import KeeperState

from .large import LARGE, LargeMessages
from .opening import CONNECTED_STATES, Opening
from .private_parts import PrivateParts, Replaced, check_kazoo
from .requests import TooLarge, refuse_of_other_sessions
from .send_lock import SendLock
from .socket_swap import Renewal
from .sockets import Files, Poller, Ready, Socket, WakeupSocket, decrypted, raise_interrupt, receive, wait_for_files
from .watches import OF_DATA, withdraw_removals

log = logging.getLogger("zkconcurrent")

F = TypeVar("F", bound=Callable[..., Any])
READ_SIZE = 65536
# The length of the rest, the request's number, and its type.
REQUEST_HEADER = struct.Struct("!iii")
XIDS = 2**31 - 1
AUTH_XID = -4
DELETED = 2  # a type of events
SESSION_EXPIRED = kazoo_errors.SessionExpiredError.code
# In bytes. A server closes the connection at a request above its jute.maxbuffer, by default 1,048,575.
MAX_REQUEST = 1_000_000
CALLER_PATIENCE = 0.005  # seconds


def _drop_on_error(method: F) -> F:
    """Have an error of the library drop the connection: an error unknown to kazoo ends its thread for good."""

    @functools.wraps(method)
    def guarded(self: Transport, *args: Any) -> Any:
        try:
            return method(self, *args)
        except (kazoo_errors.KazooException, self._handler.timeout_exception, OSError, RWServerAvailable):
            raise
        except Exception:
            log.exception("dropping the connection after an error")
            raise kazoo_errors.ConnectionDropped("an unexpected error, which the log of zkconcurrent shows") from None

    return guarded  # type: ignore[return-value]


class Transport:
    """The connection of one client, over all reconnects.

    Attributes:
        parts: the private parts of the client.
        opening: how its connections are opened.
        on_close: called on kazoo's thread before the thread asks for the end of the session.
        on_raw_event: called on kazoo's thread with the path of each watch event, and whether that is the node's end.
        on_data_watch: called on kazoo's thread with the path of each node whose data this client has begun to watch.
        on_renewed: called on kazoo's thread when another connection has taken the place of one older than this.
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
        self._turn: SendLock | None = None
        self._waiter = Poller()
        # The part of the next replies that was read already, and the socket that it came from.
        self._received = bytearray()
        self._received_from: socket.socket | None = None
        self.large = LargeMessages(self.parts, self.opening)
        # The requests to authenticate, whose replies come out of order.
        self._pending_auths: deque[object] = deque()
        # Whether a caller has sent a request since kazoo last wanted to ping.
        self._sent_lately = False
        self._direct = type(self._handler) is SequentialThreadingHandler
        self.on_close: Callable[[], None] = lambda: None
        self.on_raw_event: Callable[[str, bool], None] = lambda *_: None
        self.on_data_watch: Callable[[str], None] = lambda _: None
        self.on_renewed: Callable[[], object] = lambda: None
        self._renewal = Renewal(self.parts, self.opening, self.drop)
        self.max_request: int = getattr(client, "max_request", MAX_REQUEST)
        # The numbers go on from kazoo's, as the client may have been in use before.
        self._xids = itertools.count(self.parts.xid or 0)

    @staticmethod
    def of(client: KazooClient) -> Transport:
        """Return the client's transport; there is only one, as it changes the client."""
        found: Transport | None = vars(client).get("_zkconcurrent_transport")
        # R4: of two threads, or a thread and its signal handler, one makes it. R3: either may install it.
        transport = found or vars(client).setdefault("_zkconcurrent_transport", Transport(client))
        if not found:
            transport.install()
        return transport

    def send(self, request: Any, reply: Any) -> None:
        """Send a request, or queue it; never wait. The reply's `set` or `set_exception` is called once."""
        body = request.serialize()
        if len(body) > self.max_request:
            reply.set_exception(TooLarge(len(body), self.max_request))
        elif self._turn is None or not self._send_directly(request, body, reply):
            self.send_by_kazoo(request, reply)

    def nudge(self) -> None:
        """Wake kazoo's connection thread if requests wait, or to learn the timeout of a connection older than this.

        It sends one request for each byte in its pipe. With one byte too few, kept back by an interrupt, each last
        request would wait for the next one. One byte too many does no harm.
        """
        pipe, turn = self._wakeup_socket(), self._turn
        if pipe is not None and (self.parts.queue or (turn is not None and turn.unsent) or self.opening.is_untold):
            pipe.wake()

    def renew(self) -> bool:
        """Have a connection that is older than this replaced; see `renewal.py`. Return whether it may be."""
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
            # `SSLSocket.shutdown` would end the decryption too: kazoo's thread, amid a reply, would take the rest of it
            # as it came over the wire, or end with an error that it does not know.
            plain: Any = super(ssl.SSLSocket, sock) if isinstance(sock, ssl.SSLSocket) else sock
            plain.shutdown(socket.SHUT_RDWR)

    # -- by kazoo's queue ----------------------------------------------------------------------------------------

    def send_by_kazoo(self, request: Any, reply: Any) -> None:
        """Queue a request as kazoo's `_call` does, whose bare `except` would take a Ctrl-C for a closed connection."""
        pipe = self._wakeup_socket()
        refusal = _REFUSALS.get(self._client.client_state)
        if refusal is not None or pipe is None:
            reply.set_exception((refusal or kazoo_errors.ConnectionClosedError)())
            return
        self.parts.queue.append((request, reply))
        if not pipe.wake():
            reply.set_exception(kazoo_errors.ConnectionClosedError())

    def _wakeup_socket(self) -> WakeupSocket | None:
        """Return the socket that wakes kazoo's connection thread; None if the client is closed."""
        pipe = self.parts.write_sock
        if pipe is not None and not isinstance(pipe, WakeupSocket):
            pipe = self.parts.write_sock = WakeupSocket(pipe)
        return pipe  # type: ignore[no-any-return]

    # -- called by kazoo's connection thread ----------------------------------------------------------------------

    def install(self) -> None:
        """Replace the methods that kazoo's connection thread calls. A second call changes nothing."""
        client, connection, handler = self._client, self._connection, self._handler
        if not isinstance(connection, ConnectionHandler):
            return  # a simulated one
        self.opening.install()
        self._kazoo.replace(
            connection,
            _read=self._read,
            _write=self._write,
            _send_request=self._send_request,
            _send_ping=self._send_ping,
            _read_socket=self._read_socket,
            _read_header=self._read_header,
            _read_response=self._read_response,
            _read_watch_event=self._read_watch_event,
        )
        self._kazoo.replace(client, _notify_pending=self._notify_pending)
        if self._direct:
            self._kazoo.replace(handler, dispatch_callback=self._dispatch_callback)
            connection.handler.select = self._select
        else:
            connection.handler.select = self._select_by_handler

    @_drop_on_error
    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Send the next request of the queue: the handshake is over.

        kazoo keeps the negotiated session timeout in local variables only, but passes two thirds of it to this.
        kazoo numbers the requests of each connection from 1; the transport numbers those of all connections in one
        series. The server tells the changes of a session apart by their numbers, including changes of the last
        connection that are still on their way: with equal numbers, replies would come for the wrong request, or never.
        """
        client, parts, turn = self._client, self.parts, self._turn
        self.opening.note_old_timeout(read_timeout * 1.5)
        refuse_of_other_sessions(parts)
        closes = bool(parts.queue) and parts.queue[0][0] is CloseInstance
        if closes:
            # Other clients may acquire before the reply is here.
            self.on_close()
        with _NO_CALLERS if turn is None else self._in_turn(turn, connect_timeout, closes=closes):
            self._renew_if_idle()
            if withdraw_removals(parts):
                # kazoo's next turn looks at the new head of the queue anew: it may be the last request of all.
                return
            # kazoo adds one.
            parts.xid = next(self._xids) % XIDS
            self._kazoo.send_request(read_timeout, connect_timeout)
            pending = parts.pending
            if pending and pending[-1][2] == AUTH_XID:
                self._pending_auths.append(pending.pop())
        pipe = parts.write_sock
        if isinstance(pipe, WakeupSocket):
            pipe.send_owed(bool(parts.queue))
        if self._turn is None and self._direct and client.client_state in CONNECTED_STATES:
            sock = parts.socket
            # TLS has one state for both directions, so callers send only on plain sockets.
            if type(sock) is Socket:
                self._turn = SendLock(sock, parts.session_id)

    @_drop_on_error
    def _send_ping(self, connect_timeout: float) -> None:
        """Send a ping, unless callers have sent a request since the last one: any request does as well.

        Behind a large request that is on its way, send none either: kazoo would take the link for dead, as no reply
            comes so soon.
        """
        turn = self._turn
        lately, self._sent_lately = turn is not None and self._sent_lately, False
        if (lately or self.large.untaken > LARGE) and not self.parts.read_only:
            return
        with _NO_CALLERS if turn is None else self._in_turn(turn, connect_timeout):
            self._kazoo.send_ping(connect_timeout)

    @contextlib.contextmanager
    def _in_turn(self, turn: SendLock, timeout: float, *, closes: bool = False) -> Iterator[None]:
        """Have the block send in this thread's turn, behind the rest of a caller's request.

        Args:
            turn: the right to send.
            timeout: how long sending that rest may take, in seconds.
            closes: the block sends the last request of all, which may go out beside that of a caller.
        """
        if turn.acquire():
            try:
                if turn.unsent:
                    self.parts.write(turn.unsent, timeout)
                    turn.unsent = b""
                yield
            finally:
                turn.lock.release()
        elif closes:
            yield
        else:
            raise kazoo_errors.ConnectionDropped("a caller was interrupted while sending")

    def _renew_if_idle(self) -> None:
        """Replace the connection if `renew` asks for it and nothing waits for a reply; in the turn of this thread."""
        renewal, pipe = self._renewal, self._wakeup_socket()
        if not renewal.wanted or pipe is None or self.parts.queue or self.parts.pending or self._pending_auths:
            return
        if asked := renewal.ask():
            for _ in range(asked):
                pipe.wake()
        elif renewal.replace():
            self._turn = None
            self.on_renewed()

    def _notify_pending(self, state: str) -> None:
        """Fail all requests: the connection is lost, or the session is over."""
        self._turn = None
        # No error may leave this thread, which it would end.
        with contextlib.suppress(Exception):
            self.large.lost()
        self.opening.addresses.lost()
        self.parts.pending.extend(self._pending_auths)
        self._pending_auths.clear()
        self._kazoo.notify_pending(state)

    def _read_header(self, timeout: float) -> object:
        """Read a reply. One to an authentication overtakes earlier ones; kazoo would take it for the oldest's."""
        if self._client.client_state == KeeperState.AUTH_FAILED:
            # kazoo reads on after the refusal, but the replies belong to no request.
            self.opening.refusal = kazoo_errors.AuthFailedError()
            raise self.opening.refusal
        header, buffer, offset = self._kazoo.read_header(timeout)
        if self.opening.sasl_replies is not None:
            self.opening.limit_sasl_replies()
        if header.xid == AUTH_XID and self._pending_auths:
            self.parts.pending.appendleft(self._pending_auths.popleft())
        return header, buffer, offset

    def _read(self, length: int, timeout: float) -> bytes:
        """Read `length` bytes of a handshake, of a reply, or of its length."""
        sock = self.parts.socket
        if self.opening.until is not None:
            return self.opening.read(sock, length)
        if length > LARGE:
            self.large.start(length, is_reply=True)
        if self._direct and type(sock) is Socket:
            reply = self._read_ahead(sock, length, timeout)
        else:
            reply = self._kazoo.read(length, timeout)
        if length > LARGE:
            self.large.finish()
        return reply

    def _write(self, message: bytes, timeout: float) -> None:
        """Write a request, or the rest of one."""
        if len(message) <= LARGE:
            self._kazoo.write(message, timeout)
            return
        self.large.start(len(message), is_reply=False)
        self._kazoo.write(message, timeout)
        self.large.finish()

    @_drop_on_error
    def _read_response(self, header: Any, buffer: bytes, offset: int) -> object:
        """Take a reply, and have kazoo call its `set` or `set_exception`; an unexpected one would end kazoo's thread.

        A server may keep the connection of a session that the leader has ended: see `Link._leave_if_over`.
        """
        pending = self.parts.pending
        if not pending or pending[0][2] != header.xid:
            raise kazoo_errors.ConnectionDropped("a reply came for another request than the next")
        request = pending[0][0]
        result = self._kazoo.read_response(header, buffer, offset)
        if self._renewal.wanted:
            # The last look found that something waited for a reply.
            self.renew()
        if request.type in OF_DATA and request.watcher is not None:
            self.on_data_watch(request.path)
        if header.err == SESSION_EXPIRED:
            raise kazoo_errors.ConnectionDropped("a reply said that the session is over")
        return result

    @_drop_on_error
    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        """Take a watch event. kazoo passes it to the watchers of its very path, and so to none of a recursive watch."""
        event = Watch.deserialize(buffer, offset)[0]
        self._renewal.note_event(event.path)
        self.on_raw_event(event.path, event.type == DELETED)
        self._kazoo.read_watch_event(buffer, offset)

    # -- the direct way ------------------------------------------------------------------------------------------

    def _send_directly(self, request: Any, body: bytes, reply: Any) -> bool:
        """Send a request on the calling thread; return False, with nothing done, if kazoo must send it."""
        parts, turn, me = self.parts, self._turn, threading.get_ident()
        if turn is None or parts.queue or turn.owner == me or not turn.lock.acquire(True, CALLER_PATIENCE):
            return False
        lost, more = False, reply.wake is None
        try:
            turn.owner = me
            # With that much unsent, kazoo's thread waits for room.
            if self._turn is not turn or parts.queue or turn.sending or len(turn.unsent) > READ_SIZE:
                return False
            if reply.session not in (None, turn.session):
                # kazoo's thread refuses it, in its turn.
                return False
            turn.sending = True
            xid = next(self._xids) % XIDS + 1
            pending, entry = parts.pending, (request, reply, xid)
            # R1: the reply may come before `send` returns.
            pending.append(entry)
            turn.unsent += REQUEST_HEADER.pack(len(body) + 8, xid, request.type) + body
            # The connection may have been lost meanwhile, with this entry too late to be failed with the others.
            if not (lost := self._turn is not turn) and not more:
                self._sent_lately = True
                # `suppress` would cost more, on every request.
                try:  # noqa: SIM105
                    # This does not wait, as kazoo made the socket non-blocking.
                    turn.unsent = turn.unsent[turn.socket.send(turn.unsent) :]
                except BlockingIOError:
                    pass
            turn.sending = False
        except OSError as error:
            # The socket is broken. kazoo will find that, and fail all requests.
            raise_interrupt(error)
        finally:
            turn.owner = None
            turn.lock.release()
        if lost:
            # If the entry is not there, it was failed with the others.
            with contextlib.suppress(ValueError, IndexError):
                pending.remove(entry)
                reply.set_exception(kazoo_errors.ConnectionLoss())
        elif not more and (turn.unsent or parts.queue):
            self.nudge()
        return True

    def _read_ahead(self, sock: socket.socket, length: int, timeout: float) -> bytes:
        """Read `length` bytes from one buffer; kazoo waits and reads twice for each reply, its length and its rest."""
        ahead = self._received
        if sock is not self._received_from:
            self._received_from = sock
            ahead.clear()
        while len(ahead) < length:
            if (more := receive(sock, READ_SIZE)) is not None:
                ahead += more
                self.large.parts += length > LARGE
            elif not wait_for_files([sock], [], [], timeout)[0]:
                raise self._handler.timeout_exception("socket time-out during read")
        turn = self._turn
        # If the turn is not free, a caller is sending now.
        if turn is not None and turn.sending and turn.acquire(0):
            turn.lock.release()
        reply = bytes(ahead[:length])
        del ahead[:length]
        return reply

    @_drop_on_error
    def _read_socket(self, timeout: float) -> object:
        """Take a reply or event, and all that came with it; kazoo looks for other work between two of them.

        What comes may be no reply at all: a middlebox may have put in bytes of its own.
        """
        ahead, closed = self._received, self._kazoo.read_socket(timeout)
        while closed is None and len(ahead) >= 4 and len(ahead) >= 4 + int.from_bytes(ahead[:4], "big"):
            closed = self._kazoo.read_socket(timeout)
        return closed

    def _select(self, readers: Files, writers: Files, others: Files, timeout: float | None = None) -> Ready:
        """Wait for files; one with data already read ahead is ready, and the others are polled too."""
        ahead = self._received_from
        self.large.parts += self.large.length > 0
        if not self._received or ahead is None or ahead not in readers:
            return self._waiter.wait(readers, writers, others, timeout)
        rest = [file for file in readers if file is not ahead]
        readable, writable, other = wait_for_files(rest, writers, others, 0)
        return [ahead, *readable], writable, other

    def _select_by_handler(self, readers: Files, writers: Files, others: Files, timeout: float | None = None) -> Ready:
        """Wait for files as greenlets do."""
        found = decrypted(readers)
        self.large.parts += self.large.length > 0
        return (found, [], []) if found else self._handler.select(readers, writers, others, timeout)

    def _dispatch_callback(self, callback: Any) -> None:
        """Call the library's watcher at once; kazoo calls watchers on another thread, as they may be slow."""
        if callback.args[0].path is None or not getattr(callback.func, "on_connection_thread", False):
            self._kazoo.dispatch_callback(callback)
            return
        try:
            callback.func(*callback.args)
        except Exception:
            # The connection must go on, so an error does not leave this thread.
            log.exception("a watch event was not handled: %r", callback.args)


# In the place of a turn, on a connection on which callers do not send.
_NO_CALLERS = contextlib.nullcontext()
# A client in one of these states refuses all requests.
_REFUSALS = {
    KeeperState.AUTH_FAILED: kazoo_errors.AuthFailedError,
    KeeperState.CLOSED: kazoo_errors.ConnectionClosedError,
    KeeperState.EXPIRED_SESSION: kazoo_errors.SessionExpiredError,
}
