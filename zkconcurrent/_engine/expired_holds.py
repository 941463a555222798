"""Expired holds: the holds of one client end with their session or lease, and each loss of a hold is reported.

A hold is lost when its session ends, when its lease runs out by the local clock, when its node is missing on the
server, or when something ends it (`LossCause` has all causes). The registry notes a loss at once. The keeper, a thread
that relies on its hold or, at a session's end, kazoo's thread finds the note and reports the loss: to the hold's owner,
who gets an error at the next use; to `lost` and `on_lost`; to the listeners; and in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress

from .._protocol.ticket import LossRecord
from .._runtime.identity import label
from .client_state import ClientState
from .loss_cause import complete, why_lost

losses = logging.getLogger("zkconcurrent.losses")


class ExpiredHolds:
    """The holds of one client that end with their session or lease; and the reports of all lost holds.

    Args:
        client: the session.
        why: returns why holds end now; called with the time, by the clock of leases.
    """

    def __init__(self, client: ClientState, why: Callable[[float], LossRecord]) -> None:
        self._client = client
        self._why = why

    def end_past_lease(self) -> None:
        """End holds whose lease ran out by the local clock, before the caller relies on them; report all losses."""
        client, registry = self._client, self._client.registry
        # The common case takes no lock: the lease runs, and all holds are of its session.
        if not registry.lost and client.clock() < registry.lease.end:
            return
        with client.lock:
            now = client.clock()
            registry.expire_lease(now, self._why(now))
            if registry.lost:
                client.wake_keeper()
        self._report()

    def end_with_session(self) -> None:
        """End all holds, as the session is over; with the session's lock held."""
        self._client.registry.end_session(self._why(self._client.clock()))
        self._report()

    def _report(self) -> None:
        client, registry = self._client, self._client.registry
        while registry.lost:
            with client.lock:
                try:
                    ticket = registry.lost[0]
                except IndexError:
                    # Another thread, or a signal handler that interrupted this one, has reported the loss.
                    return
                registry.finish_loss(ticket)
                complete(ticket, client.clock())
                if (observe := ticket.observer()) is not None:
                    observe(ticket)
                client.hooks.ending(ticket)
                # R2: if an interrupt comes before this, the next caller reports the loss. R4: a signal handler that
                # interrupted this thread may have removed the ticket.
                with suppress(ValueError):
                    registry.lost.remove(ticket)
            client.warn_later(
                "lost: %s (fencing token %d): %s",
                ticket.node,
                ticket.token,
                why_lost(ticket),
                logger=losses,
                zk_path=ticket.path,
                zk_token=ticket.token,
                zk_cause=ticket.loss and ticket.loss.cause.value,
                zk_by=None if ticket.owner is None else label(ticket.owner),
            )
