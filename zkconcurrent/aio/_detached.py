"""`DetachedLock` for tasks, which wraps the class for threads."""

from __future__ import annotations

from typing import Final

from .._engine.call import Attempt, Call
from .._errors import LockLostError
from .._kazoo.link import KazooClient
from .._runtime.public import ErrorKind, Traceback
from .._runtime.wait_loops import Steps
from .._threads import detached as _detached
from .._threads.base.primitive import not_held, reports_loss
from ._losses import Holding
from ._tasks import AnyTask, Completion
from ._twin import PrimitiveTwin, awaited, forwarded


class _DetachedLockCore(AnyTask, _detached.DetachedLock):
    """`zkconcurrent.DetachedLock`, for tasks."""

    def _acquire_steps(self, call: Call, attempt: Attempt) -> Steps[bool]:
        # Otherwise, a release under way would end the hold that this acquire finds for the owner.
        for release in self._path_state.releases:
            if not (yield from self._after(release, call, attempt.deadline)):
                return False
        return (yield from super()._acquire_steps(call, attempt))

    def _after(self, release: Completion, call: Call, deadline: float | None) -> Steps[bool]:
        """Wait for a release until the deadline, but at least for `reply_patience`; return whether it ended."""
        session = self._session
        patience = session.reply_patience if session.link.connected else 0.0
        until = None if deadline is None else max(deadline, session.now() + patience)
        release.wake_at_end(call.wake)
        while not release.done():
            left = None if until is None else until - session.now()
            if left is not None and left <= 0:
                return False
            yield left
        return True


class DetachedLock(PrimitiveTwin):
    """A lock that a named owner holds until it is released; see `zkconcurrent.DetachedLock`.

    All tasks, threads and processes with the owner's name are one owner: they do not exclude each other.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the lock's path; missing nodes are created as containers.
        owner: the owner's name, of 1 to 1,000 characters.
    """

    def __init__(self, client: KazooClient, path: str, owner: str) -> None:
        super().__init__(_DetachedLockCore(client, path, owner))

    @property
    def name(self) -> str:
        """The name of the owner for which this object acquires."""
        return str(self._core.name)

    async def acquire(self, *, blocking: bool = True, timeout: float | None = None) -> bool:
        """Acquire the lock for the owner; wait for it in the order of arrival. Errors as `zkconcurrent.DetachedLock`'s.

        After a cancelled acquire, the library deletes the nodes that the call has made, in the background if need be.
        The cancellation waits for nothing.

        Args:
            blocking: whether to wait. If False, the call makes one attempt.
            timeout: how long to wait, in seconds; None waits forever, 0 makes one attempt.
        """
        return bool(await self._core.acquire(blocking, -1 if timeout is None else timeout))

    def release(self) -> Completion:
        """Release the owner's hold, in the background.

        A task may await the result: it waits until the hold's node is gone, and gets the errors of
        `zkconcurrent.DetachedLock.release`. A later `acquire` also waits until the node is gone, before it queues.
        """
        released = self._in_background(self._core.release())
        self._core._path_state.releases.add(released)
        self._core._held = None
        return released

    force_release: Final = awaited(_detached.DetachedLock.force_release)

    @property
    def fencing_token(self) -> int:
        """A number that never decreases from holder to holder; see `zkconcurrent.DetachedLock.fencing_token`."""
        return int(self._core.fencing_token)

    hold_count: Final = forwarded(_detached.DetachedLock.hold_count)
    cancel_waits: Final = forwarded(_detached.DetachedLock.cancel_waits)
    fetch_locked: Final = awaited(_detached.DetachedLock.locked)
    owner: Final = awaited(_detached.DetachedLock.owner)
    waiters: Final = awaited(_detached.DetachedLock.waiters)

    async def _acquire_for_block(self, *, blocking: bool = True, timeout: float | None = None) -> bool:
        return await self.acquire(blocking=blocking, timeout=timeout)

    def hold(self, timeout: float | None = None, *, blocking: bool = True) -> Holding[None]:
        """Return an `async with` block that holds the lock, and runs only if the lock is acquired in time.

        Args:
            timeout: how long to wait for the lock, in seconds; None waits forever, 0 makes one attempt.
            blocking: whether to wait. If False, the block makes one attempt.

        Raises:
            TimeoutError: the lock was not acquired in time. The start of the block raises this.
        """
        return Holding(self, timeout, blocking, cancel_on_loss=False)

    def _handle(self) -> None:
        """Return nothing: the hold is the owner's, not this task's."""

    async def __aenter__(self) -> None:
        if not await self.acquire():
            raise not_held(self)

    async def __aexit__(self, kind: ErrorKind, error: BaseException | None, traceback: Traceback) -> None:
        if self._session.forked:
            # The hold belongs to the parent process.
            return
        released = self.release()
        if kind is GeneratorExit:
            # The loop is gone, so nothing can be awaited.
            return
        try:
            await released
        except LockLostError:
            if reports_loss(kind):
                raise
