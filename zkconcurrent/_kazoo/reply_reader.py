"""The reply reader: matches each reply with its request, and takes events, from the bytes that come on a connection.

Replies come in the order of the requests, except those to requests to authenticate. The reply to a request of the
library is completed here; a reply to the program's own, or an event for its watchers, goes to kazoo's own methods. All
of it runs on kazoo's connection thread.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.connection import AUTH_XID, CLOSE_RESPONSE, PING_XID, WATCH_XID
from kazoo.protocol.serialization import Exists, ReplyHeader, Transaction, Watch
from kazoo.protocol.states import EVENT_TYPE_MAP, WatchedEvent

from .large import LARGE, LargeMessages
from .opening import Opening
from .private_parts import PrivateParts
from .reply import Reply
from .watches import OF_DATA, event_tables, is_of_library, request_table

LENGTH = struct.Struct("!i")
# The request's number, the zxid, and the error.
REPLY_HEADER = struct.Struct("!iqi")
LENGTH_SIZE, HEADER_SIZE = LENGTH.size, REPLY_HEADER.size
DELETED = 2  # an event type
SESSION_EXPIRED = kazoo_errors.SessionExpiredError.code
NOT_READ_ONLY = kazoo_errors.NotReadOnlyCallError.code


class ReplyReader:
    """The reader of one client's connections.

    Args:
        parts: the private parts of the client.
        opening: how its connections are opened.
        large: the large requests and replies.
        note_event: notes that a node has changed.

    Attributes:
        closed: the server has confirmed the end of the session.
        pending_auths: the requests to authenticate, whose replies come out of order.
        on_raw_event: called with the path of each watch event, and whether the event is the node's deletion.
        on_data_watch: called with the path of each node whose data this client has begun to watch.
    """

    def __init__(
        self, parts: PrivateParts, opening: Opening, large: LargeMessages, note_event: Callable[[str], object]
    ) -> None:
        self._parts = parts
        self._opening = opening
        self._large = large
        self._note_event = note_event
        # The bytes of the next reply that have come so far.
        self._received = bytearray()
        self.closed = False
        self.pending_auths: deque[Any] = deque()
        self.on_raw_event: Callable[[str, bool], None] = lambda *_: None
        self.on_data_watch: Callable[[str], None] = lambda _: None

    def begin_connection(self) -> None:
        """Begin to read a new connection."""
        self._received.clear()
        self.closed = False
        # kazoo has sent these, on a connection that is older than this reader.
        for entry in [entry for entry in list(self._parts.pending) if entry[2] == AUTH_XID]:
            self._parts.pending.remove(entry)
            self.pending_auths.append(entry)

    def leave_to_kazoo(self) -> None:
        """Hand the requests that have no reply to kazoo, which fails them all."""
        self._parts.pending.extend(self.pending_auths)
        self.pending_auths.clear()

    def read(self, come: bytes) -> None:
        """Take the bytes that have come: replies and events, of which the last may be incomplete.

        Raises:
            ConnectionDropped: the bytes are not a reply (a middlebox may have inserted its own), or the reply is not to
                the oldest request.
        """
        large = self._large
        if large.length:
            large.parts += 1
        ahead = self._received
        ahead += come
        at, here = 0, len(ahead)
        while here - at >= LENGTH_SIZE:
            (length,) = LENGTH.unpack_from(ahead, at)
            if length < HEADER_SIZE:
                raise kazoo_errors.ConnectionDropped(
                    f"the bytes that came are not a reply: its length would be {length}"
                )
            begin, at = at + LENGTH_SIZE, at + LENGTH_SIZE + length
            if at > here:
                if length > LARGE:
                    large.length = length
                at = begin - LENGTH_SIZE
                break
            large.length = 0
            message = bytes(ahead[begin:at])
            xid, zxid, error = REPLY_HEADER.unpack_from(message)
            if xid == WATCH_XID:
                self._take_event(message)
            elif xid == AUTH_XID and self.pending_auths:
                _, reply, _ = self.pending_auths.popleft()
                if error:
                    self._opening.refusal = kazoo_errors.AuthFailedError()
                    reply.set_exception(kazoo_errors.AuthFailedError())
                    raise self._opening.refusal
                reply.set(True)
            elif xid != PING_XID:
                self._take_reply(message, xid, zxid, error)
        del ahead[:at]

    def _take_reply(self, message: bytes, xid: int, zxid: int, error: int) -> None:
        """Take the reply to the oldest request.

        A server may keep the connection of a session that the leader has ended: see `Link._leave_if_over`.
        """
        pending = self._parts.pending
        if error:
            if error == NOT_READ_ONLY:
                # A server that only reads refuses a write at once, ahead of the replies to earlier reads.
                for entry in [entry for entry in list(pending) if entry[2] == xid]:
                    pending.remove(entry)
                    pending.appendleft(entry)
            if error not in kazoo_errors.EXCEPTIONS:
                raise kazoo_errors.ConnectionDropped(f"a reply has an error that kazoo does not know: {error}")
        if not pending or pending[0][2] != xid:
            raise kazoo_errors.ConnectionDropped("a reply came for another request than the next")
        request, reply, _ = pending[0]
        if isinstance(reply, Reply):
            pending.popleft()
            if zxid > 0:
                self._parts.client.last_zxid = zxid
            self._complete(request, reply, error, message)
        else:
            header = ReplyHeader(xid, zxid, error)
            taken = self._parts.connection._read_response(header, message, REPLY_HEADER.size)
            self.closed = taken == CLOSE_RESPONSE
        if request.type in OF_DATA and request.watcher is not None:
            self.on_data_watch(request.path)
        if error == SESSION_EXPIRED:
            raise kazoo_errors.ConnectionDropped("a reply said that the session is over")

    def _complete(self, request: Any, reply: Reply, error: int, message: bytes) -> None:
        """Complete the reply to a request of the library, as kazoo's `_read_response` does."""
        value = None
        if error and not (error == kazoo_errors.NoNodeError.code and request.type == Exists.type):
            reply.set_exception(kazoo_errors.EXCEPTIONS[error]())
            return
        if not error:
            try:
                value = request.deserialize(message, REPLY_HEADER.size)
                if request.type == Transaction.type:
                    value = Transaction.unchroot(self._parts.client, value)
            except Exception as why:
                reply.set_exception(why)
                raise
        watcher = getattr(request, "watcher", None)
        if watcher is not None and not self._parts.stopped.is_set():
            request_table(self._parts, request)[request.path].add(watcher)
        reply.set(value)

    def _take_event(self, message: bytes) -> None:
        """Take an event. kazoo passes it only to the watchers of its exact path, not to those of a recursive watch.

        The library's watcher is called at once; kazoo calls the program's watchers on another thread, as they may be
        slow.
        """
        event = Watch.deserialize(message, REPLY_HEADER.size)[0]
        path, client, connection = event.path, self._parts.client, self._parts.connection
        self._note_event(path)
        self.on_raw_event(path, event.type == DELETED)
        tables = [table for table in event_tables(self._parts, event.type) if path in table]
        ours = {watcher for table in tables for watcher in table[path] if is_of_library(watcher)}
        theirs = False
        for table in tables:
            table[path] -= ours
            theirs = theirs or bool(table[path])
            if not table[path]:
                del table[path]
        if theirs:
            connection._read_watch_event(message, REPLY_HEADER.size)
        if ours:
            shown = WatchedEvent(EVENT_TYPE_MAP[event.type], client.client_state, client.unchroot(path))
            for watcher in ours:
                watcher(shown)
