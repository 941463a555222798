"""The names of `asyncio`, shared by every process that opens the same path in the same ZooKeeper."""

from ._barrier import Barrier
from ._connect import connect
from ._locks import Lock, Lost, MultiLock, ReadLock, ReadWriteLock, RLock, WriteLock
from ._sync import BoundedSemaphore, Condition, CountDownLatch, Event, Semaphore
from ._tasks import Completion

__all__ = [
    "Barrier",
    "BoundedSemaphore",
    "Completion",
    "Condition",
    "CountDownLatch",
    "Event",
    "Lock",
    "Lost",
    "MultiLock",
    "RLock",
    "ReadLock",
    "ReadWriteLock",
    "Semaphore",
    "WriteLock",
    "connect",
]
