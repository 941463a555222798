"""An ensemble of servers, for tests in which some of them fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .._arguments.limits import check_int
from .._runtime.clock import monotonic
from .._runtime.public import Self
from ._ports import ReservedPorts, try_ports
from ._server import Server
from ._service import Service

_ELECTION_TIMEOUT = 30.0
_POLL_INTERVAL = 0.02


class Peer(NamedTuple):
    """The loopback ports at which the other servers of an ensemble reach a server."""

    quorum: int
    election: int


class Ensemble(Service):
    """A ZooKeeper ensemble on loopback; a context manager that starts and stops it.

    Args:
        n: the number of servers, at least three.
        route: called before the start as `route(a, b, peer)` for each pair of servers, numbered from 1. It returns the
            ports at which server `a` reaches server `b`; `b` itself listens on the ports in `peer`. So a test can put a
            proxy between two servers. By default they reach each other directly.
        settings: more lines for each `zoo.cfg`, by name.
        each: called as `each(number)`; returns further arguments of that `Server`, such as a shorter
            `max_session_timeout`.
        **options: further arguments of each `Server`.

    Attributes:
        servers: the running servers; server number `i` is `servers[i - 1]`.
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
        if check_int("n", n) < 3:
            raise ValueError(f"an ensemble has at least three servers, not {n}")
        self._n = n
        self._route = route or (lambda _a, _b, peer: peer)
        # In ticks. A leader drops a follower from which it has heard nothing for syncLimit; a follower does the same
        # with its leader.
        self._settings = {"initLimit": 50, "syncLimit": 10, **(settings or {})}
        self._options = options
        self._each = each or (lambda _number: {})
        # The ports are reserved from each start until `stop`.
        self._reserved: ReservedPorts | None = None
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
            NoServerError: there is no ZooKeeper, or no Java.
            RuntimeError: the ensemble is running already, or a server does not start; the message ends with its log.
        """
        if self.servers:
            raise RuntimeError(f"{self!r} is running already")
        try_ports(self._start_all)

    def wait(self) -> None:
        """Wait until all servers serve clients.

        Raises:
            RuntimeError: a server ended, or does not serve in time; the message ends with its log.
        """
        for server in self.servers:
            server.wait()

    def stop(self) -> None:
        """Stop all servers and remove their folders."""
        for server in self.servers:
            server.stop()
        self.servers = ()
        if self._reserved is not None:
            self._reserved.close()

    def leader(self, timeout: float = _ELECTION_TIMEOUT) -> Server:
        """Return the leader, once there is one.

        Args:
            timeout: seconds to wait for an election to end.

        Raises:
            TimeoutError: no server became the leader in time.
        """
        deadline = monotonic() + timeout
        while monotonic() < deadline:
            answers = [(server, server.status()) for server in self.servers]
            # A thawed old leader still claims to lead. The upper half of a zxid is the epoch: take the newest.
            leaders = {int(told["Zxid"], 16) >> 32: server for server, told in answers if told.get("Mode") == "leader"}
            if leaders:
                return leaders[max(leaders)]
            time.sleep(_POLL_INTERVAL)
        raise TimeoutError(f"no server of {self!r} led within {timeout:g} s")

    def followers(self) -> list[Server]:
        """Return the servers that follow a leader now."""
        return [server for server in self.servers if server.mode() == "follower"]

    def _start_all(self) -> None:
        try:
            self.servers = self._make_servers()
            for server in self.servers:
                server.start(wait=False)
            self.wait()
        except BaseException:
            self.stop()
            raise

    def _make_servers(self) -> tuple[Server, ...]:
        self._reserved = ReservedPorts(3 * self._n)
        ports = iter(self._reserved.numbers)
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
        """Return the lines of `zoo.cfg` with the addresses of all servers, as server number `told` reaches them."""
        members: dict[str, object] = {}
        for number, peer in peers.items():
            quorum, election = peer if number == told else self._route(told, number, peer)
            members[f"server.{number}"] = f"127.0.0.1:{quorum}:{election}"
        return members
