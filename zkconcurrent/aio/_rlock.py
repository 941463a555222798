"""The RLock for tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._engine.hold_limits import AfterLimit
from .._kazoo.link import KazooClient
from .._threads import rlock as _rlock
from .._threads.base.lock_core import OnDeadlock
from ._contention import RevocableLock
from ._losses import on_loop
from ._tasks import of_tasks

_Core = of_tasks(_rlock.RLock)


class RLock(RevocableLock):
    """A lock that one task of one process holds at a time, and may acquire again.

    Otherwise it is a `Lock`, but only the task that acquired it may release it.
    """

    def __init__(
        self,
        client: KazooClient,
        path: str,
        *,
        fair: bool = True,
        on_lost: Callable[[RLock], object] | None = None,
        on_suspect: Callable[[RLock, float], object] | None = None,
        on_revoke: Callable[[RLock], object] | None = None,
        on_deadlock: OnDeadlock = "warn",
        hold_limit: float | None = None,
        on_hold_limit: AfterLimit = "warn",
        label: str | None = None,
    ) -> None:
        callbacks = on_loop(self, on_lost, on_suspect, on_revoke=on_revoke)
        limit: Any = {"hold_limit": hold_limit, "on_hold_limit": on_hold_limit, "label": label}
        super().__init__(_Core(client, path, fair=fair, on_deadlock=on_deadlock, **limit, **callbacks))
