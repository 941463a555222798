"""A hold that begins while the keeper looks at the limits; those of calm are in `tests/simulation`."""

from __future__ import annotations

import threading
from typing import Any

from zkconcurrent._engine.hold_limits import HoldLimits, Limit
from zkconcurrent._engine.registry import Registry
from zkconcurrent._protocol.lease import Lease
from zkconcurrent._protocol.ticket import State


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

    def clock(self) -> float:
        """Return the time."""
        return self.now

    def wake_keeper(self) -> None:
        """The test looks itself."""

    def warn_later(self, _text: str, _node: str, held: float, *_: object, **__: object) -> None:
        """Note a warning."""
        self.warned.append(held)

    def hold(self, limits: HoldLimits, limit: Limit) -> None:
        """Begin a hold now."""
        ticket = self.registry.begin("/path", [])
        ticket.become(State.HELD)
        limits.begin(limit, [ticket])


def test_a_signal_handler_that_acquires() -> None:
    """A hold that begins in the middle of a look is not forgotten."""
    client, limit = Client(), Limit.of(2.0, on_hold_limit="warn")
    limits = HoldLimits(client, None)  # type: ignore[arg-type]
    assert limit is not None
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
