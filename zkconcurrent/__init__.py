"""The locks of `threading`, shared by every process that opens the same path in the same ZooKeeper.

Each name, and `aio`, is loaded at its first use. Wherever this package is installed, every pytest run imports it, for
the fixtures of `zkconcurrent.testing`. A run that uses no locks should load neither kazoo nor asyncio.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from . import aio as aio
    from ._arguments.codec import BYTES, JSON, MSGPACK, TEXT, Codec
    from ._arguments.locklike import LockLike
    from ._connect import Client, connect
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
    from ._local.namespace import LocalNamespace
    from ._namespace import Namespace, SharedNamespace, namespace
    from ._synchronized import synchronized
    from ._threads.atomic import AtomicInteger, AtomicLong
    from ._threads.barrier import Barrier
    from ._threads.base.lock_base import Contender
    from ._threads.base.queue_base import Claim, Empty, Full, ShutDown
    from ._threads.condition import Condition
    from ._threads.detached import DetachedLock
    from ._threads.dict import Dict
    from ._threads.double_barrier import DoubleBarrier
    from ._threads.election import Candidate, Election, Term
    from ._threads.event import Event
    from ._threads.group import Group, Membership
    from ._threads.latch import CountDownLatch
    from ._threads.lock import Lock
    from ._threads.multilock import MultiLock
    from ._threads.queue import DelayQueue, LifoQueue, PriorityQueue, Queue, SimpleQueue
    from ._threads.quorum import QuorumLock
    from ._threads.rlock import RLock
    from ._threads.rwlock import ReadLock, ReadWriteLock, WriteLock
    from ._threads.semaphore import BoundedSemaphore, Semaphore
    from ._threads.set import Set
    from ._threads.shared_value import AtomicReference, SharedValue, VersionedValue

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
    "BYTES": "_arguments.codec",
    "JSON": "_arguments.codec",
    "MSGPACK": "_arguments.codec",
    "TEXT": "_arguments.codec",
    "AtomicInteger": "_threads.atomic",
    "AtomicLong": "_threads.atomic",
    "AtomicReference": "_threads.shared_value",
    "Barrier": "_threads.barrier",
    "BoundedSemaphore": "_threads.semaphore",
    "Candidate": "_threads.election",
    "Claim": "_threads.base.queue_base",
    "Client": "_connect",
    "Codec": "_arguments.codec",
    "Condition": "_threads.condition",
    "Contender": "_threads.base.lock_base",
    "CountDownLatch": "_threads.latch",
    "DelayQueue": "_threads.queue",
    "DetachedLock": "_threads.detached",
    "Election": "_threads.election",
    "Dict": "_threads.dict",
    "DoubleBarrier": "_threads.double_barrier",
    "Empty": "_threads.base.queue_base",
    "Event": "_threads.event",
    "Full": "_threads.base.queue_base",
    "Group": "_threads.group",
    "LifoQueue": "_threads.queue",
    "LocalNamespace": "_local.namespace",
    "Lock": "_threads.lock",
    "LockLike": "_arguments.locklike",
    "Membership": "_threads.group",
    "MultiLock": "_threads.multilock",
    "Namespace": "_namespace",
    "PriorityQueue": "_threads.queue",
    "Queue": "_threads.queue",
    "QuorumLock": "_threads.quorum",
    "RLock": "_threads.rlock",
    "ReadLock": "_threads.rwlock",
    "ReadWriteLock": "_threads.rwlock",
    "Semaphore": "_threads.semaphore",
    "Set": "_threads.set",
    "SharedNamespace": "_namespace",
    "SharedValue": "_threads.shared_value",
    "ShutDown": "_threads.base.queue_base",
    "SimpleQueue": "_threads.queue",
    "Term": "_threads.election",
    "VersionedValue": "_threads.shared_value",
    "WriteLock": "_threads.rwlock",
    "connect": "_connect",
    "namespace": "_namespace",
    "synchronized": "_synchronized",
    # What pickles name besides.
    "DecoratedCalls": "_synchronized",
    "_made_again": "_threads.base.primitive",
    "process_client": "_connect",
}


if not TYPE_CHECKING:  # with it, a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name == "aio":
            return import_module(".aio", __name__)
        if name not in __all__ and name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_HOMES.get(name, '_errors')}", __name__), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "aio"})
