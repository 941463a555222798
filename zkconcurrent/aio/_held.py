"""The handle of one hold, for tasks."""

from __future__ import annotations

from .._runtime.public import public
from .._threads.base.held import BaseHeld
from ._losses import Lost
from ._tasks import Completion, ReleaseCompletion


class HeldByTask(BaseHeld):
    """What the handles of tasks share."""

    @property
    def lost(self) -> Lost:
        """The loss of the hold: ask its `is_set()`, or await its `wait()`.

        Raises:
            ClientError: the process was forked; the hold belongs to its parent.
        """
        core = self._core
        core.session.check_not_forked(core.path)
        return Lost([(core.session, lambda: self._hold.loss)])


@public
class Held(HeldByTask):
    """One hold of a lock, or of a permit, as `async with lock.hold() as held` gives it. Any task may use it.

    A condition's wait ends the hold; see `zkconcurrent.Held`.
    """

    def release(self) -> Completion:
        """Release the hold before its block ends, in the block's own task; the end of the block then does nothing.

        For a re-entrant lock, this releases the level of the block. The result and the errors are those of
        the lock's `release`.

        Raises:
            RuntimeError: the hold has ended; or the block belongs to a MultiLock, which releases its locks together.
        """
        return ReleaseCompletion([] if self._begin_release() is None else [(self._core, self._hold)])
