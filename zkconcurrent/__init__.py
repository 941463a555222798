"""The locks of `threading`, shared by every process that opens the same path in the same ZooKeeper.

Everything that threads use is loaded here, at once. A module that is loaded only at its first use can be missing by
then: the process may have changed its root or have no descriptor left, or an upgrade may have replaced the files. It
would also keep whatever is in place at that moment, such as a clock that a test has replaced. Only some programs need
`aio`, `tree`, `testing`, the exporters, and the modules for tooz and Celery: each has an import of its own.
"""

# Each `as` exports its name to type checkers: they would treat an `__all__` that is not a literal as empty.
import typing as _typing

from ._arguments.codec import BYTES as BYTES
from ._arguments.codec import JSON as JSON
from ._arguments.codec import MSGPACK as MSGPACK
from ._arguments.codec import TEXT as TEXT
from ._arguments.codec import Codec as Codec
from ._arguments.locklike import LockLike as LockLike
from ._client.connect import Client as Client
from ._client.connect import connect as connect
from ._errors import ClientError as ClientError
from ._errors import DeadlockEdge as DeadlockEdge
from ._errors import DeadlockError as DeadlockError
from ._errors import ForeignNodeError as ForeignNodeError
from ._errors import LockLostError as LockLostError
from ._errors import LossCause as LossCause
from ._errors import OutcomeUnknownError as OutcomeUnknownError
from ._errors import RefusedError as RefusedError
from ._errors import SequenceExhaustedError as SequenceExhaustedError
from ._errors import WaitCancelledError as WaitCancelledError
from ._errors import ZkConcurrentError as ZkConcurrentError
from ._observe.event_types import Acquired as Acquired
from ._observe.event_types import Cancelled as Cancelled
from ._observe.event_types import DeadlockFound as DeadlockFound
from ._observe.event_types import DeadlockVictim as DeadlockVictim
from ._observe.event_types import Failed as Failed
from ._observe.event_types import HoldLimit as HoldLimit
from ._observe.event_types import LockEvent as LockEvent
from ._observe.event_types import Lost as Lost
from ._observe.event_types import Recovered as Recovered
from ._observe.event_types import Released as Released
from ._observe.event_types import Suspect as Suspect
from ._observe.event_types import TimedOut as TimedOut
from ._observe.event_types import Waiting as Waiting
from ._observe.event_types import WouldBlock as WouldBlock
from ._observe.inspection import ClientReport as ClientReport
from ._observe.inspection import HoldReport as HoldReport
from ._observe.inspection import Inspection as Inspection
from ._observe.inspection import OwnerReport as OwnerReport
from ._observe.inspection import WaitReport as WaitReport
from ._observe.inspection import dump_on_signal as dump_on_signal
from ._observe.inspection import inspect as inspect
from ._observe.queue_listener import QueueListener as QueueListener
from ._threads.atomic import AtomicInteger as AtomicInteger
from ._threads.atomic import AtomicLong as AtomicLong
from ._threads.barrier import Barrier as Barrier
from ._threads.base.candidacy import Candidate as Candidate
from ._threads.base.contender import Contender as Contender
from ._threads.base.held import Held as Held
from ._threads.base.queue_base import Claim as Claim
from ._threads.base.queue_base import Empty as Empty
from ._threads.base.queue_base import Full as Full
from ._threads.base.queue_base import ShutDown as ShutDown
from ._threads.condition import Condition as Condition
from ._threads.detached import DetachedLock as DetachedLock
from ._threads.dict import Dict as Dict
from ._threads.double_barrier import DoubleBarrier as DoubleBarrier
from ._threads.election import Election as Election
from ._threads.election import Term as Term
from ._threads.event import Event as Event
from ._threads.group import Group as Group
from ._threads.group import Membership as Membership
from ._threads.latch import CountDownLatch as CountDownLatch
from ._threads.lock import Lock as Lock
from ._threads.multilock import MultiLock as MultiLock
from ._threads.namespace import Namespace as Namespace
from ._threads.namespace import add_listener as add_listener
from ._threads.namespace import namespace as namespace
from ._threads.once_per import LastRun as LastRun
from ._threads.once_per import Turn as Turn
from ._threads.once_per import once_per as once_per
from ._threads.queue import DelayQueue as DelayQueue
from ._threads.queue import LifoQueue as LifoQueue
from ._threads.queue import PriorityQueue as PriorityQueue
from ._threads.queue import Queue as Queue
from ._threads.queue import SimpleQueue as SimpleQueue
from ._threads.rlock import RLock as RLock
from ._threads.rwlock import ReadLock as ReadLock
from ._threads.rwlock import ReadWriteLock as ReadWriteLock
from ._threads.rwlock import WriteLock as WriteLock
from ._threads.semaphore import BoundedSemaphore as BoundedSemaphore
from ._threads.semaphore import Semaphore as Semaphore
from ._threads.set import Set as Set
from ._threads.shared_value import AtomicReference as AtomicReference
from ._threads.shared_value import SharedValue as SharedValue
from ._threads.shared_value import VersionedValue as VersionedValue
from ._threads.synchronized import synchronized as synchronized
from ._version import __version__ as __version__

if not _typing.TYPE_CHECKING:
    __all__ = sorted(["__version__", *(name for name in dir() if name[0].isalpha())])

# Pickles refer to these names, too.
from ._client.connect import process_client  # noqa: F401
from ._threads.base.primitive import _made_again  # noqa: F401
from ._threads.synchronized import DecoratedCalls  # noqa: F401
