"""The names of `asyncio`, shared by every process that opens the same path in the same ZooKeeper.

Unlike those of `zkconcurrent`, the names are all loaded at once: an import while a loop runs would stop its tasks.
"""

from ._barrier import Barrier
from ._connect import connect
from ._detached import DetachedLock
from ._dict import Dict, Set
from ._election import Election, Term
from ._group import DoubleBarrier, Group, Joining, Membership
from ._local import LocalNamespace
from ._locks import Lock, MultiLock, QuorumLock, ReadLock, ReadWriteLock, RLock, WriteLock
from ._losses import Lost
from ._namespace import Namespace, SharedNamespace, namespace
from ._queue import Claim, DelayQueue, LifoQueue, PriorityQueue, Queue, QueueEmpty, QueueFull, QueueShutDown
from ._sync import BoundedSemaphore, Condition, CountDownLatch, Event, Semaphore
from ._synchronized import synchronized
from ._tasks import Completion
from ._value import AtomicInteger, AtomicLong, AtomicReference, SharedValue

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
