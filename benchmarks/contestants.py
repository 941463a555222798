"""The contestants in Python: one kind of lock of each library, with the same two calls.

A contestant gives something with `acquire` and `release` for a client and a path. kazoo's objects serve one thread at a
time (of two threads that share one, the second polls), so each thread has its own; ours and Curator's are shared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.retry import RetryFailedError

import zkconcurrent
from benchmarks.herd import EveryoneWatches, OneNode


class Acquirable(Protocol):
    """An object that can be acquired and released."""

    def acquire(self, blocking: bool = True) -> Any:
        """Get it; whether it was got."""

    def release(self) -> Any:
        """Give it back."""


Maker = Callable[[KazooClient, str], Acquirable]


class RawNode:
    """One create and one delete by kazoo's public calls, which is what a lock must write at least: the floor."""

    def __init__(self, client: KazooClient, path: str) -> None:
        client.ensure_path(path)
        self._client, self._prefix, self._node = client, f"{path}/n-", ""

    def acquire(self, blocking: bool = True) -> bool:
        """Make a node, and look at nobody else's."""
        self._node = self._client.create(self._prefix, ephemeral=True, sequence=True)
        return blocking or bool(self._node)

    def release(self) -> None:
        """Delete it."""
        self._client.delete(self._node)


PAYLOAD = b"x" * 100  # of an item


class Calls:
    """Two calls of a queue, in place of those of a lock: take and acknowledge, or put and nothing."""

    def __init__(self, first: Callable[[], Any], second: Callable[[], Any] = lambda: None) -> None:
        self._first, self._second = first, second

    def acquire(self, blocking: bool = True) -> Any:  # noqa: ARG002
        """Put an item, or take one."""
        return self._first()

    def release(self) -> Any:
        """Acknowledge it, if it was claimed."""
        return self._second()


def raw_put(client: KazooClient, path: str) -> Calls:
    """One create: the floor of a put."""
    client.ensure_path(path)
    return Calls(lambda: client.create(f"{path}/n-", PAYLOAD, sequence=True))


def raw_get(client: KazooClient, path: str) -> Calls:
    """One delete of a node whose name is known: the floor of a get."""
    names: list[str] = []

    def take() -> None:
        if not names:
            names.extend(sorted(client.get_children(path), reverse=True))
        client.delete(f"{path}/{names.pop()}")

    return Calls(take)


def kazoo_get(client: KazooClient, path: str) -> Calls:
    """The `Queue.get` of kazoo, which does not wait: it is asked every millisecond."""
    queue = client.Queue(path)

    def take() -> None:
        while queue.get() is None:
            time.sleep(0.001)

    return Calls(take)


def kazoo_locking(client: KazooClient, path: str) -> Calls:
    """The `LockingQueue` of kazoo: get, which locks, and consume."""
    queue = client.LockingQueue(path)
    return Calls(queue.get, queue.consume)


def our_unwaited(client: KazooClient, path: str) -> Calls:
    """Our lock, whose release waits for nothing."""
    lock = zkconcurrent.Lock(client, path)
    return Calls(lock.acquire, partial(lock.release, wait=False))


def our_claim(client: KazooClient, path: str) -> Calls:
    """Our claim, and its acknowledgement."""
    claim = zkconcurrent.Queue[bytes](client, path).claim()
    return Calls(claim.__enter__, lambda: claim.__exit__(None, None, None))


def kazoo_add(client: KazooClient, path: str) -> Calls:
    """The `Counter` of kazoo, which gives up after some conflicts: then it is asked again."""
    counter = client.Counter(path)

    def add() -> None:
        while True:
            with suppress(RetryFailedError):
                counter.__add__(1)
                return

    return Calls(add)


KEYS = [f"key-{number}" for number in range(100)]  # of the entries that are read


def kazoo_entry(client: KazooClient, path: str) -> Calls:
    """A `get` of kazoo, which asks the server."""
    client.ensure_path(path)
    for key in KEYS:
        client.create(f"{path}/{key}", PAYLOAD)
    return Calls(partial(client.get, f"{path}/{KEYS[-1]}"))


def our_entry(client: KazooClient, path: str) -> Calls:
    """A read of our `Dict`, from its copy."""
    entries = zkconcurrent.Dict[bytes](client, path)
    entries.update(dict.fromkeys(KEYS, PAYLOAD))
    return Calls(partial(entries.get, KEYS[-1]))


class RawLead:
    """A node, and a watch on the first one: the floor of a leader's follower, which lists when the event has come."""

    def __init__(self, client: KazooClient, path: str) -> None:
        client.ensure_path(path)
        self._client, self._path, self._node = client, path, ""

    def acquire(self, blocking: bool = True) -> bool:  # noqa: ARG002
        """Wait until no other node is there."""
        self._node = self._client.create(f"{self._path}/n-", ephemeral=True, sequence=True)
        while len(names := sorted(self._client.get_children(self._path))) > 1:
            gone = threading.Event()
            if self._client.exists(f"{self._path}/{names[0]}", lambda _, gone=gone: gone.set()):
                gone.wait()
        return True

    def release(self) -> None:
        """Delete it."""
        self._client.delete(self._node)


def our_lead(client: KazooClient, path: str) -> Calls:
    """Our election: stand and wait; withdraw."""
    election = zkconcurrent.Election(client, path)

    def lead() -> None:
        election.stand()
        election.wait()

    return Calls(lead, election.withdraw)


CONTESTANTS: dict[str, dict[str, Maker]] = {
    "raw": {"lock": RawNode, "put": raw_put, "get": raw_get, "claim": RawNode, "lead": RawLead},
    "kazoo": {
        "lock": lambda client, path: client.Lock(path),
        "read": lambda client, path: client.ReadLock(path),
        "write": lambda client, path: client.WriteLock(path),
        "semaphore": lambda client, path: client.Semaphore(path),
        "put": lambda client, path: Calls(partial(client.Queue(path).put, PAYLOAD)),
        "get": kazoo_get,
        "locking put": lambda client, path: Calls(partial(client.LockingQueue(path).put, PAYLOAD)),
        "locking claim": kazoo_locking,
        "add": kazoo_add,
        "entry": kazoo_entry,
        "lead": lambda client, path: client.Election(path).lock,  # which its `run` takes
    },
    "ours": {
        "lock": zkconcurrent.Lock,
        "rlock": zkconcurrent.RLock,
        "unwaited": our_unwaited,
        "read": lambda client, path: zkconcurrent.ReadWriteLock(client, path).read_lock,
        "write": lambda client, path: zkconcurrent.ReadWriteLock(client, path).write_lock,
        "semaphore": zkconcurrent.Semaphore,
        "put": lambda client, path: Calls(partial(zkconcurrent.Queue[bytes](client, path).put, PAYLOAD)),
        "get": lambda client, path: Calls(zkconcurrent.Queue[bytes](client, path).get),
        "claim": our_claim,
        "add": lambda client, path: Calls(zkconcurrent.AtomicLong(client, path).add),
        "entry": our_entry,
        "lead": our_lead,
    },
    "unfair": {"lock": lambda client, path: zkconcurrent.Lock(client, path, fair=False)},
    "one node": {"lock": OneNode},
    "everyone": {"lock": EveryoneWatches},
}
