"""Patience: until when a recipe may wait, as plain arithmetic; the caller passes the time.

A recipe has up to three ends:

* The *deadline* bounds its waiting. Requests before the first wait get their replies even after the deadline, for a
  while: so a try sees a free lock, however short its timeout.
* Once `DeadlinePassed` has been raised, the recipe has a moment to clean up. At the *cutoff* it is raised again.
* A recipe with a limit on an *outage* ends when the service has been out of reach for longer.
"""

from __future__ import annotations

import math

from .._protocol.operations import DeadlinePassed, OutOfReach

# How often a wait looks again for a change that no event reports.
POLL_INTERVAL = 0.5  # seconds
CLEAN_UP_PATIENCE = 0.1  # seconds
# A call with a limit on outages sleeps this much longer than the limit, so that the limit has passed when it wakes.
OUTAGE_MARGIN = 0.05  # seconds


class Patience:
    """Until when one recipe may wait.

    Args:
        deadline: when its waiting ends; None for never.
        replies_by: until when the requests before its first wait get their replies, if that is after the deadline.

    Attributes:
        deadline: when the recipe's waiting ends; None for never.
        cutoff: when the recipe's time is up: at the deadline; once `DeadlinePassed` was raised, at the end of the
            clean-up.
    """

    __slots__ = ("_before_wait", "_down_since", "_replies_by", "cutoff", "deadline")

    def __init__(self, deadline: float | None = None, replies_by: float = 0.0) -> None:
        self.deadline = self.cutoff = deadline
        self._before_wait = True
        self._replies_by = replies_by
        self._down_since: float | None = None

    def await_replies(self, until: float) -> None:
        """Let the next requests get their replies even after the deadline, as those before the first wait do."""
        self._before_wait = True
        self._replies_by = until

    def await_proof(self, until: float) -> None:
        """Extend the time for the replies to the requests before the first wait to `until`, if that is later."""
        self._replies_by = max(self._replies_by, until)

    def begin_wait(self, now: float) -> None:
        """Apply the deadline from here on: the recipe's next requests belong to its waiting.

        Raises:
            DeadlinePassed: the deadline has passed.
        """
        self._before_wait = False
        if self.cutoff is not None and now >= self.cutoff:
            raise DeadlinePassed

    def begin_clean_up(self, now: float) -> None:
        """Give the recipe, in which `DeadlinePassed` was raised, a moment to clean up."""
        self._before_wait = False
        self.cutoff = now + CLEAN_UP_PATIENCE

    def limit(self) -> float:
        """Return when to raise `DeadlinePassed` in the recipe, if it still sleeps then."""
        if self.cutoff is None:
            return math.inf
        return max(self.cutoff, self._replies_by) if self._before_wait else self.cutoff

    def reachable_by(self, now: float, connected: bool, outage: float) -> float:
        """Return until when to wait for a lost connection to come back; the loss itself wakes the call.

        Args:
            now: the time.
            connected: whether a server is connected.
            outage: the longest time without a connected server, in seconds.

        Raises:
            OutOfReach: no server has been connected for longer.
        """
        if connected:
            self._down_since = None
            return math.inf
        if self._down_since is None:
            self._down_since = now
        elif now - self._down_since > outage:
            raise OutOfReach
        return self._down_since + outage + OUTAGE_MARGIN

    def cleaned_up_by(self, now: float, timeout: float, *, held: bool) -> float:
        """Return until when to wait for the delete of a node, which the keeper would finish.

        Args:
            now: the time. If the deadline has passed, the wait counts from the deadline.
            timeout: the session timeout, in seconds. The wait takes a sixth of it at most.
            held: whether the node was that of a hold. If not, the wait also takes no more than `CLEAN_UP_PATIENCE`.
        """
        most = timeout / 6 if held else min(timeout / 6, CLEAN_UP_PATIENCE)
        return most + (now if self.deadline is None else min(now, self.deadline))
