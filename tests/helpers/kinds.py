"""Every kind of primitive: how one is made, how it is used, how it waits, and how its wait is ended.

The tests that run over all primitives derive their lists from here; `tests/every_primitive` asks each kind the same
questions. `primitives()` finds the classes by the public names; for each, `KINDS` has a row, and `ARGUMENTS` what it
can't be made without. `tests/unit/test_registry.py` fails if one is missing, and says what to add.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import zkconcurrent

Use: TypeAlias = Callable[[Any, KazooClient, str], Callable[[], object] | None]
Wait: TypeAlias = Callable[[Any, KazooClient, str, float], object]


class Kind(NamedTuple):
    """A kind of primitive. Each function takes the package, for threads or for tasks; a client; and a path.

    Attributes:
        family: the kinds of one family share their nodes, so they exclude each other, or are the same primitive.
        use: holds, sets, counts or puts something; returns the function that ends this.
        wait: waits for so many seconds at most, on a thread, and returns whether what it waited for has come: in vain,
            if the path is new or another client uses it. Changes or reads something, if the kind never waits.
        ends: makes the wait of another client last; returns the function that ends it. None if the kind never waits.
        looks: the attributes and methods that ask the server, and change nothing.
        excludes: whether a second use, without waiting, must return None while the first lasts.
        made_as: of a family, the kinds that were made alike; otherwise the second gets a ValueError that names both.
        occupies: while what lasts, "use" or "wait", `destroy()` by another client is an error.
        expired: what a wait returns at once if its session ends, or its nodes are deleted; None if it waits on.
    """

    family: str
    use: Use
    wait: Wait
    ends: Use | None = None
    looks: tuple[str, ...] = ()
    excludes: bool = False
    made_as: str = ""
    occupies: str = ""
    expired: bool | None = None


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "AtomicReference": (b"",),
    "Barrier": (2,),
    "CountDownLatch": (2,),
    "DetachedLock": ("me",),
    "DoubleBarrier": (2,),
    "SharedValue": (b"",),
}
"""What a class can't be made without, beside a client and a path."""


def primitives(package: ModuleType = zkconcurrent) -> list[str]:
    """Return the public names of the primitives: the classes that are made with a client and a path, or by a pair."""
    named = {name: getattr(package, name) for name in package.__all__}
    made = {
        name
        for name, each in named.items()
        if isinstance(each, type) and {"client", "path"} <= set(inspect.signature(each.__init__).parameters)
    }
    return sorted(made - {"Namespace"} | {"ReadLock", "WriteLock"})


def make(of: Any, name: str, client: Any, path: str) -> Any:
    """Make a primitive of a package, for threads or for tasks."""
    if name in ("ReadLock", "WriteLock"):
        pair = of.ReadWriteLock(client, path)
        return pair.read_lock if name == "ReadLock" else pair.write_lock
    if name == "MultiLock":
        return getattr(of, name)([of.Lock(client, path)])
    if name == "DetachedLock":  # each client is an owner
        return of.DetachedLock(client, path, str(client.client_id))
    return getattr(of, name)(client, path, *ARGUMENTS.get(name, ()))


def named(namespace: type) -> list[str]:
    """Return the names of the primitives that a namespace makes."""
    return [name for name in [*primitives(), "MultiLock"] if hasattr(namespace, name)]


def make_named(namespace: Any, kind: str, name: str) -> Any:
    """Make a primitive of a namespace."""
    made = getattr(namespace, kind)
    return made([name]) if kind == "MultiLock" else made(name, *ARGUMENTS.get(kind, ()))


def _lock(name: str) -> Callable[[Any, KazooClient, str], Callable[[], object] | None]:
    def use(of: Any, client: KazooClient, path: str) -> Callable[[], object] | None:
        lock = make(of, name, client, path)
        return lock.release if lock.acquire(blocking=False) else None

    return use


def _read_write_lock(of: Any, client: KazooClient, path: str) -> Callable[[], object] | None:
    lock = of.ReadWriteLock(client, path).write_lock
    return lock.release if lock.acquire(blocking=False) else None


def _election(layout: str) -> Callable[[Any, KazooClient, str], Callable[[], object] | None]:
    def use(of: Any, client: KazooClient, path: str) -> Callable[[], object] | None:
        leading = of.Election(client, path, layout=layout).lead(timeout=0)
        try:
            leading.__enter__()
        except TimeoutError:
            return None
        return lambda: leading.__exit__(None, None, None)

    return use


def _condition(of: Any, client: KazooClient, path: str) -> Callable[[], object] | None:
    condition = of.Condition(client, path)
    return condition.release if condition.acquire(blocking=False) else None


def _condition_with_a_lock(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    lock = of.Lock(client, f"{path}-lock")
    condition = of.Condition(client, path, lock)
    with lock:
        condition.wait(0.01)
    return lambda: None


def _event(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    event = of.Event(client, path)
    event.set()
    return event.clear


def _latch(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    latch = of.CountDownLatch(client, path, 1234)
    latch.count_down()
    return latch.count_down


def _barrier(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    barrier = of.Barrier(client, path, 1)
    barrier.wait(5)
    return lambda: barrier.wait(5)


def _double_barrier(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    barrier = of.DoubleBarrier(client, path, 1)
    barrier.enter()
    return lambda: barrier.leave(0)


def _group(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    return of.Group(client, path).join(id=f"{id(client)} is a member").leave  # type: ignore[no-any-return]


def _number(name: str) -> Callable[[Any, KazooClient, str], Callable[[], object]]:
    def use(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
        number = getattr(of, name)(client, path)
        number.add(1)
        return lambda: number.add(-1)

    return use


def _value(name: str) -> Callable[[Any, KazooClient, str], Callable[[], object]]:
    def use(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
        value = getattr(of, name)(client, path, b"initial")
        value.set(b"changed")
        return lambda: value.set(b"initial")

    return use


def _queue(name: str) -> Callable[[Any, KazooClient, str], Callable[[], object]]:
    def use(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
        queue = getattr(of, name)(client, path, codec=zkconcurrent.JSON)
        queue.put(1)
        return queue.get  # type: ignore[no-any-return]

    return use


def _dict(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    entries = of.Dict(client, path)
    entries["key"] = b"value"
    return lambda: entries.pop("key")


def _set(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    members = of.Set(client, path)
    members.add("member")
    return lambda: members.discard("member")


def _acquire(name: str) -> Wait:
    def wait(of: Any, client: KazooClient, path: str, timeout: float) -> bool:
        lock = make(of, name, client, path)
        lock = lock.write_lock if name == "ReadWriteLock" else lock
        got: bool = lock.acquire(timeout=timeout)
        if got:
            lock.release()
        return got

    return wait


def _lead(layout: str) -> Wait:
    def wait(of: Any, client: KazooClient, path: str, timeout: float) -> bool:
        with suppress(TimeoutError), of.Election(client, path, layout=layout).lead(timeout):
            return True
        return False

    return wait


def _wait_notified(of: Any, client: KazooClient, path: str, timeout: float) -> bool:
    condition = of.Condition(client, path)
    return condition.acquire(timeout=timeout) and _notified(condition, timeout)


def _notified(condition: Any, timeout: float) -> bool:
    notified = bool(condition.wait(timeout))
    condition.release()
    return notified


def _notify(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    def notify() -> None:
        with (condition := of.Condition(client, path)):
            condition.notify()

    return notify


def _wait_notified_with_a_lock(of: Any, client: KazooClient, path: str, timeout: float) -> bool:
    lock = of.Lock(client, f"{path}-lock")
    return lock.acquire(timeout=timeout) and _notified(of.Condition(client, path, lock), timeout)


def _notify_with_a_lock(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    def notify() -> None:
        with (lock := of.Lock(client, f"{path}-lock")):
            of.Condition(client, path, lock).notify()

    return notify


def _wait_at_a_barrier(of: Any, client: KazooClient, path: str, timeout: float) -> bool:
    with suppress(threading.BrokenBarrierError, getattr(asyncio, "BrokenBarrierError", threading.BrokenBarrierError)):
        return of.Barrier(client, path, 2).wait(timeout) in (0, 1)
    return False


def _enter(of: Any, client: KazooClient, path: str, timeout: float) -> bool:
    barrier = of.DoubleBarrier(client, path, 2)
    if entered := bool(barrier.enter(timeout)):
        barrier.leave(0)
    return entered


def _party(wait: Wait) -> Use:
    """Return what comes to meet the waiter, which may be late: on a thread of its own."""

    def ends(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
        def come() -> None:
            with suppress(zkconcurrent.ZkConcurrentError):  # the client was stopped
                wait(of, client, path, 30.0)

        return lambda: threading.Thread(target=come).start()

    return ends


def _call(name: str, method: str) -> Wait:
    return lambda of, client, path, timeout: getattr(make(of, name, client, path), method)(timeout)


def _observe(name: str, method: str) -> Wait:
    def wait(of: Any, client: KazooClient, path: str, timeout: float) -> bool:
        return len([*islice(getattr(make(of, name, client, path), method)(timeout), 2)]) == 2

    return wait


def _answer(name: str, method: str) -> Wait:
    def wait(of: Any, client: KazooClient, path: str, _: float) -> bool:
        getattr(make(of, name, client, path), method)()
        return True

    return wait


def _get(name: str) -> Wait:
    def wait(of: Any, client: KazooClient, path: str, timeout: float) -> bool:
        queue = getattr(of, name)(client, path, codec=zkconcurrent.JSON)
        with suppress(zkconcurrent.Empty, asyncio.QueueEmpty):
            return queue.get(timeout=timeout) == 1  # type: ignore[no-any-return]
        return False

    return wait


def _pulse(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
    event = of.Event(client, path)
    return lambda: (event.set(), event.clear())


def _then(name: str, method: str, *arguments: object, times: int = 1, **options: Any) -> Use:
    """Return what ends a wait by a call of another client."""

    def ends(of: Any, client: KazooClient, path: str) -> Callable[[], object]:
        def end() -> None:
            for _ in range(times):
                getattr(made, method)(*arguments)

        made = getattr(of, name)(client, path, *ARGUMENTS.get(name, ()), **options)
        return end

    return ends


def _lock_row(name: str, family: str, ends: str = "", **others: Any) -> Kind:
    """Return the row of what is acquired; `ends` holds it meanwhile, if that is not the kind itself."""
    looks = ("locked", "owner", "waiters")
    return Kind(family, _lock(name), _acquire(name), _lock(ends or name), **{"looks": looks, "excludes": True} | others)


def _queue_row(name: str, made_as: str, looks: tuple[str, ...] = ("qsize", "empty", "full", "dead", "join")) -> Kind:
    ends = _then(name, "put", 1, codec=zkconcurrent.JSON)
    return Kind("queue", _queue(name), _get(name), ends, looks, made_as=made_as, occupies="use")


def _value_row(name: str) -> Kind:
    return Kind("value", _value(name), _observe(name, "watch"), _then(name, "set", b"new"), ("get",))


def _election_row(layout: str, family: str) -> Kind:
    use = _election(layout)
    return Kind(family, use, _lead(layout), use, ("leader", "candidates"), excludes=True)


SEMAPHORE = ("locked", "available", "waiters")
KINDS = {
    "Lock": _lock_row("Lock", "lock"),
    "RLock": _lock_row("RLock", "lock"),
    "DetachedLock": _lock_row("DetachedLock", "lock"),
    "Election": _election_row("selector", "lock"),
    "Election, latch": _election_row("latch", "latch"),
    "ReadLock": _lock_row("ReadLock", "read-write lock", ends="WriteLock", excludes=False),
    "WriteLock": _lock_row("WriteLock", "read-write lock"),
    "ReadWriteLock": Kind(
        "read-write lock", _read_write_lock, _acquire("ReadWriteLock"), _read_write_lock, excludes=True
    ),
    "Semaphore": _lock_row("Semaphore", "semaphore", looks=SEMAPHORE, occupies="use"),
    "BoundedSemaphore": _lock_row("BoundedSemaphore", "semaphore", looks=SEMAPHORE, occupies="use"),
    "Condition": Kind("condition", _condition, _wait_notified, _notify, excludes=True, expired=True),
    "Condition, with a lock": Kind(
        "condition with a lock",
        _condition_with_a_lock,
        _wait_notified_with_a_lock,
        _notify_with_a_lock,
        expired=True,
    ),
    "Event": Kind("event", _event, _call("Event", "wait"), _pulse, ("is_set",)),
    "CountDownLatch": Kind(
        "latch that counts",
        _latch,
        _call("CountDownLatch", "wait"),
        _then("CountDownLatch", "count_down", times=2),
        ("count",),
    ),
    "Barrier": Kind(
        "barrier",
        _barrier,
        _wait_at_a_barrier,
        _party(_wait_at_a_barrier),
        ("n_waiting", "broken"),
        occupies="wait",
        expired=False,
    ),
    "DoubleBarrier": Kind(
        "double barrier",
        _double_barrier,
        _enter,
        _party(_enter),
        occupies="use",
    ),
    "Group": Kind("group", _group, _observe("Group", "observe"), _then("Group", "join"), ("members",)),
    "AtomicLong": Kind("long", _number("AtomicLong"), _answer("AtomicLong", "add"), looks=("get",)),
    "AtomicInteger": Kind("integer", _number("AtomicInteger"), _answer("AtomicInteger", "add"), looks=("get",)),
    "AtomicReference": _value_row("AtomicReference"),
    "SharedValue": _value_row("SharedValue"),
    "Queue": _queue_row("Queue", "fifo"),
    "SimpleQueue": _queue_row("SimpleQueue", "fifo", looks=("qsize", "empty")),
    "LifoQueue": _queue_row("LifoQueue", "lifo"),
    "PriorityQueue": _queue_row("PriorityQueue", "priority"),
    "DelayQueue": _queue_row("DelayQueue", "delay"),
    "Dict": Kind("map", _dict, _answer("Dict", "ready"), looks=("ready",), made_as="dict", occupies="use"),
    "Set": Kind("map", _set, _answer("Set", "ready"), looks=("ready",), made_as="set", occupies="use"),
}
"""The kinds by the names of their classes; behind a comma, the way of use, if there are several."""

SAME = ({"value", "long"}, {"value", "integer"}, {"condition", "condition with a lock"})
"""The families of which a path is, by design, the same primitive: a number's bytes are a value, for one."""


def is_same(one: Kind, other: Kind) -> bool:
    """Return whether two kinds may share a path."""
    return one.family == other.family or {one.family, other.family} in SAME


def nodes(client: KazooClient, path: str) -> dict[str, bytes]:
    """Return the data of all nodes at a path and below."""
    client.sync(path)
    try:
        found = {path: client.get(path)[0]}
        for name in client.get_children(path):
            found |= nodes(client, f"{path}/{name}")
    except NoNodeError:
        return {}
    return found
