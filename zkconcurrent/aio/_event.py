"""The Event for tasks."""

from __future__ import annotations

from typing import Final

from .._kazoo.link import KazooClient
from .._recipes.event import Flag, set_flag
from .._threads import event as _event
from .._threads.base.primitive import discard_result
from ._tasks import Completion, of_tasks
from ._twin import PrimitiveTwin, awaited

_Core = of_tasks(_event.Event)


class Event(PrimitiveTwin):
    """`asyncio.Event` for every process that opens the same path; see `zkconcurrent.Event`.

    Args:
        client: from `connect`; or any `kazoo.client.KazooClient`, which may be started later.
        path: the event's path; its node is created by the first `set`, or by a `wait` that has to wait.
    """

    def __init__(self, client: KazooClient, path: str) -> None:
        super().__init__(_Core(client, path))

    def is_set(self) -> bool:
        """Return whether the flag is set, as last seen; updated from the server at most once a second."""
        self._refresh("is_set", self._core.is_set)
        return bool(self._core._seen())

    fetch: Final = awaited(_event.Event.is_set)

    def set(self) -> Completion:
        """Set the flag and wake all waiters."""
        return self._turn(True)

    def clear(self) -> Completion:
        """Clear the flag."""
        return self._turn(False)

    def _turn(self, wanted: bool) -> Completion:
        """Record the new flag, and begin to write it to ZooKeeper, whose reply may come after the next change."""
        core = self._core
        self._session.check_usable(self.path)
        core._path_state.note(Flag(0, wanted))
        return self._in_background(core._run_query(set_flag(self.path, wanted), discard_result))

    wait: Final = awaited(_event.Event.wait)
    destroy: Final = awaited(_event.Event.destroy)
