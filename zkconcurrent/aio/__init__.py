"""The names of `asyncio`, shared by every process that opens the same path in the same ZooKeeper.

Unlike those of `zkconcurrent`, the names are all loaded at once: an import while a loop runs would stop its tasks.
"""

from .._local.aio import LocalNamespace
from ._atomic import AtomicInteger, AtomicLong
from ._barrier import Barrier
from ._condition import Condition
from ._connect import connect
from ._detached import DetachedLock
from ._dict import Dict, Set
from ._double_barrier import DoubleBarrier
from ._election import Election, Term
from ._event import Event
from ._group import Group, Joining, Membership
from ._latch import CountDownLatch
from ._lock import Lock
from ._losses import Lost
from ._multilock import MultiLock
from ._namespace import Namespace, SharedNamespace, namespace
from ._queue import Claim, DelayQueue, LifoQueue, PriorityQueue, Queue, QueueEmpty, QueueFull, QueueShutDown
from ._quorum import QuorumLock
from ._rlock import RLock
from ._rwlock import ReadLock, ReadWriteLock, WriteLock
from ._semaphore import BoundedSemaphore, Semaphore
from ._shared_value import AtomicReference, SharedValue
from ._synchronized import synchronized
from ._tasks import Completion

__all__ = [
    "AtomicInteger",
    "AtomicLong",
    "AtomicReference",
    "Barrier",
    "BoundedSemaphore",
    "Claim",
    "Completion",
    "Condition",
    "CountDownLatch",
    "DelayQueue",
    "DetachedLock",
    "Dict",
    "DoubleBarrier",
    "Election",
    "Event",
    "Group",
    "Joining",
    "LifoQueue",
    "LocalNamespace",
    "Lock",
    "Lost",
    "Membership",
    "MultiLock",
    "Namespace",
    "PriorityQueue",
    "Queue",
    "QueueEmpty",
    "QueueFull",
    "QueueShutDown",
    "QuorumLock",
    "RLock",
    "ReadLock",
    "ReadWriteLock",
    "Semaphore",
    "Set",
    "SharedNamespace",
    "SharedValue",
    "Term",
    "WriteLock",
    "connect",
    "namespace",
    "synchronized",
]
