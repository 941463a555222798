"""Three servers: elections, frozen leaders, and routes between them."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from pathlib import Path

import pytest

from zkconcurrent.testing import Ensemble, Peer


def test_leader_killed() -> None:
    """When the leader is killed another is elected, the data stay, and the old one comes back as a follower."""
    with Ensemble() as ensemble, ensemble.client(timeout=10) as client:
        client.create("/kept", b"data")
        old = ensemble.leader()
        assert len(ensemble.followers()) == 2
        old.kill()
        new = ensemble.leader()
        assert new is not old
        old.restart()
        assert old.mode() == "follower"
        assert client.retry(client.get, "/kept")[0] == b"data"


def test_leader_frozen() -> None:
    """When the leader freezes another is elected, and is taken for the leader also once the old one thaws."""
    with Ensemble(settings={"syncLimit": 5}) as ensemble:
        old = ensemble.leader()
        old.freeze()
        new = ensemble.leader()
        assert new is not old
        old.thaw()
        assert ensemble.leader() is new


def test_expire() -> None:
    """A session is expired for all servers."""
    with Ensemble() as ensemble, ensemble.client() as client:
        client.create("/ephemeral", ephemeral=True)
        ensemble.expire(client)
        for server in ensemble.servers:
            with server.client() as other:
                other.sync("/")
                assert other.exists("/ephemeral") is None


class Forwarder(socketserver.ThreadingTCPServer):
    """Passes connections on to a port, and counts them."""

    daemon_threads = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.target = target
        self.count = 0
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Connection(socketserver.BaseRequestHandler):
    """One connection that is passed on."""

    server: Forwarder

    def handle(self) -> None:
        """Copy both ways until either side ends."""
        self.server.count += 1
        with self.connect() as far:
            back = threading.Thread(target=copy, args=(far, self.request), daemon=True)
            back.start()
            copy(self.request, far)
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


def copy(source: socket.socket, sink: socket.socket) -> None:
    """Pass on what comes, and the end too."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


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
        leader = ensemble.servers.index(ensemble.leader()) + 1
        used = {pair for pair, forwarder in forwarders.items() if forwarder.count}
        assert {(a, leader) for a in (1, 2, 3) if a != leader} <= used


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
        deadline = time.monotonic() + 20
        while last.mode() is not None:
            assert time.monotonic() < deadline, "it still believes in a majority"
        with pytest.raises(TimeoutError, match="no server"):
            ensemble.leader(timeout=0.2)


def test_a_member_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ensemble that does not come up raises with the log of the server that failed, and leaves nothing."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="NumberFormatException"):
        Ensemble(settings={"initLimit": "soon"}).start()
    assert not any(tmp_path.iterdir())
