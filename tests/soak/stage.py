"""The stage of a run: the servers, and the networks between them and everybody.

Each worker process reaches each server through a proxy of its own, so that the network can fail for one alone. The
servers hear each other through cables, so that one of them can be cut off while its clients stay with it.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from kazoo.exceptions import NoNodeError

from tests.tools.proxy import Proxy
from zkconcurrent.testing import Ensemble, Peer, Server

if TYPE_CHECKING:
    from typing_extensions import Self

# A follower that is cut off goes on serving what it knows for this long (in ticks of 0.2 s), which is longer than a
# session lasts: the leader gives its clients' locks away while it still answers them.
SYNC_LIMIT = 30
SETTLE = 45.0  # seconds in which an ensemble must come together


class SoakError(Exception):
    """The run cannot go on, for no fault of the locks."""


class Cable(socketserver.ThreadingTCPServer):
    """Passes connections to a port on, and can stop passing what they say, closing nothing."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.target = target
        self.flows = threading.Event()
        self.flows.set()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.flows.set()
        self.shutdown()
        super().__exit__(kind, error, traceback)


class _Connection(socketserver.BaseRequestHandler):
    """One connection that is passed on."""

    server: Cable

    def handle(self) -> None:
        """Copy both ways until either side ends."""
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError), self._reach() as far:
            back = threading.Thread(target=self._copy, args=(far, self.request), daemon=True)
            back.start()
            self._copy(self.request, far)
            back.join()

    def _reach(self) -> socket.socket:
        """Reach the target, which may not listen yet: were that hidden, a server would take it for one that is gone."""
        deadline = time.monotonic() + 2
        while True:
            try:
                far = socket.create_connection(("127.0.0.1", self.server.target))
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return far

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.server.flows.wait()
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Stage:
    """Servers and networks, while its `with` block runs.

    Args:
        places: how many worker processes there are at a time.
        alone: have one server instead of three; quicker, where no server is to fail.

    Attributes:
        service: the servers, as one.
        servers: each of them.
        proxies: for each place, the proxy before each server.
    """

    def __init__(self, places: int, alone: bool = False) -> None:
        self._places, self._alone = places, alone
        self._stack = ExitStack()
        self._cables: dict[tuple[int, int], Cable] = {}
        self.service: Server | Ensemble
        self.servers: tuple[Server, ...] = ()
        self.proxies: list[list[Proxy]] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._alone:
                self.service = stack.enter_context(Server())
                self.servers = (self.service,)
            else:
                # The cables end first: what waits for a server that is gone must not wait for ever.
                settings = {"syncLimit": SYNC_LIMIT}
                self.service = stack.enter_context(Ensemble(3, route=self._route, settings=settings))
                self.servers = self.service.servers
                for cable in self._cables.values():
                    stack.enter_context(cable)
            for _ in range(self._places):
                self.proxies.append([stack.enter_context(Proxy(server.hosts)) for server in self.servers])
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def _route(self, a: int, b: int, peer: Peer) -> Peer:
        cable = self._cables[a, b] = Cable(peer.quorum)
        return Peer(cable.port, peer.election)

    def hosts(self, place: int) -> str:
        """Return where the process in a place (from 1) connects."""
        return ",".join(proxy.hosts for proxy in self.proxies[place - 1])

    def cut_off(self, server: Server) -> None:
        """Let nothing pass between a server and the others, and close nothing."""
        self._flow(server, False)

    def join(self, server: Server) -> None:
        """Let it pass again, and what was held back first."""
        self._flow(server, True)

    def _flow(self, server: Server, flows: bool) -> None:
        number = self.servers.index(server) + 1
        for pair, cable in self._cables.items():
            if number in pair:
                (cable.flows.set if flows else cable.flows.clear)()

    def leader(self) -> Server:
        """Return the server that leads."""
        return self.service.leader(SETTLE) if isinstance(self.service, Ensemble) else self.service

    def others(self) -> list[Server]:
        """Return those that don't."""
        leader = self.leader()
        return [server for server in self.servers if server is not leader]

    def settle(self) -> None:
        """Wait until all servers serve, under one leader.

        Raises:
            SoakError: they don't come together.
        """
        deadline = time.monotonic() + SETTLE
        while sorted(server.mode() or "" for server in self.servers) not in (
            ["follower", "follower", "leader"],
            ["standalone"],
        ):
            if time.monotonic() > deadline:
                modes = ", ".join(f"{server!r}: {server.mode()}" for server in self.servers)
                raise SoakError(f"the servers did not come together within {SETTLE:.0f} s: {modes}")
            time.sleep(0.05)

    def has_quorum(self) -> bool:
        """Return whether a server leads now, and says so at once."""
        return any(server.status(0.25).get("Mode") in ("leader", "standalone") for server in self.servers)

    def ephemerals(self) -> list[str]:
        """Return all ephemeral nodes, as the leader knows them."""
        return list(_ephemerals(self.service))

    def views(self) -> str:
        """Return all ephemeral nodes, with the session of each and what it says, as each server has them: a line each.

        A node that one server alone has, once it has caught up with its leader, was deleted: that server is at fault.
        """
        seen = [_ephemerals(server) for server in self.servers]
        lines = []
        for path in sorted({path for nodes in seen for path in nodes}):
            at = [n for n, nodes in enumerate(seen, 1) if path in nodes]
            servers = "all servers" if len(at) == len(seen) else "ONLY server " + " and ".join(map(str, at))
            lines.append(f"{servers}: {path} {seen[at[0] - 1][path]}\n")
        return "".join(lines)


def _ephemerals(service: Server | Ensemble) -> dict[str, str]:
    """Return the ephemeral nodes, by their paths in order, each with its session and what it says."""
    with service.client(timeout=10) as client:
        client.sync("/")
        found, paths = {}, [""]
        while paths:
            path = paths.pop() or "/"
            with contextlib.suppress(NoNodeError):
                data, stat = client.get(path)
                if stat.ephemeralOwner:
                    found[path] = f"0x{stat.ephemeralOwner:x} {data.decode(errors='replace')}"
                paths += [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
        return dict(sorted(found.items()))
