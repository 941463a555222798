"""The Lock for tasks, and the bases that it shares with the other revocable locks."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from .._kazoo.link import KazooClient
from .._observe.deadlock_search import OnDeadlock
from .._observe.hold_limits import AfterLimit
from .._runtime.public import Self
from .._threads import lock as _lock
from .._threads.base import lock_base, revocable
from ._losses import on_loop
from ._tasks import AnyTask, of_tasks
from ._twin import LockBase, awaited


class RevocableLock(LockBase):
    """The methods of the locks that have Curator's `makeRevocable`."""

    revoke: Final = awaited(revocable.RevocableLock.revoke)


class PlainLock(RevocableLock):
    """The constructor of `Lock` and `RLock`."""

    _kind: ClassVar[type[lock_base.LockBase]]

    def __init__(
        self,
        client: KazooClient,
        path: str,
        *,
        fair: bool = True,
        on_lost: Callable[[Self], object] | None = None,
        on_suspect: Callable[[Self, float], object] | None = None,
        on_revoke: Callable[[Self], object] | None = None,
        on_deadlock: OnDeadlock = "warn",
        hold_limit: float | None = None,
        on_hold_limit: AfterLimit = "warn",
        label: str | None = None,
    ) -> None:
        core = self._kind(
            client,
            path,
            fair=fair,
            on_deadlock=on_deadlock,
            hold_limit=hold_limit,
            on_hold_limit=on_hold_limit,
            label=label,
            **on_loop(self, on_lost, on_suspect, on_revoke=on_revoke),
        )
        super().__init__(core)


class Lock(PlainLock):
    """`asyncio.Lock` for every process that opens the same path.

    One task holds it at a time. Any task of that process may release it. Layout, invariant and cost are those of
    `zkconcurrent.Lock`. On the same path, objects of the two classes exclude each other.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the lock's path; missing nodes are created as containers.
        fair: as for `zkconcurrent.Lock`.
        on_lost: called with the lock, on the loop that acquired it, once for each hold that is lost; may be async.
        on_suspect: called with the lock, and the number of seconds that the hold is sure to last, on that loop, each
            time that `suspect` becomes True; may be async.
        on_revoke: called with the lock, on that loop, once for each time that a client asks the holder to let go; may
            be async.
        on_deadlock, hold_limit, on_hold_limit, label: as for `zkconcurrent.Lock`.

    Raises:
        TypeError: the path is not a string, `hold_limit` is not a number, or a callback is not callable.
        ValueError: the path is invalid, or this client already uses it for another primitive or with other fairness; or
            an option has an unknown value.

    Source:
        `asyncio.Lock`.
    """

    _kind = of_tasks(_lock.Lock, AnyTask)
    _owned = False
