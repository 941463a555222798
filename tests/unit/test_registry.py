"""The registry's state: signal handlers between two of its steps, and its memory."""

from __future__ import annotations

from typing import Any

from zkconcurrent._engine.registry import MOST_LEFT, Registry
from zkconcurrent._protocol.lease import Lease


def test_a_ticket_that_goes_as_it_is_discarded() -> None:
    """A handler that strikes in between takes the answer to a delete: the ticket is gone, and that is no error."""
    registry = Registry("")
    lease = Lease(1)
    lease.opened(0.0, 6.0)
    registry.opened(lease)
    ticket = registry.begin("/path", [])
    ticket.sent = True

    class Interrupting(dict[str, Any]):
        def __setitem__(self, prefix: str, discarded: Any) -> None:
            super().__setitem__(prefix, discarded)
            registry.mark_deleted(discarded)

    registry.deletes = Interrupting()
    registry.discard(ticket)
    assert ticket.prefix not in registry.tickets


def test_a_waiter_that_was_told_shows_no_node() -> None:
    """A waiter that does not look again, as its thread is suspended or its loop closed, blames no server."""
    registry, lease = Registry("seed"), Lease(1)
    lease.opened(0.0, 6.0)
    registry.opened(lease)
    ticket = registry.begin("/lock", [])
    registry.start_waiting(ticket, "/lock/ahead")
    ticket.shown = ("/lock/ahead",)
    assert registry.shown() == ["/lock/ahead"]
    registry.note_change("/lock/ahead")
    assert registry.shown() == []


def test_where_nodes_were_deleted_last() -> None:
    """It remembers a hundred paths, each once, and drops the one that it has not used for longest."""
    registry, lease = Registry("seed"), Lease(1)
    lease.opened(0.0, 6.0)
    registry.opened(lease)
    for n in [*range(MOST_LEFT), 0, MOST_LEFT]:
        registry.mark_deleted(registry.begin(f"/{n}", []))
    assert [*registry.recently_left] == [f"/{n}" for n in [*range(2, MOST_LEFT), 0, MOST_LEFT]]
