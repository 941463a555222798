"""Host names with several addresses: how soon a client is back while a machine, or the resolver, is dead."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient

import zkconcurrent
from tests.helpers.eventually import eventually
from tests.helpers.proxy import Proxy
from zkconcurrent._engine.session import Session
from zkconcurrent.testing import Server

TIMEOUT = 6.0  # seconds
NAMES = ("zk1.invalid", "zk2.invalid", "zk3.invalid")


class Resolver:
    """Resolves the names of the tests; real for all others.

    Attributes:
        ports: for each name, the ports of its addresses: all addresses are 127.0.0.1. For one without any it does not
            reply, either.
        silent: if it is set, it does not reply until the test has ended.
    """

    def __init__(self) -> None:
        self.ports: dict[str, list[int]] = {}
        self.silent = threading.Event()
        self.over = threading.Event()
        self._real = socket.getaddrinfo

    def getaddrinfo(self, host: Any, *rest: Any, **options: Any) -> Any:
        """Return the addresses of a name, in the form of `socket.getaddrinfo`."""
        if host not in self.ports:
            return self._real(host, *rest, **options)
        if self.silent.is_set() or not self.ports[host]:
            self.over.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in self.ports[host]]


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    """A resolver in the place of the system's."""
    made = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    yield made
    made.over.set()


def opened(ends: ExitStack) -> KazooClient:
    """Return a client of the three names that tries them in their order."""
    url = f"zk://{','.join(NAMES)}"
    return ends.enter_context(zkconcurrent.connect(url, timeout=TIMEOUT, randomize_hosts=False))


def hold(zk: KazooClient, path: str, ends: ExitStack) -> zkconcurrent.Lock:
    """Acquire a lock until the test ends."""
    lock = zkconcurrent.Lock(zk, path)
    ends.enter_context(lock)
    return lock


def reconnect(zk: KazooClient) -> None:
    """Cut the connection, and wait for the next one."""
    link = Session.of(zk).link
    before = link.connection
    link.transport.drop()
    eventually(lambda: zk.connected and link.connection is not before)


@pytest.mark.fault(243)
@pytest.mark.parametrize("connected_to", ["first", "last"])
def test_a_machine_with_several_addresses_has_no_power(
    connected_to: str, zookeeper: Server, zk_path: str, resolver: Resolver, dead_address: Callable[[], int]
) -> None:
    """A client that tries that machine first is with another before its session, or a hold, ends."""
    dead, alive = [dead_address() for _ in range(4)], [zookeeper.port]
    with socket.socket() as closed, ExitStack() as ends:
        closed.bind(("127.0.0.1", 0))
        refuses = [closed.getsockname()[1]]
        places = [alive, dead, alive] if connected_to == "first" else [refuses, refuses, alive]
        resolver.ports.update(zip(NAMES, places, strict=True))
        zk = opened(ends)
        held = hold(zk, zk_path, ends)
        session = zk.client_id
        if connected_to == "last":
            resolver.ports.update(zip(NAMES, [dead, alive, alive], strict=True))
        reconnect(zk)
        assert zk.client_id == session
        assert not held.lost.is_set()


@pytest.mark.fault(243)
def test_addresses_that_are_no_longer_those_of_the_names(
    zookeeper: Server, zk_path: str, resolver: Resolver, dead_address: Callable[[], int]
) -> None:
    """All servers have moved since the names were resolved: they are resolved again at once."""
    with ExitStack() as ends:
        old = [[zookeeper.port], *([dead_address(), dead_address()] for _ in range(2))]
        resolver.ports.update(zip(NAMES, old, strict=True))
        zk = opened(ends)
        held = hold(zk, zk_path, ends)
        session = zk.client_id
        moved = [[dead_address()], [zookeeper.port], [zookeeper.port]]
        resolver.ports.update(zip(NAMES, moved, strict=True))
        reconnect(zk)
        assert zk.client_id == session
        assert not held.lost.is_set()


@pytest.mark.fault(243)
def test_a_resolver_that_does_not_reply(zookeeper: Server, zk_path: str, resolver: Resolver) -> None:
    """A client that lost its connection goes to the last addresses that it knows."""
    with ExitStack() as ends:
        resolver.ports.update({name: [zookeeper.port] for name in NAMES})
        zk = opened(ends)
        held = hold(zk, zk_path, ends)
        reconnect(zk)
        session = zk.client_id
        resolver.silent.set()
        reconnect(zk)
        assert zk.client_id == session
        assert not held.lost.is_set()


@pytest.mark.fault(402)
def test_a_resolver_that_does_not_reply_to_a_new_client(zookeeper: Server, zk_path: str, resolver: Resolver) -> None:
    """`connect` gives up in time, and says why; a name that is resolved waits for no other one."""
    resolver.ports.update({NAMES[0]: [], NAMES[1]: [zookeeper.port]})
    with pytest.raises(TimeoutError, match=rf"{NAMES[0]}:2181: the resolver does not reply \(check the host's name\)"):
        zkconcurrent.connect(f"zk://{NAMES[0]}", start_timeout=0.3, timeout=TIMEOUT)
    with zkconcurrent.connect(f"zk://{NAMES[0]},{NAMES[1]}", timeout=TIMEOUT) as zk, zkconcurrent.Lock(zk, zk_path):
        pass


@pytest.mark.fault(403)
def test_many_names_and_a_slow_link(proxy: Proxy, zk_path: str, resolver: Resolver) -> None:
    """A share of the session timeout is too short for a reply: a client without a session waits longer."""
    names = [f"zk{n}.invalid" for n in range(8)]
    resolver.ports.update({name: [int(proxy.hosts.rpartition(":")[2])] for name in names})
    proxy.delay(0.17)
    with zkconcurrent.connect(f"zk://u:p@{','.join(names)}{zk_path}", timeout=2) as zk:
        assert zk.connected
        proxy.resume()
