"""Talks with a server in raw bytes, written down so that the talks with two servers can be compared.

What differs between any two runs is made the same: zxids count from the first session of the talk on, sessions have
numbers in the order of their coming, and times are only told from none.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

CREATE, DELETE, EXISTS, GET, SET, GET_ACL, SET_ACL, CHILDREN, SYNC, PING, CHILDREN2 = 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12
CHECK, MULTI, CREATE2, REMOVE_WATCHES, CONTAINER, TTL = 13, 14, 15, 18, 19, 21
AUTH, SET_WATCHES, SET_WATCHES2, ADD_WATCH = 100, 101, 105, 106
SASL, CLOSE = 102, -11
NAMES = {value: name.lower() for name, value in list(globals().items()) if name.isupper() and isinstance(value, int)}
OPEN = [(31, "world", "anyone")]
TIMEOUT = 50_000
PATIENCE = 10.0
PING_XID, EVENT_XID, AUTH_XID = -2, -1, -4
EVENTS = {1: "created", 2: "deleted", 3: "changed", 4: "child"}
DONE = struct.pack("!i?i", -1, True, -1)


class Long(int):
    """A number of 64 bits."""


class Literal(bytes):
    """Bytes that are no field."""


def pack(*fields: Any) -> bytes:
    """Return the bytes of fields: strings, buffers and lists with their lengths, None as no string."""
    return b"".join(map(_pack, fields))


def _pack(field: Any) -> bytes:
    match field:
        case Literal():
            return field
        case bool():
            return struct.pack("!?", field)
        case Long():
            return struct.pack("!q", field)
        case int():
            return struct.pack("!i", field)
        case None:
            return struct.pack("!i", -1)
        case str() | bytes():
            data = field.encode() if isinstance(field, str) else field
            return struct.pack("!i", len(data)) + data
        case tuple():
            return pack(*field)
        case list():
            return struct.pack("!i", len(field)) + pack(*field)
    raise TypeError(field)


def multi(*parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the body of a multi; of each part, the opcode and the fields."""
    return (*(Literal(pack(opcode, False, -1, *fields)) for opcode, *fields in parts), Literal(DONE))


def create(path: str | None, data: bytes | None = b"", flags: int = 0, acl: Any = OPEN) -> tuple[Any, ...]:
    """Return the body of a create."""
    return path, data, acl, flags


class Reader:
    """Reads the fields of a reply."""

    def __init__(self, talk: Talk, data: bytes) -> None:
        self.talk = talk
        self.data = data

    def take(self, form: str) -> Any:
        """Read numbers."""
        values = struct.unpack_from(form, self.data)
        self.data = self.data[struct.calcsize(form) :]
        return values[0] if len(values) == 1 else values

    def buffer(self) -> bytes | None:
        """Read a buffer."""
        length = self.take("!i")
        if length < 0:
            return None
        value, self.data = self.data[:length], self.data[length:]
        return value

    def string(self) -> str | None:
        """Read a string."""
        value = self.buffer()
        return None if value is None else value.decode(errors="backslashreplace")

    def strings(self) -> list[str]:
        """Read names, whose order says nothing."""
        return sorted(str(self.string()) for _ in range(self.take("!i")))

    def stat(self) -> str:
        """Read a stat."""
        czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, length, count, pzxid = self.take("!qqqqiiiqiiq")
        zxid = self.talk.relative
        assert mtime >= ctime
        times = f"times={ctime > 0}{mtime > 0} " if not (ctime and mtime) else ""
        return (
            f"<czxid={zxid(czxid)} mzxid={zxid(mzxid)} pzxid={zxid(pzxid)} {times}"
            f"versions={version},{cversion},{aversion} owner={self.talk.name(owner)} length={length} count={count}>"
        )

    def acl(self) -> list[Any]:
        """Read access rights."""
        return [(self.take("!i"), self.string(), self.string()) for _ in range(self.take("!i"))]

    def results(self) -> Iterator[Any]:
        """Read the results of a multi."""
        while True:
            opcode, done, error = self.take("!i?i")
            if done:
                assert (opcode, error) == (-1, -1)
                return
            yield NAMES.get(opcode, opcode), error, *self.body(opcode, in_multi=True)

    def body(self, opcode: int, in_multi: bool = False) -> Iterator[Any]:
        """Read the body of a reply."""
        if in_multi and opcode == -1:
            yield self.take("!i")
        elif opcode in (CREATE, SYNC):
            yield self.string()
        elif opcode in (CREATE2, CONTAINER, TTL):
            yield self.string()
            yield self.stat()
        elif opcode in (EXISTS, SET, SET_ACL):
            yield self.stat()
        elif opcode == SASL:
            yield self.buffer()
        elif opcode == GET:
            yield self.buffer()
            yield self.stat()
        elif opcode == GET_ACL:
            yield self.acl()
            yield self.stat()
        elif opcode == CHILDREN:
            yield self.strings()
        elif opcode == CHILDREN2:
            yield self.strings()
            yield self.stat()
        elif opcode == ADD_WATCH:
            yield self.take("!i")
        elif opcode == MULTI:
            yield list(self.results())


class Line:
    """One connection."""

    def __init__(self, talk: Talk, name: str) -> None:
        self.talk = talk
        self.name = name
        self.socket = socket.create_connection(talk.address, PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = b""
        self.xid = 0
        self.session = 0
        self.password = bytes(16)
        self.closed = False

    def say(self, *what: Any) -> None:
        """Write something down."""
        self.talk.lines.append(" ".join([f"{self.name}:", *map(str, what)]))

    def frame(self, patience: float = PATIENCE) -> bytes | None:
        """Return the next frame; None if there is none, and `closed` says why."""
        self.socket.settimeout(patience)
        try:
            while len(self.input) < 4 or len(self.input) < 4 + struct.unpack_from("!i", self.input)[0]:
                more = self.socket.recv(65536)
                if not more:
                    self.closed = True
                    return None
                self.input += more
        except TimeoutError:
            return None
        except ConnectionError:
            self.closed = True
            return None
        end = 4 + struct.unpack_from("!i", self.input)[0]
        frame, self.input = self.input[4:end], self.input[end:]
        return frame

    def send(self, data: bytes) -> None:
        """Send a frame."""
        self.raw(struct.pack("!i", len(data)) + data)

    def raw(self, data: bytes) -> None:
        """Send bytes; the server may have closed the connection."""
        try:
            self.socket.sendall(data)
        except ConnectionError:
            self.closed = True

    def connect(
        self,
        timeout: int = TIMEOUT,
        session: int = 0,
        password: bytes | None = bytes(16),
        seen: int = 0,
        tail: bytes = b"\0",
        protocol: int = 0,
    ) -> bool:
        """Open a session; return whether the server has granted one."""
        self.send(struct.pack("!iqiq", protocol, seen, timeout, session) + pack(password) + tail)
        frame = self.frame()
        if frame is None:
            self.end_of("connect")
            return False
        version, granted, self.session = struct.unpack_from("!iiq", frame)
        self.password = frame[20:36]
        known = "no password" if self.password == bytes(16) else "a password"
        self.say(f"connect -> {version} {granted} {self.talk.name(self.session)} {known} {frame[36:].hex()}")
        if granted and not self.talk.base:
            self.send(struct.pack("!ii", PING_XID, PING))
            reply = self.frame()
            assert reply is not None
            self.talk.base = struct.unpack_from("!q", reply, 4)[0]
        return bool(granted)

    def end_of(self, what: str) -> None:
        """Write down that there was no reply."""
        self.say(f"{what} -> {'closed' if self.closed else 'silence'}")

    def ask(self, opcode: int, *fields: Any, xid: int | None = None, patience: float = PATIENCE) -> int | None:
        """Send a request and write down what comes up to its reply; return the error, None if there was no reply."""
        if xid is None:
            self.xid += 1
            xid = {PING: PING_XID, AUTH: AUTH_XID}.get(opcode, self.xid)
        what = f"{NAMES.get(opcode, opcode)} {str(fields)[:200]}"
        self.send(struct.pack("!ii", xid, opcode) + pack(*fields))
        events: list[str] = []
        while True:
            frame = self.frame(patience)
            error = self._hear(what, opcode, xid, frame, events)
            if frame is None or error is not None:
                return error

    def _hear(self, what: str, opcode: int, xid: int, frame: bytes | None, events: list[str]) -> int | None:
        if frame is None:
            self._tell(events, opcode)
            self.end_of(what)
            return None
        reader = Reader(self.talk, frame)
        came, zxid, error = reader.take("!iqi")
        if came == EVENT_XID:
            kind, state = reader.take("!ii")
            events.append(f"event {EVENTS.get(kind, kind)} {state} {reader.string()} zxid {zxid} {error}")
            return None
        self._tell(events, opcode)
        body = list(reader.body(opcode)) if not error else []
        rest = f" and {reader.data.hex()}" if reader.data else ""
        number = "" if came == xid else f" xid {came}"
        shown = self.talk.relative(zxid)
        self.say(f"{what} ->{number} {error} at {shown} {' '.join(map(str, body))}{rest}")
        return int(error)

    def _tell(self, events: Sequence[str], opcode: int) -> None:
        # The nodes of a session go in no order.
        for event in sorted(events) if opcode == CLOSE or self.talk.unordered else events:
            self.say(event)

    def events(self) -> None:
        """Write down the events that came."""
        if not self.closed:
            self.ask(PING)

    def names(self, path: str) -> list[str]:
        """Return the names of a node's children, without a word."""
        self.send(struct.pack("!ii", 77, CHILDREN) + pack(path, False))
        frame = self.frame()
        assert frame is not None
        return Reader(self.talk, frame[16:]).strings()

    def is_closed(self, patience: float = PATIENCE) -> bool:
        """Write down whether the server closes the connection, and what comes before."""
        while True:
            frame = self.frame(patience)
            if frame is None:
                self.say("closed" if self.closed else "open")
                return self.closed
            self.say("came", frame.hex())

    def close(self) -> None:
        """Cut the connection."""
        self.closed = True
        self.socket.close()


class Talk:
    """All connections to one server.

    Attributes:
        lines: what was said.
        root: a path that no other talk uses.
        unordered: events come in no order.
    """

    def __init__(self, hosts: str, root: str) -> None:
        host, _, port = hosts.partition(":")
        self.address = (host, int(port))
        self.root = root
        self.lines: list[str] = []
        self.base = 0
        self.unordered = False
        self._names: dict[int, str] = {0: "0"}
        self._all: list[Line] = []

    def line(self, name: str) -> Line:
        """Open a connection, without a session."""
        line = Line(self, name)
        self._all.append(line)
        return line

    def open(self, name: str, **options: Any) -> Line:
        """Open a connection with a session."""
        line = self.line(name)
        line.connect(**options)
        return line

    def name(self, session: int) -> str:
        """Return how a session is called."""
        return self._names.setdefault(session, f"S{len(self._names)}")

    def relative(self, zxid: int) -> str:
        """Return how a zxid is told."""
        return str(zxid) if zxid <= 0 else "old" if zxid < self.base else f"+{zxid - self.base}"

    def end(self) -> None:
        """End all sessions, also those without a connection: their ends would take zxids of the next talk."""
        said = list(self.lines)
        for line in list(self._all):
            line.close()
        sessions = {line.session: line.password for line in self._all if line.session}
        for session, password in sessions.items():
            line = self.line("end")
            if line.connect(session=session, password=password):
                line.ask(CLOSE)
            line.close()
        self.lines = said


@contextmanager
def talk_with(hosts: str, root: str) -> Iterator[Talk]:
    """Talk with a server; the sessions are closed at the end."""
    talk = Talk(hosts, root)
    try:
        yield talk
    finally:
        talk.end()
