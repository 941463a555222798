"""Long waits for locks and permits: the log shows which path a program waits for, and who holds it.

A program that seems to hang often waits for a lock. Once a thread or task of this client has waited in a queue for
`LONG` seconds, or for the `log_waits_after` of `connect`, the wait is logged. It is logged again each time its length
has doubled, then once an hour, and once more when it has ended. Nothing is sent before the first report; each report
makes a listing and a read, on a thread of its own. The logger is `zkconcurrent.waits`.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Protocol

from .._engine.call import Attempt, Call
from .._engine.client_state import ClientState, log_all
from .._engine.keeper_thread import IDLE_BEAT, Helper, Keeper

log = logging.getLogger("zkconcurrent.waits")

LONG = 30.0  # seconds
SELDOM = 3600.0  # seconds


class WaitedFor(Protocol):
    """A queue that calls wait in."""

    @property
    def queue_key(self) -> Hashable:
        """A key that is equal for all objects of one queue."""

    def report_wait(self, owners: Sequence[int], waited: float) -> None:
        """Log that calls of these owners wait here, the longest for `waited` seconds. This may take a while."""


class LongWaits:
    """The long waits of one client."""

    def __init__(self, client: ClientState, keeper: Keeper) -> None:
        self._client = client
        # How long a wait in each queue will have lasted at its next report; only queues with a long wait are here.
        self._due: dict[Hashable, float] = {}
        # One thread logs the reports, so a log handler that blocks stops no other thread. If there are too many
        # reports, the oldest are dropped.
        self._reports: deque[Callable[[], None]] = deque(maxlen=4096)
        self._helper = Helper(keeper, "waits", partial(log_all, self._reports))
        # Before this time, by the clock of deadlines, no report is due.
        self._look_at = -math.inf

    @property
    def _long(self) -> float:
        """After how many seconds a wait is long; infinite if none ever is."""
        after: float | None = getattr(self._client.link.client, "log_waits_after", LONG)
        return math.inf if after is None else after

    def note_end(self, call: Call, *, acquired: bool) -> None:
        """Note that the wait of a call, if any, is over.

        If the wait was reported, the keeper's next turn has its end logged. The caller may have the lock now, and must
        go on.
        """
        wait, call.waiting = call.waiting, None
        if wait is None or wait.queue is None or wait.queue.queue_key not in self._due:
            return
        waited, path = self._client.now() - wait.since, call.path
        if waited >= self._long:
            fields = {"zk_path": path, "zk_waited": waited}
            text = "%s after a wait of %.0f s [%s]"
            outcome = "acquired" if acquired else "given up"
            self._reports.append(partial(log.warning, text, outcome, waited, path, extra=fields))

    def report_due(self) -> None:
        """Have the due reports made. For the keeper, with the session's lock held."""
        now = self._client.now()
        if now >= self._look_at:
            self._find(now)
        # The end of a wait is logged at once.
        if self._reports:
            self._helper.start()

    def _find(self, now: float) -> None:
        """Find the waits for which a report is due, and when to look again."""
        first, least = now, self._long
        long: dict[Hashable, list[Attempt]] = {}
        for call in self._client.calls:
            wait: Attempt | None = call.waiting
            if wait is None or wait.queue is None:
                continue
            if now - wait.since >= least:
                long.setdefault(wait.queue.queue_key, []).append(wait)
            else:
                first = min(first, wait.since)
        # While there are long waits, look again after each `IDLE_BEAT`, as some may end. Never look more often, even if
        # many waits become long one after the other.
        self._look_at = max(now + IDLE_BEAT, 0.0 if long else first + least)
        self._due = {key: self._due.get(key, least) for key in long}
        enabled = log.isEnabledFor(logging.WARNING)
        for key, waits in long.items():
            waited = now - min(wait.since for wait in waits)
            if waited >= self._due[key]:
                if enabled:
                    queue: WaitedFor = waits[0].queue
                    self._reports.append(partial(queue.report_wait, [wait.owner for wait in waits], waited))
                while self._due[key] <= waited:
                    self._due[key] += min(self._due[key], SELDOM)
