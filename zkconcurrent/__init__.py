"""The locks of `threading`, shared by every process that opens the same path in the same ZooKeeper."""

from ._base import Contender
from ._errors import (
    ClientError,
    ForeignNodeError,
    LockLostError,
    RefusedError,
    SequenceExhaustedError,
    ZkConcurrentError,
)
from ._lock import Lock
from ._rlock import RLock
from ._version import __version__

__all__ = [
    "ClientError",
    "Contender",
    "ForeignNodeError",
    "Lock",
    "LockLostError",
    "RLock",
    "RefusedError",
    "SequenceExhaustedError",
    "ZkConcurrentError",
    "__version__",
]
