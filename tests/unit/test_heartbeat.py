"""The heartbeat, look by look: when it cuts a connection, and the nodes that it lists under a new leader."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError, NoNodeError, ThrottledOpError

from zkconcurrent._engine.heartbeat import Heartbeat
from zkconcurrent._engine.registry import Registry
from zkconcurrent._protocol.lease import Lease
from zkconcurrent._protocol.ticket import REVOKED, State, Ticket

TIMEOUT = 6.0
LOOK = TIMEOUT / 9 + 0.01  # the keeper's pause


STRAY, OWN = "_c_00000000-0000-0000-0000-000000000009-lock-0000000000", "_c_00000000-0000-0000-0000-000000000001-"


class Line:
    """A link whose answers never come, of which the test says what waits for one.

    Attributes:
        passes: whether parts of a large answer come.
    """

    connection = None
    passes = False

    def __init__(self, waiting: list[int | None]) -> None:
        self.transport = self.large = self
        self.waiting = waiting
        self.sent = 0
        self.cut = False

    @property
    def awaited_xid(self) -> int | None:
        """The number of the next answer: one at each look."""
        return self.waiting.pop(0)

    def sync(self, _path: str, _answer: Any) -> None:
        """Count it."""
        self.sent += 1

    def passed(self) -> bool:
        """Return whether parts of a large answer came."""
        return self.passes

    def drop(self) -> None:
        """Note it."""
        self.cut = True


def beating(line: Line, asked: Callable[[Ticket], bool] = bool) -> Heartbeat:
    """Return the heartbeat of a session that waits for something."""
    lease = Lease(1)
    lease.opened(0.0, TIMEOUT)
    registry = Registry("00000000-0000-0000-0000")
    registry.opened(lease)
    registry.begin("/path", [])
    session = SimpleNamespace(
        link=line,
        registry=registry,
        timeout=TIMEOUT,
        clock=float,
        post=None,
        warn_later=lambda *_: None,
        wake_keeper=int,
    )
    return Heartbeat(session, print, asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("waiting", "cut"),
    [
        pytest.param([5, 5, 5, 5], True, id="dead"),
        pytest.param([None, 5, 5, 5], True, id="dead, when the heartbeat was in a queue still"),
        pytest.param([5, 6, 6, 6, 6], True, id="dead after one answer more"),
        pytest.param([5, 5, 5, 6, 6, 6], False, id="slow"),
        pytest.param([5, 6, 7, 8, 9, 10, 11], False, id="busy"),
        pytest.param([5, None, 8, None, 11, None, 14], False, id="all is answered, but not the heartbeat"),
    ],
)
def test_a_connection_is_cut(waiting: list[int | None], cut: bool) -> None:
    """It is when nothing was answered for a third of the session's timeout; the first look is as it is sent."""
    line = Line(waiting)
    heartbeat = beating(line)
    for look in range(len(waiting)):
        assert not line.cut
        heartbeat.beat(1000 + look * LOOK)
    assert line.cut is cut
    assert line.sent == 1


@pytest.mark.fault(407)
def test_a_connection_that_brings_a_large_answer() -> None:
    """It is kept while parts of it come, for a session timeout: then a call asks again."""
    line = Line([5] * 30)
    heartbeat = beating(line)
    line.passes, look = True, 0
    while not line.cut:
        heartbeat.beat(1000 + look * LOOK)
        look += 1
    assert TIMEOUT < look * LOOK <= 4 / 3 * TIMEOUT + 3 * LOOK


def test_a_heartbeat_that_is_lost() -> None:
    """Another follows after the session's timeout, and not before."""
    line = Line([None] * 30)
    heartbeat = beating(line)
    sent: list[float] = []
    for look in range(25):
        before = line.sent
        heartbeat.beat(1000 + look * LOOK)
        sent += [look * LOOK] * (line.sent - before)
    first, second, third = sent[:3]
    for pause in (second - first, third - second):
        assert TIMEOUT < pause <= TIMEOUT + 2 * LOOK
    assert not line.cut


class Server(Line):
    """A link to a server that answers at once.

    Args:
        error: how it refuses a listing.
    """

    def __init__(self, error: Exception | None) -> None:
        super().__init__([None] * 100)
        self.error = error
        self.listed: list[str] = []
        self.deleted: list[str] = []

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
    """Where it has deleted nodes it lists once on each, and again only if it got no reply.

    Fault 516: a server whose copy has diverged may have shown nothing.
    """
    server = Server(error)
    heartbeat = beating(server)
    heartbeat._client.registry.recently_left = {"/left": None}
    for look in range(10):
        heartbeat.beat(1000 + look * TIMEOUT)
    assert not server.listed
    for connection in (1, 2):
        heartbeat.reset()
        for look in range(connection * 10, connection * 10 + 8):
            heartbeat.beat(1000 + look * TIMEOUT)
        assert server.listed == ["/left"] * times * connection
        assert server.deleted == deleted * connection


class HoldersNode(Server):
    """A link to a server that shows the node of a hold, as the test says."""

    def __init__(self) -> None:
        super().__init__(None)
        self.shows: list[Exception | tuple[bytes, int]] = []

    def get(self, _node: str, reply: Any, _watcher: Any) -> None:
        """Answer."""
        shown = self.shows.pop(0)
        if isinstance(shown, Exception):
            reply.set_exception(shown)
        else:
            reply.set((shown[0], SimpleNamespace(version=shown[1])))


def test_a_holder_that_is_asked_to_let_go() -> None:
    """Each version with Curator's bytes is one request, told once there is a holder.

    A read that a busy server refused is made at the next beat.
    """
    server, told, held = HoldersNode(), list[Ticket](), [False]

    def tell(ticket: Ticket) -> bool:
        told.extend([ticket] * held[0])
        return held[0]

    heartbeat = beating(server, tell)
    heartbeat._client.post = lambda act: act()  # type: ignore[method-assign]
    (ticket,) = heartbeat._client.registry.tickets.values()
    ticket.queued_as(f"{ticket.prefix}lock-0000000001", 1)
    ticket.become(State.HELD)
    for shown, times in (
        (ThrottledOpError(), 0),
        ((REVOKED, 1), 0),
        ((REVOKED, 1), 1),
        ((REVOKED, 1), 1),
        ((b"other data", 2), 1),
        ((REVOKED, 3), 2),
    ):
        held[0] = times > 0
        server.shows.append(shown)
        heartbeat._watch_holds()
        assert told == [ticket] * times
        assert not server.shows
        if not isinstance(shown, Exception):
            # The next connection, or an event, has it read again.
            ticket.watched = False


def test_nodes_that_can_not_be_read() -> None:
    """A check of the root proves the lease in their place, and only then; once it holds, a node is asked for again."""
    sent: list[object] = []
    line: Any = Line([])
    line.check = lambda nodes, _: sent.append(nodes)
    line.check_root = lambda _: sent.append("/")
    line.full = str
    heartbeat = beating(line)
    (ticket,) = heartbeat._client.registry.tickets.values()
    ticket.queued_as(f"{ticket.prefix}lock-0000000000", 1)
    heartbeat._prove()
    ticket.unreadable = True
    heartbeat._prove()
    ticket.lease.answered(3.0, 3.0, write=False)
    ticket.lease.answered(5.0, 5.0, write=True)
    assert heartbeat._client.registry.grant(ticket, 5.0)
    heartbeat._prove()
    assert sent == [[ticket.node], "/", [ticket.node]]
