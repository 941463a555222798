"""Several servers that keep one state together, for tests of what happens when some of them fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zkconcurrent.testing._ports import free_ports, try_ports
from zkconcurrent.testing._server import Server
from zkconcurrent.testing._service import Service

if TYPE_CHECKING:
    from typing_extensions import Self

_ELECTION_TIMEOUT = 30.0
_POLL_INTERVAL = 0.02


class Peer(NamedTuple):
    """Where one server of an ensemble is reached by the others: its loopback ports."""

    quorum: int
    election: int


class Ensemble(Service):
    """A ZooKeeper ensemble on loopback; a context manager that starts it and stops it.

    Args:
        n: How many servers; at least three.
        route: Called before the start as ``route(a, b, peer)`` for each pair of servers, numbered from 1. Returns the
            ports under which server ``a`` is told to reach server ``b``, which itself listens on those of ``peer``.
            So a test can put a proxy between two servers. By default they reach each other directly.
        settings: More lines for each ``zoo.cfg``, by name.
        each: Called as ``each(number)``; returns what else the server of that number takes, such as a shorter
            ``max_session_timeout`` than the others have.
        **options: What else `Server` takes, for each of them.

    Attributes:
        servers: Its servers, while it runs; server number ``i`` is ``servers[i - 1]``.
    """

    def __init__(
        self,
        n: int = 3,
        *,
        route: Callable[[int, int, Peer], Peer] | None = None,
        settings: Mapping[str, object] | None = None,
        each: Callable[[int], Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> None:
        if n < 3:
            raise ValueError(f"an ensemble has at least three servers, not {n}")
        self._n = n
        self._route = route or (lambda _a, _b, peer: peer)
        # In ticks. A follower that its leader does not hear for syncLimit is given up, and a leader by its followers.
        self._settings = {"initLimit": 50, "syncLimit": 10, **(settings or {})}
        self._options = options
        self._each = each or (lambda _number: {})
        self.servers: tuple[Server, ...] = ()

    def __repr__(self) -> str:
        return f"<Ensemble {list(self.servers)}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def hosts(self) -> str:
        """The addresses of all servers, separated by commas."""
        return ",".join(server.hosts for server in self.servers)

    def start(self) -> None:
        """Start all servers, and wait until all of them serve.

        Raises:
            NoServerError: No ZooKeeper or no Java is found.
            RuntimeError: It is running already, or a server does not come up; the message ends with its log.
        """
        if self.servers:
            raise RuntimeError(f"{self!r} is running already")
        try_ports(self._start_all)

    def wait(self) -> None:
        """Wait until all servers serve clients.

        Raises:
            RuntimeError: One ended, or does not serve in time; the message ends with its log.
        """
        for server in self.servers:
            server.wait()

    def stop(self) -> None:
        """End all servers and remove their folders."""
        for server in self.servers:
            server.stop()
        self.servers = ()

    def leader(self, timeout: float = _ELECTION_TIMEOUT) -> Server:
        """The server that leads, once one does.

        Args:
            timeout: Seconds to wait for an election to end.

        Raises:
            TimeoutError: No server leads.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            answers = [(server, server.status()) for server in self.servers]
            # An old leader that was frozen still says it leads when it thaws; the upper half of a zxid is the epoch.
            leaders = {int(told["Zxid"], 16) >> 32: server for server, told in answers if told.get("Mode") == "leader"}
            if leaders:
                return leaders[max(leaders)]
            time.sleep(_POLL_INTERVAL)
        raise TimeoutError(f"no server of {self!r} led within {timeout:g} s")

    def followers(self) -> list[Server]:
        """The servers that follow a leader now."""
        return [server for server in self.servers if server.mode() == "follower"]

    def _start_all(self) -> None:
        self.servers = self._make_servers()
        try:
            for server in self.servers:
                server.start(wait=False)
            self.wait()
        except BaseException:
            self.stop()
            raise

    def _make_servers(self) -> tuple[Server, ...]:
        ports = iter(free_ports(3 * self._n))
        numbers = range(1, self._n + 1)
        peers = {number: Peer(next(ports), next(ports)) for number in numbers}
        return tuple(
            Server(
                port=next(ports),
                server_id=number,
                settings=self._settings | self._members(number, peers),
                **{**self._options, **self._each(number)},
            )
            for number in numbers
        )

    def _members(self, told: int, peers: Mapping[int, Peer]) -> dict[str, object]:
        """The lines that tell one server where all of them are. Its own is where it listens."""
        members: dict[str, object] = {}
        for number, peer in peers.items():
            quorum, election = peer if number == told else self._route(told, number, peer)
            members[f"server.{number}"] = f"127.0.0.1:{quorum}:{election}"
        return members
