"""What all processes hold and wait for at a path and below it, for operators' tools: `zkconcurrent ls` in Python.

`zkconcurrent.inspect()` shows this process alone, and sends nothing. These functions read ZooKeeper, so they also show
processes that no longer answer, and processes that use Curator. They write nothing.
"""

import typing as _typing

from ._deadlocks import Deadlock as Deadlock
from ._deadlocks import DeadlockMember as DeadlockMember
from ._deadlocks import DeadlockReport as DeadlockReport
from ._deadlocks import UnjudgedWait as UnjudgedWait
from ._deadlocks import find_deadlocks as find_deadlocks
from ._paths import PathReport as PathReport
from ._paths import TreeReport as TreeReport
from ._paths import inspect as inspect

if not _typing.TYPE_CHECKING:
    __all__ = sorted(name for name in dir() if name[0].isalpha())
