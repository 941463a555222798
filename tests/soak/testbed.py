"""The testbed of a run: the servers, and the networks between them and everybody.

Each worker process reaches each server through a proxy of its own, so that the network can fail for one alone. The
servers hear each other through links, so that one of them can be cut off, deaf or slow while its clients stay with it.
"""

from __future__ import annotations

import contextlib
import time
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING

from kazoo.exceptions import NoNodeError

from tests.helpers.links import Links
from tests.helpers.proxy import Proxy
from zkconcurrent.testing import Ensemble, Server

if TYPE_CHECKING:
    from typing_extensions import Self

# A follower that is cut off goes on serving what it knows for this long (in ticks of 0.2 s), which is longer than a
# session lasts: the leader gives its clients' locks away while it still answers them.
SYNC_LIMIT = 30
INIT_LIMIT = 20  # a server that follows one that is silent looks for another after so many ticks
SETTLE = 45.0  # seconds in which an ensemble must come together


class SoakError(Exception):
    """The run cannot go on, for no fault of the locks."""


class Testbed:
    """Servers and networks, while its `with` block runs.

    Args:
        places: how many worker processes there are at a time.
        alone: have one server instead of three; quicker, where no server is to fail.

    Attributes:
        service: the servers, as one.
        servers: each of them.
        links: the network between the servers.
        proxies: for each place, the proxy before each server.
    """

    __test__ = False  # for pytest, to which all classes named so are tests

    def __init__(self, places: int, alone: bool = False) -> None:
        self._places, self._alone = places, alone
        self._stack = ExitStack()
        self.links = Links()
        self.service: Server | Ensemble
        self.servers: tuple[Server, ...] = ()
        self.proxies: list[list[Proxy]] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._alone:
                self.service = stack.enter_context(Server())
                self.servers = (self.service,)
            else:
                settings = {"syncLimit": SYNC_LIMIT, "initLimit": INIT_LIMIT}
                stack.enter_context(self.links)
                # Those that look for a leader say so again each second, not each minute: it may be lost on the way.
                properties = {"zookeeper.fastleader.maxNotificationInterval": 1000}
                self.service = stack.enter_context(
                    Ensemble(3, route=self.links.route, settings=settings, properties=properties)
                )
                self.servers = self.service.servers
            for _ in range(self._places):
                self.proxies.append([stack.enter_context(Proxy(server.hosts)) for server in self.servers])
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def hosts(self, place: int) -> str:
        """Return where the process in a place (from 1) connects."""
        return ",".join(proxy.hosts for proxy in self.proxies[place - 1])

    def number(self, server: Server) -> int:
        """Return the number of a server, by which links know it."""
        return self.servers.index(server) + 1

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

    def diverged(self) -> list[int]:
        """Return the numbers of the servers that have found another digest of their copy than their leader's.

        Since 3.6 the leader sends the digest of its copy with each transaction.
        """
        numbers = []
        for number, server in enumerate(self.servers, 1):
            with contextlib.suppress(OSError):
                figures = dict(
                    line.split("\t", 1) for line in server.command("mntr", 0.25).splitlines() if "\t" in line
                )
                if int(figures.get("zk_digest_mismatches_count", 0)):
                    numbers.append(number)
        return numbers

    def ephemerals(self) -> list[str]:
        """Return the paths of all ephemeral nodes, as the leader knows them."""
        found, paths = [], [""]
        with self.service.client(timeout=10) as client:
            client.sync("/")
            while paths:
                path = paths.pop()
                with contextlib.suppress(NoNodeError):
                    names, stat = client.get_children(path or "/", include_data=True)
                    found += [path] * bool(stat.ephemeralOwner)
                    paths += [f"{path}/{name}" for name in names]
        return sorted(found)
