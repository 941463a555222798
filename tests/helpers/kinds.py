"""Every kind of primitive with its use, for tests that put two kinds on one path.

`KINDS` has an entry for each class that takes a path; `test_kinds` fails if one is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

import zkconcurrent


class Kind(NamedTuple):
    """A kind of primitive.

    Attributes:
        family: the kinds of one family share their nodes, so they exclude each other, or are the same primitive.
        use: holds, sets, counts or puts something; returns the function that ends this.
        excludes: whether a second use, without waiting, must return None while the first lasts.
        made_as: of a family, the kinds that were made alike; otherwise the second gets a ValueError that names both.
    """

    family: str
    use: Callable[[Any, KazooClient, str], Callable[[], object] | None]
    excludes: bool = False
    made_as: str = ""


def _lock(name: str) -> Callable[[Any, KazooClient, str], Callable[[], object] | None]:
    def use(of: Any, client: KazooClient, path: str) -> Callable[[], object] | None:
        arguments = (str(client.client_id),) if name == "DetachedLock" else ()  # its owner
        lock = getattr(of, name)(client, path, *arguments)
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


KINDS = {
    "Lock": Kind("lock", _lock("Lock"), excludes=True),
    "RLock": Kind("lock", _lock("RLock"), excludes=True),
    "DetachedLock": Kind("lock", _lock("DetachedLock"), excludes=True),
    "Election": Kind("lock", _election("selector"), excludes=True),
    "Election, latch": Kind("latch", _election("latch"), excludes=True),
    "ReadLock": Kind("read-write lock", _lock("ReadLock")),
    "WriteLock": Kind("read-write lock", _lock("WriteLock"), excludes=True),
    "ReadWriteLock": Kind("read-write lock", _read_write_lock, excludes=True),
    "Semaphore": Kind("semaphore", _lock("Semaphore"), excludes=True),
    "BoundedSemaphore": Kind("semaphore", _lock("BoundedSemaphore"), excludes=True),
    "Condition": Kind("condition", _condition, excludes=True),
    "Condition, with a lock": Kind("condition with a lock", _condition_with_a_lock),
    "Event": Kind("event", _event),
    "CountDownLatch": Kind("latch that counts", _latch),
    "Barrier": Kind("barrier", _barrier),
    "DoubleBarrier": Kind("double barrier", _double_barrier),
    "Group": Kind("group", _group),
    "AtomicLong": Kind("long", _number("AtomicLong")),
    "AtomicInteger": Kind("integer", _number("AtomicInteger")),
    "AtomicReference": Kind("value", _value("AtomicReference")),
    "SharedValue": Kind("value", _value("SharedValue")),
    "Queue": Kind("queue", _queue("Queue"), made_as="fifo"),
    "SimpleQueue": Kind("queue", _queue("SimpleQueue"), made_as="fifo"),
    "LifoQueue": Kind("queue", _queue("LifoQueue"), made_as="lifo"),
    "PriorityQueue": Kind("queue", _queue("PriorityQueue"), made_as="priority"),
    "DelayQueue": Kind("queue", _queue("DelayQueue"), made_as="delay"),
    "Dict": Kind("map", _dict, made_as="dict"),
    "Set": Kind("map", _set, made_as="set"),
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
