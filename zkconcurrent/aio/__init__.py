"""The names of `asyncio`, shared by every process that opens the same path in the same ZooKeeper.

The names are loaded when they are first used, as those of `zkconcurrent` are.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._barrier import Barrier
    from ._connect import connect
    from ._local import LocalNamespace
    from ._locks import Lock, Lost, MultiLock, ReadLock, ReadWriteLock, RLock, WriteLock
    from ._namespace import Namespace, SharedNamespace, namespace
    from ._sync import BoundedSemaphore, Condition, CountDownLatch, Event, Semaphore
    from ._synchronized import synchronized
    from ._tasks import Completion

__all__ = [
    "Barrier",
    "BoundedSemaphore",
    "Completion",
    "Condition",
    "CountDownLatch",
    "Event",
    "LocalNamespace",
    "Lock",
    "Lost",
    "MultiLock",
    "Namespace",
    "RLock",
    "ReadLock",
    "ReadWriteLock",
    "Semaphore",
    "SharedNamespace",
    "WriteLock",
    "connect",
    "namespace",
    "synchronized",
]

_HOMES = {
    "Barrier": "_barrier",
    "BoundedSemaphore": "_sync",
    "Completion": "_tasks",
    "Condition": "_sync",
    "CountDownLatch": "_sync",
    "Event": "_sync",
    "LocalNamespace": "_local",
    "Namespace": "_namespace",
    "Semaphore": "_sync",
    "SharedNamespace": "_namespace",
    "connect": "_connect",
    "namespace": "_namespace",
    "synchronized": "_synchronized",
}


if not TYPE_CHECKING:  # else a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_HOMES.get(name, '_locks')}", __name__), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
