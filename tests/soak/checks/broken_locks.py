"""Broken locks, queues and data: the checker must find them, as a proof that it looks."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

from tests.models import lock
from tests.soak.callers.caller import Caller
from tests.soak.callers.data_caller import Act, DataCaller, Key, Number, Value
from tests.soak.checks.items import Stock
from tests.soak.workload import DATA, MAP, NUMBER, PATHS, VALUE, Entry, queue, visit_lock, visit_rlock
from zkconcurrent import Lock, LockLostError, Queue, RLock

COUNT = itertools.count()


class Grants(Lock):
    """Grants without asking."""

    fencing_token = 1

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: ARG002
        """Acquire nothing."""
        return True

    def release(self, *, wait: bool = True) -> None:
        """Release nothing."""


class Litters(RLock):
    """Leaves an ephemeral node."""

    def release(self, *, wait: bool = True) -> None:
        """Release, and leave something."""
        super().release(wait=wait)
        if not self.client.exists(f"{self.path}/left"):
            self.client.create(f"{self.path}/left-", ephemeral=True, sequence=True)


class Dawdles(Lock):
    """Comes back late."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire, and take one's time if there was little."""
        got = super().acquire(blocking, timeout)
        if 0 < timeout < 0.1:
            time.sleep(4)
        return got


class Alarms(Lock):
    """Says that holds were lost that were not."""

    def release(self, *, wait: bool = True) -> None:
        """Release, and say that it was lost."""
        super().release(wait=wait)
        raise LockLostError(self.path, "it was not")


class Deaf(Lock):
    """Goes on believing that it holds until the server says otherwise."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire, for ever."""
        got = super().acquire(blocking, timeout)
        if got:
            lease = self._session.registry.lease
            lease.end, lease._set_end = math.inf, lambda: None  # type: ignore[method-assign]
        return got


class Forgets(Queue[bytes]):
    """Does not put what it says it has put."""

    def put(self, item: bytes, block: bool = True, timeout: float | None = None) -> None:
        """Put every other item."""
        if int(item[-1:]) % 2:
            super().put(item, block, timeout)


class Repeats(Queue[bytes]):
    """Puts items twice."""

    def put(self, item: bytes, block: bool = True, timeout: float | None = None) -> None:
        """Put it, and put it again."""
        super().put(item, block, timeout)
        super().put(item, block, timeout)


class Doubles(Number):
    """Adds twice."""

    def change(self, caller: DataCaller, role: str) -> None:
        """Add, and add again."""
        self.of.add(1)
        super().change(caller, role)


class Forks(Value):
    """Sets what has been changed meanwhile."""

    def change(self, caller: DataCaller, role: str) -> None:
        """Replace the first value, whatever is there."""
        new = caller.name()
        caller.ask(role, Act("replace", (role, "", new), lambda: [self.of.set(new)] != []))


class Rewinds(Key):
    """Forgets what was written."""

    def read(self, role: str) -> Act:
        """Return the first value, at times."""
        act = super().read(role)
        return act if next(COUNT) % 2 else act._replace(make=lambda: "")


def _forgets(client: Any, path: str, **_: Any) -> Queue[bytes]:
    return Forgets(client, path)


def _repeats(client: Any, path: str, **_: Any) -> Queue[bytes]:
    return Repeats(client, path)


def visit_long(caller: Caller, plain: bool = False) -> None:  # noqa: ARG001
    """Stay for so long that others come in, if they can."""
    caller.block("lock", lambda: caller.stay("lock", 2.0))


def visit_briefly(caller: Caller, plain: bool = False) -> None:
    """Have little time, always."""
    if plain:
        visit_lock(caller, plain)
    elif caller.acquire("lock", timeout=0.02):
        caller.release("lock")


LIES = {
    "/lies/grants": Entry(lock.Lock(), Grants, visit_long),
    "/lies/litters": Entry(lock.RLock(), Litters, visit_rlock),
    "/lies/dawdles": Entry(lock.Lock(), Dawdles, visit_briefly),
    "/lies/alarms": Entry(lock.Lock(), Alarms, visit_lock),
    "/lies/forgets": queue(Stock())._replace(make=_forgets),
    "/lies/repeats": queue(Stock())._replace(make=_repeats),
    "/lies/doubles": NUMBER._replace(roles=lambda each: {"number": Doubles(each)}),
    "/lies/forks": VALUE._replace(roles=lambda each: {"value": Forks(each)}),
    "/lies/rewinds": MAP._replace(roles=lambda each: {"a": Rewinds(each)}),
}
WORKLOADS = {
    "all": {**PATHS, **DATA},
    "data": DATA,
    "queues": {path: entry for path, entry in PATHS.items() if isinstance(entry.model, Stock)},
    "lies": LIES,
    "lock": {"/soak/lock": Entry(lock.Lock(), Lock, visit_lock)},
    "deaf": {"/lies/deaf": Entry(lock.Lock(), Deaf, visit_lock)},
}
