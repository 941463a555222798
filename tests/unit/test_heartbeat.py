"""The nodes that a heartbeat lists on a new connection, as the server before may not have shown them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError, NoNodeError

from zkconcurrent._engine.heartbeat import Heartbeat
from zkconcurrent._engine.ticket_registry import Registry
from zkconcurrent._protocol.session_lease import Lease

TIMEOUT = 6.0
STRAY, OWN = "_c_00000000-0000-0000-0000-000000000009-lock-0000000000", "_c_00000000-0000-0000-0000-000000000001-"


class Server:
    """A link to a server that answers at once.

    Args:
        error: how it refuses a listing.
    """

    connection = awaited_xid = None

    def __init__(self, error: Exception | None) -> None:
        self.transport = self
        self.error = error
        self.listed: list[str] = []
        self.deleted: list[str] = []

    def send(self, *_: object) -> None:
        """Each request was answered as it was made."""

    def sync(self, _path: str, reply: Any) -> None:
        """Answer."""
        reply.set()

    def children(self, path: str, reply: Any) -> None:
        """Show a node of this client that has no ticket, one that has, and one of another client."""
        self.listed.append(path)
        if self.error is not None:
            reply.set_exception(self.error)
        else:
            reply.set([STRAY, OWN + "lock-0000000001", "_c_11111111-1111-1111-1111-000000000009-lock-0000000002"])

    def delete(self, node: str, reply: Any) -> None:
        """Note it."""
        self.deleted.append(node)
        reply.set()


@pytest.mark.fault(516)
@pytest.mark.parametrize(
    ("error", "times", "deleted"),
    [
        pytest.param(None, 1, [f"/left/{STRAY}"], id="a node has come back"),
        pytest.param(NoNodeError(), 1, [], id="the path is gone"),
        pytest.param(NoAuthError(), 1, [], id="the path may not be read any more"),
        pytest.param(ConnectionLoss(), 8, [], id="the connection is lost"),
    ],
)
def test_on_a_new_connection(error: Exception | None, times: int, deleted: list[str]) -> None:
    """Where it has deleted nodes it lists once on each, and again only if it got no reply."""
    server, lease = Server(error), Lease(1)
    lease.note_opened(0.0, TIMEOUT)
    registry = Registry("00000000-0000-0000-0000")
    registry.begin_session(lease)
    registry.new_ticket("/path", [])
    registry.recently_left = {"/left": None}
    session = SimpleNamespace(link=server, registry=registry, timeout=TIMEOUT, clock=float, wake_keeper=int)
    session.post, session.warn_later = lambda act: act(), lambda *_, **__: None
    heartbeat = Heartbeat(session, print, bool)  # type: ignore[arg-type]
    for look in range(10):
        heartbeat.beat(1000 + look * TIMEOUT)
    assert not server.listed
    for connection in (1, 2):
        heartbeat.reset()
        for look in range(connection * 10, connection * 10 + 8):
            heartbeat.beat(1000 + look * TIMEOUT)
        assert server.listed == ["/left"] * times * connection
        assert server.deleted == deleted * connection
