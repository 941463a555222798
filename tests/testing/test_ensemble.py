"""Three servers: elections, frozen leaders, and routes between them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.helpers.eventually import eventually
from tests.helpers.forwarder import Forwarder
from zkconcurrent.testing import Ensemble, Peer


def test_leader_killed() -> None:
    """When the leader is killed another is elected, the data stay, and the old one comes back as a follower."""
    with Ensemble() as ensemble, ensemble.client(timeout=10) as client:
        client.create("/kept", b"data")
        old = ensemble.leader()
        eventually(lambda: len(ensemble.followers()) == 2)  # one may be slow to answer
        old.kill()
        new = ensemble.leader()
        assert new is not old
        old.restart()
        eventually(lambda: old.mode() == "follower")
        assert client.retry(client.get, "/kept")[0] == b"data"


def test_route() -> None:
    """Servers reach each other under the ports they are told."""
    with contextlib.ExitStack() as stack:
        forwarders: dict[tuple[int, int], Forwarder] = {}

        def route(a: int, b: int, peer: Peer) -> Peer:
            forwarder = forwarders[a, b] = stack.enter_context(Forwarder(peer.quorum))
            stack.callback(forwarder.shutdown)
            return Peer(forwarder.server_address[1], peer.election)

        ensemble = stack.enter_context(Ensemble(route=route))
        assert set(forwarders) == {(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b}

        def used() -> bool:
            leader = ensemble.servers.index(ensemble.leader()) + 1
            return all(forwarders[a, leader].count for a in (1, 2, 3) if a != leader)

        eventually(used)


def test_too_few() -> None:
    """Two servers are no ensemble: neither can fail."""
    with pytest.raises(ValueError, match="at least three"):
        Ensemble(2)


def test_no_quorum() -> None:
    """Without a majority nobody leads, and waiting for a leader ends in time."""
    with Ensemble() as ensemble:
        for server in ensemble.servers[:2]:
            server.kill()
        last = ensemble.servers[2]
        eventually(lambda: not last.status(timeout=5), "it believes in no majority any more")
        with pytest.raises(TimeoutError, match="no server"):
            ensemble.leader(timeout=0.2)


def test_a_member_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ensemble that does not come up raises with the log of the server that failed, and leaves nothing."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="NumberFormatException"):
        Ensemble(settings={"initLimit": "soon"}).start()
    assert not any(tmp_path.iterdir())
