"""The removal of idle watches: a path that is in use again is looked at once more, and not for ever."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from zkconcurrent._engine.registry import Registry
from zkconcurrent._engine.watches import AGAIN, LINGER, Watches
from zkconcurrent._protocol.lease import Lease

pytestmark = pytest.mark.fault(240)


class Bench:
    """The removals of a client whose link does nothing but note them; `now` is its clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.removed: list[str] = []
        self.registry, lease = Registry("seed"), Lease(1)
        lease.opened(0.0, 6.0)
        self.registry.opened(lease)
        link = SimpleNamespace(
            connected=True,
            watches=lambda path, _: [] if path in self.removed else [1],
            remove_watch=self._remove,
        )
        client: Any = SimpleNamespace(
            link=link,
            registry=self.registry,
            timeout=6.0,
            now=lambda: self.now,
            post=lambda act: act(),
            wake_keeper=lambda: None,
        )
        self.watches = Watches(client, lambda _: None)

    def _remove(self, path: str, _kind: int, reply: Any, _watcher: Any) -> None:
        self.removed.append(path)
        reply.set()

    def use(self, path: str) -> None:
        """Wait at a path in vain."""
        ticket = self.registry.begin(path, [])
        self.registry.start_waiting(ticket, path)
        self.registry.stop_waiting(ticket)


def test_a_path_that_is_used_again_and_again() -> None:
    """A path that is left in two rounds has one entry after that, and its watch is removed once."""
    bench = Bench()
    for uses in (True, True, False, False, False, False):
        if uses:
            bench.use("/path")
        bench.watches.remove_idle(bench.now)
        bench.now += LINGER
    assert bench.removed == ["/path"]
    assert not bench.registry.left
    assert not bench.watches._idle
    assert not bench.watches._due


def test_the_keeper_looks_again_soon() -> None:
    """While a watch lingers, the keeper looks at it often, and it is gone within a second."""
    bench = Bench()
    bench.watches.remove_idle(bench.now)
    assert bench.watches.pause == math.inf
    bench.use("/path")
    while bench.watches.pause < math.inf:
        assert bench.now < 1.0
        bench.now += bench.watches.pause
        bench.watches.remove_idle(bench.now)
    assert bench.removed == ["/path"]


def test_the_keeper_does_not_look_often_for_a_watch_that_stays() -> None:
    """A wait in vain at a path where another wait goes on: its watch stays, and the keeper looks at it now and then."""
    bench, looks, ticks = Bench(), 0, 20
    other = bench.registry.begin("/path", [])
    bench.registry.start_waiting(other, "/path")
    bench.registry.left["/path"] = False
    while bench.now < ticks * AGAIN:
        looks += 1
        bench.now += min(bench.watches.pause, 1.0)
        bench.watches.remove_idle(bench.now)
    assert not bench.removed
    assert looks < 3 * ticks * AGAIN
    bench.registry.stop_waiting(other)
    until = bench.now + 2 * AGAIN
    while not bench.removed:
        assert bench.now < until
        bench.now += min(bench.watches.pause, 1.0)
        bench.watches.remove_idle(bench.now)
    assert bench.removed == ["/path"]
