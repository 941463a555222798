"""The locks of `threading`, shared by every process that opens the same path in the same ZooKeeper.

The names are loaded when they are first used: pytest imports this package wherever it is installed, for the fixtures of
`zkconcurrent.testing`, and a test run that needs no lock shall not pay for kazoo.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import __version__

if TYPE_CHECKING:
    from ._barrier import Barrier
    from ._base import Contender
    from ._condition import Condition
    from ._errors import (
        ClientError,
        ForeignNodeError,
        LockLostError,
        RefusedError,
        SequenceExhaustedError,
        ZkConcurrentError,
    )
    from ._event import Event
    from ._latch import CountDownLatch
    from ._lock import Lock
    from ._multilock import MultiLock
    from ._rlock import RLock
    from ._rwlock import ReadWriteLock
    from ._semaphore import BoundedSemaphore, Semaphore

__all__ = [
    "Barrier",
    "BoundedSemaphore",
    "ClientError",
    "Condition",
    "Contender",
    "CountDownLatch",
    "Event",
    "ForeignNodeError",
    "Lock",
    "LockLostError",
    "MultiLock",
    "RLock",
    "ReadWriteLock",
    "RefusedError",
    "Semaphore",
    "SequenceExhaustedError",
    "ZkConcurrentError",
    "__version__",
]

_HOMES = {
    "Barrier": "_barrier",
    "BoundedSemaphore": "_semaphore",
    "Condition": "_condition",
    "Contender": "_base",
    "CountDownLatch": "_latch",
    "Event": "_event",
    "Lock": "_lock",
    "MultiLock": "_multilock",
    "RLock": "_rlock",
    "ReadWriteLock": "_rwlock",
    "Semaphore": "_semaphore",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOMES.get(name, '_errors')}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
