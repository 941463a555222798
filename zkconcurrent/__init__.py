"""The locks of `threading`, shared by every process that opens the same path in the same ZooKeeper.

Each name, and `aio`, is loaded at its first use. Wherever this package is installed, every pytest run imports it, for
the fixtures of `zkconcurrent.testing`. A run that uses no locks should load neither kazoo nor asyncio.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__ as __version__

# Type checkers read these lines alone: `as` exports a name. They would take an `__all__` that is no literal for an
# empty one, and with a `__getattr__` they would accept any name.
if TYPE_CHECKING:
    from . import aio as aio
    from ._arguments.codec import BYTES as BYTES
    from ._arguments.codec import JSON as JSON
    from ._arguments.codec import MSGPACK as MSGPACK
    from ._arguments.codec import TEXT as TEXT
    from ._arguments.codec import Codec as Codec
    from ._arguments.locklike import LockLike as LockLike
    from ._client.connect import Client as Client
    from ._client.connect import connect as connect
    from ._engine.inspection import ClientReport as ClientReport
    from ._engine.inspection import HoldReport as HoldReport
    from ._engine.inspection import Inspection as Inspection
    from ._engine.inspection import OwnerReport as OwnerReport
    from ._engine.inspection import WaitReport as WaitReport
    from ._engine.inspection import dump_on_signal as dump_on_signal
    from ._engine.inspection import inspect as inspect
    from ._engine.lock_events import Acquired as Acquired
    from ._engine.lock_events import Cancelled as Cancelled
    from ._engine.lock_events import DeadlockFound as DeadlockFound
    from ._engine.lock_events import DeadlockVictim as DeadlockVictim
    from ._engine.lock_events import Failed as Failed
    from ._engine.lock_events import HoldLimit as HoldLimit
    from ._engine.lock_events import LockEvent as LockEvent
    from ._engine.lock_events import Lost as Lost
    from ._engine.lock_events import Recovered as Recovered
    from ._engine.lock_events import Released as Released
    from ._engine.lock_events import Suspect as Suspect
    from ._engine.lock_events import TimedOut as TimedOut
    from ._engine.lock_events import Waiting as Waiting
    from ._engine.lock_events import WouldBlock as WouldBlock
    from ._engine.queue_listener import QueueListener as QueueListener
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
    from ._threads.atomic import AtomicInteger as AtomicInteger
    from ._threads.atomic import AtomicLong as AtomicLong
    from ._threads.barrier import Barrier as Barrier
    from ._threads.base.contender import Contender as Contender
    from ._threads.base.queue_base import Claim as Claim
    from ._threads.base.queue_base import Empty as Empty
    from ._threads.base.queue_base import Full as Full
    from ._threads.base.queue_base import ShutDown as ShutDown
    from ._threads.condition import Condition as Condition
    from ._threads.detached import DetachedLock as DetachedLock
    from ._threads.dict import Dict as Dict
    from ._threads.double_barrier import DoubleBarrier as DoubleBarrier
    from ._threads.election import Candidate as Candidate
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
else:
    _MODULES = {
        "_arguments.codec": "BYTES Codec JSON MSGPACK TEXT",
        "_arguments.locklike": "LockLike",
        "_client.connect": "Client connect",
        "_engine.inspection": "ClientReport HoldReport Inspection OwnerReport WaitReport dump_on_signal inspect",
        "_engine.lock_events": "Acquired Cancelled DeadlockFound DeadlockVictim Failed HoldLimit LockEvent "
        "Lost Recovered Released Suspect TimedOut Waiting WouldBlock",
        "_engine.queue_listener": "QueueListener",
        "_errors": "ClientError DeadlockEdge DeadlockError ForeignNodeError LockLostError LossCause "
        "OutcomeUnknownError RefusedError SequenceExhaustedError WaitCancelledError ZkConcurrentError",
        "_threads.atomic": "AtomicInteger AtomicLong",
        "_threads.barrier": "Barrier",
        "_threads.base.contender": "Contender",
        "_threads.base.queue_base": "Claim Empty Full ShutDown",
        "_threads.condition": "Condition",
        "_threads.detached": "DetachedLock",
        "_threads.dict": "Dict",
        "_threads.double_barrier": "DoubleBarrier",
        "_threads.election": "Candidate Election Term",
        "_threads.event": "Event",
        "_threads.group": "Group Membership",
        "_threads.latch": "CountDownLatch",
        "_threads.lock": "Lock",
        "_threads.multilock": "MultiLock",
        "_threads.namespace": "Namespace add_listener namespace",
        "_threads.queue": "DelayQueue LifoQueue PriorityQueue Queue SimpleQueue",
        "_threads.rlock": "RLock",
        "_threads.rwlock": "ReadLock ReadWriteLock WriteLock",
        "_threads.semaphore": "BoundedSemaphore Semaphore",
        "_threads.set": "Set",
        "_threads.shared_value": "AtomicReference SharedValue VersionedValue",
        "_threads.synchronized": "synchronized",
    }
    _HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

    __all__ = sorted([*_HOMES, "__version__"])

    # Pickles name these, too.
    _HOMES |= {
        "DecoratedCalls": "_threads.synchronized",
        "_made_again": "_threads.base.primitive",
        "process_client": "_client.connect",
    }

    def __getattr__(name: str) -> object:
        if name == "aio":
            return import_module(".aio", __name__)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__, "aio"})
