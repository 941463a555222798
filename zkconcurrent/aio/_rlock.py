"""The RLock for tasks."""

from __future__ import annotations

from .._threads import rlock as _rlock
from ._lock import PlainLock
from ._tasks import of_tasks


class RLock(PlainLock):
    """A lock that one task of one process holds at a time, and may acquire again.

    Only the task that acquired it may release it. Otherwise, it is a `Lock`.
    """

    _kind = of_tasks(_rlock.RLock)
