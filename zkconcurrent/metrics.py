"""The metrics, for an exporter of your own; `zkconcurrent.otel` and `zkconcurrent.prometheus` are built on this module.

Counters and histograms record the events. The current state (waits, holds, the oldest hold, the state of the
clients) is read from the sessions' tables when the metrics are collected: an acquire pays nothing for it, and no
interrupt or loss can make it drift. The tables are copied as `inspect()` copies them, without a lock.

The number of lock names is limited. A lock is named by its label, or otherwise by its path, with `*` for each id and
without the path of its namespace. After the first `MOST_NAMES` names, all further locks are named `OTHER`.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ._engine.session import Session
from ._errors import DeadlockError, LockLostError, LossCause
from ._kazoo.link import KazooClient
from ._observe import event_listeners
from ._observe import event_types as events
from ._observe.inspection import servers_of, state_of
from ._protocol.ticket import State
from ._runtime import this_process
from ._runtime.process_exit import living_sessions
from ._threads.namespace import BasePath, sessions_of

__all__ = ["BUCKETS", "INSTRUMENTS", "Instrument", "Recorder", "Scope", "Values"]

MOST_NAMES = 200
OTHER = "other"
BUCKETS: tuple[float, ...] = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
"""The bounds of histograms, in seconds."""
# The exported states of a client, as `inspect()` names them. A client that was stopped is left out.
STATES = ("connected", "out of reach", "given up")

Values: TypeAlias = tuple[str, ...]
"""The values of an instrument's attributes, in their order; an empty string stands for no value."""

Scope: TypeAlias = KazooClient | BasePath | None
"""The scope of a measurement: a client, or what lies below a namespace; None stands for all clients of the process."""


# Instruments are compared by identity, which makes them fast keys.
@dataclass(frozen=True, eq=False)
class Instrument:
    """One metric.

    Attributes:
        name: its name, which follows OpenTelemetry's rules.
        kind: counters and histograms are recorded; up-down counters and gauges are observed.
        unit: "s" for seconds; or what is counted, in braces.
        attributes: the names of the attributes by which its values differ.
        description: what it measures.
    """

    name: str
    kind: Literal["counter", "histogram", "up-down counter", "gauge"]
    unit: str
    attributes: tuple[str, ...]
    description: str

    @property
    def observed(self) -> bool:
        """Whether its value is read only when the metrics are collected."""
        return self.kind in ("up-down counter", "gauge")

    @property
    def prometheus_name(self) -> str:
        """The name in Prometheus, as OpenTelemetry's own exporters translate it."""
        suffix = "_seconds" if self.unit == "s" else ""
        return translated(self.name) + suffix + ("_total" if self.kind == "counter" else "")

    @property
    def prometheus_labels(self) -> tuple[str, ...]:
        """The names of its attributes in Prometheus."""
        return tuple(map(translated, self.attributes))

    def attributes_of(self, values: Values) -> dict[str, str]:
        """Return the attributes that have a value, by their names."""
        return {name: value for name, value in zip(self.attributes, values, strict=True) if value}


def translated(name: str) -> str:
    """Return the Prometheus name for an OpenTelemetry name."""
    return name.replace(".", "_")


_OF_LOCK = ("zkconcurrent.primitive", "zkconcurrent.name", "zkconcurrent.mode")
_OUTCOME, _CAUSE, _ERROR = "zkconcurrent.outcome", "zkconcurrent.cause", "error.type"
_CLIENT, _STATE = "zkconcurrent.client", "zkconcurrent.state"

WAITS = Instrument(
    "zkconcurrent.lock.wait.duration",
    "histogram",
    "s",
    (*_OF_LOCK, _OUTCOME, _ERROR),
    "How long acquires have waited that did not get the lock at once.",
)
HOLDS = Instrument(
    "zkconcurrent.lock.hold.duration", "histogram", "s", (*_OF_LOCK, _OUTCOME), "How long holds have lasted."
)
ACQUISITIONS = Instrument(
    "zkconcurrent.lock.acquisitions",
    "counter",
    "{acquisition}",
    (*_OF_LOCK, _OUTCOME),
    "Acquires that got the lock, and single attempts that did not.",
)
LOSSES = Instrument("zkconcurrent.lock.losses", "counter", "{loss}", (*_OF_LOCK, _CAUSE), "Holds that were lost.")
DEADLOCKS = Instrument(
    "zkconcurrent.deadlocks", "counter", "{deadlock}", _OF_LOCK, "Deadlocks found, by the acquire that found it."
)
WAITING = Instrument(
    "zkconcurrent.lock.wait.active",
    "up-down counter",
    "{wait}",
    _OF_LOCK,
    "Acquires that wait at present, for a lock or for ZooKeeper.",
)
HELD = Instrument("zkconcurrent.lock.hold.active", "up-down counter", "{hold}", _OF_LOCK, "Present holds.")
OLDEST = Instrument("zkconcurrent.lock.hold.oldest", "gauge", "s", _OF_LOCK, "How long the oldest hold has lasted.")
MARGIN = Instrument(
    "zkconcurrent.session.lease_margin",
    "gauge",
    "s",
    (_CLIENT,),
    "How long the client's holds last if no server replies; only while it has any.",
)
CLIENTS = Instrument(
    "zkconcurrent.session.state",
    "gauge",
    "{client}",
    (_CLIENT, _STATE),
    "1 for the present state of the client, 0 for the others.",
)
INSTRUMENTS = (WAITS, HOLDS, ACQUISITIONS, LOSSES, DEADLOCKS, WAITING, HELD, OLDEST, MARGIN, CLIENTS)
"""All metrics."""

# How an acquire ends.
_ENDS = (events.Acquired, events.TimedOut, events.WouldBlock, events.Cancelled, events.DeadlockVictim, events.Failed)


def _records(event: events.LockEvent) -> tuple[tuple[Instrument, float, Values], ...]:
    """Return what an event adds: instruments, amounts, and the values of the attributes that are not the lock's."""
    match event:
        case events.Acquired(contended=True):
            return (WAITS, event.waited, ("acquired", "")), (ACQUISITIONS, 1, ("waited",))
        case events.Acquired():
            return ((ACQUISITIONS, 1, ("uncontended",)),)
        case events.Released():
            return ((HOLDS, event.held, ("released",)),)
        case events.Lost():
            cause = "unknown" if event.cause is None else event.cause.value
            return (HOLDS, event.held, ("lost",)), (LOSSES, 1, (cause,))
        case events.WouldBlock():
            return ((ACQUISITIONS, 1, ("would_block",)),)
        case events.TimedOut():
            return ((WAITS, event.waited, ("timeout", "")),)
        case events.Cancelled():
            return ((WAITS, event.waited, ("cancelled", "")),)
        case events.DeadlockFound():
            return ((DEADLOCKS, 1, ()),)
        case events.DeadlockVictim(error=error):
            ended = (WAITS, event.waited, ("deadlock", ""))
            # A deadlock of several members was counted when it was found. A wait for one's own hold fails at once.
            found = isinstance(error, DeadlockError) and bool(error.cycle)
            return (ended,) if found else (ended, (DEADLOCKS, 1, ()))
        case events.Failed(error=error):
            failed = (WAITS, event.waited, ("error", type(error).__qualname__))
            # The loss of a hold that had begun was counted when that hold ended. This loss occurred in a condition's
            # wait: see `Story.fail`.
            if isinstance(error, LockLostError) and error.cause is LossCause.NOT_REACQUIRED:
                return failed, (LOSSES, 1, (error.cause.value,))
            return (failed,)
        case _:
            return ()


class Recorder:
    """Records events from now on, and observes the current values; exporters are built on it.

    Args:
        bind: takes an instrument and the values of its attributes; returns a function that records an amount. `bind` is
            called once for each such pair. The function must not wait, as a listener calls it. It gets the amount to
            add; for an up-down counter, the current value.
        scope: what to measure. Locks are named by their labels, or otherwise by their paths, with `*` for each number,
            hash and UUID; below a namespace, by their names in it.
        live: whether to record also waits and holds as they begin and end, for an exporter that can't observe them, as
            in Prometheus' multiprocess mode.
        on_outcome: called with each event that ends an acquire, and with the attributes under which it is recorded.

    Raises:
        TypeError: the scope is neither a client nor a namespace.
    """

    def __init__(
        self,
        bind: Callable[[Instrument, Values], Callable[[float], object]],
        scope: Scope = None,
        *,
        live: bool = False,
        on_outcome: Callable[[events.LockEvent, dict[str, str]], object] | None = None,
    ) -> None:
        sessions, base = sessions_of(scope)
        self._base = base
        # Weak references: the listener for a client ends with the client.
        self._only: list[weakref.ref[Session]] = [weakref.ref(each) for each in sessions if each is not None]
        self._bind = bind
        self._live = live
        self._on_outcome = on_outcome
        # The waits and holds that each live instrument counts. The client, the thread or task, the path and the token
        # identify each: the holds of a MultiLock may have the same path on each ensemble, and the same token.
        self._present: dict[tuple[Instrument, Values], set[tuple[object, ...]]] = {}
        self._forks = this_process.forks
        self._bound: dict[tuple[Instrument, Values], Callable[[float], object]] = {}
        self._names: set[str] = set()
        # R4: each new name pops one element, in one step.
        self._free = [None] * MOST_NAMES
        # The locks that have had events: a lock that is now neither held nor awaited is reported with 0.
        self._locks: dict[Values, None] = {}
        self._removes = [event_listeners.add(self, each, self._base or "/") for each in sessions]

    def remove(self) -> None:
        """Stop recording. A second call changes nothing."""
        for each in self._removes:
            each()

    def __call__(self, event: events.LockEvent) -> None:
        """Record an event; this makes the recorder a listener."""
        lock = self._lock_of(event)
        recorded = _records(event)
        for instrument, amount, more in recorded:
            self._record(instrument, amount, lock + more)
        if self._live:
            self._follow(event, lock)
        if self._on_outcome is not None and isinstance(event, _ENDS):
            instrument, _, more = recorded[0]
            self._on_outcome(event, instrument.attributes_of(lock + more))

    def _record(self, instrument: Instrument, amount: float, values: Values) -> None:
        key = instrument, values
        if (record := self._bound.get(key)) is None:
            self._locks[values[: len(_OF_LOCK)]] = None
            record = self._bound[key] = self._bind(instrument, values)
        record(amount)

    def _follow(self, event: events.LockEvent, lock: Values) -> None:
        """Update the live counts of waits and holds."""
        if self._forks != this_process.forks:
            # The parent's waits and holds do not belong to a forked child.
            self._forks, self._present = this_process.forks, {}
        # Use the client's id, not its hash: the client may be gone, and a subclass may not be hashable.
        wait = id(getattr(event, "_client", None)), event.by, event.path
        if isinstance(event, events.Waiting):
            self._keep((WAITING, lock), wait, True)
        elif isinstance(event, events.Released | events.Lost):
            self._keep((HELD, lock), (*wait, event.token), False)
        elif isinstance(event, _ENDS):
            self._keep((WAITING, lock), wait, False)
            if isinstance(event, events.Acquired):
                self._keep((HELD, lock), (*wait, event.token), True)

    def _keep(self, key: tuple[Instrument, Values], one: tuple[object, ...], present: bool) -> None:
        # R4: each of these changes is made in one step.
        if (counted := self._present.get(key)) is None:
            counted = self._present.setdefault(key, set())
        # An acquire that did not wait leaves nothing to remove.
        if present is (one in counted):
            return
        (counted.add if present else counted.discard)(one)
        number = -1
        # Meanwhile another thread may have changed the set, and recorded the newer number before this thread recorded
        # the older one.
        while number != len(counted):
            number = len(counted)
            self._record(key[0], number, key[1])

    def _lock_of(self, event: events.LockEvent | event_listeners.Story) -> Values:
        """Return the values of the attributes of a lock."""
        path = event.path
        name = event.label or events.fold(path if self._base is None else path[len(self._base) + 1 :])
        if name not in self._names:
            try:
                self._free.pop()
            except IndexError:
                name = OTHER
            else:
                self._names.add(name)
        return event.primitive, name, event.mode

    def observe(self) -> dict[Instrument, dict[Values, float]]:
        """Return the current values of all instruments that are observed, by the values of their attributes."""
        only = [ref() for ref in self._only]
        living: list[Any] = living_sessions()
        # In a forked child, the parent's clients are left out.
        sessions = [each for each in living if not each.forked and (not only or each in only)]
        return self._active(sessions) | _clients(sessions)

    def _active(self, sessions: list[Session]) -> dict[Instrument, dict[Values, float]]:
        locks = list(self._locks)
        waiting, held, oldest = (dict.fromkeys(locks, 0.0) for _ in range(3))
        for session in sessions:
            for story in _stories(session):
                stage, since = story.stage
                if not stage or all(each.listener is not self for each in story.listeners):
                    continue
                lock = self._lock_of(story)
                if stage == "wait":
                    waiting[lock] = waiting.get(lock, 0.0) + 1
                else:
                    held[lock] = held.get(lock, 0.0) + 1
                    oldest[lock] = max(oldest.get(lock, 0.0), session.now() - since)
        return {WAITING: waiting, HELD: held, OLDEST: oldest}


def _clients(sessions: list[Session]) -> dict[Instrument, dict[Values, float]]:
    margins: dict[Values, float] = {}
    states: dict[Values, float] = {}
    named: Counter[str] = Counter()
    for session in sessions:
        if (state := state_of(session)) not in STATES:
            continue
        client = servers_of(session)
        named[client] += 1
        client += f"#{named[client]}" if named[client] > 1 else ""
        for each in STATES:
            states[client, each.replace(" ", "_")] = float(each == state)
        # No heartbeat renews the lease of a client that holds nothing.
        if any(ticket.state is State.HELD for ticket in list(session.registry.tickets.values())):
            margins[(client,)] = max(0.0, session.registry.lease.end - session.clock())
    return {MARGIN: margins, CLIENTS: states}


def _stories(session: Session) -> Iterable[event_listeners.Story]:
    """Return the stories of a client's acquires and holds, each once."""
    # R4: each of these copies is made in one step.
    found = [call.story for call in session.calls]
    found += [ticket.story for ticket in list(session.registry.tickets.values()) if ticket.state is State.HELD]
    states = session.directory.states()
    # The holds of detached locks, which belong to no client.
    for of_lock in [each for state in states for each in list(getattr(state, "stories", {}).values())]:
        found += of_lock
    return [story for story in dict.fromkeys(found) if story is not None]
