"""ZooKeeper's protocol, as a server speaks it: bytes in, bytes out.

A connection is a dialogue of frames, each four bytes of length and then that many bytes. The first one each way opens
the session. Then a client sends requests (xid, opcode, body) and gets replies (xid, zxid, error, body) in order, and
between them events, with the xid -1. Instead of the first frame a client may send a word of four letters.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from . import tree
from .service import Service
from .tree import Acl, Code, Create, Delete, Operation, Refused, SetAcl, SetData, Stat, Step, allows

T = TypeVar("T")

# The longest frame, in bytes: the default of ZooKeeper.
_LONGEST = 0xFFFFF
_CONNECTED = 3  # the state in each event
# It protects as well as ZooKeeper's own, which is public too.
_SECRET = 0x5DEECE66D5DEECE6
_CREATE, _CREATE2, _CONTAINER, _TTL = 1, 15, 19, 21
_DELETE, _SET_DATA, _CHECK, _FAILED = 2, 5, 13, -1

_INT = struct.Struct("!i")
_LONG = struct.Struct("!q")
_HEADER = struct.Struct("!ii")
_REPLY = struct.Struct("!iqi")
_EVENT = struct.Struct("!iqiii")
_STAT = struct.Struct("!qqqqiiiqiiq")
_CONNECT = struct.Struct("!iqiq")
_WELCOME = struct.Struct("!iiqi16s")
_PART = struct.Struct("!i?i")
_END = _PART.pack(-1, True, -1)


class Malformed(Exception):
    """The bytes are no request."""


class _Reader:
    """Reads the fields of a frame, one after the other."""

    def __init__(self, data: bytes, offset: int = 0) -> None:
        self._data = data
        self._offset = offset

    def fields(self, form: struct.Struct) -> tuple[Any, ...]:
        try:
            values = form.unpack_from(self._data, self._offset)
        except struct.error:
            raise Malformed from None
        self._offset += form.size
        return values

    def number(self) -> int:
        value: int = self.fields(_INT)[0]
        return value

    def flag(self) -> bool:
        if self._offset >= len(self._data):
            raise Malformed
        self._offset += 1
        return self._data[self._offset - 1] != 0

    def buffer(self) -> bytes | None:
        length = self.number()
        if length == -1:
            return None
        end = self._offset + length
        if length < 0 or end > len(self._data):
            raise Malformed
        value, self._offset = self._data[self._offset : end], end
        return value

    def string(self) -> str | None:
        value = self.buffer()
        return None if value is None else value.decode(errors="replace")

    def path(self) -> str:
        path = self.string()
        if path is None:
            raise Malformed
        return path

    def paths(self) -> list[str]:
        return [self.path() for _ in range(self.number())]

    def acl(self) -> Acl:
        entries = []
        for _ in range(self.number()):
            permissions, scheme, name = self.number(), self.string(), self.string()
            # kazoo sends no name for all of "auth".
            if name is None and scheme in ("world", "digest", "ip"):
                raise Malformed
            entries.append((permissions, scheme or "", name or ""))
        return tuple(entries)


class Connection:
    """The server's end of one connection.

    Args:
        service: the service.
        address: the client's, without the port.
        answer_word: returns the reply to a word of four letters, or None if it is none.
        on_output: called whenever there is something to send, or nothing more to read.

    Attributes:
        address: the client's.
        ids: what the client has authenticated as.
        output: the bytes to be sent; whoever sends them removes them.
        ended: no more is read, and the connection is to be closed once all is sent.
        session: its number, 0 before there is one.
        timeout: of the session, in milliseconds, as negotiated.
        received: how many frames came.
        sent: how many frames were sent.
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
        self.session = self.timeout = self.received = self.sent = 0
        self.address = address
        self._service = service
        self._tree = service.tree
        self._answer_word = answer_word
        self._on_output = on_output
        self.ids = [("ip", address)]
        self._input = bytearray()

    def receive(self, data: bytes) -> None:
        """Take bytes from the client, however they were cut."""
        buffer = self._input
        buffer += data
        while len(buffer) >= 4 and not self.ended:
            (length,) = _INT.unpack_from(buffer)
            if not self.session and self._answer(bytes(buffer[:4])):
                return
            if not 0 <= length <= _LONGEST:
                self.end()
                return
            end = 4 + length
            if len(buffer) < end:
                return
            frame = bytes(buffer[4:end])
            del buffer[:end]
            self.received += 1
            try:
                self._serve(frame) if self.session else self._connect(_Reader(frame))
            except Malformed:
                self.end()

    def notify(self, kind: int, path: str) -> None:
        """Send an event."""
        self._send(_EVENT.pack(-1, -1, 0, kind, _CONNECTED) + _string(path))

    def end(self) -> None:
        """Read no more, and leave the service; the session may live on."""
        self.ended = True
        self._service.leave(self.session, self)
        self._on_output(self)

    def _send(self, frame: bytes) -> None:
        self.sent += 1
        self.output += _INT.pack(len(frame)) + frame
        self._on_output(self)

    def _answer(self, word: bytes) -> bool:
        text = self._answer_word(word.decode("latin-1"))
        if text is None:
            return False
        self.output += text.encode()
        self.end()
        return True

    def _connect(self, reader: _Reader) -> None:
        """Open a session, or come back to one."""
        _, seen, timeout, session = reader.fields(_CONNECT)
        password = reader.buffer()
        try:
            reader.flag()
            knows_read_only = b"\0"
        except Malformed:
            # An old client does not ask whether it may only read.
            knows_read_only = b""
        if seen > self._tree.zxid:
            self.end()
            return
        timeout = self._service.grant(timeout)
        if session == 0:
            session = self._service.open(self, timeout)
        else:
            # The old connection goes even if the password is wrong.
            self._service.cut(session)
            if password == _password(session) and session in self._tree.sessions:
                self._service.enter(session, self, timeout)
            else:
                self._send(_WELCOME.pack(0, 0, 0, 16, b"") + knows_read_only)
                self.end()
                return
        self.session, self.timeout = session, timeout
        self._send(_WELCOME.pack(0, timeout, session, 16, _password(session)) + knows_read_only)

    def _serve(self, frame: bytes) -> None:
        reader = _Reader(frame)
        xid, opcode = reader.fields(_HEADER)
        if opcode == _AUTH:
            self._authenticate(xid, reader)
            return
        if opcode == _SASL:
            if reader.buffer() is None:
                raise Malformed
            # So does a server that is not set up for SASL.
            self._send(_REPLY.pack(xid, 0, 0) + _buffer(None))
            return
        self._service.hear(self.session)
        if opcode not in _WRITES and opcode not in _HANDLERS:
            self._send(_REPLY.pack(xid, -1, Code.UNIMPLEMENTED))
            self.end()
            return
        error, body = 0, b""
        try:
            body = self._write(opcode, reader) if opcode in _WRITES else _HANDLERS[opcode](self, reader)
        except Refused as refusal:
            error = refusal.code
        except Malformed:
            error = Code.MARSHALLING_ERROR
        self._send(_REPLY.pack(_PING_XID if opcode == _PING else xid, self._tree.zxid, error) + body)
        if opcode == _CLOSE:
            self.end()

    def _authenticate(self, xid: int, reader: _Reader) -> None:
        reader.number()
        scheme, credentials = reader.string(), reader.buffer()
        if scheme == "digest" and credentials is not None:
            known = ("digest", _digest(credentials))
            if known not in self.ids:
                self.ids.append(known)
        accepted = (scheme == "digest" and credentials is not None) or scheme == "ip"
        self._send(_REPLY.pack(xid, 0, 0 if accepted else Code.AUTH_FAILED))
        if not accepted:
            self.end()

    # -- writes --------------------------------------------------------------------------------------------------

    def _read(self, read: Callable[[_Reader], T], reader: _Reader) -> T:
        try:
            return read(reader)
        except Malformed:
            self._service.apply(())  # it has its zxid too
            raise

    def _write(self, opcode: int, reader: _Reader) -> bytes:
        read, answer = _WRITES[opcode]
        change, applied = self._service.commit(self.session, [self._read(read, reader)], self.ids)
        return answer(change[0], applied.stats[0])

    def _reconfigure(self, _reader: _Reader) -> bytes:
        self._service.apply(())
        raise Refused(Code.RECONFIG_DISABLED)

    def _multi(self, reader: _Reader) -> bytes:
        operations = self._read(lambda reader: list(_read_multi(reader)), reader)
        try:
            change, applied = self._service.commit(self.session, operations, self.ids)
        except Refused as refusal:
            codes = [0 if n < refusal.index else Code.RUNTIME_INCONSISTENCY for n in range(len(operations))]
            codes[refusal.index] = refusal.code
            return b"".join(_PART.pack(_FAILED, False, code) + _INT.pack(code) for code in codes) + _END
        return b"".join(map(_result, change, applied.stats)) + _END

    def _close(self, _reader: _Reader) -> bytes:
        self._service.close(self.session)
        return b""

    # -- reads ---------------------------------------------------------------------------------------------------

    def _ping(self, _reader: _Reader) -> bytes:
        return b""

    def _sync(self, reader: _Reader) -> bytes:
        return _string(reader.string())

    def _exists(self, reader: _Reader) -> bytes:
        path, watches = reader.path(), reader.flag()
        if "\0" in path:
            raise Refused(Code.BAD_ARGUMENTS)
        if watches:
            self._service.watches.add(self, path, tree.DATA_WATCH)
        return _stat(self._tree.find(path).stat())

    def _get_data(self, reader: _Reader) -> bytes:
        path, watches = reader.path(), reader.flag()
        node = self._tree.find(path, self.ids)
        if watches:
            self._service.watches.add(self, path, tree.DATA_WATCH)
        return _buffer(node.data) + _stat(node.stat())

    def _get_children(self, reader: _Reader, *, with_stat: bool = False) -> bytes:
        path, watches = reader.path(), reader.flag()
        node = self._tree.find(path, self.ids)
        if watches:
            self._service.watches.add(self, path, tree.CHILDREN_WATCH)
        return _strings(node.children) + (_stat(node.stat()) if with_stat else b"")

    def _get_children2(self, reader: _Reader) -> bytes:
        return self._get_children(reader, with_stat=True)

    def _count_descendants(self, reader: _Reader) -> bytes:
        path, nodes = reader.path(), self._tree.nodes
        self._tree.find(path, self.ids)
        # Of the root's two paths, "" counts the other one.
        return _INT.pack(len(nodes) - 2 if path == "/" else sum(each.startswith(f"{path}/") for each in nodes))

    def _get_ephemerals(self, reader: _Reader) -> bytes:
        prefix = (reader.string() or "").strip()
        paths = self._tree.sessions[self.session].paths
        return _strings([path for path in paths if prefix == "/" or path.startswith(prefix)])

    def _get_acl(self, reader: _Reader) -> bytes:
        node = self._tree.find(reader.path(), self.ids, tree.READ | tree.ADMIN)
        acl = node.acl
        if not allows(acl, self.ids, tree.ADMIN):
            hidden = {name: f"{name.partition(':')[0]}:x" for _, scheme, name in acl if scheme == "digest"}
            acl = tuple((each, scheme, hidden.get(name, name)) for each, scheme, name in acl)
        entries = b"".join(_INT.pack(each) + _string(scheme) + _string(name) for each, scheme, name in acl)
        return _INT.pack(len(acl)) + entries + _stat(node.stat())

    def _who_am_i(self, _reader: _Reader) -> bytes:
        return _INT.pack(len(self.ids)) + b"".join(
            _string(scheme) + _string(name.partition(":")[0] if scheme == "digest" else name)
            for scheme, name in self.ids
        )

    # -- watches -------------------------------------------------------------------------------------------------

    def _add_watch(self, reader: _Reader) -> bytes:
        path, mode = reader.string() or "", reader.number()
        if mode not in (tree.PERSISTENT, tree.RECURSIVE):
            raise Malformed
        self._service.watches.add(self, path, tree.ANY_WATCH, mode)
        return _INT.pack(0)

    def _remove_watches(self, reader: _Reader) -> bytes:
        path, kind = _read_watch(reader)
        self._service.watches.remove(self, path, kind)
        return b""

    def _check_watches(self, reader: _Reader) -> bytes:
        path, kind = _read_watch(reader)
        if not self._service.watches.has_any(path, kind):
            raise Refused(Code.NO_WATCHER)
        return b""

    def _set_watches(self, reader: _Reader, *, with_persistent: bool = False) -> bytes:
        """Leave the watches again that an earlier connection had left, and tell what it has missed."""
        seen: int = reader.fields(_LONG)[0]
        data, exist, children = reader.paths(), reader.paths(), reader.paths()
        nodes, watches = self._tree.nodes, self._service.watches
        for path in data:
            missed = tree.DELETED if path not in nodes else tree.CHANGED * (nodes[path].mzxid > seen)
            self._watch_again(path, tree.DATA_WATCH, missed)
        for path in exist:
            self._watch_again(path, tree.DATA_WATCH, tree.CREATED * (path in nodes))
        for path in children:
            missed = tree.DELETED if path not in nodes else tree.CHILD * (nodes[path].pzxid > seen)
            self._watch_again(path, tree.CHILDREN_WATCH, missed)
        for mode in (tree.PERSISTENT, tree.RECURSIVE) if with_persistent else ():
            for path in reader.paths():
                watches.add(self, path, tree.ANY_WATCH, mode)
        return b""

    def _set_watches2(self, reader: _Reader) -> bytes:
        return self._set_watches(reader, with_persistent=True)

    def _watch_again(self, path: str, kind: int, missed: int) -> None:
        if missed:
            self.notify(missed, path)
        else:
            self._service.watches.add(self, path, kind, tree.ONCE)


_PING, _AUTH, _SASL, _CLOSE = 11, 100, 102, -11
_PING_XID = -2
_HANDLERS: dict[int, Callable[[Connection, _Reader], bytes]] = {
    3: Connection._exists,
    4: Connection._get_data,
    6: Connection._get_acl,
    8: Connection._get_children,
    9: Connection._sync,
    _PING: Connection._ping,
    12: Connection._get_children2,
    14: Connection._multi,
    16: Connection._reconfigure,
    17: Connection._check_watches,
    18: Connection._remove_watches,
    101: Connection._set_watches,
    103: Connection._get_ephemerals,
    104: Connection._count_descendants,
    105: Connection._set_watches2,
    106: Connection._add_watch,
    107: Connection._who_am_i,
    _CLOSE: Connection._close,
}


def _read_create(reader: _Reader) -> Create:
    return Create(reader.path(), reader.buffer(), reader.acl(), reader.number())


def _read_container(reader: _Reader) -> Create:
    return _read_create(reader)._replace(container=True)


def _read_delete(reader: _Reader) -> Delete:
    return Delete(reader.path(), reader.number())


def _read_set_data(reader: _Reader) -> SetData:
    return SetData(reader.string() or "", reader.buffer(), reader.number())


def _read_set_acl(reader: _Reader) -> SetAcl:
    return SetAcl(reader.string() or "", reader.acl(), reader.number())


def _answer_made(made: Any, stat: Stat | None) -> bytes:
    return _string(made.path) + _stat(stat)


def _answer_written(_: Any, stat: Stat | None) -> bytes:
    return _stat(stat)


# Of each single write, how it is read, and its reply: of what was done, and the node's stat after that.
_WRITES: dict[int, tuple[Callable[[_Reader], Operation], Callable[[Any, Stat | None], bytes]]] = {
    _CREATE: (_read_create, lambda made, _: _string(made.path)),
    _DELETE: (_read_delete, lambda *_: b""),
    _SET_DATA: (_read_set_data, _answer_written),
    7: (_read_set_acl, _answer_written),
    _CREATE2: (_read_create, _answer_made),
    _CONTAINER: (_read_container, _answer_made),
    _TTL: (_read_create, _answer_made),  # refused by its flags
}


def _read_multi(reader: _Reader) -> Iterator[Operation]:
    while True:
        opcode, done, _ = reader.fields(_PART)
        if done:
            return
        if opcode in (_CREATE, _CREATE2, _CONTAINER, _TTL):
            create = _read_create(reader)
            if opcode == _TTL:
                reader.fields(_LONG)
            # Here the flags say what is made, elsewhere the opcode.
            yield create._replace(container=create.flags == tree.CONTAINER_FLAG)
        elif opcode == _DELETE:
            yield _read_delete(reader)
        elif opcode == _SET_DATA:
            yield _read_set_data(reader)
        elif opcode == _CHECK:
            yield tree.Check(reader.string() or "", reader.number())
        else:
            raise Malformed


def _read_watch(reader: _Reader) -> tuple[str, int]:
    path, kind = reader.path(), reader.number()
    if kind not in (tree.CHILDREN_WATCH, tree.DATA_WATCH, tree.ANY_WATCH):
        raise Malformed
    return path, kind


def _result(step: Step, stat: Stat | None) -> bytes:
    """Return the result of one operation of a multi."""
    if isinstance(step, tree.Made):
        if step.owner == tree.CONTAINER:
            return _PART.pack(_CREATE2, False, 0) + _answer_made(step, stat)
        return _PART.pack(_CREATE, False, 0) + _string(step.path)
    if isinstance(step, tree.Written):
        return _PART.pack(_SET_DATA, False, 0) + _stat(stat)
    return _PART.pack(_CHECK if isinstance(step, tree.Checked) else _DELETE, False, 0)


def _string(value: str | None) -> bytes:
    return _buffer(None if value is None else value.encode())


def _buffer(value: bytes | None) -> bytes:
    return _INT.pack(-1) if value is None else _INT.pack(len(value)) + value


def _strings(values: Any) -> bytes:
    return _INT.pack(len(values)) + b"".join(map(_string, values))


def _stat(stat: Stat | None) -> bytes:
    assert stat is not None
    return _STAT.pack(*stat)


def _password(session: int) -> bytes:
    return struct.pack("!qq", session, session ^ _SECRET)


def _digest(credentials: bytes) -> str:
    import base64  # seldom needed, both
    import hashlib

    name = credentials.partition(b":")[0].decode(errors="replace")
    return f"{name}:{base64.b64encode(hashlib.sha1(credentials).digest()).decode()}"
