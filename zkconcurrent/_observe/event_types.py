"""The events that listeners get about each acquire, the hold that follows, and the end of the hold.

`add_listener` describes when each event comes. Events are plain data: a listener may keep them, or pass them on to
another thread.
"""

import re
import weakref
from dataclasses import dataclass, fields
from datetime import datetime
from functools import lru_cache

from .._errors import DeadlockEdge, LossCause
from .._kazoo.link import KazooClient
from .._runtime.clock import ago, monotonic

# What differs from one object of a kind to the next: a UUID, a hash, a number. A hash may stand beside an underscore,
# which `\b` takes for a letter.
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![^\W_])[0-9a-f]{8,}(?![^\W_])|\d+", re.IGNORECASE)


# A program uses the same paths again and again.
@lru_cache(maxsize=1000)
def fold(path: str) -> str:
    """Return a path with `*` for each number, hash and UUID."""
    return _ID.sub("*", path)


class OfClient:
    """Something that has happened to a client.

    The client is not a field: an event in a queue must not keep it alive, and another process can't have it.
    """

    __slots__ = ("_client",)

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.__module__ = "zkconcurrent"

    def _set_client(self, client: weakref.ref[KazooClient]) -> None:
        self._client = client


# The events are not frozen: a frozen one takes five times as long to make.
@dataclass(slots=True)
class LockEvent(OfClient):
    """The fields of all events.

    Attributes:
        primitive: the class of the lock, such as "Lock" or "ReadWriteLock".
        path: the path of the lock.
        mode: "exclusive", or "shared" for a read lock and for permits.
        token: the fencing token of the hold; 0 before there is one.
        by: the thread or task that acquires, as in `Contender.by`.
        at: the time, by `time.monotonic()`.
        seq: the number of the event in this process.
        label: the `label` of the lock, if it has one.
    """

    primitive: str
    path: str
    mode: str
    token: int
    by: str
    at: float
    seq: int
    label: str | None

    @property
    def name(self) -> str:
        """The label, or else the path with `*` for each number, hash and UUID: one name for similar locks."""
        return fold(self.path) if self.label is None else self.label

    @property
    def client(self) -> KazooClient | None:
        """The client. None if it is garbage collected, or the event was pickled or copied."""
        return self._client() if hasattr(self, "_client") else None

    @property
    def date(self) -> datetime:
        """When the event happened, by this machine's clock. Valid only in the process in which it happened."""
        return ago(monotonic() - self.at)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple(getattr(self, each.name) for each in fields(self))


@dataclass(slots=True)
class Waiting(LockEvent):
    """The acquire waits behind others. An acquire that need not wait has no such event."""


@dataclass(slots=True)
class Acquired(LockEvent):
    """The acquire has succeeded.

    Attributes:
        waited: how many seconds the acquire waited.
        contended: whether others held the lock or were ahead, so that a `Waiting` event came first.
    """

    waited: float
    contended: bool


@dataclass(slots=True)
class TimedOut(LockEvent):
    """The acquire has ended at its timeout.

    Attributes:
        waited: how many seconds the acquire waited.
    """

    waited: float


@dataclass(slots=True)
class WouldBlock(LockEvent):
    """The acquire was to make a single attempt, and another contender holds the lock or is ahead.

    Attributes:
        waited: how many seconds the attempt has taken.
    """

    waited: float


@dataclass(slots=True)
class Cancelled(LockEvent):
    """The acquire was ended by `cancel_waits()`, a cancellation of its task, Ctrl-C, or the like.

    Attributes:
        waited: how many seconds the acquire waited.
    """

    waited: float


@dataclass(slots=True)
class DeadlockFound(LockEvent):
    """The acquire waits in a deadlock, which its own search has found.

    Attributes:
        cycle: who waits for whom, this acquire first.
    """

    cycle: tuple[DeadlockEdge, ...]


@dataclass(slots=True)
class DeadlockVictim(LockEvent):
    """The acquire would have waited forever, and has raised `error` instead.

    Attributes:
        waited: how many seconds the acquire waited.
        error: the `DeadlockError`.
    """

    waited: float
    error: BaseException


@dataclass(slots=True)
class Failed(LockEvent):
    """The acquire has raised `error`.

    Attributes:
        waited: how many seconds the acquire waited.
        error: the error.
    """

    waited: float
    error: BaseException


@dataclass(slots=True)
class Released(LockEvent):
    """The hold was given up: by a release, a condition's wait, the end of its task, or an interrupted acquire.

    Attributes:
        held: how many seconds the hold lasted.
    """

    held: float


@dataclass(slots=True)
class Lost(LockEvent):
    """The hold was lost.

    Attributes:
        held: how many seconds the hold lasted.
        cause: why the hold was lost.
    """

    held: float
    cause: LossCause | None


@dataclass(slots=True)
class HoldLimit(LockEvent):
    """The hold has lasted longer than the lock's `hold_limit`. With `on_hold_limit="lose"`, `Lost` follows.

    Attributes:
        held: how many seconds the hold has lasted so far.
    """

    held: float


@dataclass(slots=True)
class Suspect(LockEvent):
    """ZooKeeper is out of reach, so the hold may be about to be lost.

    Attributes:
        remaining: how many seconds the hold is sure to last.
    """

    remaining: float


@dataclass(slots=True)
class Recovered(LockEvent):
    """ZooKeeper is in reach again, and the hold goes on."""
