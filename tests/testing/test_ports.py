"""A server's ports are its own while it is dead, and before it listens at them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import zkconcurrent.testing._ports as ports_module
from tests.helpers.eventually import eventually
from tests.helpers.processes import run_python
from zkconcurrent.testing import Ensemble, Peer, Server
from zkconcurrent.testing._ports import ReservedPorts

TAKE = """
import sys
from zkconcurrent.testing import _ports
for port in map(int, sys.argv[1:]):
    _ports._PORTS = (port,)
    try:
        print(*_ports.ReservedPorts(1).numbers)
    except RuntimeError:
        pass
"""


@pytest.fixture(autouse=True)
def _ports_of_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process choose among ports that no server of another suite gets, while these are free."""
    monkeypatch.setattr(ports_module, "_PORTS", range(11_000, 20_000))


def taken(ports: Iterable[int]) -> set[int]:
    """Return those of these ports that another process can get."""
    done = run_python("-c", TAKE, *map(str, ports))
    return set(map(int, done.stdout.split()))


def test_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither this process nor another gets a port twice, until it is closed."""
    ours = ReservedPorts(3)
    mine = ours.numbers
    assert len({*mine}) == 3
    assert not taken(mine)
    monkeypatch.setattr(ports_module, "_PORTS", mine)
    with pytest.raises(RuntimeError, match="not 1 ports are free"):
        ReservedPorts(1)
    ours.close()
    assert ours.numbers == ()
    # Another suite may choose one of them at once, and has it for a while.
    eventually(lambda: taken(mine) == {*mine}, "all ports are free again")


def test_a_dead_server_keeps_its_port() -> None:
    """Another suite gets the port of a killed server no more than that of a running one, and so it can restart."""
    with Server() as server:
        server.kill()
        assert not taken([server.port])
        server.start()
        assert not taken([server.port])


def test_a_follower_keeps_the_port_at_which_it_would_lead() -> None:
    """Nobody listens there until it leads: two ensembles with the same one, and neither would find its way."""
    peers: set[Peer] = set()

    def route(_a: int, _b: int, peer: Peer) -> Peer:
        peers.add(peer)
        return peer

    with Ensemble(route=route) as ensemble:
        ports = {port for peer in peers for port in peer}
        assert len(ports) == 6
        assert not taken([*ports, *(server.port for server in ensemble.servers)])
