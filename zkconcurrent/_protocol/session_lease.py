"""The lease: the time until which a session surely lives, computed from successful requests and the local clock.

A client holds its locks while its session lives, and a client that is cut off does not learn of the session's end. So
it must know a moment `r` such that the leader has surely heard from the session at `r` or later: that leader, or any
later one, keeps the session until `r + T`, where T is the session's timeout. Two observations on one connection give
that moment:

* W, a write that succeeded. A majority has logged it. So the server that handled it was really the leader, the session
  lived, and any later leader began after W was sent, and started all session clocks anew. A reply to a read, ping or
  `sync` proves none of that: a leader that has lost its followers still replies to them.
* What W's leader knew. A leader learns of a session's requests to a follower only through the follower's replies to its
  pings, every half tick. Let X be a request that goes through the leader and was answered before W was sent. Let q be a
  request that was answered a gap, longer than half a tick, before X was sent. Then the leader has pinged the follower
  between the reply to q and the reply to X. The follower got the ping before X's reply, and the leader got the reply to
  the ping, which reported q, before W. All three channels keep their order, so no bound on any delay is needed: when
  the leader handled W, it knew that the session had lived when q was sent, or later.

The request that opened the connection is such a q by itself: the leader answers it.

The argument in time:
    q sent ... q answered <- gap -> X sent ... X answered < W sent ... W answered: r = when q was sent

Only kazoo's connection thread writes here; any thread may read `end`. Nothing is locked.

How the module computes:

* *Sent* is stamped before the call that sends, *answered* after the reply was read. Every error in these times makes
  the lease shorter.
* The log keeps one entry for each T/100: of two entries closer than that, the older. That can only shorten the lease,
  and it spares a busy client a long log.
* T is the shortest timeout of the session's life. A new leader restarts every session's clock with the timeout that the
  session was *created* with, and a server with other limits may grant less on a reconnect.
* A read proves nothing, not even as q: not every server that speaks the protocol counts reads as signs of life.
* A grant is believed if W, the create itself, yields a lease. After a long wait the create is old, so a `multi` of
  checks goes with the listing.

Times of sending
----------------
A proof costs a transaction, and the two requests before it cost none. So every `beat` a holder sends a `sync`, which
serves as q. At most every `spacing` it sends a proof: X once a q is a gap old, and W when X is answered. After a proof
the lease lasts (1 - margin) T from its q on, and the next proof comes `spacing` later. So a hold survives an outage in
between that is no longer than `(1 - margin) T - gap - spacing`, less three round trips. The opening of a connection is
itself a q.

At the start there is neither W nor q. A q must be answered at least the gap before X is sent. If the first acquire of
every program waited for that, the library would not be a drop-in replacement. So the library takes the latest moment
that was certainly before the connect request. That is the exact time of the request, if `connect` opened the client; on
Linux, the start of kazoo's connection thread, from `/proc`; or the import of this library, if that thread did not exist
then. With that moment as r, a grant is believed if the lease reaches to the next proof, for which the heartbeat then
hurries. If the connection is too old, the first acquire waits for the proof, once for each client.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

# By how much the local clock may run slower than the server's, as a fraction of the timeout.
MARGIN = 0.02
# The gap if the tick is unknown, as a fraction of the timeout: servers grant no timeout below two ticks.
GAP = 0.3
# The gap if the tick is known, as a fraction of the tick.
TICK_GAP = 0.6
# In seconds, however long the timeout is, so that a dead link, or a missing node, is noticed soon.
LONGEST_BEAT = 5.0
LONGEST_SPACING = 15.0
# The outage that a hold survives unless the user sets another, as a fraction of the timeout.
SURVIVED = 0.4
# A holder sends at least this many requests for each timeout.
BEATS = 9
# How many requests the log keeps for each timeout.
THIN = 100
NEVER = -math.inf


class Exchange(NamedTuple):
    """A write or `sync` that succeeded: when it was handed over to be sent, and when its reply had been read."""

    sent: float
    answered: float


def gap_of(timeout: float, tick: float | None) -> float:
    """Return the gap, the shortest time from the answer to q until X is sent: more than half a tick."""
    return GAP * timeout if tick is None else TICK_GAP * tick


def spacing_of(timeout: float, tick: float | None, margin: float, survive: float | None) -> float:
    """Return how long a holder waits between two proofs, in seconds.

    Args:
        timeout: the session timeout.
        tick: the servers' tick, if known.
        margin: by how much the lease is shorter than the timeout, as a fraction of the timeout.
        survive: the outage that a hold must survive, in seconds; None for `SURVIVED` of the timeout.
    """
    survive = SURVIVED * timeout if survive is None else survive
    longer = max(0.0, longest_outage(timeout, tick, margin) - survive)
    return min(LONGEST_SPACING, timeout / BEATS + longer)


def longest_outage(timeout: float, tick: float | None, margin: float) -> float:
    """Return the longest outage a hold can be made to survive, in seconds; arguments as `spacing_of`."""
    # One hundredth for the slack of `Lease.due`, and another one for three round trips.
    slack = 2 * timeout / THIN
    return (1 - margin) * timeout - gap_of(timeout, tick) - slack - timeout / BEATS


def proved(write_sent: float, log: Iterable[Exchange], connected: float, gap: float) -> float:
    """Return `r`: the leader that handled a write had surely heard from the session at this time or later.

    Args:
        write_sent: when W, which succeeded, was passed on to be sent.
        log: the exchanges of the same connection, the newest first.
        connected: when the request that opened the connection was sent, or earlier.
        gap: the shortest time from the answer to q until X is sent; more than half a tick.
    """
    x: Exchange | None = None
    for each in log:
        if x is None:
            if each.answered < write_sent:
                x = each
        elif each.answered <= x.sent - gap:
            return max(each.sent, connected)
    return connected


class Lease:
    """The lease of one session, over all its connections.

    Invariants:
        * `end == heard + (1 - margin) * timeout` while the session lives; it is `NEVER` before the first proof and
          after the session's end.
        * `heard` only grows, `timeout` only shrinks.

    Attributes:
        session: the session's id.
        timeout: the shortest timeout negotiated in the session's life, in seconds.
        heard: the time `r`; the leader had surely heard from the session then or later.
        end: the time until which the session surely lives.
        proved_until: as `end`, but it keeps its value after the session's end.
        over: the session has ended.
        gap: in seconds; see `proved`.
        beat: how long a holder waits between two requests, in seconds.
        spacing: how long a holder waits between two proofs, in seconds.
    """

    def __init__(
        self, session: int, tick: float | None = None, margin: float = MARGIN, survive: float | None = None
    ) -> None:
        self.session = session
        self.timeout: float = math.inf
        # The first connection's timeout.
        self._asked = math.inf
        self.heard: float = NEVER
        self.end: float = NEVER
        self.proved_until: float = NEVER
        self.over: bool = False
        self.gap: float = math.inf
        self.beat: float = math.inf
        self.spacing: float = math.inf
        self._tick = tick
        self._margin = margin
        self._survive = survive
        self._connected = NEVER
        self._log: deque[Exchange] = deque()
        # When the last judged write was sent.
        self._judged = NEVER

    def note_opened(self, connected: float, timeout: float) -> None:
        """Begin a connection: the requests of other connections prove nothing on it.

        Args:
            connected: when the request that opened it was sent, or earlier; `NEVER` if unknown.
            timeout: the timeout negotiated on it, in seconds.
        """
        self._connected = connected
        self._judged = NEVER
        # The log is a new object, as other threads may be reading the old one.
        self._log = deque()
        self._asked = timeout if self._asked == math.inf else self._asked
        self.timeout = timeout = min(self.timeout, timeout)
        self.gap = gap_of(timeout, self._tick)
        self.spacing = spacing_of(timeout, self._tick, self._margin, self._survive)
        self.beat = self.spacing / math.ceil(self.spacing / min(LONGEST_BEAT, timeout / BEATS))
        self._set_end()

    def note_ended(self) -> None:
        """End the lease with its session, for good."""
        self.over = True
        self._set_end()

    def note_answered(self, sent: float, answered: float, *, write: bool) -> None:
        """Note a write or `sync` that succeeded on the present connection; judge it if it is a write."""
        # A proof gains no more than the time that has passed, so a busy client judges only some of its writes.
        if write and (sent >= self._judged + self.timeout / THIN or self.end <= answered):
            self._judged = sent
            heard = proved(sent, reversed(self._log), self._connected, self.gap)
            if heard > self.heard:
                self.heard = heard
                self._set_end()
        # Of two close exchanges the older is kept, which proves less.
        if not self._log or sent >= self._log[-1].sent + self.timeout / THIN:
            self._log.append(Exchange(sent, answered))
            while len(self._log) > 2 and self._log[1].answered < answered - self.timeout:
                self._log.popleft()

    def shortened(self, now: float) -> bool:
        """Return whether the lease would still run, had no reconnect shortened the timeout."""
        return now < self.heard + (1 - self._margin) * self._asked != self.end

    def believed(self, now: float, doubted: float = math.inf) -> bool:
        """Return whether a hold may begin: the lease runs, and will run until it can be renewed.

        The opening of a connection may prove a lease that ends before any request is old enough to be a q. And an idle
        client sends few requests: with late replies, they may prove a lease that ends before the next reply.

        Args:
            now: the time.
            doubted: `heard` when this method last returned False. Any later proof suffices: on a slow link, no proof
                will be better.
        """
        if self.heard > self._connected:  # it is renewed
            return now + (0.0 if self.heard > doubted else self.beat) < self.end
        return now < self.end and self.end > self.renewable + self.beat

    @property
    def renewed(self) -> bool:
        """Whether the proof rests on more than the opening of the present connection."""
        return self.heard > self._connected

    @property
    def due(self) -> float:
        """When a holder is to begin its next proof: once a request sent a spacing after the last q is old enough."""
        # Instead of an exchange that was sent in time, the log may have one that is slightly older.
        slack = self.timeout / THIN
        # kazoo's thread may add to the log: this copies it in one step.
        for each in [*self._log]:
            if each.sent >= self.heard + self.spacing - slack:
                return each.answered + self.gap + slack
        return math.inf

    @property
    def renewable(self) -> float:
        """The time from which a new request has an earlier one old enough to be its q; infinity if there is none."""
        log = self._log
        return log[0].answered + self.gap if log else math.inf

    def _set_end(self) -> None:
        self.proved_until = self.heard + (1 - self._margin) * self.timeout
        self.end = NEVER if self.over else self.proved_until
