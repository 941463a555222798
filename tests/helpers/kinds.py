"""Every kind of primitive: how one is made, how it is used, and how it waits.

The tests that run over all primitives derive their lists from here. `primitives()` finds the classes by the public
names; for each, `KINDS` has an entry, and `ARGUMENTS` what it can't be made without. `tests/unit/test_registry.py`
fails if one is missing, and says what to add.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import zkconcurrent


class Kind(NamedTuple):
    """A kind of primitive.

    Attributes:
        family: the kinds of one family share their nodes, so they exclude each other, or are the same primitive.
        use: holds, sets, counts or puts something; returns the function that ends this.
        wait: waits for so many seconds at most, on a thread: in vain, if the path is new or another client uses it.
        excludes: whether a second use, without waiting, must return None while the first lasts.
        made_as: of a family, the kinds that were made alike; otherwise the second gets a ValueError that names both.
    """

    family: str
    use: Callable[[Any, KazooClient, str], Callable[[], object] | None]
    wait: Callable[[Any, KazooClient, str, float], object]
    excludes: bool = False
    made_as: str = ""


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
    return of.Group(client, path).join(id=f"{client.client_id[0]} is a member").leave  # type: ignore[no-any-return]


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


def _acquire(name: str) -> Callable[[Any, KazooClient, str, float], object]:
    def wait(of: Any, client: KazooClient, path: str, timeout: float) -> None:
        lock = make(of, name, client, path)
        lock = lock.write_lock if name == "ReadWriteLock" else lock
        if lock.acquire(timeout=timeout):
            lock.release()

    return wait


def _stand(layout: str) -> Callable[[Any, KazooClient, str, float], object]:
    def wait(of: Any, client: KazooClient, path: str, timeout: float) -> None:
        election = of.Election(client, path, layout=layout)
        election.stand()
        election.wait(timeout)
        election.withdraw()

    return wait


def _wait_notified(of: Any, client: KazooClient, path: str, timeout: float) -> None:
    condition = of.Condition(client, path)
    if condition.acquire(timeout=timeout):
        condition.wait(timeout)
        condition.release()


def _wait_notified_with_a_lock(of: Any, client: KazooClient, path: str, timeout: float) -> None:
    lock = of.Lock(client, f"{path}-lock")
    with lock:
        of.Condition(client, path, lock).wait(timeout)


def _wait_at_a_barrier(of: Any, client: KazooClient, path: str, timeout: float) -> None:
    with suppress(threading.BrokenBarrierError):
        of.Barrier(client, path, 2).wait(timeout)


def _call(name: str, method: str) -> Callable[[Any, KazooClient, str, float], object]:
    return lambda of, client, path, timeout: getattr(make(of, name, client, path), method)(timeout)


def _observe(name: str, method: str) -> Callable[[Any, KazooClient, str, float], object]:
    return lambda of, client, path, timeout: list(getattr(make(of, name, client, path), method)(timeout))


def _answer(name: str, method: str) -> Callable[[Any, KazooClient, str, float], object]:
    return lambda of, client, path, _: getattr(make(of, name, client, path), method)()


def _get(name: str) -> Callable[[Any, KazooClient, str, float], object]:
    def wait(of: Any, client: KazooClient, path: str, timeout: float) -> None:
        with suppress(zkconcurrent.Empty):
            make(of, name, client, path).get(timeout=timeout)

    return wait


KINDS = {
    "Lock": Kind("lock", _lock("Lock"), _acquire("Lock"), excludes=True),
    "RLock": Kind("lock", _lock("RLock"), _acquire("RLock"), excludes=True),
    "DetachedLock": Kind("lock", _lock("DetachedLock"), _acquire("DetachedLock"), excludes=True),
    "Election": Kind("lock", _election("selector"), _stand("selector"), excludes=True),
    "Election, latch": Kind("latch", _election("latch"), _stand("latch"), excludes=True),
    "ReadLock": Kind("read-write lock", _lock("ReadLock"), _acquire("ReadLock")),
    "WriteLock": Kind("read-write lock", _lock("WriteLock"), _acquire("WriteLock"), excludes=True),
    "ReadWriteLock": Kind("read-write lock", _read_write_lock, _acquire("ReadWriteLock"), excludes=True),
    "Semaphore": Kind("semaphore", _lock("Semaphore"), _acquire("Semaphore"), excludes=True),
    "BoundedSemaphore": Kind("semaphore", _lock("BoundedSemaphore"), _acquire("BoundedSemaphore"), excludes=True),
    "Condition": Kind("condition", _condition, _wait_notified, excludes=True),
    "Condition, with a lock": Kind("condition with a lock", _condition_with_a_lock, _wait_notified_with_a_lock),
    "Event": Kind("event", _event, _call("Event", "wait")),
    "CountDownLatch": Kind("latch that counts", _latch, _call("CountDownLatch", "wait")),
    "Barrier": Kind("barrier", _barrier, _wait_at_a_barrier),
    "DoubleBarrier": Kind("double barrier", _double_barrier, _call("DoubleBarrier", "enter")),
    "Group": Kind("group", _group, _observe("Group", "observe")),
    "AtomicLong": Kind("long", _number("AtomicLong"), _answer("AtomicLong", "add")),
    "AtomicInteger": Kind("integer", _number("AtomicInteger"), _answer("AtomicInteger", "add")),
    "AtomicReference": Kind("value", _value("AtomicReference"), _observe("AtomicReference", "watch")),
    "SharedValue": Kind("value", _value("SharedValue"), _observe("SharedValue", "watch")),
    "Queue": Kind("queue", _queue("Queue"), _get("Queue"), made_as="fifo"),
    "SimpleQueue": Kind("queue", _queue("SimpleQueue"), _get("SimpleQueue"), made_as="fifo"),
    "LifoQueue": Kind("queue", _queue("LifoQueue"), _get("LifoQueue"), made_as="lifo"),
    "PriorityQueue": Kind("queue", _queue("PriorityQueue"), _get("PriorityQueue"), made_as="priority"),
    "DelayQueue": Kind("queue", _queue("DelayQueue"), _get("DelayQueue"), made_as="delay"),
    "Dict": Kind("map", _dict, _answer("Dict", "ready"), made_as="dict"),
    "Set": Kind("map", _set, _answer("Set", "ready"), made_as="set"),
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
