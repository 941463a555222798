"""The kinds of lock: a rule for every lock is one test that runs over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from kazoo.client import KazooClient

from zkconcurrent import Lock, ReadWriteLock, RLock

AnyLock: TypeAlias = Lock | RLock  # a read and a write lock are RLocks too
Kind: TypeAlias = Callable[..., AnyLock]


def read_lock(client: KazooClient, path: str, **options: Any) -> RLock:
    """Make a read lock."""
    return ReadWriteLock(client, path, **options).read_lock


def write_lock(client: KazooClient, path: str, **options: Any) -> RLock:
    """Make a write lock."""
    return ReadWriteLock(client, path, **options).write_lock


def unfair_lock(client: KazooClient, path: str, **options: Any) -> Lock:
    """Make an unfair lock."""
    return Lock(client, path, fair=False, **options)


def unfair_rlock(client: KazooClient, path: str, **options: Any) -> RLock:
    """Make an unfair lock that can be acquired again."""
    return RLock(client, path, fair=False, **options)


def against(kind: Kind) -> Kind:
    """Return the kind of lock that keeps `kind` out while it is held, and the other way round."""
    return write_lock if kind is read_lock else kind


every = pytest.mark.parametrize("kind", [Lock, RLock, read_lock, write_lock, unfair_lock])
reentrant = pytest.mark.parametrize("kind", [RLock, read_lock, write_lock, unfair_rlock])
unfair = pytest.mark.parametrize("kind", [unfair_lock, unfair_rlock])
