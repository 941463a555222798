"""One thread's calls of one lock, each of them written down.

The time at which a hold is lost is that at which the library sets its `lost`, not that at which a thread of ours gets
to see it: so the events of a run's clients know when they were set, and tell.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from kazoo.client import KazooClient

from tests.soak.events import Log, What, clock
from zkconcurrent import Lock, LockLostError, RLock
from zkconcurrent._engine.session import Session
from zkconcurrent._runtime.events import SteadyEvent

MOMENT = 0.4  # seconds
HURRIES = 0.3
"""How often a lock is released without waiting for the reply."""


class TellingEvent(SteadyEvent):
    """An event that calls each `tell` once with the time at which it was set."""

    def __init__(self) -> None:
        super().__init__()
        self._once = threading.Lock()
        self._at: float | None = None
        self._tells: list[Callable[[float], None]] = []

    def set(self) -> None:
        """Set it."""
        now = clock()
        with self._once:
            if self._at is None:
                self._at = now
        super().set()
        self._say()

    def on_set(self, tell: Callable[[float], None]) -> None:
        """Have it tell, also if it was set before."""
        with self._once:
            self._tells.append(tell)
        self._say()

    def _say(self) -> None:
        with self._once:
            if self._at is None:
                return
            at, tells, self._tells = self._at, self._tells, []
        for tell in tells:
            tell(at)


def have_losses_told(client: KazooClient) -> None:
    """Have the event `lost` of each of a client's holds tell when it is set."""
    Session.of(client).link.user_event = TellingEvent


class Mood:
    """The orders to the threads of a process: to stay inside for a while, or to come to an end.

    Attributes:
        finish: set when no new visits are to be made.
        end: set when the process is to end.
    """

    def __init__(self) -> None:
        self.finish = threading.Event()
        self.end = threading.Event()
        self._since = self._until = 0.0

    def stay(self, seconds: float) -> None:
        """Have each thread that is inside, or comes in within a moment, stay there, until its hold is lost."""
        self._since = clock() + MOMENT
        self._until = max(self._until, self._since + seconds)

    def leave_at(self, start: float) -> float:
        """Return when a hold that began at `start` may end."""
        return self._until if start < self._since and not self.finish.is_set() else 0.0


class Caller:
    """One thread at one lock.

    Args:
        log: where the calls are written down.
        thread: the thread's number.
        client: the number of the lock's client.
        path: the lock's.
        locks: the lock for each role of the path.
        random: the source of its decisions.
        mood: see there.
        session: the session timeout, in seconds.
        number: of the next hold; threads count theirs from 1.
    """

    def __init__(
        self,
        log: Log,
        thread: int,
        client: int,
        path: str,
        locks: dict[str, Any],
        random: Random,
        mood: Mood,
        session: float,
        number: Iterator[int],
    ) -> None:
        self.random = random
        self._log, self._thread, self._client, self._path, self._locks = log, thread, client, path, locks
        self._mood, self._session, self._numbers = mood, session, number
        # By role: the number and the token of the present hold, and how deep it is.
        self._holds: dict[str, tuple[int, int]] = {}
        self._depths: dict[str, int] = {}

    def some_way(self) -> dict[str, Any]:
        """Return arguments for `acquire`."""
        return self.random.choice(
            [{}, {}, {}, {"blocking": False}, *({"timeout": seconds} for seconds in (0, 0.02, 0.2, 1.0, 3.0))]
        )

    def some_time(self) -> float:
        """Return how long to stay inside, in seconds: mostly a moment."""
        return self.random.choice([0, 0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.1])

    def acquire(self, role: str, **how: Any) -> bool:
        """Acquire, one level deeper if the thread holds already."""
        self._add(What.ASKS, role, limit=self._limit(**how))
        try:
            got = self._locks[role].acquire(**how)
        except Exception as error:
            self._failed(role, error)
            return False
        if got:
            self._granted(role)
        else:
            self._add(What.REFUSED, role)
        return bool(got)

    def release(self, role: str) -> None:
        """Release one level; where a lock can, at times without waiting for the reply."""
        hurries = self._hurries(role)
        self._leaving(role)
        try:
            self._locks[role].release(**({"wait": False} if hurries else {}))
        except Exception as error:
            self._failed(role, error)
        else:
            self._add(What.SENT if hurries else What.LEFT, role)

    def block(self, role: str, body: Callable[[], None]) -> None:
        """Hold for the time of a `with` block, and do something in it."""
        lock, hurries = self._locks[role], self._hurries(role)
        self._add(What.ASKS, role)
        try:
            with lock.hold(wait_release=False) if hurries else lock:
                self._granted(role)
                body()
                self._leaving(role)
            self._add(What.SENT if hurries else What.LEFT, role)
        except Exception as error:
            self._failed(role, error)

    def stay(self, role: str, seconds: float) -> None:
        """Stay inside, longer if the mood is so; not beyond the loss of the hold."""
        lost = self._locks[role].lost
        start = clock()
        until = start + seconds
        while not lost.is_set() and (left := max(until, self._mood.leave_at(start)) - clock()) > 0:
            lost.wait(min(left, 0.1))

    def _hurries(self, role: str) -> bool:
        return isinstance(self._locks[role], Lock | RLock) and self.random.random() < HURRIES

    def work(self, seconds: float) -> None:
        """Take one's time, more if the mood is so: also when something is lost, as nobody tells of that."""
        start = clock()
        while (left := max(start + seconds, self._mood.leave_at(start)) - clock()) > 0:
            time.sleep(min(left, 0.1))

    def _limit(self, blocking: bool = True, timeout: float | None = -1) -> float | None:
        if not blocking or timeout == 0:
            return self._session / 3  # as long as it takes to see that a link is dead
        return None if timeout in (None, -1) else timeout

    def _granted(self, role: str) -> None:
        at = clock()
        lock = self._locks[role]
        if not self._depths.get(role):
            try:
                token = lock.fencing_token
            except LockLostError:
                token = 0
            self._holds[role] = next(self._numbers), token
        number, token = self._holds[role]
        self._depths[role] = self._depths.get(role, 0) + 1
        self._add(What.GRANTED, role, at, token=token)
        if self._depths[role] == 1 and isinstance(lost := lock.lost, TellingEvent):
            details = {"path": self._path, "role": role, "hold": number, "token": token, "client": self._client}
            lost.on_set(lambda at: self._log.add(self._thread, What.TOLD, at, **details))

    def _leaving(self, role: str) -> None:
        self._add(What.LEAVES, role)
        self._depths[role] -= 1

    def _failed(self, role: str, error: Exception) -> None:
        if isinstance(error, LockLostError):
            self._add(What.LOST, role)
        else:
            self._add(What.FAILED, role, note=f"{type(error).__name__}: {error}")

    def _say(self, what: What, role: str, item: str = "", **details: Any) -> None:
        details |= {"path": self._path, "role": role, "client": self._client, "item": item}
        self._log.add(self._thread, what, **details)

    def _add(self, what: What, role: str, at: float | None = None, token: int = 0, **details: Any) -> None:
        number = self._holds.get(role, (0, 0))[0] if what is not What.ASKS else 0
        details |= {"path": self._path, "role": role, "hold": number, "token": token, "client": self._client}
        self._log.add(self._thread, what, at, **details)
