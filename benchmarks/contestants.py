"""The contestants in Python: what each library offers for one kind of lock, with the same two calls.

A contestant gives something with `acquire` and `release` for a client and a path. kazoo's objects serve one thread at a
time (of two threads that share one, the second polls), so each thread has its own; ours and Curator's are shared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kazoo.client import KazooClient

import zkconcurrent
from benchmarks.herd import EveryoneWatches, OneNode


class Acquirable(Protocol):
    """What can be acquired and released."""

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


CONTESTANTS: dict[str, dict[str, Maker]] = {
    "raw": {"lock": RawNode},
    "kazoo": {
        "lock": lambda client, path: client.Lock(path),
        "read": lambda client, path: client.ReadLock(path),
        "write": lambda client, path: client.WriteLock(path),
        "semaphore": lambda client, path: client.Semaphore(path),
    },
    "ours": {
        "lock": zkconcurrent.Lock,
        "rlock": zkconcurrent.RLock,
        "read": lambda client, path: zkconcurrent.ReadWriteLock(client, path).read_lock,
        "write": lambda client, path: zkconcurrent.ReadWriteLock(client, path).write_lock,
        "semaphore": zkconcurrent.Semaphore,
    },
    "unfair": {"lock": lambda client, path: zkconcurrent.Lock(client, path, fair=False)},
    "one node": {"lock": OneNode},
    "everyone": {"lock": EveryoneWatches},
}
