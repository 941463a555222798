"""The limits of holds, look by look: which are told, and when the next look is due."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from zkconcurrent._engine.hold_limits import HoldLimits, Limit
from zkconcurrent._engine.registry import Registry
from zkconcurrent._errors import LossCause
from zkconcurrent._protocol.lease import Lease
from zkconcurrent._protocol.ticket import State, Ticket


class Client:
    """What the limits need of a client, at a time that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lock = threading.RLock()
        self.registry = Registry("00000000-0000-0000-0000")
        lease = Lease(1)
        lease.opened(0.0, 1000.0)
        self.registry.opened(lease)
        self.warned: list[float] = []
        self.woken = 0

    def clock(self) -> float:
        """Return the time."""
        return self.now

    def wake_keeper(self) -> None:
        """Count it."""
        self.woken += 1

    def warn_later(self, _text: str, _node: str, held: float, *_: object, **__: object) -> None:
        """Note a warning."""
        self.warned.append(held)

    def hold(self, limits: HoldLimits, limit: Limit, permits: int = 1) -> list[Ticket]:
        """Return the tickets of a hold that begins now."""
        tickets = [self.registry.begin("/path", []) for _ in range(permits)]
        for ticket in tickets:
            ticket.become(State.HELD)
        limits.begin(limit, tickets)
        return tickets


def limited(**options: Any) -> tuple[Client, HoldLimits, Limit]:
    """Return a client, its limits, and a limit of two seconds."""
    client = Client()
    limit = Limit.of(2.0, **options)
    assert limit is not None
    return client, HoldLimits(client, None), limit  # type: ignore[arg-type]


def test_each_is_told_once_at_its_time() -> None:
    """The first limit wakes the keeper, which then looks when the next one comes, and when none is left never."""
    client, limits, limit = limited(on_hold_limit="warn")
    assert limits.due == math.inf
    for client.now in (0.0, 0.5):
        client.hold(limits, limit)
    assert (limits.due, client.woken) == (2.0, 1)
    for now, held, due in ((1.9, [], 2.0), (2.0, [2.0], 2.5), (2.4, [2.0], 2.5), (2.6, [2.0, 2.1], math.inf)):
        limits.look(now)
        assert client.warned == pytest.approx(held)
        assert limits.due == due


def test_permits_are_one_hold() -> None:
    """All are lost, with one word."""
    client, limits, limit = limited(on_hold_limit="lose")
    tickets = client.hold(limits, limit, permits=3)
    limits.look(2.0)
    assert client.registry.lost == tickets
    assert {ticket.loss and ticket.loss.cause for ticket in tickets} == {LossCause.LIMIT}
    assert client.warned == []


def test_a_hold_that_has_ended() -> None:
    """It has no limit any more."""
    client, limits, limit = limited(on_hold_limit="warn")
    (ticket,) = client.hold(limits, limit)
    client.registry.discard(ticket)
    limits.look(3.0)
    assert (client.warned, limits.due) == ([], math.inf)


def test_a_signal_handler_that_acquires() -> None:
    """A hold that begins in the middle of a look is not forgotten."""
    client, limits, limit = limited(on_hold_limit="warn")
    client.hold(limits, limit)
    client.now, warn = 2.0, client.warn_later

    def struck(*args: Any, **fields: Any) -> None:
        warn(*args, **fields)
        client.hold(limits, limit)

    client.warn_later = struck  # type: ignore[method-assign]
    limits.look(2.0)
    client.warn_later = warn  # type: ignore[method-assign]
    limits.look(2.0)
    assert limits.due == 4.0
    limits.look(4.0)
    assert client.warned == [2.0, 2.0]
