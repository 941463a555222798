"""The locks of `threading`, shared by every process that opens the same path in the same ZooKeeper.

Each name, and `aio`, is loaded at its first use. Wherever this package is installed, every pytest run imports it, for
the fixtures of `zkconcurrent.testing`. A run that uses no locks should load neither kazoo nor asyncio.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from . import aio as aio
    from ._atomic import AtomicInteger, AtomicLong
    from ._barrier import Barrier
    from ._codec import BYTES, JSON, MSGPACK, TEXT, Codec
    from ._condition import Condition
    from ._connect import Client, connect
    from ._detached import DetachedLock
    from ._dict import Dict
    from ._double_barrier import DoubleBarrier
    from ._election import Candidate, Election, Term
    from ._errors import (
        ClientError,
        ForeignNodeError,
        LockLostError,
        OutcomeUnknownError,
        RefusedError,
        SequenceExhaustedError,
        WaitCancelledError,
        ZkConcurrentError,
    )
    from ._event import Event
    from ._group import Group, Membership
    from ._latch import CountDownLatch
    from ._local import LocalNamespace
    from ._lock import Lock
    from ._lock_base import Contender
    from ._locklike import LockLike
    from ._multilock import MultiLock
    from ._namespace import Namespace, SharedNamespace, namespace
    from ._queue import DelayQueue, LifoQueue, PriorityQueue, Queue, SimpleQueue
    from ._queue_base import Claim, Empty, Full, ShutDown
    from ._quorum import QuorumLock
    from ._rlock import RLock
    from ._rwlock import ReadLock, ReadWriteLock, WriteLock
    from ._semaphore import BoundedSemaphore, Semaphore
    from ._set import Set
    from ._shared_value import AtomicReference, SharedValue, VersionedValue
    from ._synchronized import synchronized

__all__ = [
    "BYTES",
    "JSON",
    "MSGPACK",
    "TEXT",
    "AtomicInteger",
    "AtomicLong",
    "AtomicReference",
    "Barrier",
    "BoundedSemaphore",
    "Candidate",
    "Claim",
    "Client",
    "ClientError",
    "Codec",
    "Condition",
    "Contender",
    "CountDownLatch",
    "DelayQueue",
    "DetachedLock",
    "Dict",
    "DoubleBarrier",
    "Election",
    "Empty",
    "Event",
    "ForeignNodeError",
    "Full",
    "Group",
    "LifoQueue",
    "LocalNamespace",
    "Lock",
    "LockLike",
    "LockLostError",
    "Membership",
    "MultiLock",
    "Namespace",
    "OutcomeUnknownError",
    "PriorityQueue",
    "Queue",
    "QuorumLock",
    "RLock",
    "ReadLock",
    "ReadWriteLock",
    "RefusedError",
    "Semaphore",
    "SequenceExhaustedError",
    "Set",
    "SharedNamespace",
    "SharedValue",
    "ShutDown",
    "SimpleQueue",
    "Term",
    "VersionedValue",
    "WaitCancelledError",
    "WriteLock",
    "ZkConcurrentError",
    "__version__",
    "connect",
    "namespace",
    "synchronized",
]

_HOMES = {
    "BYTES": "_codec",
    "JSON": "_codec",
    "MSGPACK": "_codec",
    "TEXT": "_codec",
    "AtomicInteger": "_atomic",
    "AtomicLong": "_atomic",
    "AtomicReference": "_shared_value",
    "Barrier": "_barrier",
    "BoundedSemaphore": "_semaphore",
    "Candidate": "_election",
    "Claim": "_queue_base",
    "Client": "_connect",
    "Codec": "_codec",
    "Condition": "_condition",
    "Contender": "_lock_base",
    "CountDownLatch": "_latch",
    "DelayQueue": "_queue",
    "DetachedLock": "_detached",
    "Election": "_election",
    "Dict": "_dict",
    "DoubleBarrier": "_double_barrier",
    "Empty": "_queue_base",
    "Event": "_event",
    "Full": "_queue_base",
    "Group": "_group",
    "LifoQueue": "_queue",
    "LocalNamespace": "_local",
    "Lock": "_lock",
    "LockLike": "_locklike",
    "Membership": "_group",
    "MultiLock": "_multilock",
    "Namespace": "_namespace",
    "PriorityQueue": "_queue",
    "Queue": "_queue",
    "QuorumLock": "_quorum",
    "RLock": "_rlock",
    "ReadLock": "_rwlock",
    "ReadWriteLock": "_rwlock",
    "Semaphore": "_semaphore",
    "Set": "_set",
    "SharedNamespace": "_namespace",
    "SharedValue": "_shared_value",
    "ShutDown": "_queue_base",
    "SimpleQueue": "_queue",
    "Term": "_election",
    "VersionedValue": "_shared_value",
    "WriteLock": "_rwlock",
    "connect": "_connect",
    "namespace": "_namespace",
    "synchronized": "_synchronized",
}


if not TYPE_CHECKING:  # with it, a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name == "aio":
            return import_module(".aio", __name__)
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_HOMES.get(name, '_errors')}", __name__), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "aio"})
