"""ZooKeeper's wire protocol, as far as a bystander must read it to tell who asked what and what came back.

A connection is a dialogue of frames, each four bytes of length and then that many bytes. The first frame each way
opens the session. After it a client sends requests (xid, opcode, body) and the server sends answers (xid, zxid, error,
body), in order; and watch events, which are frames with the xid -1 that nobody asked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["EVENTS", "OPCODES", "REQUESTS", "Dialogue", "Message"]

OPCODES = {
    1: "create",
    2: "delete",
    3: "exists",
    4: "getData",
    5: "setData",
    6: "getACL",
    7: "setACL",
    8: "getChildren",
    9: "sync",
    11: "ping",
    12: "getChildren",  # getChildren2: it asks the same, and its reply also has the node's stat
    13: "check",
    14: "multi",
    15: "create2",
    16: "reconfig",
    17: "checkWatches",
    18: "removeWatches",
    19: "createContainer",
    20: "deleteContainer",
    21: "createTTL",
    22: "multiRead",
    100: "auth",
    101: "setWatches",
    102: "sasl",
    103: "getEphemerals",
    104: "getAllChildrenNumber",
    105: "setWatches2",
    106: "addWatch",
    107: "whoAmI",
    -11: "closeSession",
}
REQUESTS = frozenset({"connect", *OPCODES.values()})
EVENTS = {-1: "none", 1: "created", 2: "deleted", 3: "changed", 4: "child"}

WATCH_XID = -1
# A longer first frame is none: it is one of the four-letter words ("ruok"), which are spoken without frames.
LONGEST_FRAME = 1 << 26

_PATHLESS = frozenset({"ping", "auth", "sasl", "setWatches", "setWatches2", "whoAmI", "closeSession"})
_MULTIPLE = frozenset({"multi", "multiRead"})
_CHECK = 13
_SEED = 23  # how many characters of the names of a client's nodes, behind "_c_", are those of the client
_MULTI_HEADER = 9  # type, done, error: the fields before the path of a multi's first operation


@dataclass(slots=True, eq=False)
class Message:
    """One frame: a request, the answer to a request, or a watch event.

    Attributes:
        kind: which of the three it is.
        name: the opcode's name for a request and its answer ("create2"); the event's for an event ("deleted").
        path: the path asked for (of a multi: its first operation's) or told of; "" if there is none.
        connection: the number of its connection, from 1 up, in the order they were accepted.
        session: the session's id; 0 before the server gave one.
        time: monotonic seconds at the client's end: a request came in, or an answer or event was passed on.
        error: the error code of an answer, 0 for none.
        zxid: of an answer.
        request: the request of an answer.
        heartbeat: whether it is a heartbeat's: a `multi` of nothing but checks, `getEphemerals`, `sync` of "/" of a
            client that has no chroot, or a read that leaves a watch on a contender of this client, right behind one.
    """

    kind: Literal["request", "answer", "event"]
    name: str
    path: str
    connection: int
    session: int
    time: float
    xid: int = 0
    error: int = 0
    zxid: int = 0
    request: Message | None = None
    heartbeat: bool = False

    def __str__(self) -> str:
        mark = {"request": ">", "answer": "<", "event": "!"}[self.kind]
        error = f" error {self.error}" if self.error else ""
        return f"{self.time:.6f} #{self.connection} {mark} {self.name} {self.path}{error}".rstrip()


class Dialogue:
    """One connection as a bystander hears it: bytes go in as they come, frames with their meaning come out.

    Attributes:
        connection: its number.
        session: the session's id, 0 until it is known.
        outstanding: the requests not answered yet, oldest first.
    """

    def __init__(self, connection: int) -> None:
        self.connection = connection
        self.session = 0
        self.outstanding: list[Message] = []
        self._framed = True
        self._opened = self._accepted = False
        # The last request, if it was a heartbeat's.
        self._beat = b""
        self._to_server, self._to_client = bytearray(), bytearray()

    def requests(self, data: bytes, now: float) -> Iterator[tuple[bytes, Message | None]]:
        """Take bytes from the client; yield each whole frame and what it says (None for a four-letter word)."""
        if not self._opened and len(data) >= 4 and struct.unpack_from("!I", data)[0] > LONGEST_FRAME:
            self._framed = False
        for frame in self._frames(self._to_server, data):
            yield frame, self._request(frame, now) if self._framed else None

    def answers(self, data: bytes, now: float) -> Iterator[tuple[bytes, Message | None]]:
        """Take bytes from the server; yield each whole frame and what it says."""
        for frame in self._frames(self._to_client, data):
            yield frame, self._answer(frame, now) if self._framed else None

    def _frames(self, buffer: bytearray, data: bytes) -> Iterator[bytes]:
        if not self._framed:
            yield data
            return
        buffer += data
        while len(buffer) >= 4 and len(buffer) >= (end := 4 + struct.unpack_from("!i", buffer)[0]):
            frame = bytes(buffer[:end])
            del buffer[:end]
            yield frame

    def _request(self, frame: bytes, now: float) -> Message:
        message = Message("request", "connect", "", self.connection, self.session, now)
        if self._opened:
            message.xid, opcode = struct.unpack_from("!ii", frame, 4)
            message.name = OPCODES.get(opcode, f"opcode {opcode}")
            if message.name in _MULTIPLE:
                message.path = _string(frame, 12 + _MULTI_HEADER)
            elif message.name not in _PATHLESS:
                message.path = _string(frame, 12)
        else:
            self._opened = True
            (message.session,) = struct.unpack_from("!q", frame, 20)
        # Any other client that syncs, syncs before a read; any other that checks, writes.
        message.heartbeat = (
            message.name == "getEphemerals"
            or (message.name, message.path) == ("sync", "/")
            or (message.name == "multi" and _only_checks(frame))
            or (message.name == "getData" and bool(frame[-1]) and _is_of_client(message.path, self._beat))
        )
        self._beat = frame if message.heartbeat else b""
        self.outstanding.append(message)
        return message

    def _answer(self, frame: bytes, now: float) -> Message:
        if not self._accepted:
            self._accepted = True
            (self.session,) = struct.unpack_from("!q", frame, 12)
            request = self.outstanding.pop(0)
            return Message("answer", "connect", "", self.connection, self.session, now, request=request)
        xid, zxid, error = struct.unpack_from("!iqi", frame, 4)
        if xid == WATCH_XID:
            (event,) = struct.unpack_from("!i", frame, 20)
            name = EVENTS.get(event, f"event {event}")
            return Message("event", name, _string(frame, 28), self.connection, self.session, now)
        request = next(each for each in self.outstanding if each.xid == xid)
        self.outstanding.remove(request)
        return Message(
            "answer",
            request.name,
            request.path,
            self.connection,
            self.session,
            now,
            xid,
            error,
            zxid,
            request,
            request.heartbeat,
        )


def _is_of_client(path: str, beat: bytes) -> bool:
    """Whether a node may be of the client that has sent this heartbeat, which names nodes of its own, or none."""
    _, ours, name = path.rpartition("/_c_")
    return bool(beat and ours) and (b"/_c_" not in beat or name[:_SEED].encode() in beat)


def _only_checks(frame: bytes) -> bool:
    """Whether all operations of a multi are checks."""
    offset = 12
    while len(frame) >= offset + _MULTI_HEADER + 4:
        opcode, done, _, length = struct.unpack_from("!i?ii", frame, offset)
        if done:
            break
        if opcode != _CHECK:
            return False
        offset += _MULTI_HEADER + 4 + length + 4  # the path, the version
    return offset > 12


def _string(frame: bytes, offset: int) -> str:
    if len(frame) < offset + 4:
        return ""
    (length,) = struct.unpack_from("!i", frame, offset)
    return frame[offset + 4 : offset + 4 + max(length, 0)].decode()
