"""The memory server: one thread serves all connections, from 127.0.0.1 or its own process, and may keep a journal.

The journal is for tests that kill a server and start it again: each change is in the file before a client sees it. It
is not written through to the disk, so a crash of the machine may lose it.
"""

from __future__ import annotations

import errno
import marshal
import selectors
import socket
import sys
import time
import traceback
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path

from .._runtime.clock import monotonic, wall_clock
from .changes import Change
from .service import Limits, Service
from .tree import Tree
from .wire import Connection
from .words import Words

_STEPS = tuple(Tree.appliers)
_NUMBERS = {step: number for number, step in enumerate(_STEPS)}
_AT_ONCE = 1 << 16  # bytes to read
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE = 0.01  # seconds


class Journal:
    """The changes of a service, kept in a file.

    Args:
        path: the file's path; a missing file is created.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "ab+", buffering=0)  # noqa: SIM115 - open as long as the process

    def read(self) -> Tree:
        """Return the tree that the changes have made; an incomplete last change is dropped."""
        tree, end = Tree(), 0
        with open(self._file.name, "rb") as file, suppress(EOFError, ValueError, TypeError):
            while True:
                zxid, steps = marshal.load(file)
                tree.apply(tuple(_STEPS[number](*fields) for number, *fields in steps), zxid)
                end = file.tell()
        self._file.truncate(end)
        return tree

    def write(self, zxid: int, change: Change) -> None:
        """Add a change."""
        self._file.write(marshal.dumps((zxid, tuple((_NUMBERS[type(step)], *step) for step in change))))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TcpServer:
    """The server.

    Args:
        service: the service that it provides.
        port: the port of 127.0.0.1; 0 picks a free one; None serves this process alone, through `dial`.
        settings: the settings in its `zoo.cfg`, which the word `conf` returns.

    Attributes:
        port: the port on which it listens; 0 if it does not listen.
        unused: paths that no client will use again. Finalizers add to it; the server removes their nodes.

    Raises:
        OSError: another process listens at the port.
    """

    def __init__(self, service: Service, port: int | None, settings: dict[str, str]) -> None:
        self._service = service
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[Connection, socket.socket] = {}
        self._to_send: dict[Connection, None] = {}
        self._words = Words(service, self._sockets.keys(), settings, self._drop)
        self._stopped = False
        self.port = 0
        self.unused: deque[str] = deque()
        # The server's ends of the connections that `dial` has made.
        self._dialled: deque[socket.socket] = deque()
        self._woken, self._wakes = socket.socketpair()
        self._own = [self._woken, self._wakes]
        for each in self._own:
            each.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._wake_up)
        if port is not None:
            listener = socket.create_server(("127.0.0.1", port), backlog=1024)
            self.port = listener.getsockname()[1]
            listener.setblocking(False)
            self._own.append(listener)
            self._selector.register(listener, selectors.EVENT_READ, partial(self._accept, listener))

    def close_copies(self) -> None:
        """Close this process's sockets; a forked child's are copies, and the parent goes on serving."""
        # Unregister nothing: a forked child and its parent share the selector.
        self._selector.close()
        for each in (*self._own, *self._dialled, *self._sockets.values()):
            each.close()

    def run(self) -> None:
        """Serve until `stop` is called, or the process ends."""
        due = 0
        while not self._stopped:
            ready = self._selector.select(max(0, due - monotonic_ms()) / 1000)
            # The chores come first, as the process may have been stopped for longer than a session lives.
            if monotonic_ms() >= due:
                due = self._service.run_chores()
                while self.unused:
                    self._service.remove(self.unused.popleft())
            for key, events in ready:
                if not isinstance(key.data, Connection):
                    key.data()
                    continue
                if events & selectors.EVENT_WRITE:
                    self._note_output(key.data)
                if events & selectors.EVENT_READ:
                    self._receive(key.data)
            while self._to_send:
                self._send(self._to_send.popitem()[0])
        self.close_copies()

    def stop(self) -> None:
        """Have `run`, on another thread, close all connections and return."""
        self._stopped = True
        self._wake()

    def dial(self) -> socket.socket:
        """Return a client's end of a new connection, which no other process can reach."""
        ours, theirs = socket.socketpair()
        self._dialled.append(ours)
        self._wake()
        return theirs

    def _wake(self) -> None:
        with suppress(OSError):
            self._wakes.send(b"\0")

    def _wake_up(self) -> None:
        self._woken.recv(_AT_ONCE)
        while self._dialled:
            self._serve(self._dialled.popleft(), "127.0.0.1")

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, (host, _) = listener.accept()
        except OSError as error:
            # As in ZooKeeper, the client waits until a descriptor is free. Without a pause, `select` would report the
            # client again at once.
            if error.errno in _SCARCE:
                time.sleep(_PAUSE)
            # Any other error means that the client is gone again.
            return
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._serve(client, host)

    def _serve(self, client: socket.socket, host: str) -> None:
        client.setblocking(False)
        connection = Connection(self._service, host, self._words.answer, self._note_output)
        self._sockets[connection] = client
        self._selector.register(client, selectors.EVENT_READ, connection)

    def _note_output(self, connection: Connection) -> None:
        self._to_send[connection] = None

    def _receive(self, connection: Connection) -> None:
        try:
            data = self._sockets[connection].recv(_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            if data:
                connection.receive(data)
        except Exception:
            # Report an error of this server, and go on serving the other connections.
            traceback.print_exc()
            data = b""
        if not data:
            self._lose(connection)

    def _send(self, connection: Connection) -> None:
        client = self._sockets.get(connection)
        if client is None:
            return
        try:
            while connection.output:
                del connection.output[: client.send(connection.output)]
        except BlockingIOError:
            pass
        except OSError:
            self._lose(connection)
        awaited = (not connection.ended and selectors.EVENT_READ) | (bool(connection.output) and selectors.EVENT_WRITE)
        if not awaited:
            self._close(connection, client)
        elif awaited != self._selector.get_key(client).events:
            self._selector.modify(client, awaited, connection)

    def _lose(self, connection: Connection) -> None:
        connection.output.clear()
        connection.disconnect()

    def _close(self, connection: Connection, client: socket.socket) -> None:
        del self._sockets[connection]
        self._words.received += connection.received
        self._selector.unregister(client)
        client.close()

    def _drop(self) -> None:
        for connection in list(self._sockets):
            if connection.session:
                connection.disconnect()


def monotonic_ms() -> int:
    """Return milliseconds by a clock that never goes back."""
    return int(monotonic() * 1000)


def wall_ms() -> int:
    """Return milliseconds since 1970."""
    return int(wall_clock() * 1000)


def main(config: str, containers: str, forgets: str = "") -> None:
    """Run a server.

    Args:
        config: the path of a `zoo.cfg`, whose folder gets the journal.
        containers: how often empty containers are removed, in milliseconds.
        forgets: if not empty, all sessions of the previous server end.
    """
    lines = (line.partition("=") for line in Path(config).read_text().splitlines())
    settings = {name: value for name, _, value in lines}
    tick, shortest, longest = (int(settings[name]) for name in ("tickTime", "minSessionTimeout", "maxSessionTimeout"))
    limits = Limits(tick, shortest, longest, int(containers))
    data = Path(config).parent / "version-2"  # as in ZooKeeper
    data.mkdir(exist_ok=True)
    journal = Journal(data / "journal")
    tree = journal.read()
    service = Service(tree, limits, monotonic_ms, wall_ms, journal.write)
    for session in list(tree.sessions) if forgets else ():
        service.close(session)
    TcpServer(service, int(settings["clientPort"]), {**settings, "dataDir": str(data)}).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
