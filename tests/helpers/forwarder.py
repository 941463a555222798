"""A forwarder of TCP connections: for a link between two servers of an ensemble, which a test may cut."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time


class Forwarder(socketserver.ThreadingTCPServer):
    """Passes connections on to a port, and counts them.

    Attributes:
        count: how many connections there were.
        passes: cleared, it holds back all that comes, and closes nothing: a black hole.
    """

    daemon_threads = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.target = target
        self.count = 0
        self.passes = threading.Event()
        self.passes.set()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Connection(socketserver.BaseRequestHandler):
    """One connection that is passed on."""

    server: Forwarder

    def handle(self) -> None:
        """Copy both ways until either side ends."""
        self.server.count += 1
        with self.connect() as far:
            back = threading.Thread(target=copy, args=(far, self.request, self.server.passes), daemon=True)
            back.start()
            copy(self.request, far, self.server.passes)
            back.join()

    def connect(self) -> socket.socket:
        """Reach the target, which may not listen yet: were that hidden, a server would take it for one that is gone."""
        deadline = time.monotonic() + 10
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.server.target))
            except ConnectionRefusedError:
                assert time.monotonic() < deadline, "nobody listens"
                time.sleep(0.02)


def copy(source: socket.socket, sink: socket.socket, passes: threading.Event) -> None:
    """Pass on what comes, and the end too."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            passes.wait()
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class SlowConnection(Connection):
    """One over a link that is slow towards the client."""

    RATE = 250_000.0  # bytes a second

    def handle(self) -> None:
        """Copy both ways until either side ends, one of them in small parts."""
        with self.connect() as far:
            slow, other = self.directions(far)
            there = threading.Thread(target=copy, args=(*other, self.server.passes), daemon=True)
            there.start()
            free = 0.0  # when the link has passed what it was given: a sleep that is too long slows it no further
            with contextlib.suppress(OSError):
                while data := slow[0].recv(4096):
                    slow[1].sendall(data)
                    free = max(free, time.monotonic() - 0.2) + len(data) / self.RATE
                    time.sleep(max(0.0, free - time.monotonic()))
            for end in (self.request, far):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            there.join()

    def directions(self, far: socket.socket) -> tuple[tuple[socket.socket, socket.socket], ...]:
        """Return the slow direction, from and to which socket, and the other."""
        return (far, self.request), (self.request, far)


class SlowToTheServer(SlowConnection):
    """One over a link that is slow towards the server."""

    def directions(self, far: socket.socket) -> tuple[tuple[socket.socket, socket.socket], ...]:
        """Return the slow direction, from and to which socket, and the other."""
        return (self.request, far), (far, self.request)
