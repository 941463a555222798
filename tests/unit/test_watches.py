"""The removal of idle watches: a path that is in use again is looked at once more, and not for ever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from zkconcurrent._engine.registry import Registry
from zkconcurrent._engine.watches import LINGER, Watches
from zkconcurrent._protocol.lease import Lease


def test_a_path_that_is_used_again_and_again() -> None:
    """Fault 240: a path that is left in two rounds has one entry after that, and its watch is removed once."""
    removed: list[str] = []

    def remove(path: str, _kind: int, reply: Any, _watcher: Any) -> None:
        removed.append(path)
        reply.set()

    registry, lease = Registry("seed"), Lease(1)
    lease.opened(0.0, 6.0)
    registry.opened(lease)
    link = SimpleNamespace(
        connected=True, can_remove_watches=True, watches=lambda *_: [1] if not removed else [], remove_watch=remove
    )
    client: Any = SimpleNamespace(
        link=link, registry=registry, timeout=6.0, post=lambda act: act(), wake_keeper=lambda: None
    )
    watches = Watches(client, lambda _: None)
    ticket = registry.begin("/path", [])
    now = 0.0
    for uses in (True, True, False, False, False, False):
        if uses:
            registry.start_waiting(ticket, "/path")
            registry.stop_waiting(ticket)
        watches.remove_idle(now)
        now += LINGER
    assert removed == ["/path"]
    assert not registry.left
    assert not watches._idle
    assert not watches._due
