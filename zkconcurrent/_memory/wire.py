"""ZooKeeper's protocol, as a server speaks it: bytes in, bytes out.

A connection is a dialogue of frames: each is a length of four bytes, and then that many bytes. The first frame in each
direction opens the session. Then a client sends requests (xid, opcode, body) and gets replies (xid, zxid, error, body)
in order; between the replies come events, with the xid -1. Instead of the first frame a client may send a word of four
letters.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable
from functools import partial
from typing import ClassVar, TypeVar

from .changes import ADMIN, CHANGED, CHILD, CREATED, DELETED, READ, Code, Refused
from .fields import INT, LONG, Malformed, Reader, pack_buffer, pack_stat, pack_string, pack_strings
from .rights import allows
from .server_watches import ANY_WATCH, CHILDREN_WATCH, DATA_WATCH, ONCE, PERSISTENT, RECURSIVE
from .service import Service
from .wire_writes import WRITES, pack_failure, pack_results, read_multi

T = TypeVar("T")

# The longest frame, in bytes: the default of ZooKeeper.
_LONGEST = 0xFFFFF
_CONNECTED = 3  # the state in each event
# This secret protects as well as ZooKeeper's own, which is public, too.
_SECRET = 0x5DEECE66D5DEECE6

_PING, _AUTH, _SASL, _CLOSE = 11, 100, 102, -11
_PING_XID = -2

_HEADER = struct.Struct("!ii")
_REPLY = struct.Struct("!iqi")
_EVENT = struct.Struct("!iqiii")
_CONNECT = struct.Struct("!iqiq")
_WELCOME = struct.Struct("!iiqi16s")


class Connection:
    """The server's end of one connection.

    Args:
        service: the service.
        address: the client's address, without the port.
        answer_word: returns the reply to a word of four letters, or None for any other bytes.
        on_output: called whenever there is something to send, or nothing more to read.

    Attributes:
        address: the client's address.
        ids: what the client has authenticated as.
        output: the bytes to be sent; the sender removes what it has sent.
        ended: whether no more is read, and the connection is to be closed once all output is sent.
        session: the number of its session; 0 before there is one.
        timeout: the session's timeout, in milliseconds, as negotiated.
        received: how many frames have come.
    """

    def __init__(
        self,
        service: Service,
        address: str,
        answer_word: Callable[[str], str | None],
        on_output: Callable[[Connection], None],
    ) -> None:
        self.output = bytearray()
        self.ended = False
        self.session = self.timeout = self.received = 0
        self.address = address
        self._service = service
        self._tree = service.tree
        self._answer_word = answer_word
        self._on_output = on_output
        self.ids = [("ip", address)]
        self._input = bytearray()

    def receive(self, data: bytes) -> None:
        """Take bytes from the client, in pieces of any size."""
        buffer = self._input
        buffer += data
        while len(buffer) >= 4 and not self.ended:
            (length,) = INT.unpack_from(buffer)
            if not self.session and self._answer(bytes(buffer[:4])):
                return
            if not 0 <= length <= _LONGEST:
                self.disconnect()
                return
            end = 4 + length
            if len(buffer) < end:
                return
            frame = bytes(buffer[4:end])
            del buffer[:end]
            self.received += 1
            try:
                self._serve(frame) if self.session else self._connect(Reader(frame))
            except Malformed:
                self.disconnect()

    def notify(self, kind: int, path: str) -> None:
        """Send an event."""
        self._send(_EVENT.pack(-1, -1, 0, kind, _CONNECTED) + pack_string(path))

    def disconnect(self) -> None:
        """Read no more, and leave the service; the session may live on."""
        self.ended = True
        self._service.forget_peer(self.session, self)
        self._on_output(self)

    def _send(self, frame: bytes) -> None:
        self.output += INT.pack(len(frame)) + frame
        self._on_output(self)

    def _answer(self, word: bytes) -> bool:
        text = self._answer_word(word.decode("latin-1"))
        if text is None:
            return False
        self.output += text.encode()
        self.disconnect()
        return True

    def _connect(self, reader: Reader) -> None:
        """Open a session, or resume one."""
        _, seen, timeout, session = reader.fields(_CONNECT)
        password = reader.buffer()
        try:
            reader.flag()
            knows_read_only = b"\0"
        except Malformed:
            # An old client sends no flag for read-only servers.
            knows_read_only = b""
        if seen > self._tree.zxid:
            self.disconnect()
            return
        timeout = self._service.grant(timeout)
        if session == 0:
            session = self._service.open(self, timeout)
        else:
            # The old connection is closed even if the password is wrong.
            self._service.cut(session)
            if password == _password(session) and session in self._tree.sessions:
                self._service.enter(session, self, timeout)
            else:
                self._send(_WELCOME.pack(0, 0, 0, 16, b"") + knows_read_only)
                self.disconnect()
                return
        self.session, self.timeout = session, timeout
        self._send(_WELCOME.pack(0, timeout, session, 16, _password(session)) + knows_read_only)

    def _serve(self, frame: bytes) -> None:
        reader = Reader(frame)
        xid, opcode = reader.fields(_HEADER)
        if opcode == _AUTH:
            self._authenticate(xid, reader)
            return
        if opcode == _SASL:
            if reader.buffer() is None:
                raise Malformed
            # This is also the reply of a ZooKeeper that is not set up for SASL.
            self._send(_REPLY.pack(xid, 0, 0) + pack_buffer(None))
            return
        self._service.hear(self.session)
        if opcode not in WRITES and opcode not in self._handlers:
            self._send(_REPLY.pack(xid, -1, Code.UNIMPLEMENTED))
            self.disconnect()
            return
        error, body = 0, b""
        try:
            body = self._write(opcode, reader) if opcode in WRITES else self._handlers[opcode](self, reader)
        except Refused as refusal:
            error = refusal.code
        except Malformed:
            error = Code.MARSHALLING_ERROR
        self._send(_REPLY.pack(_PING_XID if opcode == _PING else xid, self._tree.zxid, error) + body)
        if opcode == _CLOSE:
            self.disconnect()

    def _authenticate(self, xid: int, reader: Reader) -> None:
        reader.number()
        scheme, credentials = reader.string(), reader.buffer()
        if scheme == "digest" and credentials is not None:
            known = ("digest", _digest(credentials))
            if known not in self.ids:
                self.ids.append(known)
        accepted = (scheme == "digest" and credentials is not None) or scheme == "ip"
        self._send(_REPLY.pack(xid, 0, 0 if accepted else Code.AUTH_FAILED))
        if not accepted:
            self.disconnect()

    # -- writes --------------------------------------------------------------------------------------------------

    def _read(self, read: Callable[[Reader], T], reader: Reader) -> T:
        try:
            return read(reader)
        except Malformed:
            # A malformed write takes a zxid, too.
            self._service.apply(())
            raise

    def _write(self, opcode: int, reader: Reader) -> bytes:
        read, answer = WRITES[opcode]
        change, applied = self._service.commit(self.session, [self._read(read, reader)], self.ids)
        return answer(change[0], applied.stats[0])

    def _multi(self, reader: Reader) -> bytes:
        operations = self._read(lambda reader: list(read_multi(reader)), reader)
        try:
            change, applied = self._service.commit(self.session, operations, self.ids)
        except Refused as refusal:
            return pack_failure(len(operations), refusal.index, refusal.code)
        return pack_results(change, applied.stats)

    def _close(self, _reader: Reader) -> bytes:
        self._service.close(self.session)
        return b""

    # -- reads ---------------------------------------------------------------------------------------------------

    def _sync(self, reader: Reader) -> bytes:
        return pack_string(reader.string())

    def _exists(self, reader: Reader) -> bytes:
        path, watches = reader.path(), reader.flag()
        if "\0" in path:
            raise Refused(Code.BAD_ARGUMENTS)
        if watches:
            self._service.watches.add(self, path, DATA_WATCH)
        return pack_stat(self._tree.find(path).stat())

    def _get_data(self, reader: Reader) -> bytes:
        path, watches = reader.path(), reader.flag()
        node = self._tree.find(path, self.ids)
        if watches:
            self._service.watches.add(self, path, DATA_WATCH)
        return pack_buffer(node.data) + pack_stat(node.stat())

    def _get_children(self, reader: Reader, *, with_stat: bool = False) -> bytes:
        path, watches = reader.path(), reader.flag()
        node = self._tree.find(path, self.ids)
        if watches:
            self._service.watches.add(self, path, CHILDREN_WATCH)
        return pack_strings(node.children) + (pack_stat(node.stat()) if with_stat else b"")

    def _get_acl(self, reader: Reader) -> bytes:
        node = self._tree.find(reader.path(), self.ids, READ | ADMIN)
        acl = node.acl
        if not allows(acl, self.ids, ADMIN):
            hidden = {name: f"{name.partition(':')[0]}:x" for _, scheme, name in acl if scheme == "digest"}
            acl = tuple((each, scheme, hidden.get(name, name)) for each, scheme, name in acl)
        entries = b"".join(INT.pack(each) + pack_string(scheme) + pack_string(name) for each, scheme, name in acl)
        return INT.pack(len(acl)) + entries + pack_stat(node.stat())

    # -- watches -------------------------------------------------------------------------------------------------

    def _add_watch(self, reader: Reader) -> bytes:
        path, mode = reader.string() or "", reader.number()
        if mode not in (PERSISTENT, RECURSIVE):
            raise Malformed
        self._service.watches.add(self, path, ANY_WATCH, mode)
        return INT.pack(0)

    def _remove_watches(self, reader: Reader) -> bytes:
        path, kind = reader.path(), reader.number()
        if kind not in (CHILDREN_WATCH, DATA_WATCH, ANY_WATCH):
            raise Malformed
        self._service.watches.remove(self, path, kind)
        return b""

    def _set_watches(self, reader: Reader, *, with_persistent: bool = False) -> bytes:
        """Restore the watches of an earlier connection, and send the events that they have missed."""
        seen = reader.fields(LONG)[0]
        data, exist, children = reader.paths(), reader.paths(), reader.paths()
        nodes, watches = self._tree.nodes, self._service.watches
        for path in data:
            missed = DELETED if path not in nodes else CHANGED * (nodes[path].mzxid > seen)
            self._watch_again(path, DATA_WATCH, missed)
        for path in exist:
            self._watch_again(path, DATA_WATCH, CREATED * (path in nodes))
        for path in children:
            missed = DELETED if path not in nodes else CHILD * (nodes[path].pzxid > seen)
            self._watch_again(path, CHILDREN_WATCH, missed)
        for mode in (PERSISTENT, RECURSIVE) if with_persistent else ():
            for path in reader.paths():
                watches.add(self, path, ANY_WATCH, mode)
        return b""

    def _watch_again(self, path: str, kind: int, missed: int) -> None:
        if missed:
            self.notify(missed, path)
        else:
            self._service.watches.add(self, path, kind, ONCE)

    _handlers: ClassVar[dict[int, Callable[[Connection, Reader], bytes]]] = {
        3: _exists,
        4: _get_data,
        6: _get_acl,
        8: _get_children,
        9: _sync,
        _PING: lambda *_: b"",
        12: partial(_get_children, with_stat=True),
        14: _multi,
        18: _remove_watches,
        101: _set_watches,
        105: partial(_set_watches, with_persistent=True),
        106: _add_watch,
        _CLOSE: _close,
    }


def _password(session: int) -> bytes:
    return struct.pack("!qq", session, session ^ _SECRET)


def _digest(credentials: bytes) -> str:
    name = credentials.partition(b":")[0].decode(errors="replace")
    return f"{name}:{base64.b64encode(hashlib.sha1(credentials).digest()).decode()}"
