"""The contenders of each primitive, as a test sees them: by their znodes, or inside this process.

Most functions return a condition, for `eventually`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NoNodeError

from tests.helpers.lock_types import AnyLock
from zkconcurrent import Condition, Event

NODE = re.compile(r"_c_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-(.+)(\d{10})\Z")


def queued(client: KazooClient, path: str, n: int) -> Callable[[], bool]:
    """Return a condition: n nodes are under the path; none, where the server has reaped it."""

    def there() -> bool:
        try:
            return len(client.get_children(path)) == n
        except NoNodeError:
            return n == 0
        except ConnectionLoss:
            return False  # not known: to be asked again

    return there


def children(client: KazooClient, path: str) -> list[str]:
    """Return the names of the children by sequence number; none of a node that is absent, or was reaped while idle."""
    try:
        return sorted(client.get_children(path), key=lambda name: name[-10:])
    except NoNodeError:
        return []


def permits_out(client: KazooClient, path: str, n: int) -> Callable[[], bool]:
    """Return a condition: n permits are out."""
    return lambda: len(children(client, f"{path}/leases")) == n


def permits_awaited(client: KazooClient, path: str, n: int) -> Callable[[], bool]:
    """Return a condition: n nodes are in the queue."""
    return lambda: len(children(client, f"{path}/locks")) == n


def waiter_nodes(client: KazooClient, path: str) -> list[str]:
    """Return the nodes of a condition's waiters, the longest waiting first."""
    return [f"{path}/waiters/{name}" for name in children(client, f"{path}/waiters")]


def waiters(client: KazooClient, path: str, n: int) -> Callable[[], bool]:
    """Return a condition: n waiters of a condition are queued."""
    return lambda: len(waiter_nodes(client, path)) == n


def nothing_left(client: KazooClient, condition: Condition) -> Callable[[], bool]:
    """Return a condition: neither a waiter's node nor the lock's is there."""
    return lambda: not waiter_nodes(client, condition.path) and queued(client, condition._lock.path, 0)()


def wait_in(condition: Condition, timeout: float | None = None) -> tuple[bool, float]:
    """Wait; return what came of it and by which token the lock is held then."""
    with condition:
        return condition.wait(timeout), condition._lock.fencing_token


def barrier_state(client: KazooClient, path: str) -> dict[str, object]:
    """Return what the barrier's node says."""
    said = json.loads(client.get(path)[0])
    assert isinstance(said, dict)
    return said


def parties_in(client: KazooClient, path: str, n: int, generation: int = 0) -> Callable[[], bool]:
    """Return a condition: n parties are in the generation."""
    where = f"{path}/{generation:010d}"
    return lambda: client.exists(where) is not None and len(client.get_children(where)) == n


def waits(event: Event, n: int = 1) -> bool:
    """Whether n threads of the event's client wait for it, with a watch."""
    session = event._session
    with session.lock:
        awaited = sum(bool(ticket.awaits) and not ticket.changed for ticket in session.registry.tickets.values())
    return awaited >= n and any(event.client._data_watchers.values())


@contextmanager
def held_elsewhere(lock: Any) -> Iterator[None]:
    """Hold a lock by another thread of this process: a caller that waits for it then does not wait for itself."""
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(20)
        yield
    finally:
        over.set()
        thread.join()


def at_the_handoff(lock: AnyLock, n: int) -> Callable[[], bool]:
    """Return a condition: n threads of the process wait for another thread of it."""
    return lambda: lock._path_state.handoff is not None and len(lock._path_state.handoff._waiting) == n
