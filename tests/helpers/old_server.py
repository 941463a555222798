"""A server that does not know all opcodes: a proxy before a real one, which does on such a request as other servers do.

Servers differ: ZooKeeper answers "unimplemented" and ends the connection, others end it at once, or with the session.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

Manner = Literal["answers", "answers and closes", "closes", "expires"]
CLOSE_SESSION, SYNC = -11, 9
UNIMPLEMENTED = -6


class Unknown(NamedTuple):
    """A request that the server did not know: its opcode, and whether it came while anything was held."""

    opcode: int
    held: bool


class OldServer:
    """A server on a free loopback port, running while its `with` block does.

    Args:
        target: the real server, as "host:port".
        unknown: the opcodes that it does not know.
        manner: its response when one comes.

    Attributes:
        held: set by the test while it holds something.
        met: the unknown requests that came.
        passed: how many others came.
    """

    def __init__(self, target: str, unknown: Collection[int], manner: Manner) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._unknown, self._manner = unknown, manner
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts = "{}:{}".format(*self._listener.getsockname())
        self.held = False
        self.met: list[Unknown] = []
        self.passed = 0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        _end(self._listener)
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def cut(self) -> None:
        """Cut all connections."""
        while self._sockets:
            _end(self._sockets.pop())

    def _spawn(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, server]
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                refused: set[int] = set()
                self._spawn(self._requests, client, server, refused)
                self._spawn(self._answers, client, server, refused)

    def _requests(self, client: socket.socket, server: socket.socket, refused: set[int]) -> None:
        """Pass requests on."""
        with suppress(OSError), client, server:
            _send(server, _frame(client))  # the connect request
            while (frame := _frame(client)) is not None:
                xid, opcode = struct.unpack_from("!ii", frame)
                if opcode not in self._unknown:
                    self.passed += 1
                    _send(server, frame)
                    continue
                self.met.append(Unknown(opcode, self.held))
                if self._manner == "closes":
                    break
                refused.add(xid)
                if self._manner == "expires":
                    _send(server, struct.pack("!ii", xid, CLOSE_SESSION))
                else:  # in its place one whose answer comes in its turn, and is made the refusal
                    _send(server, struct.pack("!iii", xid, SYNC, 1) + b"/")
            _end(client)
            _end(server)

    def _answers(self, client: socket.socket, server: socket.socket, refused: set[int]) -> None:
        """Pass answers and events on."""
        with suppress(OSError):
            _send(client, _frame(server))  # the connect response
            while (frame := _frame(server)) is not None:
                xid, zxid = struct.unpack_from("!iq", frame)
                if xid in refused and self._manner == "expires":
                    break
                if xid in refused:
                    _send(client, struct.pack("!iqi", xid, zxid, UNIMPLEMENTED))
                    if self._manner == "answers and closes":
                        break
                else:
                    _send(client, frame)
        _end(client)
        _end(server)


def _frame(source: socket.socket) -> bytes | None:
    """Read a frame, without its length; None at the end."""
    head = _exactly(source, 4)
    return None if head is None else _exactly(source, struct.unpack("!i", head)[0])


def _exactly(source: socket.socket, length: int) -> bytes | None:
    data = b""
    while len(data) < length:
        more = source.recv(length - len(data))
        if not more:
            return None
        data += more
    return data


def _send(sink: socket.socket, frame: bytes | None) -> None:
    if frame is None:
        raise OSError("it is closed")
    sink.sendall(struct.pack("!i", len(frame)) + frame)


def _end(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
