"""The work of the threads: the paths, and the random use of each.

To have one more primitive checked, write how a thread visits it, and add a path.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tests.models import dictionary, lock, values
from tests.models.history import Model
from tests.soak.callers.caller import Caller
from tests.soak.callers.data_caller import DataCaller, Key, Number, Value, visit_data
from tests.soak.callers.queue_caller import QueueCaller
from tests.soak.checks.items import Stock
from zkconcurrent import TEXT, AtomicLong, Dict, Lock, Queue, ReadWriteLock, RLock, Semaphore, SharedValue


class Entry(NamedTuple):
    """One path of the workload.

    Attributes:
        model: the model that judges its history; of a queue, its promises.
        make: makes the primitive of a client, a path, and `on_lost`.
        visit: one use of it, from acquire to release; with `plain`, of the simplest kind, which must come through.
        roles: the locks of the primitive, by their names in the history.
        caller: writes down the calls of one thread.
    """

    model: lock.Lock | Model | Stock
    make: Callable[..., Any]
    visit: Callable[..., None]
    roles: Callable[[Any], dict[str, Any]] = lambda lock: {"lock": lock}
    caller: type[Caller] = Caller


def visit_lock(caller: Caller, plain: bool = False) -> None:
    """Acquire and release, in a `with` block or not."""
    if plain or caller.random.random() < 0.3:
        caller.block("lock", lambda: caller.stay("lock", 0 if plain else caller.some_time()))
    elif caller.acquire("lock", **caller.some_way()):
        caller.stay("lock", caller.some_time())
        caller.release("lock")


def visit_rlock(caller: Caller, plain: bool = False, role: str = "lock") -> None:
    """Acquire and release, again within, up to three levels deep, each in any way."""
    _deeper(caller, role, 1 if plain else caller.random.randint(1, 3), plain)


def _deeper(caller: Caller, role: str, levels: int, plain: bool) -> None:
    if plain or caller.random.random() < 0.3:
        caller.block(role, lambda: _inside(caller, role, levels, plain))
    elif caller.acquire(role, **caller.some_way()):
        _inside(caller, role, levels, plain)
        caller.release(role)


def _inside(caller: Caller, role: str, levels: int, plain: bool) -> None:
    caller.stay(role, 0 if plain else caller.some_time())
    if levels > 1:
        _deeper(caller, role, levels - 1, plain)
        caller.stay(role, caller.some_time())


def visit_pair(caller: Caller, plain: bool = False) -> None:
    """Read, or write, or write and go on reading."""
    part = caller.random.random()
    if plain:
        visit_rlock(caller, plain, caller.random.choice(["read", "write"]))
    elif part < 0.5:
        visit_rlock(caller, role="read")
    elif part < 0.75:
        visit_rlock(caller, role="write")
    elif caller.acquire("write", **caller.some_way()):
        caller.stay("write", caller.some_time())
        reads = caller.acquire("read", **caller.some_way())
        roles = ["write", "read"] if caller.random.random() < 0.7 else ["read", "write"]
        for role in roles if reads else ["write"]:
            caller.stay(role, caller.some_time())
            caller.release(role)


def _pair(pair: ReadWriteLock) -> dict[str, Any]:
    return {"read": pair.read_lock, "write": pair.write_lock}


def visit_queue(caller: QueueCaller, plain: bool = False) -> None:
    """Put, get or claim; of what is claimed, most is acknowledged, and some is given back."""
    random = caller.random
    if plain:
        caller.put()
        caller.claim(0)
        return
    if (part := random.random()) < 0.4:
        caller.put(**caller.some_limit())
        return
    # A call that waits for ever puts an item first: otherwise all threads may come to wait.
    how = {} if random.random() < 0.3 and caller.put(timeout=1.0) else caller.some_limit()
    if part < 0.5:
        caller.get(**how)
    else:
        caller.claim(caller.some_time(), random.random() < 0.3, **how)


def _queue(client: Any, path: str, on_lost: Any = None, *, of: Stock) -> Queue[bytes]:  # noqa: ARG001
    return of.open(client, path)


def queue(of: Stock) -> Entry:
    """Return the entry of a queue."""
    return Entry(of, partial(_queue, of=of), visit_queue, lambda each: {"queue": each}, QueueCaller)


def _data(make: Callable[..., Any], model: Model, roles: Callable[[Any], dict[str, Any]]) -> Entry:
    return Entry(model, lambda client, path, on_lost=None: make(client, path), visit_data, roles, DataCaller)  # noqa: ARG005


def words(*keys: str) -> dictionary.Dict:
    """Return the model of a map whose values begin as "", as all ask for them so."""
    model = dictionary.Dict()
    model.initial = frozenset(dictionary.Entry(key, "") for key in keys)
    return model


KEYS = ("a", "b/c")
NUMBER = _data(AtomicLong, values.AtomicLong(), lambda each: {"number": Number(each)})
VALUE = _data(
    lambda client, path: SharedValue(client, path, "", codec=TEXT), words("value"), lambda each: {"value": Value(each)}
)
MAP = _data(partial(Dict, codec=TEXT), words(*KEYS), lambda each: {key: Key(each) for key in KEYS})
PERMITS = 2


def _unfair(client: Any, path: str, **options: Any) -> Lock:
    return Lock(client, path, fair=False, **options)


def _semaphore(client: Any, path: str, **options: Any) -> Semaphore:
    return Semaphore(client, path, PERMITS, **options)


# Few enough for all of them to be contended; but a process killed in one queue must not hold up everybody everywhere.
PATHS = {
    "/soak/lock-1": Entry(lock.Lock(), Lock, visit_lock),
    "/soak/unfair": Entry(lock.UnfairLock(), _unfair, visit_lock),
    "/soak/rlock-1": Entry(lock.RLock(), RLock, visit_rlock),
    "/soak/rlock-2": Entry(lock.RLock(), RLock, visit_rlock),
    "/soak/pair-1": Entry(lock.ReadWriteLock(), ReadWriteLock, visit_pair, _pair),
    "/soak/pair-2": Entry(lock.ReadWriteLock(), ReadWriteLock, visit_pair, _pair),
    "/soak/permits": Entry(lock.Semaphore(PERMITS), _semaphore, visit_lock),
    "/soak/queue": queue(Stock()),
    "/soak/queue-of-5": queue(Stock(maxsize=5)),
    "/soak/queue-3-times": queue(Stock(max_attempts=3)),
}
DATA = {"/soak/number": NUMBER, "/soak/value": VALUE, "/soak/map": MAP}


class Deaf(Lock):
    """Goes on believing that it holds until the server says otherwise, which the checker must find."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire, for ever."""
        got = super().acquire(blocking, timeout)
        if got:
            lease = self._session.registry.lease
            lease.end, lease._set_end = math.inf, lambda: None  # type: ignore[method-assign]
        return got


WORKLOADS = {
    "all": {**PATHS, **DATA},
    "lock": {"/soak/lock": Entry(lock.Lock(), Lock, visit_lock)},
    "deaf": {"/soak/deaf": Entry(lock.Lock(), Deaf, visit_lock)},
}
