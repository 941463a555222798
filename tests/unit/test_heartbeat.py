"""When the heartbeat cuts a connection, look by look: on one that is dead, not on one that is slow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zkconcurrent._engine.heartbeat import Heartbeat
from zkconcurrent._engine.lease import Lease
from zkconcurrent._engine.registry import Registry

TIMEOUT = 6.0
LOOK = TIMEOUT / 9 + 0.01  # the keeper's pause


class Line:
    """A link whose answers never come, of which the test says what waits for one."""

    def __init__(self, waiting: list[int | None]) -> None:
        self.transport = self
        self.waiting = waiting
        self.sent = 0
        self.cut = False

    @property
    def next_xid(self) -> int | None:
        """The number of the next answer: one at each look."""
        return self.waiting.pop(0)

    def sync(self, _path: str, _answer: Any) -> None:
        """Count it."""
        self.sent += 1

    def drop(self) -> None:
        """Note it."""
        self.cut = True


def beating(line: Line) -> Heartbeat:
    """Return the heartbeat of a session that waits for something."""
    lease = Lease(1)
    lease.opened(0.0, TIMEOUT)
    registry = Registry("")
    registry.opened(lease)
    registry.begin("/path", [])
    session = SimpleNamespace(
        link=line, registry=registry, timeout=TIMEOUT, post=None, warn_later=lambda *_: None, wake_keeper=int
    )
    return Heartbeat(session)  # type: ignore[arg-type]


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
