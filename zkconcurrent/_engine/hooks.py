"""The hooks through which the folder `_observe` observes one client. Here they do nothing."""

from __future__ import annotations

import math

from .._protocol.ticket import Ticket


class Hooks:
    """The hooks of one client. The engine calls them with the session's lock held.

    Attributes:
        has_left: something is left to be reported.
    """

    has_left: object = False

    def ending(self, ticket: Ticket) -> None:
        """Note that the hold of a ticket is about to end, or has ended."""

    def end_due(self, now: float) -> float:  # noqa: ARG002
        """End the holds whose time is over; return when to look again, by the clock of leases."""
        return math.inf

    def report_due(self, pause: float, *, suspect: bool, changed: bool) -> float:  # noqa: ARG002
        """Have the due reports made; return in how many seconds to look again, at most `pause`.

        Args:
            pause: in how many seconds the keeper looks again in any case.
            suspect: whether the client's holds are suspect.
            changed: whether `suspect` has changed.
        """
        return pause
