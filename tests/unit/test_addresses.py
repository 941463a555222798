"""The order in which a client tries the addresses of its servers, and how long it waits for each."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from zkconcurrent._kazoo.addresses import Addresses

OF_MACHINES = {
    name: [(socket.AF_INET6, f"fd00::{n}"), (socket.AF_INET, f"10.0.0.{n}")] for n, name in enumerate("abc", 1)
}


def addresses(monkeypatch: pytest.MonkeyPatch, *, randomize: bool) -> Addresses:
    """Return the addresses of three machines with two each."""

    def resolve(host: str, port: int, *_: Any) -> list[Any]:
        return [(family, 0, 6, "", (address, port)) for family, address in OF_MACHINES[host]]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    client: Any = SimpleNamespace(
        hosts=[(name, 2181) for name in OF_MACHINES],
        randomize_hosts=randomize,
        handler=SequentialThreadingHandler(),
        _session_id=1,
        _session_timeout=12_000,
        _stopped=threading.Event(),
    )
    return Addresses(client)


@pytest.mark.fault(243)
@pytest.mark.parametrize("randomize", [False, True])
def test_machines_and_families_alternate(randomize: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a machine that is dead, nor a network without IPv6, is met twice in a row."""
    for _ in range(20):
        walk = list(addresses(monkeypatch, randomize=randomize).expand())
        assert len(set(walk)) == 6
        assert [":" in address for _, address, _ in walk[:3]] == [True, False, True]
        assert {name for name, _, _ in walk[:3]} == set(OF_MACHINES)


@pytest.mark.fault(403)
def test_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """All addresses together get one session timeout while the session may live; later, each name gets a share.

    Fault 403: that grows, and begins anew.
    """
    tried = addresses(monkeypatch, randomize=False)
    tried.expand()
    assert tried.share(12) == 12 / 4  # the session was over long ago, if there was one
    tried.opened(12)
    tried.lost()
    assert tried.share(12) == 12 / 6
    tried.opened(6)  # which is less than was asked for
    tried.lost()
    assert tried.share(12) == 6 / 6
    tried.opened(12)
    monkeypatch.setattr(tried._client, "hosts", [(f"h{n}", 2181) for n in range(20)])
    monkeypatch.setattr(tried._client, "_session_id", 0)
    monkeypatch.setattr(tried, "resolve", lambda: None)
    shares = []
    for _ in range(6):
        tried.expand()
        shares.append(tried.share(60))
    assert shares == [3, 6, 12, 15, 3, 6]  # a dead server must not cost that much each time
