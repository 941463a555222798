"""The work of the threads: the paths, and the random use of each.

To have one more primitive checked, write how a thread visits it, and add a path.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tests.models import lock, rwlock, semaphore
from tests.soak.callers.bags import BagCaller, Shelf, TaskQueue, TaskQueueCaller, visit_bag
from tests.soak.callers.caller import Caller
from tests.soak.callers.data_caller import (
    FIRST,
    GateCaller,
    GroupCaller,
    Key,
    LineCaller,
    Number,
    Value,
    visit_gate,
    visit_group,
    visit_line,
)
from tests.soak.callers.leaders import Block, Candidacy, CandidacyCaller
from tests.soak.callers.queue_caller import QueueCaller
from tests.soak.checks.data import Crowd, Gate, Line, Promise
from tests.soak.checks.items import Stock
from zkconcurrent import (
    JSON,
    AtomicLong,
    Dict,
    DoubleBarrier,
    Group,
    Lock,
    Queue,
    ReadWriteLock,
    RLock,
    Semaphore,
    SharedValue,
)


class Entry(NamedTuple):
    """One path of the workload.

    Attributes:
        model: its promises.
        make: makes the primitive of a client, a path, and `on_lost`.
        visit: one use of it, from acquire to release; with `plain`, of the simplest kind, which must come through.
        roles: the locks of the primitive, by their names in the history.
        caller: writes down the calls of one thread.
    """

    model: lock.Lock | Stock | Promise
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


def _number(client: Any, path: str, on_lost: Any = None) -> AtomicLong:  # noqa: ARG001
    return AtomicLong(client, path)


def _value(client: Any, path: str, on_lost: Any = None) -> SharedValue[Any]:  # noqa: ARG001
    return SharedValue(client, path, FIRST, codec=JSON)


def _map(client: Any, path: str, on_lost: Any = None) -> Dict[Any]:  # noqa: ARG001
    return Dict(client, path, codec=JSON)


def _gate(client: Any, path: str, on_lost: Any = None, *, parties: int) -> DoubleBarrier:  # noqa: ARG001
    return DoubleBarrier(client, path, parties)


def _group(client: Any, path: str, on_lost: Any = None) -> Group:  # noqa: ARG001
    return Group(client, path)


def _tasks(client: Any, path: str, on_lost: Any = None) -> TaskQueue:  # noqa: ARG001
    return TaskQueue(client, path)


def _keys(entries: Dict[Any]) -> dict[str, Any]:
    return {key: Key(entries, key) for key in ("a", "b/c")}


def gate(parties: int) -> Entry:
    """Return the entry of a double barrier."""
    make = partial(_gate, parties=parties)
    return Entry(Gate(parties), make, visit_gate, lambda each: {"gate": each}, GateCaller)


NUMBER = Entry(Line(named=False), _number, visit_line, lambda each: {"number": Number(each)}, LineCaller)
VALUE = Entry(Line(), _value, visit_line, lambda each: {"value": Value(each)}, LineCaller)
MAP = Entry(Line(), _map, visit_line, _keys, LineCaller)
GROUP = Entry(Crowd(), _group, visit_group, lambda each: {"group": each}, GroupCaller)
ELECTION = Entry(lock.Lock(), Block, visit_lock)
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
    "/soak/pair-1": Entry(rwlock.ReadWriteLock(), ReadWriteLock, visit_pair, _pair),
    "/soak/pair-2": Entry(rwlock.ReadWriteLock(), ReadWriteLock, visit_pair, _pair),
    "/soak/permits": Entry(semaphore.Semaphore(PERMITS), _semaphore, visit_lock),
    "/soak/queue": queue(Stock()),
    "/soak/queue-of-5": queue(Stock(maxsize=5)),
    "/soak/queue-3-times": queue(Stock(max_attempts=3)),
}
DATA = {
    "/soak/number": NUMBER,
    "/soak/value": VALUE,
    "/soak/map": MAP,
    "/soak/set-of-items": queue(Shelf())._replace(visit=visit_bag, caller=BagCaller),
    "/soak/map-of-items": queue(Shelf(kind=Dict))._replace(visit=visit_bag, caller=BagCaller),
    "/soak/queue-of-tasks": queue(Stock())._replace(make=_tasks, caller=TaskQueueCaller),
    "/soak/election": ELECTION,
    # Not fair: the end of a candidacy does not tell whether the node was gone.
    "/soak/candidacy": Entry(lock.UnfairLock(), Candidacy, visit_lock, caller=CandidacyCaller),
    "/soak/gate": gate(3),
    "/soak/group": GROUP,
}
