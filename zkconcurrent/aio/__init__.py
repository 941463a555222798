"""The names of `asyncio`, shared by every process that opens the same path in the same ZooKeeper.

All names are loaded at once: an import while a loop runs would hold up its tasks.
"""

# Each `as` exports its name to type checkers: they would treat an `__all__` that is not a literal as empty.
import typing as _typing

from ._atomic import AtomicInteger as AtomicInteger
from ._atomic import AtomicLong as AtomicLong
from ._barrier import Barrier as Barrier
from ._condition import Condition as Condition
from ._connect import connect as connect
from ._detached import DetachedLock as DetachedLock
from ._dict import Dict as Dict
from ._dict import Set as Set
from ._double_barrier import DoubleBarrier as DoubleBarrier
from ._election import Election as Election
from ._election import Term as Term
from ._event import Event as Event
from ._group import Group as Group
from ._group import Joining as Joining
from ._group import Membership as Membership
from ._held import Held as Held
from ._latch import CountDownLatch as CountDownLatch
from ._lock import Lock as Lock
from ._losses import Lost as Lost
from ._multilock import MultiLock as MultiLock
from ._namespace import Namespace as Namespace
from ._namespace import namespace as namespace
from ._once_per import once_per as once_per
from ._queue import Claim as Claim
from ._queue import DelayQueue as DelayQueue
from ._queue import LifoQueue as LifoQueue
from ._queue import PriorityQueue as PriorityQueue
from ._queue import Queue as Queue
from ._queue import QueueEmpty as QueueEmpty
from ._queue import QueueFull as QueueFull
from ._queue import QueueShutDown as QueueShutDown
from ._rlock import RLock as RLock
from ._rwlock import ReadLock as ReadLock
from ._rwlock import ReadWriteLock as ReadWriteLock
from ._rwlock import WriteLock as WriteLock
from ._semaphore import BoundedSemaphore as BoundedSemaphore
from ._semaphore import Semaphore as Semaphore
from ._shared_value import AtomicReference as AtomicReference
from ._shared_value import SharedValue as SharedValue
from ._synchronized import synchronized as synchronized
from ._tasks import Completion as Completion

if not _typing.TYPE_CHECKING:
    __all__ = [name for name in dir() if name[0].isalpha()]  # pytest adds others
